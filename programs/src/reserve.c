/* Reserves much more address space than there is memory, as many runtimes do, and commits a little of it here and there. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

int main(void) {
    size_t all = (size_t)200 << 30, m = (size_t)1 << 20;
    char *block = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) return 1;
    for (int at = 0; at < 64; at++) {
        char *part = block + ((size_t)at * 3 << 30);
        if (mprotect(part, m, PROT_READ | PROT_WRITE)) return 2;
        memset(part, at, m);
    }
    long wrong = 0;
    for (int at = 0; at < 64; at++) wrong += block[((size_t)at * 3 << 30) + m - 1] != at;
    char *other = mmap(NULL, 64 * m, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(other, 1, 64 * m);
    printf("%ld wrong\n", wrong);
    for (int at = 0; at < 64; at += 2) madvise(block + ((size_t)at * 3 << 30), m, MADV_DONTNEED);
    printf("%d %d\n", block[0], block[(size_t)3 << 30]);
    return munmap(block, all);
}
