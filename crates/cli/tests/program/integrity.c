// A program that does to its memory all that a program can do, at once, and checks every byte that it wrote: threads
// write to one GiB, which another thread has promoted and demoted as fast as it can be; parts of it and of other
// mappings are unmapped, emptied, protected and moved; the kernel and another process write to it; and towards the end
// the process forks, again and again. It prints how many operations of each kind it made.
//
// integrity SECONDS

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/random.h>
#include <time.h>

#include "memory.h"

// The GiB that is promoted and demoted: each page belongs to one thread, or to the other process.
enum { FIRST_WRITER, SECOND_WRITER, CHANGER, KERNEL, DIRECT, OUTSIDE, OWNERS };
#include "writers.h"

// The kinds of operations that are counted.
enum Kind {
    WRITES,
    FORKS,
    FIRST_TOUCHES,
    UNMAPS,
    EMPTIES,
    PROTECTS,
    MOVES,
    REPLACES,
    FILE_READS,
    FILE_WRITES,
    PIPES,
    RANDOMS,
    OWN_VM_WRITES,
    DIRECT_READS,
    OUTSIDE_WRITES,
    KINDS
};
static const char *const names[KINDS] = {
    "writes",     "forks",       "first-touches", "unmaps",  "empties",       "protects",     "moves",          "replaces",
    "file-reads", "file-writes", "pipes",         "randoms", "own-vm-writes", "direct-reads", "outside-writes",
};
static atomic_long counts[KINDS];
static atomic_int may_fork;

// Whether a call was made. What concerns a gigantic page is refused while a descriptor for direct reads is open.
static int made(int done) {
    CHECK(done || errno == ENOMEM);
    if (!done) usleep(1000);
    return done;
}

#define UNTIL_MADE(call)                                                                                     \
    do {                                                                                                     \
    } while (!made(call))

// Words of a page of a writer: one that only children of forks write, one that counts, one that is written once.
enum { CHILDS = 0, COUNT = 3, STILL = 9 };
static uint64_t still(size_t index) { return word(1, index); }

// Counts up in pages of its own, and compares each with what it wrote there last.
static void *write_words(void *argument) {
    size_t owner = (size_t)argument;
    uint64_t *expected = calloc(OWNED, sizeof *expected), state = 88172645463325252UL + owner;
    CHECK(expected);
    while (!is_over) {
        size_t index = next(&state) % OWNED;
        volatile uint64_t *page = words(owned(owner, index));
        CHECK(page[CHILDS] == 0 && page[COUNT] == expected[index] && page[STILL] == still(index));
        page[COUNT] = ++expected[index];
        counts[WRITES]++;
    }
    for (size_t i = 0; i < OWNED; i++)
        CHECK(words(owned(owner, i))[COUNT] == expected[i] && words(owned(owner, i))[STILL] == still(i));
    free(expected);
    return NULL;
}

// Unmaps, empties and protects pages of its own.
static void *change_pages(void *unused) {
    uint64_t state = 42;
    for (uint64_t round = 1; !is_over; round++) {
        char *page = owned(CHANGER, next(&state));
        fill_page(page, round);
        expect_page(page, round);
        switch (round % 3) {
        case 0:
            UNTIL_MADE(munmap(page, PAGE) == 0);
            UNTIL_MADE(mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
            expect_zero(page, 0, PAGE);
            counts[UNMAPS]++;
            break;
        case 1:
            UNTIL_MADE(madvise(page, PAGE, MADV_DONTNEED) == 0);
            expect_zero(page, 0, PAGE);
            counts[EMPTIES]++;
            break;
        default:
            UNTIL_MADE(mprotect(page, PAGE, PROT_READ) == 0);
            expect_page(page, round);
            UNTIL_MADE(mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0);
            expect_page(page, round);
            counts[PROTECTS]++;
        }
        usleep(10000);
    }
    return unused;
}

// Has the kernel write to pages of its own, and read them.
static void *by_the_kernel(void *argument) {
    int file = *(int *)argument, ends[2];
    CHECK(pipe(ends) == 0);
    static char copy[PAGE];
    uint64_t state = 43;
    for (uint64_t round = 1; !is_over; round++) {
        size_t index = next(&state) % OWNED;
        char *page = owned(KERNEL, index), *other = owned(KERNEL, index + 1);
        fill_page(page, round);
        CHECK(pwrite(file, page, PAGE, PAGE) == (ssize_t)PAGE && pread(file, copy, PAGE, PAGE) == (ssize_t)PAGE);
        expect_page(copy, round);
        counts[FILE_WRITES]++;
        memset(other, 0, PAGE);
        CHECK(pread(file, other, PAGE, PAGE) == (ssize_t)PAGE);
        expect_page(other, round);
        counts[FILE_READS]++;
        memset(other, 0, PAGE);
        CHECK(write(ends[1], page, PAGE) == (ssize_t)PAGE && read(ends[0], other, PAGE) == (ssize_t)PAGE);
        expect_page(other, round);
        counts[PIPES]++;
        // The kernel writes numbers that nobody knows, as many as it was asked for.
        CHECK(getrandom(page, 128, 0) == 128);
        memcpy(copy, page, PAGE);
        for (size_t i = 0; i < PAGE / 8; i++) CHECK((words(page)[i] == word(round, i)) == (i >= 128 / 8));
        CHECK(memcmp(copy, page, PAGE) == 0);
        counts[RANDOMS]++;
        struct iovec from = {copy, PAGE}, to = {other, PAGE};
        CHECK(process_vm_writev(getpid(), &from, 1, &to, 1, 0) == (ssize_t)PAGE);
        CHECK(memcmp(copy, other, PAGE) == 0);
        counts[OWN_VM_WRITES]++;
    }
    return NULL;
}

// The last values that the other process wrote are all there: as many as there are pages, without a gap.
static void end_outside(pid_t outside) {
    int status = 0;
    CHECK(waitpid(outside, &status, WNOHANG) == 0);
    CHECK(kill(outside, SIGKILL) == 0 && waitpid(outside, &status, 0) == outside);
    uint64_t last = 0;
    for (size_t i = 0; i < OWNED; i++)
        if (*words(owned(OUTSIDE, i)) > last) last = *words(owned(OUTSIDE, i));
    for (uint64_t value = last; value > 0 && value + OWNED > last; value--)
        CHECK(*words(owned(OUTSIDE, value)) == value);
    counts[OUTSIDE_WRITES] = last;
}

// Has the GiB promoted, and demoted by what cannot be done to a part of a gigantic page.
static void *promote_and_demote(void *unused) {
    while (!is_over) {
        madvise(shared, GIB, MADV_COLLAPSE);
        char *page = owned(SECOND_WRITER, 0);
        int changed = mprotect(page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0;
        CHECK(changed || errno == ENOMEM);
        if (changed) UNTIL_MADE(mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0);
    }
    return unused;
}

// Forks once it is time. No slot is promoted for a minute after a fork.
static void *fork_again(void *unused) {
    enum { LENGTH = 64 * MIB };
    char *own = map(LENGTH);
    while (!may_fork && !is_over) usleep(10000);
    for (uint64_t round = 1; !is_over; round++) {
        fill(own, 0, LENGTH, round);
        pid_t child;
        UNTIL_MADE((child = fork()) >= 0);
        if (child == 0) {
            alarm(60);
            usleep(10000); // the parent writes meanwhile
            expect(own, 0, LENGTH, round);
            for (size_t i = 0; i < OWNED; i++) CHECK(words(owned(FIRST_WRITER, i))[STILL] == still(i));
            for (size_t i = 0; i < OWNED; i++) words(owned(SECOND_WRITER, i))[CHILDS] = 1;
            fill(own, 0, LENGTH, 0);
            _exit(0);
        }
        fill(own, 0, LENGTH, round + 1);
        end_well(child);
        expect(own, 0, LENGTH, round + 1);
        counts[FORKS]++;
    }
    return unused;
}

// Random changes to mappings of each size, each of which the program knows the outcome of.
enum { WALKERS = 2, PIECES = 12 };
static struct Piece {
    char *memory;
    size_t length;
    uint64_t seed;
} pieces[WALKERS][PIECES];

static void step(struct Piece *piece, uint64_t *state) {
    uint64_t choice = next(state) % 8;
    if (!piece->memory) {
        // The first mapping is as large as a gigantic page; there may be no more of those.
        piece->length = piece == &pieces[0][0] ? GIB : (1 + next(state) % 64) * MIB;
        piece->memory = map(piece->length);
        piece->seed = next(state);
        expect_zero(piece->memory, 0, PAGE);
        fill(piece->memory, 0, piece->length, piece->seed);
        counts[FIRST_TOUCHES]++;
        return;
    }
    expect(piece->memory, 0, piece->length, piece->seed);
    size_t pages = piece->length / PAGE;
    size_t from = next(state) % pages * PAGE, to = from + (1 + next(state) % 1024) * PAGE;
    if (to > piece->length) to = piece->length;
    char *part = piece->memory + from;
    size_t length = to - from;
    switch (choice) {
    case 0:
        UNTIL_MADE(munmap(piece->memory, piece->length) == 0);
        piece->memory = NULL;
        counts[UNMAPS]++;
        break;
    case 1:
        UNTIL_MADE(madvise(part, length, MADV_DONTNEED) == 0);
        expect_zero(piece->memory, from, to);
        fill(piece->memory, from, to, piece->seed);
        counts[EMPTIES]++;
        break;
    case 2:
        UNTIL_MADE(mprotect(part, length, PROT_READ) == 0);
        expect(piece->memory, from, to, piece->seed);
        UNTIL_MADE(mprotect(part, length, PROT_READ | PROT_WRITE) == 0);
        counts[PROTECTS]++;
        break;
    case 3:
        if (piece->length < 128 * MIB) {
            size_t longer = piece->length + 8 * MIB;
            char *moved;
            UNTIL_MADE((moved = mremap(piece->memory, piece->length, longer, MREMAP_MAYMOVE)) != MAP_FAILED);
            piece->memory = moved;
            expect_zero(piece->memory, piece->length, piece->length + PAGE);
            fill(piece->memory, piece->length, longer, piece->seed);
            piece->length = longer;
            counts[MOVES]++;
        }
        break;
    case 4:
        UNTIL_MADE(mmap(part, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == part);
        expect_zero(piece->memory, from, to);
        fill(piece->memory, from, to, piece->seed);
        counts[REPLACES]++;
        break;
    default:
        fill(piece->memory, from, to, piece->seed);
    }
}

static void *walk(void *argument) {
    size_t walker = (size_t)argument;
    uint64_t state = 88172645463325252UL + walker * 7919;
    while (!is_over) step(&pieces[walker][next(&state) % PIECES], &state);
    return NULL;
}

static void integrity(long seconds) {
    alarm((unsigned)seconds + 60); // a change that is refused for ever is tried for ever
    shared = map_in_parts();
    for (size_t owner = 0; owner < OWNERS; owner++)
        for (size_t i = 0; i < OWNED; i++) words(owned(owner, i))[STILL] = still(i);

    char path[] = "/var/tmp/superpage-integrity-XXXXXX";
    int file = make_file(path);
    int direct = open(path, O_RDONLY | O_DIRECT);
    if (direct >= 0) close(direct);

    void *(*const works[])(void *) = {write_words, write_words,   change_pages,       by_the_kernel, walk,
                                      walk,        read_directly, promote_and_demote, fork_again};
    void *const with[] = {(void *)FIRST_WRITER, (void *)SECOND_WRITER, NULL, &file, (void *)0, (void *)1, path};
    enum { THREADS = sizeof works / sizeof *works };
    pthread_t thread[THREADS];
    pid_t outside = start_outside();
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, works[i], i < sizeof with / sizeof *with ? with[i] : NULL) == 0);
    // Three quarters of the time for promotions, the last for forks.
    time_t begun = time(NULL);
    while (time(NULL) < begun + seconds) {
        usleep(100000);
        may_fork = time(NULL) >= begun + seconds * 3 / 4;
    }
    is_over = 1;
    for (size_t i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    end_outside(outside);
    unlink(path);
    counts[DIRECT_READS] = direct_reads;
    for (size_t kind = 0; kind < KINDS; kind++)
        if (kind != DIRECT_READS || direct >= 0) printf("%s %ld\n", names[kind], counts[kind]);
}

int main(int count, char **arguments) {
    if (count > 3 && !strcmp(arguments[1], "writes-outside")) return writes_outside(arguments);
    CHECK(count == 2);
    integrity(atol(arguments[1]));
    return 0;
}
