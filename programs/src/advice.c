/* What a program may do to its mappings: advice, protection, moving, locking, mapping over, and what it then finds there. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define M ((size_t)1 << 20)

static void *map(size_t size, int protection) {
    return mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void say(const char *what, long result) {
    printf("%s: %ld%s%s\n", what, result, result < 0 ? " " : "", result < 0 ? strerrorname_np(errno) : "");
}

static void moved(const char *what, void *old, size_t from, size_t to) {
    char *now = mremap(old, from, to, MREMAP_MAYMOVE);
    say(what, now == MAP_FAILED ? -1 : 0);
}

int main(void) {
    char *a = map(8 * M, PROT_READ | PROT_WRITE);
    memset(a, 1, 8 * M);
    say("protect", mprotect(a + 4 * M, 4 * M, PROT_READ));
    moved("shrink what is read-only", a + 4 * M, 4 * M, 2 * M);
    moved("grow what is read-only", map(4 * M, PROT_READ), 4 * M, 8 * M);
    char *b = map(4 * M, PROT_READ | PROT_WRITE);
    b[0] = 7;
    say("dontdump", madvise(b, 4 * M, MADV_DONTDUMP));
    moved("grow after it", b, 4 * M, 8 * M);
    char *c = map(4 * M, PROT_READ | PROT_WRITE);
    c[0] = 7;
    say("lock", mlock(c, 4096));
    munlock(c, 4096);
    moved("grow after it", c, 4 * M, 8 * M);
    char *d = mmap(NULL, 4 * M, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    say("dontneed of what is reserved", madvise(d, 4 * M, MADV_DONTNEED));
    moved("grow what is reserved", d, 4 * M, 8 * M);
    char *e = map(16 * M, PROT_READ | PROT_WRITE);
    memset(e, 5, 16 * M);
    say("dontneed", madvise(e + 4096, 3 * M, MADV_DONTNEED));
    printf("%d %d %d\n", e[4095], e[4096], e[4 * M]);
    say("map over", mmap(e + 8 * M, M, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == e + 8 * M ? 0 : -1);
    printf("%d %d\n", e[8 * M], e[9 * M]);
    FILE *file = tmpfile();
    fprintf(file, "file");
    fflush(file);
    say("map a file over", mmap(e + 10 * M, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, fileno(file), 0) == e + 10 * M ? 0 : -1);
    printf("%.4s %d\n", e + 10 * M, e[10 * M + 4096]);
    say("wipe on fork", madvise(e + 12 * M, M, MADV_WIPEONFORK));
    fflush(stdout);
    pid_t child = fork();
    if (!child) _exit(e[12 * M] == 0 && e[13 * M] == 5 ? 6 : 1);
    int status;
    waitpid(child, &status, 0);
    say("child", WEXITSTATUS(status));
    char *f = map(32 * M, PROT_READ | PROT_WRITE);
    struct iovec to = {f + 4096, 2 * M}, from = {e + 13 * M, 2 * M};
    say("read through the kernel", process_vm_readv(getpid(), &to, 1, &from, 1, 0));
    printf("%d\n", f[2 * M]);
    int ends[2];
    say("pipe", pipe(ends));
    say("write what was not touched", write(ends[1], f + 20 * M, 4096));
    say("read to what was not touched", read(ends[0], f + 24 * M, 4096));
    say("write from nowhere", write(ends[1], (char *)NULL + 8, 10));
    f[30 * M] = 9;
    char *g = mremap(f, 32 * M, 64 * M, MREMAP_MAYMOVE);
    printf("%d %d %d\n", g[30 * M], g[2 * M], g[63 * M]);
    say("lock all", mlockall(MCL_CURRENT | MCL_FUTURE));
    g = map(4 * M, PROT_READ | PROT_WRITE);
    printf("%d\n", g[M]);
    say("unlock all", munlockall());
    void *all[300];
    for (int at = 0; at < 300; at++) memset(all[at] = map(M, PROT_READ | PROT_WRITE), at, M);
    long wrong = 0;
    for (int at = 0; at < 300; at++) wrong += ((unsigned char *)all[at])[M - 1] != (unsigned char)at;
    for (int at = 0; at < 300; at += 2) wrong += munmap(all[at], M) != 0;
    printf("%ld wrong\n", wrong);
    return 2;
}
