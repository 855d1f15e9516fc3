// An ordinary program that asks the kernel for every kind of change to a part of a gigantic page, by libc's function
// and by the call's number, and checks what memory holds then. The first argument says which part it plays.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "memory.h"

// Known to newer headers only.
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#ifndef SYS_mseal
#define SYS_mseal 462
#endif

// The part of a gigantic page that is changed, and the parts at its ends that hold something.
#define PART (MIB + 3 * PAGE)
#define LENGTH (2 * MIB)
#define ENDS (8 * MIB)

enum Way { BY_FUNCTION, BY_NUMBER, WAYS };

// A GiB on a 1 GiB page.
static char *gigantic(uint64_t seed) {
    char *memory = map(GIB);
    fill(memory, 0, ENDS, seed);
    fill(memory, GIB - ENDS, GIB, seed);
    CHECK(gigantic_at(memory));
    return memory;
}

// The memory around the part is as it was.
static void expect_rest(const char *memory, uint64_t seed) {
    expect(memory, 0, PART, seed);
    expect(memory, PART + LENGTH, ENDS, seed);
    expect_zero(memory, ENDS, 2 * ENDS);
    expect(memory, GIB - ENDS, GIB, seed);
}

static void expect_all(const char *memory, uint64_t seed) {
    expect_rest(memory, seed);
    expect(memory, PART, PART + LENGTH, seed);
}

// Functions that this libc may not have, but the library does.
static void *function(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    CHECK(found);
    return found;
}

typedef long Bind(void *, size_t, int, const unsigned long *, unsigned long, unsigned);
typedef int Seal(void *, size_t, unsigned long);
typedef ssize_t AdviseProcess(int, const struct iovec *, size_t, int, unsigned);

static int advise(enum Way way, char *memory, size_t length, int advice) {
    return way == BY_NUMBER ? syscall(SYS_madvise, memory, length, advice) : madvise(memory, length, advice);
}

enum Change { GUARDED, SMALL, KEYED, BOUND, LOCKED, SEALED, WIPED, CHANGES };

static int change(enum Change kind, enum Way way, char *memory, size_t length) {
    unsigned long node = 1;
    switch (kind) {
    case GUARDED: return advise(way, memory, length, MADV_GUARD_INSTALL);
    case SMALL: return advise(way, memory, length, MADV_NOHUGEPAGE);
    case WIPED: return advise(way, memory, length, MADV_WIPEONFORK);
    case KEYED:
        return way == BY_NUMBER ? syscall(SYS_pkey_mprotect, memory, length, PROT_READ, -1)
                                : pkey_mprotect(memory, length, PROT_READ, -1);
    case BOUND:
        return way == BY_NUMBER ? syscall(SYS_mbind, memory, length, 2, &node, 64UL, 0)
                                : ((Bind *)function("mbind"))(memory, length, 2, &node, 64UL, 0);
    case LOCKED:
        return way == BY_NUMBER ? syscall(SYS_mlock2, memory, length, MLOCK_ONFAULT)
                                : mlock2(memory, length, MLOCK_ONFAULT);
    case SEALED:
        return way == BY_NUMBER ? syscall(SYS_mseal, memory, length, 0UL)
                                : ((Seal *)function("mseal"))(memory, length, 0UL);
    default: return -1;
    }
}

// Whether this kernel can, on memory that is too small for the library.
static int is_able(enum Change kind) {
    char *memory = map(PAGE);
    return change(kind, BY_NUMBER, memory, PAGE) == 0;
}

// Changes a part of a gigantic page in each way that a gigantic page does not allow.
static int changes(void) {
    char *wiped = NULL;
    for (int kind = 0; kind < CHANGES; kind++) {
        for (int way = 0; way < WAYS && is_able(kind); way++) {
            char *memory = gigantic(kind);
            CHECK(change(kind, way, memory + PART, LENGTH) == 0);
            CHECK(!gigantic_at(memory));
            expect_rest(memory, kind);
            if (kind == GUARDED) {
                CHECK(!is_readable(memory + PART) && !is_readable(memory + PART + LENGTH - 1));
                CHECK(advise(way, memory + PART, LENGTH, MADV_GUARD_REMOVE) == 0);
                expect_zero(memory, PART, PART + LENGTH);
            } else {
                expect(memory, PART, PART + LENGTH, kind);
            }
            if (kind == SEALED) {
                CHECK(munmap(memory + PART, PAGE) == -1 && errno == EPERM);
                CHECK(munmap(memory, GIB) == -1 && errno == EPERM);
                expect_all(memory, kind);
                CHECK(munmap(memory, PART) == 0 && !is_readable(memory));
            } else if (kind == WIPED) {
                wiped = memory;
            } else {
                CHECK(munmap(memory, GIB) == 0);
            }
        }
    }
    // A child that libc's handlers of forks do not hear of.
    char *memory = gigantic(CHANGES);
    pid_t child = _Fork();
    CHECK(child >= 0);
    if (child == 0) {
        expect_rest(wiped, WIPED);
        expect_zero(wiped, PART, PART + LENGTH);
        expect_all(memory, CHANGES);
        fill(memory, 0, ENDS, 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    expect_all(wiped, WIPED);
    expect_all(memory, CHANGES);
    return 0;
}

// Gives advice that changes nothing that a program could see: the gigantic page stays.
static int hints(void) {
    static const int advice[] = {MADV_NORMAL,   MADV_RANDOM,        MADV_SEQUENTIAL,    MADV_WILLNEED, MADV_HUGEPAGE,
                                 MADV_COLLAPSE, MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_COLD,     MADV_PAGEOUT};
    char *memory = gigantic(40);
    for (size_t i = 0; i < sizeof advice / sizeof *advice; i++)
        for (int way = 0; way < WAYS; way++) CHECK(advise(way, memory + PART, LENGTH, advice[i]) == 0);
    for (int kind = POSIX_MADV_NORMAL; kind <= POSIX_MADV_DONTNEED; kind++)
        CHECK(posix_madvise(memory + PART, LENGTH, kind) == 0);
    CHECK(posix_madvise(memory + 1, LENGTH, POSIX_MADV_RANDOM) == EINVAL);
    CHECK(gigantic_at(memory));
    expect_all(memory, 40);
    return 0;
}

static ssize_t advise_process(enum Way way, int process, const struct iovec *parts, size_t count, int advice) {
    return way == BY_NUMBER ? syscall(SYS_process_madvise, process, parts, count, advice, 0)
                            : ((AdviseProcess *)function("process_madvise"))(process, parts, count, advice, 0);
}

// Empties a part of a gigantic page by advice about this process, and not by advice about another one.
static int advises_itself(void) {
    int ourselves = syscall(SYS_pidfd_open, getpid(), 0), other = syscall(SYS_pidfd_open, getppid(), 0);
    CHECK(ourselves >= 0 && other >= 0);
    struct iovec small = {map(PAGE), PAGE};
    if (advise_process(BY_NUMBER, ourselves, &small, 1, MADV_DONTNEED) < 0) return 0; // kernels before 6.13

    char *memory = gigantic(41);
    struct iovec parts[] = {{memory + PART, LENGTH / 2}, {memory + PART + LENGTH / 2, LENGTH / 2}};
    struct iovec with_none[] = {parts[0], {small.iov_base, PAGE}};
    for (int way = 0; way < WAYS; way++) {
        CHECK(advise_process(way, other, parts, 2, MADV_DONTNEED) == -1);
        advise_process(way, other, parts, 2, MADV_COLD);
        CHECK(advise_process(way, ourselves, parts, 2, MADV_COLD) == LENGTH);
        expect_all(memory, 41);
        CHECK(advise_process(way, ourselves, parts, 2, MADV_DONTNEED) == LENGTH);
        expect_rest(memory, 41);
        expect_zero(memory, PART, PART + LENGTH);
        fill(memory, PART, PART + LENGTH, 41);
        CHECK(gigantic_at(memory));
    }
    // The bytes before the first part that is refused.
    CHECK(munmap(small.iov_base, PAGE) == 0);
    CHECK(advise_process(BY_FUNCTION, ourselves, with_none, 2, MADV_DONTNEED) == LENGTH / 2);
    expect_zero(memory, PART, PART + LENGTH / 2);

    // Nothing is demoted while a descriptor for direct reads is open. The part begins where the page does.
    char path[] = "/var/tmp/superpage-direct-XXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0);
    int direct = open(path, O_RDONLY | O_DIRECT);
    CHECK(unlink(path) == 0);
    struct iovec first = {memory, LENGTH};
    CHECK(advise_process(BY_FUNCTION, ourselves, &first, 1, MADV_DONTNEED) == LENGTH);
    expect_zero(memory, 0, LENGTH);
    expect(memory, PART + LENGTH, ENDS, 41);
    close(direct);
    return 0;
}

static void *attach(enum Way way, int segment, void *place, int flags) {
    return way == BY_NUMBER ? (void *)syscall(SYS_shmat, segment, place, flags) : shmat(segment, place, flags);
}

// No shared memory is attached over memory of the library's, and it is where the kernel has put it.
static int attaches(void) {
    int segment = shmget(IPC_PRIVATE, LENGTH - 5, 0600);
    CHECK(segment >= 0);
    char *shared = shmat(segment, NULL, 0);
    CHECK(shmctl(segment, IPC_RMID, NULL) == 0); // it goes with the last that has it
    CHECK(shared != (void *)-1);
    fill(shared, 0, LENGTH, 42);
    void *failed = (void *)-1;
    for (int way = 0; way < WAYS; way++) {
        char *memory = gigantic(43);
        CHECK(attach(way, segment, memory + PART, 0) == failed && errno == EINVAL);
        CHECK(attach(way, segment, memory + PART, SHM_REMAP) == failed && errno == EINVAL);
        CHECK(attach(way, segment, memory + PART + 1, SHM_REMAP | SHM_RND) == failed && errno == EINVAL);
        CHECK(attach(way, segment, NULL, SHM_REMAP) == failed && errno == EINVAL);
        CHECK(attach(way, -1, memory + PART, SHM_REMAP) == failed && errno == EINVAL);
        CHECK(gigantic_at(memory));
        expect_all(memory, 43);
        CHECK(munmap(memory, GIB) == 0);
    }
    expect(shared, 0, LENGTH, 42);
    CHECK(shmdt(shared) == 0 && !is_readable(shared));
    return 0;
}

// The heap grows as without the library, and not into memory that the library has placed.
static int heap(void) {
    char *memory = gigantic(44);
    char *end = sbrk(0);
    end += -(size_t)end % PAGE;
    CHECK(brk(end + 64 * MIB) == 0);
    expect_zero(end, 0, 64 * MIB);
    fill(end, 0, 64 * MIB, 45);
    CHECK(brk(memory + GIB) == -1 && errno == ENOMEM);
    CHECK(sbrk(-32 * (long)MIB) == end + 64 * MIB && !is_readable(end + 32 * MIB));
    expect(end, 0, 32 * MIB, 45);
    expect_all(memory, 44);
    return 0;
}

// Sets the limit of the address space by the call's number: what the library has reserved does not count.
static int limits(long call) {
    struct rlimit limit = {3 * GIB, 3 * GIB};
    int done = call == SYS_setrlimit ? syscall(call, RLIMIT_AS, &limit)
                                     : syscall(SYS_prlimit64, 0, RLIMIT_AS, &limit, NULL);
    CHECK(done == 0);
    char *memory = map(16 * PAGE);
    fill(memory, 0, 16 * PAGE, 46);
    expect(memory, 0, 16 * PAGE, 46);
    return 0;
}

int main(int count, char **words) {
    const char *part = count > 1 ? words[1] : "";
    if (!strcmp(part, "changes")) return changes();
    if (!strcmp(part, "hints")) return hints();
    if (!strcmp(part, "advises-itself")) return advises_itself();
    if (!strcmp(part, "attaches")) return attaches();
    if (!strcmp(part, "heap")) return heap();
    if (!strcmp(part, "setrlimit")) return limits(SYS_setrlimit);
    if (!strcmp(part, "prlimit64")) return limits(SYS_prlimit64);
    fprintf(stderr, "no part %s\n", part);
    return 2;
}
