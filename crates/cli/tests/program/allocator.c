// An ordinary program that allocates, as `superpage run` gets it: it checks every byte that it wrote, and its exit code
// says whether memory held what it should. The first argument says which part it plays; docs of live_run.rs.
// With -DOWN it has a function that only a program with jemalloc has, with -DSLOW an mmap that takes long.

#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static uint64_t **blocks;
static size_t count;

#ifdef OWN
int mallctl(void) { return 0; }
#endif

#ifdef SLOW
// The program's own mmap, which makes an allocator wait in the middle of its work.
static volatile int waits;
void *mmap(void *address, size_t length, int protection, int flags, int descriptor, off_t offset) {
    if (length >= 32 * MIB && waits) usleep(500000);
    return (void *)syscall(SYS_mmap, address, length, protection, flags, descriptor, offset);
}

static void *grow(void *unused) {
    waits = 1;
    CHECK(malloc(300 * MIB));
    return unused;
}

// A child allocates what needs new memory, while a thread of its parent was getting some.
static int forks(void) {
    pthread_t thread;
    CHECK(malloc(1));
    CHECK(pthread_create(&thread, NULL, grow, NULL) == 0);
    usleep(100000);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(20);
        waits = 0;
        _exit(malloc(300 * MIB) ? 0 : 2);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
#endif

// Checks the promises of each of C's functions.
static int functions(void) {
    // Compilers know what the functions promise, so sizes are hidden from them.
    volatile size_t zero = 0, huge = SIZE_MAX / 2, kib = 1024;
    char *block = malloc(zero);
    free(block);
    free(NULL);
    errno = 0;
    CHECK(malloc(huge) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(calloc(huge, kib) == NULL && errno == ENOMEM);
    block = malloc(kib);
    errno = 0;
    CHECK(realloc(block, huge) == NULL && errno == ENOMEM);
    CHECK(malloc_usable_size(block) >= kib && malloc_usable_size(NULL) == 0);
    CHECK(realloc(block, zero) == NULL);
    for (size_t alignment = 16; alignment <= 4 * MIB; alignment *= 2) {
        void *aligned;
        CHECK(posix_memalign(&aligned, alignment, 100) == 0);
        void *all[] = {aligned, aligned_alloc(alignment, 100), memalign(alignment, 100)};
        for (int i = 0; i < 3; i++) {
            CHECK(all[i] && (uintptr_t)all[i] % alignment == 0);
            memset(all[i], 1, 100);
            free(all[i]);
        }
    }
    // glibc takes the next power of two as the alignment, and frees a block that is resized to a product of zero.
    CHECK((uintptr_t)memalign(48, 100) % 64 == 0 && memalign(zero, 1));
    CHECK(reallocarray(malloc(kib), zero, kib) == NULL);
    errno = 0;
    CHECK(reallocarray(NULL, huge, kib) == NULL && errno == ENOMEM);
    void *aligned = &count;
    CHECK(posix_memalign(&aligned, 3 * kib, 1) == EINVAL && aligned == &count);
    CHECK((uintptr_t)valloc(1) % 4096 == 0 && malloc_usable_size(pvalloc(1)) >= 4096);
    // Memory that was used before is empty when calloc gives it.
    for (size_t size = 64; size <= 64 * MIB; size *= 4) {
        block = malloc(size);
        memset(block, 0xff, size);
        free(block);
        char *cleared = calloc(1, size);
        for (size_t at = 0; at < size; at++) CHECK(cleared[at] == 0);
        free(cleared);
    }
    size_t size = 10;
    char *grown = malloc(size);
    memset(grown, 7, size);
    for (; size < 600 * MIB; size = size * 3 / 2) {
        grown = reallocarray(grown, size * 3 / 2, 1);
        CHECK(grown && grown[0] == 7 && grown[size - 1] == 7);
        memset(grown, 7, size * 3 / 2);
    }
    free(grown);
    CHECK(malloc_trim(0) == 0 || malloc_trim(0) == 1);
    return 0;
}

static void *release(void *first) {
    for (size_t i = (size_t)first; i < count; i += 2) {
        for (size_t at = 0; at < 100 * 1024 / 8; at += 512) CHECK(blocks[i][at] == i + 1);
        free(blocks[i]);
    }
    return NULL;
}

// Fills so many MiB by blocks of 100 KiB, which two other threads check and free; says how much of it was on 1 GiB pages.
static int fills(size_t mib) {
    count = mib * MIB / (100 * 1024);
    blocks = calloc(count, sizeof *blocks);
    for (size_t i = 0; i < count; i++) {
        CHECK((blocks[i] = malloc(100 * 1024)));
        for (size_t at = 0; at < 100 * 1024 / 8; at += 512) blocks[i][at] = i + 1;
    }
    FILE *smaps = fopen("/proc/self/smaps", "r");
    char line[512];
    size_t kib, size = 0, gigantic = 0;
    while (fgets(line, sizeof line, smaps)) {
        sscanf(line, "Size: %zu kB", &size);
        if (sscanf(line, "KernelPageSize: %zu kB", &kib) == 1 && kib == 1 << 20) gigantic += size;
    }
    fclose(smaps);
    printf("%zu\n", gigantic << 10);
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, release, (void *)i) == 0);
    for (size_t i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}

// Allocates and frees small blocks, and says how many seconds that takes.
static int churns(void) {
    static char *block[1000];
    uint64_t state = 88172645463325252UL;
    struct timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (long i = 0; i < 30000000; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        size_t at = state % 1000;
        free(block[at]);
        CHECK((block[at] = malloc(16 + (state >> 20) % 2000)));
        *block[at] = 1;
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%.3f\n", (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) / 1e9);
    return 0;
}

int main(int words, char **word) {
    const char *part = words > 1 ? word[1] : "";
    if (!strcmp(part, "functions")) return functions();
    if (!strcmp(part, "churns")) return churns();
    if (!strcmp(part, "fills")) return fills(strtoul(word[2], NULL, 10));
#ifdef SLOW
    if (!strcmp(part, "forks")) return forks();
#endif
    fprintf(stderr, "no such part: %s\n", part);
    return 2;
}
