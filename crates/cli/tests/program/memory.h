// What the programs of these tests share: memory that they map, what each page of it is to hold, and what maps it.

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 // glibc before 2.37 does not know it
#endif

#define GIB (1UL << 30)
#define PAGE 4096UL

static inline char *map(size_t length) {
    char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

// The word that page `index` of a mapping is to hold.
static inline uint64_t word(uint64_t seed, size_t index) {
    uint64_t value = (seed + 1) * 0x9E3779B97F4A7C15UL ^ (index + 1) * 0xBF58476D1CE4E5B9UL;
    return value | 1;
}

static inline void fill(char *memory, size_t from, size_t to, uint64_t seed) {
    for (size_t at = from; at < to; at += PAGE) *(uint64_t *)(memory + at) = word(seed, at / PAGE);
}

static inline void expect(const char *memory, size_t from, size_t to, uint64_t seed) {
    for (size_t at = from; at < to; at += PAGE) {
        const uint64_t *words = (const uint64_t *)(memory + at);
        if (words[0] != word(seed, at / PAGE) || words[1] != 0) {
            fprintf(stderr, "wrong at %#zx of %p: %#lx, not %#lx, then %#lx\n", at, (const void *)memory, words[0], word(seed, at / PAGE), words[1]);
            exit(1);
        }
    }
}

static inline void expect_zero(const char *memory, size_t from, size_t to) {
    for (size_t at = from; at < to; at += 8) {
        if (*(const uint64_t *)(memory + at) != 0) {
            fprintf(stderr, "not zero at %#zx of %p\n", at, (const void *)memory);
            exit(1);
        }
    }
}

// Bytes of this process that 1 GiB pages map, in the mapping that holds an address, or in all if it is null.
static inline size_t gigantic_at(const void *address) {
    FILE *smaps = fopen("/proc/self/smaps", "r");
    CHECK(smaps);
    char line[512];
    size_t start, end, size = 0, kib, sum = 0;
    while (fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%zx-%zx ", &start, &end) == 2) size = end - start;
        int counts = !address || (start <= (size_t)address && (size_t)address < end);
        if (sscanf(line, "KernelPageSize: %zu kB", &kib) == 1 && kib == 1 << 20 && counts) sum += size;
    }
    fclose(smaps);
    return sum;
}

static inline size_t on_gigantic(void) { return gigantic_at(NULL); }

// Whether memory can be read, by the kernel's answer.
static inline int is_readable(const char *memory) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    int done = write(ends[1], memory, 1) == 1;
    CHECK(done || errno == EFAULT);
    close(ends[0]);
    close(ends[1]);
    return done;
}

static inline void end_well(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// The next number of a random sequence (xorshift).
static inline uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}
