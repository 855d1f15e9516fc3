/* Calls that fail leave memory as it was, and advice about page sizes takes nothing from a program. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE ((size_t)64 << 20)

static unsigned char *filled(int value) {
    unsigned char *block = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(block, value, SIZE);
    return block;
}

static size_t wrong(const unsigned char *block, size_t length, int value) {
    size_t count = 0;
    for (size_t at = 0; at < length; at++) count += block[at] != value;
    return count;
}

static void say(const char *what, int failed, size_t wrongs) {
    printf("%s: %s, %zu wrong bytes\n", what, failed ? strerror(errno) : "done", wrongs);
}

int main(void) {
    unsigned char *block = filled(7);
    int failed = mmap(block + 4096, 8192, PROT_READ, MAP_PRIVATE | MAP_FIXED, 999, 0) == MAP_FAILED;
    say("mmap of no file over it", failed, wrong(block, SIZE, 7));
    int write_only = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    failed = mmap(block + 4096, 8192, PROT_READ, MAP_PRIVATE | MAP_FIXED, write_only, 0) == MAP_FAILED;
    say("mmap of a file that may not be read over it", failed, wrong(block, SIZE, 7));
    failed = mremap((void *)4096, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, block + (1 << 20)) == MAP_FAILED;
    say("mremap of nothing over it", failed, wrong(block, SIZE, 7));
    failed = mremap(block, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)-4096L) == MAP_FAILED;
    say("mremap to the end of all addresses", failed, wrong(block, SIZE, 7));
    failed = madvise(block + 4096, 4096, 4711);
    say("advice that there is not", failed, wrong(block, SIZE, 7));
    failed = madvise(block, SIZE, MADV_NOHUGEPAGE);
    say("advice for base pages", failed, wrong(block, SIZE, 7));
    unsigned char *longer = mremap(block, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
    failed = longer == MAP_FAILED;
    say("mremap to twice the length", failed, failed ? 0 : wrong(longer, SIZE, 7) + wrong(longer + SIZE, SIZE, 0));
    failed = madvise(longer, SIZE, MADV_DONTNEED);
    say("advice to empty it", failed, wrong(longer, 2 * SIZE, 0));
    unsigned char *other = filled(9);
    failed = mremap(other, 4096 * 5, 4096 * 5, MREMAP_MAYMOVE | MREMAP_FIXED, longer + (4 << 20)) == MAP_FAILED;
    say("mremap over it", failed, wrong(longer + (4 << 20), 4096 * 5, 9) + wrong(other + 4096 * 5, SIZE - 4096 * 5, 9));
    /* As some runtimes do with the addresses that they set aside. */
    unsigned char *reserved = mmap(NULL, 6 * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    failed = madvise(reserved, 6 * SIZE, MADV_DONTDUMP);
    say("advice for a reservation", failed, 0);
    failed = mprotect(reserved + SIZE, SIZE, PROT_READ | PROT_WRITE);
    if (!failed) memset(reserved + SIZE, 3, SIZE);
    say("a part of it in use", failed, failed ? 0 : wrong(reserved + SIZE, SIZE, 3));
    failed = mprotect(reserved + SIZE, SIZE, PROT_NONE) || mprotect(reserved + SIZE, SIZE, PROT_READ);
    say("the same protected twice", failed, failed ? 0 : wrong(reserved + SIZE, SIZE, 3));
    return 0;
}
