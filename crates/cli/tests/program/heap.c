// A program whose memory lives in a file: `superpage run --heap`. Each part has more data than there is memory, does what
// programs do to memory, and compares every word that it reads with what it wrote.
//
// heap PART [ARGUMENT]

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>

#include "memory.h"

extern char **environ;

// The data of most parts; the tests give memory for a part of it.
#define LENGTH (160 * MIB)
// As much as pushes everything else out of memory.
#define PRESSURE (80 * MIB)
// Data of parts that need little.
#define SOME (32 * MIB)
#define HUGE (2 * MIB)

static uint64_t *words(char *page) { return (uint64_t *)page; }

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

// Touches more than there is memory for, not in order: what a stream has left behind leaves memory before all else.
static void push_out(void) {
    static char *pressure;
    static uint64_t round;
    if (!pressure) pressure = map(PRESSURE);
    else if (round % 4 == 1) expect(pressure, 0, PRESSURE, round);
    round++;
    for (size_t i = 0; i < PRESSURE / HUGE; i++) {
        size_t from = i * 27 % (PRESSURE / HUGE) * HUGE;
        fill(pressure, from, from + HUGE, round);
    }
}

static pthread_t start(void *(*work)(void *), void *argument) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, argument) == 0);
    return thread;
}

// ---------------------------------------------------------------- threads

enum { THREADS = 4 };
static char *shared;

static void *in_orders(void *argument) {
    size_t thread = (size_t)argument, length = LENGTH / THREADS;
    char *own = shared + thread * length;
    uint64_t state = 88172645463325252UL + thread;
    for (uint64_t round = 0; round < 2; round++) {
        fill(own, 0, length, round);
        expect(own, 0, length, round);
        for (size_t at = length; at > 0; at -= PAGE) expect(own, at - PAGE, at, round);
        for (int i = 0; i < 1500; i++) {
            size_t at = next(&state) % (length / PAGE) * PAGE;
            expect(own, at, at + PAGE, round);
            fill(own, at, at + PAGE, round);
        }
    }
    return NULL;
}

// Several threads go through their data forwards, backwards and at random.
static int orders(void) {
    shared = map(LENGTH);
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) threads[i] = start(in_orders, (void *)i);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}

// The anonymous memory of this process that is in memory.
static size_t anonymous(void) {
    char line[256];
    size_t kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status);
    while (fgets(line, sizeof line, status) && sscanf(line, "RssAnon: %zu", &kib) != 1) {}
    CHECK(fclose(status) == 0 && kib > 0);
    return kib * 1024;
}

enum { WRITERS = 16, TIMES = 8000 };

// Writes at random to pages of its own.
static void *at_random(void *argument) {
    size_t thread = (size_t)argument, pages = LENGTH / PAGE / WRITERS;
    static uint64_t counts[WRITERS][LENGTH / PAGE / WRITERS];
    uint64_t state = 23 + thread;
    for (int i = 0; i < TIMES; i++) {
        size_t index = next(&state) % pages;
        uint64_t *page = words(shared + (index * WRITERS + thread) * PAGE);
        CHECK(page[thread] == counts[thread][index]);
        page[thread] = ++counts[thread][index];
    }
    return NULL;
}

// More threads write at random than serve faults. Not more than so many MiB may be in memory meanwhile.
static int bounded(int mib) {
    pthread_t threads[WRITERS];
    shared = map(LENGTH);
    for (size_t at = 0; at < LENGTH; at += PAGE) words(shared + at)[PAGE / sizeof(uint64_t) - 1] = at + 1;
    for (size_t i = 0; i < WRITERS; i++) threads[i] = start(at_random, (void *)i);
    size_t seen = 0;
    for (size_t i = 0; i < WRITERS; i++)
        while (pthread_tryjoin_np(threads[i], NULL)) {
            size_t now = anonymous();
            seen = now > seen ? now : seen;
            usleep(1000);
        }
    if (seen > (size_t)mib * MIB) printf("%zu bytes were in memory\n", seen);
    CHECK(seen <= (size_t)mib * MIB);
    for (size_t at = 0; at < LENGTH; at += PAGE) CHECK(words(shared + at)[PAGE / sizeof(uint64_t) - 1] == at + 1);
    return 0;
}

// A reservation of which a piece of each 2 MiB may be used, as collectors commit memory. Not more than `mib` MiB may be in memory.
static int pieces(int mib) {
    enum { RANGES = 300, PIECE = 16 };
    char *memory = mmap(NULL, RANGES * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED);
    size_t seen = 0;
    for (int round = 0; round < 3; round++)
        for (size_t range = 0; range < RANGES; range++) {
            char *piece = memory + range * HUGE;
            if (round == 0) CHECK(mprotect(piece, PIECE * PAGE, PROT_READ | PROT_WRITE) == 0);
            for (size_t page = 0; page < PIECE; page++) {
                uint64_t *word = words(piece + page * PAGE);
                CHECK(*word == (round == 0 ? 0 : range * PIECE + page + 1));
                *word = range * PIECE + page + 1;
            }
            if (range % 16 == 0) {
                size_t now = anonymous();
                seen = now > seen ? now : seen;
            }
        }
    if (seen > (size_t)mib * MIB) printf("%zu bytes were in memory\n", seen);
    CHECK(seen <= (size_t)mib * MIB);
    return 0;
}

static atomic_int is_over;
// Words of a page: those of the counting thread, and of the two that spin.
enum { COUNT = 3, SPIN = 100, STILL = 200 };
enum { SPINNERS = 2, SPUN = 24 };
static uint64_t spun[SPINNERS][SPUN];

// Increments a word in each of some pages, as fast as it can: the first page of some ranges, another of the others.
static void *spin(void *argument) {
    size_t spinner = (size_t)argument;
    for (uint64_t round = 0; !is_over; round++) {
        size_t which = round / 64 % SPUN;
        char *page = shared + which * 3 * HUGE + which % 5 * 77 * PAGE;
        volatile uint64_t *word = words(page) + SPIN + spinner;
        CHECK(*word == spun[spinner][which]);
        *word = ++spun[spinner][which];
    }
    return NULL;
}

static void *count_up(void *argument) {
    size_t thread = (size_t)argument, pages = LENGTH / PAGE / THREADS;
    static uint32_t counts[THREADS][LENGTH / PAGE / THREADS];
    uint64_t state = 42 + thread;
    for (uint64_t round = 0; !is_over; round++) {
        // A run through some pages, and a few anywhere.
        size_t from = next(&state) % pages, many = round % 2 ? 2048 : 16;
        for (size_t i = 0; i < many; i++) {
            size_t index = (from + i * (round % 2 ? 1 : 997)) % pages;
            uint64_t *page = words(shared + (index * THREADS + thread) * PAGE);
            CHECK(page[COUNT] == counts[thread][index] && page[STILL] == word(7, index));
            if (next(&state) % 4 == 0) page[COUNT] = ++counts[thread][index];
        }
    }
    for (size_t index = 0; index < pages; index++) {
        uint64_t *page = words(shared + (index * THREADS + thread) * PAGE);
        CHECK(page[COUNT] == counts[thread][index] && page[STILL] == word(7, index));
    }
    return NULL;
}

// A page that was written never counts as clean: counters in all pages are incremented while these come and go.
static int counters(int seconds) {
    shared = map(LENGTH);
    for (size_t index = 0; index < LENGTH / PAGE; index++)
        words(shared + index * PAGE)[STILL] = word(7, index / THREADS);
    pthread_t threads[THREADS + SPINNERS];
    for (size_t i = 0; i < THREADS; i++) threads[i] = start(count_up, (void *)i);
    for (size_t i = 0; i < SPINNERS; i++) threads[THREADS + i] = start(spin, (void *)i);
    sleep((unsigned)seconds);
    is_over = 1;
    for (size_t i = 0; i < THREADS + SPINNERS; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < SPINNERS; i++)
        for (size_t which = 0; which < SPUN; which++)
            CHECK(words(shared + which * 3 * HUGE + which % 5 * 77 * PAGE)[SPIN + i] == spun[i][which]);
    return 0;
}

// ---------------------------------------------------------------- the kernel

static char path[] = "/var/tmp/superpage-heap-test-XXXXXX";

// Writes memory that is not there to a file, and reads the file to such memory; past the page cache and through it.
static void through_file(int flags) {
    enum { PIECE = 64 * 1024 };
    int file = open(path, O_RDWR | flags);
    if (file < 0 && flags) return; // a file system without
    CHECK(file >= 0);
    char *from = map(SOME), *to = map(SOME);
    fill(from, 0, SOME, 1);
    fill(to, 0, SOME, 2);
    push_out();
    for (size_t at = 0; at < SOME; at += PIECE) CHECK(pwrite(file, from + at, PIECE, (off_t)at) == PIECE);
    for (size_t at = 0; at < SOME; at += PIECE) CHECK(pread(file, to + at, PIECE, (off_t)at) == PIECE);
    expect(to, 0, SOME, 1);
    push_out();
    expect(to, 0, SOME, 1);
    expect(from, 0, SOME, 1);
    // A single call reads many pages that are not there.
    CHECK(lseek(file, 0, SEEK_SET) == 0 && write(file, to, SOME) == (ssize_t)SOME);
    fill(from, 0, SOME, 3);
    push_out();
    CHECK(lseek(file, 0, SEEK_SET) == 0 && read(file, from, SOME) == (ssize_t)SOME);
    expect(from, 0, SOME, 1);
    CHECK(munmap(from, SOME) == 0 && munmap(to, SOME) == 0 && close(file) == 0);
}

// Another process, which reads and writes this one's memory.
static int outside(char **arguments) {
    pid_t process = atoi(arguments[2]);
    char *there = (char *)strtoul(arguments[3], NULL, 0), *copy = map(SOME);
    struct iovec local = {copy, SOME}, remote = {there, SOME};
    CHECK(process_vm_readv(process, &local, 1, &remote, 1, 0) == (ssize_t)SOME);
    expect(copy, 0, SOME, 1);
    fill(copy, 0, SOME, 2);
    CHECK(process_vm_writev(process, &local, 1, &remote, 1, 0) == (ssize_t)SOME);
    return 0;
}

static int by_the_kernel(void) {
    int file = mkstemp(path);
    CHECK(file >= 0);
    through_file(0);
    through_file(O_DIRECT);
    close(file);
    unlink(path);
    char *memory = map(SOME), process[32], place[32];
    fill(memory, 0, SOME, 1);
    push_out();
    snprintf(process, sizeof process, "%d", getpid());
    snprintf(place, sizeof place, "%p", (void *)memory);
    char *arguments[] = {"heap", "outside", process, place, NULL};
    pid_t other;
    CHECK(posix_spawn(&other, "/proc/self/exe", NULL, NULL, arguments, environ) == 0);
    end_well(other);
    expect(memory, 0, SOME, 2);
    push_out();
    expect(memory, 0, SOME, 2);
    return 0;
}

static void *read_directly(void *unused) {
    int file = open(path, O_RDONLY | O_DIRECT);
    if (file < 0) return unused;
    for (size_t round = 0; !is_over; round++) {
        char *page = shared + round * 37 % (SOME / PAGE) * PAGE;
        memset(page, 0, PAGE);
        CHECK(pread(file, page, PAGE, 0) == (ssize_t)PAGE);
        CHECK(*words(page) == word(24, 0) && words(page)[511] == word(24, 511));
    }
    close(file);
    return NULL;
}

// The device writes to pages while these are paged in and out.
static int direct_reads(int seconds) {
    char block[PAGE] __attribute__((aligned(4096)));
    for (size_t i = 0; i < PAGE / 8; i++) words(block)[i] = word(24, i);
    int file = mkstemp(path);
    CHECK(file >= 0 && write(file, block, PAGE) == (ssize_t)PAGE && fsync(file) == 0);
    shared = map(SOME);
    pthread_t thread = start(read_directly, NULL);
    for (double end = now() + seconds; now() < end;) push_out();
    is_over = 1;
    pthread_join(thread, NULL);
    unlink(path);
    return 0;
}

// ---------------------------------------------------------------- what programs do to mappings

static const int given_up[] = {MADV_DONTNEED, MADV_FREE};

static int gives_up(void) {
    for (size_t i = 0; i < 2; i++) {
        char *memory = map(SOME);
        for (int is_out = 0; is_out < 2; is_out++) {
            fill(memory, 0, SOME, 1);
            if (is_out) push_out();
            // A whole range, a part of one, a page, and a part of several.
            size_t parts[][2] = {{4 * HUGE, 5 * HUGE}, {6 * HUGE + 7 * PAGE, 6 * HUGE + 90 * PAGE},
                                 {8 * HUGE, 8 * HUGE + PAGE}, {9 * HUGE + PAGE, 12 * HUGE - PAGE}};
            for (size_t part = 0; part < 4; part++) {
                size_t from = parts[part][0], to = parts[part][1];
                CHECK(madvise(memory + from, to - from, given_up[i]) == 0);
                // MADV_FREE may leave what was there, until it is needed elsewhere.
                if (part % 2) expect_zero(memory, from, to);
            }
            push_out();
            for (size_t part = 0, from = 0; part <= 4; part++) {
                expect(memory, from, part < 4 ? parts[part][0] : SOME, 1);
                if (part == 4) break;
                expect_zero(memory, parts[part][0], parts[part][1]);
                from = parts[part][1];
            }
            push_out();
            CHECK(madvise(memory, SOME, given_up[i]) == 0);
            push_out();
            expect_zero(memory, 0, SOME);
        }
        CHECK(munmap(memory, SOME) == 0);
    }
    return 0;
}

static char *map_at(char *place, size_t length, int file) {
    int flags = MAP_PRIVATE | MAP_FIXED | (file < 0 ? MAP_ANONYMOUS : 0);
    char *memory = mmap(place, length, PROT_READ | PROT_WRITE, flags, file, 0);
    CHECK(memory == place);
    return memory;
}

static int maps_anew(void) {
    for (int round = 0; round < 3; round++) {
        char *memory = map(SOME);
        expect_zero(memory, 0, SOME);
        fill(memory, 0, SOME, 1);
        if (round) push_out();
        CHECK(munmap(memory + 5 * HUGE + PAGE, 3 * HUGE) == 0);
        CHECK(!is_readable(memory + 5 * HUGE + PAGE) && !is_readable(memory + 8 * HUGE));
        push_out();
        map_at(memory + 5 * HUGE + PAGE, 3 * HUGE, -1);
        expect_zero(memory, 5 * HUGE + PAGE, 8 * HUGE + PAGE);
        expect(memory, 0, 5 * HUGE + PAGE, 1);
        expect(memory, 8 * HUGE + PAGE, SOME, 1);
        CHECK(munmap(memory, SOME) == 0);
    }
    return 0;
}

static int moves(void) {
    char *memory = map(SOME);
    fill(memory, 0, SOME, 1);
    push_out();
    char *moved = mremap(memory, SOME, SOME + 10 * HUGE + PAGE, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED);
    expect(moved, 0, SOME, 1);
    expect_zero(moved, SOME, SOME + 10 * HUGE + PAGE);
    // Something behind it has it move.
    char *behind = mmap(moved + SOME + 10 * HUGE + PAGE, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(behind != MAP_FAILED);
    fill(moved, 0, SOME + 10 * HUGE, 2);
    push_out();
    char *other = mremap(moved, SOME + 10 * HUGE + PAGE, 2 * SOME, MREMAP_MAYMOVE);
    CHECK(other != MAP_FAILED);
    expect(other, 0, SOME + 10 * HUGE, 2);
    expect_zero(other, SOME + 10 * HUGE, 2 * SOME);
    CHECK(mremap(other, 2 * SOME, 3 * HUGE + PAGE, 0) == other);
    CHECK(!is_readable(other + 3 * HUGE + PAGE));
    push_out();
    CHECK(mremap(other, 3 * HUGE + PAGE, 8 * HUGE, MREMAP_MAYMOVE) == other);
    expect(other, 0, 3 * HUGE + PAGE, 2);
    expect_zero(other, 3 * HUGE + PAGE, 8 * HUGE);
    // To a place that is given, over what is there.
    char *target = map(SOME);
    fill(target, 0, SOME, 3);
    CHECK(mremap(other, 3 * HUGE, 3 * HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, target + HUGE) == target + HUGE);
    push_out();
    expect(target, 0, HUGE, 3);
    for (size_t at = 0; at < 3 * HUGE; at += PAGE) CHECK(*words(target + HUGE + at) == word(2, at / PAGE));
    expect(target, 4 * HUGE, SOME, 3);
    CHECK(!is_readable(other) && is_readable(other + 3 * HUGE));
    // These calls are refused by the kernel.
    CHECK(mremap(target, 4 * HUGE, 4 * HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, target + HUGE) == MAP_FAILED && errno == EINVAL);
    CHECK(mremap(target, HUGE, HUGE, MREMAP_FIXED, target + 8 * HUGE) == MAP_FAILED && errno == EINVAL);
    expect(target, 0, HUGE, 3);
    return 0;
}

static int maps_files(void) {
    int file = mkstemp(path);
    char *page = map(HUGE), *memory = map(SOME);
    fill(page, 0, HUGE, 9);
    CHECK(file >= 0 && unlink(path) == 0 && write(file, page, HUGE) == (ssize_t)HUGE);
    fill(memory, 0, SOME, 1);
    push_out();
    // A whole range and a part of one.
    char *places[] = {memory + 3 * HUGE, memory + 7 * HUGE + 5 * PAGE};
    for (size_t i = 0; i < 2; i++) {
        map_at(places[i], HUGE, file);
        expect(places[i], 0, HUGE, 9);
        fill(places[i], 0, HUGE, 10); // private
    }
    for (int round = 0; round < 3; round++) {
        push_out();
        for (size_t i = 0; i < 2; i++) expect(places[i], 0, HUGE, 10);
        expect(memory, 0, 3 * HUGE, 1);
        expect(memory, 4 * HUGE, 7 * HUGE + 5 * PAGE, 1);
        expect(memory, 8 * HUGE + 5 * PAGE, SOME, 1);
        fill(memory, 8 * HUGE + 5 * PAGE, SOME, 1);
    }
    CHECK(munmap(places[0], HUGE) == 0);
    CHECK(!is_readable(places[0]));
    map_at(places[1], HUGE, -1);
    expect_zero(places[1], 0, HUGE);
    fill(places[1], 0, HUGE, 11);
    // Anonymous memory with flags of its own.
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_LOCKED;
    char *locked = memory + 12 * HUGE + 30 * PAGE;
    CHECK(mmap(locked, 99 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == locked);
    fill(locked, 0, 99 * PAGE, 12);
    CHECK(munlock(locked, 99 * PAGE) == 0);
    for (int round = 0; round < 3; round++) {
        push_out();
        expect(places[1], 0, HUGE, 11);
        expect(memory, 9 * HUGE, 12 * HUGE + 30 * PAGE, 1);
        expect(memory, 12 * HUGE + 129 * PAGE, SOME, 1);
        expect(locked, 0, 99 * PAGE, 12);
        fill(locked, 0, 99 * PAGE, 12);
        fill(memory, 12 * HUGE, 12 * HUGE + 30 * PAGE, 1);
    }
    return 0;
}

// ---------------------------------------------------------------- protection and locks

static sigjmp_buf back;

static void jump_back(int signal) { siglongjmp(back, signal); }

enum Access { READS, WRITES };

// The signal that an access ends with; none if it is 0.
static int signal_of(char *memory, enum Access access) {
    int caught = sigsetjmp(back, 1);
    if (caught) return caught;
    volatile uint64_t *at = (volatile uint64_t *)memory;
    if (access == WRITES) *at = *at;
    else (void)*at;
    return 0;
}

static void catch_signals(void) {
    struct sigaction action = {.sa_handler = jump_back};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
}

static int protects(void) {
    catch_signals();
    char *memory = map(SOME), *none = memory + 4 * HUGE, *readable = memory + 9 * HUGE + 3 * PAGE;
    for (int round = 0; round < 3; round++) {
        fill(memory, 0, SOME, 1);
        if (round) push_out();
        CHECK(mprotect(none, 2 * HUGE, PROT_NONE) == 0 && mprotect(readable, HUGE, PROT_READ) == 0);
        CHECK(signal_of(none + PAGE, READS) == SIGSEGV && signal_of(none, WRITES) == SIGSEGV);
        CHECK(signal_of(readable, READS) == 0 && signal_of(readable, WRITES) == SIGSEGV);
        CHECK(signal_of(readable + HUGE, WRITES) == 0 && signal_of(readable - PAGE, WRITES) == 0);
        push_out();
        expect(memory, 0, 4 * HUGE, 1);
        expect(memory, 6 * HUGE, SOME, 1);
        CHECK(signal_of(none + PAGE, READS) == SIGSEGV && signal_of(readable, WRITES) == SIGSEGV);
        CHECK(mprotect(none, 2 * HUGE, PROT_READ | PROT_WRITE) == 0);
        push_out();
        CHECK(mprotect(readable, HUGE, PROT_READ | PROT_WRITE) == 0);
        expect(memory, 0, SOME, 1);
        fill(memory, 0, SOME, 2);
        push_out();
        expect(memory, 0, SOME, 2);
    }
    return 0;
}

static size_t resident(const char *memory, size_t length) {
    static unsigned char pages[SOME / PAGE];
    CHECK(mincore((void *)memory, length, pages) == 0);
    size_t count = 0;
    for (size_t i = 0; i < length / PAGE; i++) count += pages[i] & 1;
    return count;
}

// A page of each huge page is protected: what is around it leaves memory.
static int cuts(void) {
    char *memory = map(SOME);
    fill(memory, 0, SOME, 1);
    for (size_t at = 0; at < SOME; at += HUGE) CHECK(mprotect(memory + at + 7 * PAGE, PAGE, PROT_READ) == 0);
    size_t left = SOME / PAGE;
    for (double end = now() + 10; left > SOME / PAGE / 8 && now() < end; left = resident(memory, SOME)) push_out();
    CHECK(left <= SOME / PAGE / 8);
    expect(memory, 0, SOME, 1);
    CHECK(mprotect(memory, SOME, PROT_READ | PROT_WRITE) == 0);
    fill(memory, 0, SOME, 2);
    push_out();
    expect(memory, 0, SOME, 2);
    return 0;
}

// All of it is protected: it leaves memory all the same, and what is read of it comes back and leaves again.
static int protects_all(void) {
    char *memory = map(SOME);
    for (int round = 0; round < 4; round++) {
        int protection = round % 2 ? PROT_NONE : PROT_READ;
        fill(memory, 0, SOME, round);
        if (round < 2) push_out();
        CHECK(mprotect(memory, SOME, protection) == 0);
        uint64_t state = round + 1;
        for (int i = 0; i < 20000 && protection == PROT_READ; i++) {
            size_t at = next(&state) % (SOME / PAGE) * PAGE;
            expect(memory, at, at + PAGE, round);
        }
        size_t left = SOME / PAGE;
        for (double end = now() + 20; left > SOME / PAGE / 8 && now() < end; left = resident(memory, SOME)) push_out();
        CHECK(left <= SOME / PAGE / 8);
        CHECK(mprotect(memory, SOME, PROT_READ | PROT_WRITE) == 0);
        if (round % 2) fill(memory, SOME / 2, SOME / 2 + HUGE, round);
        expect(memory, 0, SOME, round);
    }
    return 0;
}

static atomic_int protections;

// Protects and unprotects parts while others have them paged.
static void *protect_and_back(void *unused) {
    uint64_t state = 9;
    for (; !is_over; protections++) {
        char *part = shared + next(&state) % (SOME / PAGE - 16) * PAGE;
        size_t length = (1 + next(&state) % 16) * PAGE;
        CHECK(mprotect(part, length, next(&state) % 2 ? PROT_NONE : PROT_READ) == 0);
        CHECK(mprotect(part, length, PROT_READ | PROT_WRITE) == 0);
        usleep(200);
    }
    return unused;
}

static int protects_meanwhile(int seconds) {
    shared = map(SOME);
    fill(shared, 0, SOME, 5);
    pthread_t thread = start(protect_and_back, NULL);
    for (double end = now() + seconds; now() < end;) push_out();
    is_over = 1;
    pthread_join(thread, NULL);
    expect(shared, 0, SOME, 5);
    return 0;
}

static int locks(void) {
    char *memory = map(SOME), *locked = memory + 3 * HUGE + PAGE;
    fill(memory, 0, SOME, 1);
    push_out();
    CHECK(mlock(locked, 4 * HUGE) == 0);
    for (int round = 0; round < 2; round++) {
        push_out();
        CHECK(resident(locked, 4 * HUGE) == 4 * HUGE / PAGE);
        expect(memory, 0, SOME, 1);
        fill(memory, 0, SOME, 1);
    }
    // Locked memory cannot be given up, but by the advice that says so.
    CHECK(madvise(locked, HUGE, MADV_DONTNEED) == -1 && errno == EINVAL);
    expect(memory, 0, SOME, 1);
    CHECK(madvise(locked, HUGE, MADV_DONTNEED_LOCKED) == 0);
    expect_zero(locked, 0, HUGE);
    push_out();
    expect_zero(locked, 0, HUGE);
    fill(memory, 0, SOME, 1);
    CHECK(munlock(locked, 4 * HUGE) == 0);
    push_out();
    push_out();
    expect(memory, 0, SOME, 1);
    CHECK(mlock(locked, 4 * HUGE) == 0 && munmap(locked, 2 * HUGE) == 0);
    map_at(locked, 2 * HUGE, -1);
    expect_zero(locked, 0, 2 * HUGE);
    push_out();
    expect_zero(locked, 0, 2 * HUGE);
    return 0;
}

// Memory that lives in a file is not locked as a whole; what is in it stays right.
static int locks_all(void) {
    char *memory = map(SOME);
    fill(memory, 0, SOME, 1);
    push_out();
    int kinds[] = {MCL_CURRENT, MCL_FUTURE, MCL_CURRENT | MCL_FUTURE};
    for (size_t i = 0; i < 3; i++) {
        CHECK(mlockall(kinds[i]) == -1 && errno == ENOMEM);
        char *more = map(SOME);
        fill(more, 0, SOME, 2);
        push_out();
        expect(more, 0, SOME, 2);
        expect(memory, 0, SOME, 1);
        CHECK(munlockall() == 0 && munmap(more, SOME) == 0);
    }
    return 0;
}

static int guards(void) {
    enum { INSTALL = 102, REMOVE = 103 };
    catch_signals();
    char *memory = map(SOME), *guard = memory + 5 * HUGE + 9 * PAGE;
    fill(memory, 0, SOME, 1);
    push_out();
    if (madvise(guard, 3 * PAGE, INSTALL) != 0) {
        CHECK(errno == EINVAL); // as on an older kernel: nothing has changed
        expect(memory, 0, SOME, 1);
        return 0;
    }
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < 3; i++) CHECK(signal_of(guard + i * PAGE, READS) == SIGSEGV);
        expect(memory, 0, 5 * HUGE + 9 * PAGE, 1);
        expect(memory, 5 * HUGE + 12 * PAGE, SOME, 1);
        fill(memory, 5 * HUGE + 12 * PAGE, SOME, 1);
        push_out();
    }
    CHECK(madvise(guard, 3 * PAGE, REMOVE) == 0);
    expect_zero(guard, 0, 3 * PAGE);
    push_out();
    expect_zero(guard, 0, 3 * PAGE);
    fill(guard, 0, 3 * PAGE, 4);
    push_out();
    expect(guard, 0, 3 * PAGE, 4);
    return 0;
}

// ---------------------------------------------------------------- children

static int forks(void) {
    char *memory = map(LENGTH);
    fill(memory, 0, LENGTH, 1);
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            expect(memory, 0, LENGTH, 1);
            fill(memory, 0, LENGTH, 2);
            char *own = map(SOME);
            expect_zero(own, 0, SOME);
            usleep(100000);
            expect(memory, 0, LENGTH, 2);
            _exit(0);
        }
        expect(memory, 0, LENGTH, 1);
        fill(memory, 0, LENGTH, 3);
        push_out();
        expect(memory, 0, LENGTH, 3);
        end_well(child);
        fill(memory, 0, LENGTH, 1);
        push_out();
        expect(memory, 0, LENGTH, 1);
    }
    return 0;
}

// The parent writes to the first pages of ranges that it shares with a child that lives on, and needs the memory.
static int shares(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    shared = map(SOME);
    fill(shared, 0, SOME, 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char go;
        close(ends[1]);
        CHECK(read(ends[0], &go, 1) == 0);
        expect(shared, 0, SOME, 1);
        _exit(0);
    }
    close(ends[0]);
    for (size_t at = 0; at < SOME; at += HUGE) {
        *words(shared + at) = word(2, at / PAGE);
        *words(shared + at + 40 * PAGE) = word(2, at / PAGE + 40);
    }
    for (int round = 0; round < 3; round++) push_out();
    for (size_t at = 0; at < SOME; at += PAGE) {
        size_t index = at / PAGE % 512;
        CHECK(*words(shared + at) == word(index == 0 || index == 40 ? 2 : 1, at / PAGE));
    }
    close(ends[1]);
    end_well(child);
    return 0;
}

static atomic_size_t mapped_rounds;

// Maps memory and touches it for the first time, again and again.
static void *touch_anew(void *unused) {
    for (; !is_over; mapped_rounds++) {
        char *memory = map(8 * MIB);
        fill(memory, 0, 8 * MIB, 1);
        expect(memory, 0, 8 * MIB, 1);
        CHECK(munmap(memory, 8 * MIB) == 0);
    }
    return unused;
}

// Forks while other threads write, read, and touch new memory. STILL never changes, so a child knows it.
static int forks_meanwhile(int seconds) {
    shared = map(LENGTH);
    for (size_t index = 0; index < LENGTH / PAGE; index++)
        words(shared + index * PAGE)[STILL] = word(7, index / THREADS);
    pthread_t threads[THREADS + 1];
    for (size_t i = 0; i < THREADS; i++) threads[i] = start(count_up, (void *)i);
    threads[THREADS] = start(touch_anew, NULL);
    for (double end = now() + seconds; now() < end;) {
        usleep(100000);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            for (size_t index = 0; index < LENGTH / PAGE; index++)
                CHECK(words(shared + index * PAGE)[STILL] == word(7, index / THREADS));
            _exit(0);
        }
        end_well(child);
    }
    is_over = 1;
    for (size_t i = 0; i <= THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}

// The threads of this process, with those of the library: a child of a fork has such if it has a pager of its own.
static int threads_of_process(void) {
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    int count = 0;
    CHECK(status);
    while (fgets(line, sizeof line, status)) sscanf(line, "Threads: %d", &count);
    fclose(status);
    return count;
}

// Writes all of its memory and compares it, again and again, each time with another content.
static void go_on(char *memory, uint64_t seed, uint64_t rounds) {
    for (uint64_t round = 0; round < rounds; round++) {
        expect(memory, 0, LENGTH, seed);
        seed += 100;
        fill(memory, 0, LENGTH, seed);
        for (size_t at = LENGTH; at > 0; at -= 97 * PAGE) {
            if (at < 97 * PAGE) break;
            expect(memory, at - PAGE, at, seed);
        }
    }
    expect(memory, 0, LENGTH, seed);
}

// Parent, child and child's child have one content at the fork, and each writes its own, all at once.
static int generations(void) {
    char *memory = map(LENGTH);
    fill(memory, 0, LENGTH, 1);
    pid_t child;
    uint64_t seed = 1;
    for (uint64_t depth = 0; depth < 3; depth++) {
        child = fork();
        CHECK(child >= 0);
        if (child > 0) {
            go_on(memory, seed, 2);
            end_well(child);
            if (depth == 0) return 0;
            _exit(0);
        }
        alarm(100);
        CHECK(threads_of_process() > 1);
        // A half is its own, the rest is its parent's.
        expect(memory, 0, LENGTH, seed);
        seed = depth + 2;
        fill(memory, 0, LENGTH, seed);
    }
    go_on(memory, seed, 2);
    _exit(0);
}

// Children that write, are killed at any moment, end, or start another program, many more than the family has room for.
static int kills(void) {
    char *memory = map(LENGTH);
    fill(memory, 0, LENGTH, 1);
    uint64_t state = 4711;
    char *arguments[] = {"true", NULL};
    for (int round = 0; round < 60; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            if (threads_of_process() == 1) _exit(3);
            if (round % 4 == 1) execv("/bin/true", arguments);
            expect(memory, 0, SOME, (uint64_t)round + 1);
            for (uint64_t seed = 1000;; seed++) {
                fill(memory, 0, LENGTH, seed);
                expect(memory, 0, LENGTH, seed);
                if (round % 4 == 2) _exit(0);
            }
        }
        fill(memory, 0, LENGTH, (uint64_t)round + 2);
        if (round % 4 != 1 && round % 4 != 2) {
            usleep((unsigned)(next(&state) % 60000));
            CHECK(kill(child, SIGKILL) == 0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);
        expect(memory, 0, LENGTH, (uint64_t)round + 2);
    }
    return 0;
}

// Several children live at a time, of different moments.
static int siblings(void) {
    enum { SIBLINGS = 5 };
    char *memory = map(LENGTH);
    pid_t children[SIBLINGS];
    for (uint64_t i = 0; i < SIBLINGS; i++) {
        fill(memory, 0, LENGTH, i);
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            alarm(100);
            CHECK(threads_of_process() > 1);
            expect(memory, 0, LENGTH, i);
            if (i % 2) go_on(memory, i, 1);
            usleep(500000);
            expect(memory, 0, SOME, i % 2 ? i + 100 : i);
            _exit(0);
        }
    }
    go_on(memory, SIBLINGS - 1, 2);
    for (size_t i = 0; i < SIBLINGS; i++) end_well(children[i]);
    return 0;
}

// A child reads all that its parent had, twice, while the threads of that write: each page is as it was at the fork.
static int snapshots(int seconds) {
    shared = map(LENGTH);
    for (size_t index = 0; index < LENGTH / PAGE; index++)
        words(shared + index * PAGE)[STILL] = word(7, index / THREADS);
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) threads[i] = start(count_up, (void *)i);
    static uint32_t seen[LENGTH / PAGE];
    for (double end = now() + seconds; now() < end;) {
        usleep(200000);
        FILE *file = fopen("/dev/null", "w"); // libc touches it in the child
        CHECK(file && setvbuf(file, NULL, _IONBF, 0) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(100);
            CHECK(threads_of_process() > 1);
            for (int pass = 0; pass < 2; pass++)
                for (size_t index = 0; index < LENGTH / PAGE; index++) {
                    uint64_t *page = words(shared + index * PAGE);
                    CHECK(page[STILL] == word(7, index / THREADS));
                    if (pass == 0) seen[index] = (uint32_t)page[COUNT];
                    CHECK(page[COUNT] == seen[index]);
                }
            fputc('x', file);
            _exit(0);
        }
        end_well(child);
        fclose(file);
    }
    is_over = 1;
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}

// Forks again and again, with most of the heap out of memory, and the child touches a little of it.
static int forks_often(void) {
    char *memory = map(LENGTH);
    fill(memory, 0, LENGTH, 1);
    for (size_t round = 0; round < 20; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            CHECK(threads_of_process() > 1);
            size_t at = round * 7 * MIB;
            expect(memory, at, at + PAGE, 1);
            fill(memory, at, at + PAGE, 2);
            expect(memory, at, at + PAGE, 2);
            _exit(0);
        }
        end_well(child);
    }
    return 0;
}

// Its parents end at once, each after a fork; the last one says whether it was intact.
static int orphans(void) {
    char *memory = map(LENGTH);
    fill(memory, 0, LENGTH, 1);
    for (uint64_t depth = 0; depth < 3; depth++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child > 0) _exit(0);
        alarm(100);
        CHECK(threads_of_process() > 1);
        go_on(memory, depth + 1, 1);
        fill(memory, 0, LENGTH, depth + 2);
    }
    usleep(200000);
    expect(memory, 0, LENGTH, 4);
    puts("intact");
    fflush(stdout);
    _exit(0);
}

static int spawns(void) {
    char *memory = map(LENGTH);
    fill(memory, 0, LENGTH, 1);
    char *arguments[] = {"true", NULL};
    for (int round = 0; round < 10; round++) {
        pid_t child;
        CHECK(posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) == 0);
        end_well(child);
        child = vfork();
        if (child == 0) {
            execv("/bin/true", arguments);
            _exit(1);
        }
        end_well(child);
        CHECK(system("exit 3") == 3 << 8);
        FILE *said = popen("echo 17", "r");
        int number = 0;
        CHECK(said && fscanf(said, "%d", &number) == 1 && number == 17 && pclose(said) == 0);
    }
    expect(memory, 0, LENGTH, 1);
    return 0;
}

// The child lives on after its parent, and says at the end whether it was intact.
static int becomes_daemon(void) {
    char *memory = map(LENGTH);
    fill(memory, 0, LENGTH, 1);
    CHECK(daemon(1, 1) == 0);
    alarm(60);
    usleep(500000);
    expect(memory, 0, LENGTH, 1);
    fill(memory, 0, LENGTH, 2);
    expect(memory, 0, LENGTH, 2);
    puts("intact");
    return 0;
}

// Forks while threads write, and goes on with some of its data when the children have ended. Prints what is in memory then.
static int shrinks(int seconds) {
    forks_meanwhile(seconds);
    for (double end = now() + seconds; now() < end; usleep(10000))
        for (size_t i = 0; i < SOME / PAGE; i++) CHECK(words(shared + i * PAGE)[STILL] == word(7, i / THREADS));
    FILE *sizes = fopen("/proc/self/statm", "r");
    size_t resident_pages = 0;
    CHECK(sizes && fscanf(sizes, "%*u %zu", &resident_pages) == 1);
    printf("%zu\n", resident_pages * PAGE);
    return 0;
}

// ---------------------------------------------------------------- signals and stacks

static volatile sig_atomic_t handled;

static void touch_in_handler(int signal) {
    (void)signal;
    size_t at = (size_t)handled * 13 * PAGE % SOME;
    CHECK(*words(shared + at) == word(1, at / PAGE));
    handled++;
}

static int handles(int seconds) {
    shared = map(SOME);
    fill(shared, 0, SOME, 1);
    struct sigaction action = {.sa_handler = touch_in_handler, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 1000}, {0, 1000}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (double end = now() + seconds; now() < end;) {
        push_out();
        char *memory = map(4 * MIB);
        fill(memory, 0, 4 * MIB, 2);
        CHECK(munmap(memory, 4 * MIB) == 0);
    }
    CHECK(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL) == 0);
    CHECK(handled > 20);
    return 0;
}

static uint64_t deep(size_t depth) {
    volatile char frame[PAGE];
    frame[17] = (char)depth;
    uint64_t below = depth ? deep(depth - 1) : 0;
    CHECK(frame[17] == (char)depth);
    return below + 1;
}

static void *on_own_stack(void *argument) {
    size_t thread = (size_t)argument;
    for (int round = 0; round < 20; round++) {
        char *memory = map(4 * MIB);
        fill(memory, 0, 4 * MIB, thread);
        CHECK(deep(200) == 201);
        expect(memory, 0, 4 * MIB, thread);
        if (round % 4 == 0) usleep(50000); // its stack leaves memory
        CHECK(munmap(memory, 4 * MIB) == 0);
    }
    return NULL;
}

// The stacks of threads lie in the heap, in one huge page and across two.
static int stacks(void) {
    enum { STACK = 2 * MIB + 64 * PAGE };
    char *memory = map(THREADS * STACK);
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        pthread_attr_t attributes;
        CHECK(pthread_attr_init(&attributes) == 0);
        CHECK(pthread_attr_setstack(&attributes, memory + i * STACK, STACK) == 0);
        CHECK(pthread_create(&threads[i], &attributes, on_own_stack, (void *)i) == 0);
    }
    for (int round = 0; round < 3; round++) push_out();
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}

static int closes(void) {
    char *memory = map(LENGTH);
    fill(memory, 0, LENGTH, 1);
    CHECK(close_range(3, ~0U, 0) == 0);
    expect(memory, 0, LENGTH, 1);
    fill(memory, 0, LENGTH, 2);
    expect(memory, 0, LENGTH, 2);
    return 0;
}

// ---------------------------------------------------------------- what others do to it

// Has data that is mostly in the file, says so, and then reads it all again for each line that it is told.
static int waits(void) {
    // Not in the heap, whose file may be gone.
    static char input[BUFSIZ], output[BUFSIZ];
    CHECK(setvbuf(stdin, input, _IOFBF, BUFSIZ) == 0 && setvbuf(stdout, output, _IOFBF, BUFSIZ) == 0);
    char *memory = map(LENGTH), line[16];
    fill(memory, 0, LENGTH, 1);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        switch (line[0]) {
        case 'r': expect(memory, 0, LENGTH, 1); break;
        case 'a':
            printf("%p\n", (void *)memory);
            fflush(stdout);
            continue;
        case 'w':
            // Writes new memory before it reads, so that the pager writes to the file.
            push_out();
            expect(memory, 0, LENGTH, 1);
            break;
        case 'f': {
            pid_t child = fork();
            if (child == 0) {
                expect(memory, 0, LENGTH, 1);
                _exit(0);
            }
            if (child > 0) end_well(child);
            else CHECK(errno == ENOMEM);
            printf("%s\n", child > 0 ? "forked" : "refused");
            fflush(stdout);
            continue;
        }
        case 'd':
            if (daemon(1, 1) == 0) expect(memory, 0, LENGTH, 1);
            else CHECK(errno == ENOMEM && puts("refused") >= 0 && fflush(stdout) == 0);
            continue;
        default: return 1;
        }
        puts("right");
        fflush(stdout);
    }
    return 0;
}

typedef int Part(void);
typedef int Timed(int seconds);
static const struct {
    const char *name;
    Part *part;
    Timed *timed;
} parts[] = {
    {"orders", orders, NULL},
    {"bounded", NULL, bounded},
    {"pieces", NULL, pieces},
    {"counters", NULL, counters},
    {"by-the-kernel", by_the_kernel, NULL},
    {"direct-reads", NULL, direct_reads},
    {"gives-up", gives_up, NULL},
    {"maps-anew", maps_anew, NULL},
    {"moves", moves, NULL},
    {"maps-files", maps_files, NULL},
    {"protects", protects, NULL},
    {"cuts", cuts, NULL},
    {"protects-all", protects_all, NULL},
    {"protects-meanwhile", NULL, protects_meanwhile},
    {"locks", locks, NULL},
    {"locks-all", locks_all, NULL},
    {"guards", guards, NULL},
    {"forks", forks, NULL},
    {"shares", shares, NULL},
    {"forks-meanwhile", NULL, forks_meanwhile},
    {"generations", generations, NULL},
    {"kills", kills, NULL},
    {"siblings", siblings, NULL},
    {"snapshots", NULL, snapshots},
    {"orphans", orphans, NULL},
    {"forks-often", forks_often, NULL},
    {"spawns", spawns, NULL},
    {"becomes-daemon", becomes_daemon, NULL},
    {"shrinks", NULL, shrinks},
    {"handles", NULL, handles},
    {"stacks", stacks, NULL},
    {"closes", closes, NULL},
    {"waits", waits, NULL},
};

int main(int count, char **arguments) {
    CHECK(count >= 2);
    int number = count > 2 ? atoi(arguments[2]) : 0;
    if (!strcmp(arguments[1], "outside")) return outside(arguments);
    if (!strcmp(arguments[1], "exits")) return number;
    if (!strcmp(arguments[1], "dies")) return kill(getpid(), number);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(arguments[1], parts[i].name)) continue;
        return parts[i].part ? parts[i].part() : parts[i].timed(number);
    }
    return 2;
}
