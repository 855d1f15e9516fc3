// Parts that `program.c` and `integrity.c` share: one GiB that threads of the program, the kernel and another process write to,
// while it is promoted and demoted. Each page belongs to one of these. The program names them before it includes this, in
// an enum that has DIRECT, OUTSIDE and OWNERS.

#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/uio.h>

static char *shared;
static atomic_int is_over;
static atomic_long direct_reads;
#define OWNED (GIB / PAGE / OWNERS)

static inline char *owned(size_t owner, size_t index) {
    return shared + (index % OWNED * OWNERS + owner) * PAGE;
}

static inline uint64_t *words(char *page) { return (uint64_t *)page; }

static inline void fill_page(char *page, uint64_t seed) {
    for (size_t i = 0; i < PAGE / 8; i++) words(page)[i] = word(seed, i);
}

static inline void expect_page(const char *page, uint64_t seed) {
    for (size_t i = 0; i < PAGE / 8; i++) CHECK(((const uint64_t *)page)[i] == word(seed, i));
}

// One GiB that is touched only when it is in parts, so that no first touch is told.
static inline char *map_in_parts(void) {
    char *memory = map(GIB);
    CHECK(munmap(memory + GIB / 2, GIB / 2) == 0);
    CHECK(mmap(memory + GIB / 2, GIB / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
          memory + GIB / 2);
    return memory;
}

// Makes the file for `read_directly`, and opens it.
static inline int make_file(char *path) {
    char block[PAGE] __attribute__((aligned(4096)));
    fill_page(block, 24);
    int file = mkstemp(path);
    CHECK(file >= 0 && write(file, block, PAGE) == (ssize_t)PAGE && fsync(file) == 0);
    return file;
}

// Reads the file past the page cache. The descriptor is open at times only, because no program that has one is promoted.
static inline void *read_directly(void *argument) {
    const char *path = argument;
    for (size_t round = 0; !is_over; round++) {
        usleep(30000);
        int file = open(path, O_RDONLY | O_DIRECT);
        if (file < 0) return NULL; // a file system without
        for (size_t i = 0; i < 8; i++) {
            char *page = owned(DIRECT, round * 8 + i);
            memset(page, 0, PAGE);
            CHECK(pread(file, page, PAGE, 0) == (ssize_t)PAGE);
            expect_page(page, 24);
            direct_reads++;
        }
        close(file);
    }
    return NULL;
}

// Another process, which writes to this one: each value to the next page.
static inline int writes_outside(char **arguments) {
    pid_t process = atoi(arguments[2]);
    shared = (char *)strtoul(arguments[3], NULL, 0);
    for (uint64_t value = 1; getppid() == process; value++) {
        uint64_t seen = 0;
        struct iovec local = {&value, sizeof value}, remote = {owned(OUTSIDE, value), sizeof value};
        if (process_vm_writev(process, &local, 1, &remote, 1, 0) != sizeof value) break;
        local.iov_base = &seen;
        if (process_vm_readv(process, &local, 1, &remote, 1, 0) != sizeof value) break;
        if (seen != value) {
            fprintf(stderr, "another process wrote %lu and reads %lu\n", value, seen);
            return 1;
        }
    }
    // Otherwise the calls failed.
    return getppid() != process ? 0 : 1;
}

// Starts that process: this program, as `writes-outside`.
static inline pid_t start_outside(void) {
    char process[32], place[32];
    snprintf(process, sizeof process, "%d", getpid());
    snprintf(place, sizeof place, "%p", shared);
    char *arguments[] = {"program", "writes-outside", process, place, NULL};
    pid_t outside;
    CHECK(posix_spawn(&outside, "/proc/self/exe", NULL, NULL, arguments, environ) == 0);
    return outside;
}
