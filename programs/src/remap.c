/* mremap of memory of every kind, and calls that tell whether memory is mapped. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static char *map(size_t length, int protection) {
    char *made = mmap(0, length, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) perror("mmap");
    return made;
}

static char *filled(size_t length) {
    char *made = map(length, PROT_READ | PROT_WRITE);
    for (size_t at = 0; at < length; at += 4096) made[at] = at / 4096 % 127 + 1;
    return made;
}

/* The rights that the kernel gives at an address. */
static const char *rights(char *at) {
    static char said[8];
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    strcpy(said, "none");
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char found[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, found) == 3 && start <= (unsigned long)at && (unsigned long)at < end)
            strcpy(said, found);
    }
    fclose(maps);
    return said;
}

static void said(const char *what, char *moved, size_t held, size_t length) {
    if (moved == MAP_FAILED) {
        printf("%s: error %d\n", what, errno);
        return;
    }
    printf("%s: %s", what, rights(moved));
    printf(" to %s", rights(moved + length - 1));
    if (mprotect(moved, length, PROT_READ | PROT_WRITE)) printf(" mprotect %d", errno);
    size_t wrong = 0;
    for (size_t at = 0; at < length; at += 4096) wrong += moved[at] != (at < held ? (char)(at / 4096 % 127 + 1) : 0);
    printf(", %zu pages wrong\n", wrong);
    munmap(moved, length);
}

static void tells(const char *what, char *at, size_t length) {
    unsigned char pages[4096];
    errno = 0;
    int found = mincore(at, length, pages), before = errno;
    errno = 0;
    int synced = msync(at, length, MS_ASYNC);
    printf("%s: mincore %d %d, msync %d %d\n", what, found, before, synced, errno);
}

int main(void) {
    char *p = filled(8 * MIB);
    said("plain", mremap(p, 8 * MIB, 24 * MIB, MREMAP_MAYMOVE), 8 * MIB, 24 * MIB);
    p = filled(8 * MIB);
    mprotect(p, 8 * MIB, PROT_READ);
    said("read-only", mremap(p, 8 * MIB, 24 * MIB, MREMAP_MAYMOVE), 8 * MIB, 24 * MIB);
    p = filled(8 * MIB);
    mprotect(p, 8 * MIB, PROT_NONE);
    said("protected", mremap(p, 8 * MIB, 24 * MIB, MREMAP_MAYMOVE), 8 * MIB, 24 * MIB);
    p = map(8 * MIB, PROT_NONE);
    said("reserved", mremap(p, 8 * MIB, 24 * MIB, MREMAP_MAYMOVE), 0, 24 * MIB);
    p = filled(8 * MIB);
    madvise(p, 8 * MIB, MADV_DONTDUMP);
    said("not dumped", mremap(p, 8 * MIB, 24 * MIB, MREMAP_MAYMOVE), 8 * MIB, 24 * MIB);
    p = filled(8 * MIB);
    if (mlock(p + MIB, 4096)) perror("mlock");
    munlock(p + MIB, 4096);
    said("locked once", mremap(p, 8 * MIB, 24 * MIB, MREMAP_MAYMOVE), 8 * MIB, 24 * MIB);
    p = filled(8 * MIB);
    mprotect(p + 4 * MIB, 4 * MIB, PROT_READ);
    said("shrunk", mremap(p, 8 * MIB, 2 * MIB, 0), 2 * MIB, 2 * MIB);

    p = filled(8 * MIB);
    char *place = map(8 * MIB, PROT_NONE);
    said("to a place", mremap(p, 8 * MIB, 8 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, place), 8 * MIB, 8 * MIB);

    /* A reservation of which a little is used: nothing else of it is touched. */
    p = map(256 * MIB, PROT_NONE);
    mprotect(p + 128 * MIB, MIB, PROT_READ | PROT_WRITE);
    strcpy(p + 128 * MIB, "held");
    p = mremap(p, 256 * MIB, 512 * MIB, MREMAP_MAYMOVE);
    if (p == MAP_FAILED) printf("reserved and used: error %d\n", errno);
    else printf("reserved and used: %s, %s %s\n", p + 128 * MIB, rights(p), rights(p + 512 * MIB - 1));

    /* Sealed memory stays as it is. */
    p = filled(8 * MIB);
    long sealed = syscall(462, p, 8 * MIB, 0);
    printf("sealed %ld", sealed);
    errno = 0;
    place = mremap(p, 8 * MIB, 24 * MIB, MREMAP_MAYMOVE);
    printf(", moved %d %d", place != MAP_FAILED, errno);
    errno = 0;
    int unmapped = munmap(p, 8 * MIB);
    printf(", unmapped %d %d, holds %d %d\n", unmapped, errno, p[0], p[4 * MIB + 4096]);

    p = filled(8 * MIB);
    tells("mapped", p, 8 * MIB);
    munmap(p + 2 * MIB, MIB);
    tells("a hole", p + 2 * MIB, MIB);
    tells("across a hole", p, 8 * MIB);
    tells("before a hole", p, 2 * MIB);
    p = map(4 * MIB, PROT_NONE);
    errno = 0;
    int wrong = msync(p, 4 * MIB, 64);
    printf("wrong flags: %d %d\n", wrong, errno);
    errno = 0;
    int synced = msync(p, 4 * MIB, MS_ASYNC);
    printf("reserved: msync %d %d\n", synced, errno);
    return 0;
}
