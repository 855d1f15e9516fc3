// Eight threads that write, read back and check every word of memory that lives in a file, while it is given up, the
// kernel reads and writes it, and the program forks. It prints what it did, and how many words were wrong.
//
// heap_integrity SECONDS

#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "memory.h"

enum { THREADS = 8 };
// The memory of a thread; the tests give memory for a third of all.
#define OWN (24 * MIB)
#define PAGES (OWN / PAGE)
#define WORDS (PAGE / 8)
// The most pages of an operation on neighbours: half as many again as a huge page has.
#define MOST 768
// The pages of an operation on pages that lie apart.
#define APART 48
// The most pages of a read or write by the kernel.
#define PIECE 64
// The time between two forks of the thread that forks.
#define BETWEEN_FORKS 3

// The counts. The first two are bytes.
enum Kind { WRITTEN, READ, WRONG, FORKS, DISCARDS, KERNEL_READS, KERNEL_WRITES, DIRECT_READS, DIRECT_WRITES, KINDS };
static const char *const names[KINDS] = {
    "written-bytes", "read-bytes", "wrong-words", "forks", "discards", "kernel-reads", "kernel-writes", "direct-reads", "direct-writes",
};
static atomic_long counts[KINDS];
static atomic_int is_over;
static char path[] = "/var/tmp/superpage-heap-integrity-XXXXXX";

struct Thread {
    size_t index;
    char *own;
    uint64_t state;
    // The values written so far, each with a number of its own.
    uint64_t values;
    // What each page holds; zero: zeroes.
    uint64_t held[PAGES];
    // The files that the kernel reads and writes: through the page cache, and past it where that is possible.
    int file, direct;
};

static uint64_t expected(uint64_t value, size_t index) {
    return value ? (value * 0x9E3779B97F4A7C15UL) ^ (index * 0xBF58476D1CE4E5B9UL) : 0;
}

static void check(const struct Thread *thread, size_t page) {
    const uint64_t *words = (const uint64_t *)(thread->own + page * PAGE);
    uint64_t value = thread->held[page];
    long wrong = 0;
    for (size_t i = 0; i < WORDS; i++) wrong += words[i] != expected(value, i);
    counts[READ] += (long)PAGE;
    if (!wrong) return;
    counts[WRONG] += wrong;
    fprintf(stderr, "thread %zu, page %zu: %ld words are wrong, the first is %#lx\n", thread->index, page, wrong, words[0]);
}

static void write_anew(struct Thread *thread, size_t page) {
    uint64_t *words = (uint64_t *)(thread->own + page * PAGE);
    uint64_t value = (thread->index + 1) << 48 | ++thread->values;
    for (size_t i = 0; i < WORDS; i++) words[i] = expected(value, i);
    thread->held[page] = value;
    counts[WRITTEN] += (long)PAGE;
}

// Has the kernel write some pages to a file and read that to others.
static void through_file(struct Thread *thread, int file, enum Kind reads) {
    size_t pages = 1 + next(&thread->state) % PIECE, length = pages * PAGE;
    size_t from = next(&thread->state) % (PAGES - 2 * PIECE), to = (from + PIECE + next(&thread->state) % (PAGES - 3 * PIECE)) % (PAGES - PIECE);
    off_t at = (off_t)(thread->index * PIECE * PAGE);
    CHECK(pwrite(file, thread->own + from * PAGE, length, at) == (ssize_t)length);
    CHECK(pread(file, thread->own + to * PAGE, length, at) == (ssize_t)length);
    uint64_t held[PIECE];
    memcpy(held, thread->held + from, pages * sizeof *held);
    memcpy(thread->held + to, held, pages * sizeof *held);
    for (size_t i = 0; i < pages; i++) check(thread, to + i);
    counts[reads]++;
    counts[reads + 1]++;
}

static void fork_and_check(struct Thread *thread) {
    pid_t child = fork();
    if (child < 0) {
        CHECK(errno == ENOMEM);
        return;
    }
    if (child == 0) {
        alarm(120);
        counts[WRONG] = 0;
        for (size_t page = 0; page < PAGES; page++) check(thread, page);
        for (size_t page = 0; page < PAGES; page += 7) write_anew(thread, page);
        for (size_t page = 0; page < PAGES; page++) check(thread, page);
        _exit(counts[WRONG] != 0);
    }
    // The parent writes meanwhile.
    for (size_t page = 0; page < PAGES; page += 3) write_anew(thread, page);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0) counts[WRONG]++;
    counts[FORKS]++;
}

static void step(struct Thread *thread) {
    uint64_t choice = next(&thread->state) % 16;
    size_t from = next(&thread->state) % PAGES, pages = 1 + next(&thread->state) % MOST;
    if (from + pages > PAGES) pages = PAGES - from;
    if (choice < 2) {
        through_file(thread, thread->file, KERNEL_READS);
    } else if (choice < 4) {
        if (thread->direct >= 0) through_file(thread, thread->direct, DIRECT_READS);
    } else if (choice < 5) {
        CHECK(madvise(thread->own + from * PAGE, pages * PAGE, MADV_DONTNEED) == 0);
        memset(thread->held + from, 0, pages * sizeof *thread->held);
        counts[DISCARDS]++;
    } else if (choice < 8) {
        for (size_t i = 0; i < APART; i++) {
            size_t page = next(&thread->state) % PAGES;
            check(thread, page);
            if (i % 2) write_anew(thread, page);
        }
    } else {
        for (size_t page = from; page < from + pages; page++) {
            check(thread, page);
            if (choice % 4) write_anew(thread, page);
        }
    }
}

static void *work(void *argument) {
    struct Thread *thread = argument;
    time_t forked = time(NULL);
    while (!is_over) {
        step(thread);
        if (thread->index == 0 && time(NULL) >= forked + BETWEEN_FORKS) {
            fork_and_check(thread);
            forked = time(NULL);
        }
    }
    for (size_t page = 0; page < PAGES; page++) check(thread, page);
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    long seconds = atol(arguments[1]);
    alarm((unsigned)seconds + 120);
    char *memory = map(THREADS * OWN);
    static struct Thread all[THREADS];
    pthread_t threads[THREADS];
    int file = mkstemp(path);
    CHECK(file >= 0);
    int direct = open(path, O_RDWR | O_DIRECT);
    unlink(path);
    for (size_t i = 0; i < THREADS; i++) {
        all[i].index = i;
        all[i].own = memory + i * OWN;
        all[i].state = 88172645463325252UL + i * 7919;
        all[i].file = file;
        all[i].direct = direct;
        CHECK(pthread_create(&threads[i], NULL, work, &all[i]) == 0);
    }
    for (time_t end = time(NULL) + seconds; time(NULL) < end;) usleep(100000);
    is_over = 1;
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (size_t kind = 0; kind < KINDS; kind++)
        if (direct >= 0 || kind < DIRECT_READS) printf("%s %ld\n", names[kind], counts[kind]);
    return counts[WRONG] != 0;
}
