// An ordinary program, as `superpage run` gets it: it knows nothing of the library, checks every byte that
// it wrote, and says in its exit code whether memory held what it should. The first argument says which
// part it plays; docs of live_run.rs.

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"

// Fills so many GiB, checks them, and prints how much of it 1 GiB pages map.
static int touch(size_t gib) {
    char *memory = map(gib * GIB);
    expect_zero(memory, 5 * MIB, 6 * MIB);
    fill(memory, 0, gib * GIB, 1);
    expect(memory, 0, gib * GIB, 1);
    printf("%zu\n", on_gigantic());
    CHECK(munmap(memory, gib * GIB) == 0);
    char *again = map(gib * GIB);
    expect_zero(again, GIB - MIB, GIB);
    return 0;
}

// Holds so many GiB, one more that it never touches, and 64 MiB on huge pages that are nearly empty. Others
// look at that, until a signal ends it.
static int holds(size_t gib) {
    fill(map(gib * GIB), 0, gib * GIB, 1);
    map(GIB);
    char *sparse = map(64 * MIB);
    for (size_t at = 0; at < 64 * MIB; at += 2 * MIB) sparse[at] = 1;
    puts("ready");
    fflush(stdout);
    pause();
    return 0;
}

// Holds a 1 GiB page of the kernel's pool and next to nothing else, without `superpage run`.
static int hugetlb(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | 30 << MAP_HUGE_SHIFT;
    char *memory = mmap(NULL, GIB, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(memory != MAP_FAILED);
    memory[0] = 1;
    puts("ready");
    fflush(stdout);
    pause();
    return 0;
}

// Uses a quarter of a GiB that a 1 GiB page maps, until the page is given up for the zeroes in it; and ends when its
// input does.
static int sparse(long seconds) {
    const size_t part = 256 * MIB, used = 64 * MIB;
    char *memory = map(GIB);
    uint64_t seed = 30;
    for (size_t at = 0; at < GIB; at += part) fill(memory, at, at + used, seed);
    CHECK(gigantic_at(memory) == GIB);
    puts("ready");
    fflush(stdout);
    for (time_t end = time(NULL) + seconds; gigantic_at(memory) != 0; seed++) {
        CHECK(time(NULL) < end);
        for (size_t at = 0; at < GIB; at += part) expect(memory, at, at + used, seed);
        for (size_t at = 0; at < GIB; at += part) fill(memory, at, at + used, seed + 1);
    }
    for (size_t at = 0; at < GIB; at += part) {
        expect(memory, at, at + used, seed);
        expect_zero(memory, at + used, at + part);
    }
    fill(memory, 0, GIB, seed);
    expect(memory, 0, GIB, seed);
    CHECK(getchar() == EOF);
    return 0;
}

// Changes parts of a GiB in each way there is.
static int parts(void) {
    char *memory = map(GIB);
    fill(memory, 0, GIB, 2);
    CHECK(munmap(memory + 8 * MIB, 4 * MIB) == 0);
    expect(memory, 0, 8 * MIB, 2);
    expect(memory, 12 * MIB, GIB, 2);
    CHECK(mprotect(memory + 8 * MIB, PAGE, PROT_READ) == -1 && errno == ENOMEM);
    CHECK(munmap(memory, GIB) == 0);

    memory = map(GIB);
    fill(memory, 0, GIB, 3);
    CHECK(mprotect(memory + 3 * PAGE, PAGE, PROT_READ) == 0);
    expect(memory, 0, GIB, 3);
    CHECK(mprotect(memory + 3 * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
    fill(memory, 0, GIB, 4);
    expect(memory, 0, GIB, 4);

    char *other = map(GIB);
    fill(other, 0, GIB, 5);
    size_t gigantic = gigantic_at(other);
    CHECK(madvise(other + 16 * MIB, 3 * MIB, MADV_DONTNEED) == 0);
    expect(other, 0, 16 * MIB, 5);
    expect_zero(other, 16 * MIB, 19 * MIB);
    expect(other, 19 * MIB, GIB, 5);
    CHECK(gigantic_at(other) == gigantic); // a part of it is no reason to give the page up
    CHECK(madvise(other + 100 * MIB, 600 * MIB, MADV_DONTNEED) == 0);
    expect(other, 19 * MIB, 100 * MIB, 5);
    expect_zero(other, 100 * MIB, 700 * MIB);
    expect(other, 700 * MIB, GIB, 5);
    CHECK(gigantic_at(other) == 0); // but most of it is

    // A whole GiB that is emptied can be used again.
    char *whole = map(GIB);
    fill(whole, 0, GIB, 6);
    CHECK(madvise(whole, GIB, MADV_DONTNEED) == 0);
    expect_zero(whole, 0, 4 * MIB);
    fill(whole, 0, GIB, 7);
    expect(whole, 0, GIB, 7);
    CHECK(madvise(whole, GIB, MADV_HUGEPAGE) == 0 && madvise(whole, MIB, MADV_COLD) == 0);
    CHECK(madvise(whole, MIB, MADV_DONTFORK) == 0);
    expect(whole, 0, GIB, 7);

    // Growing moves it, shrinking does not.
    char *grown = map(GIB);
    fill(grown, 0, GIB, 8);
    grown = mremap(grown, GIB, GIB + 64 * MIB, MREMAP_MAYMOVE);
    CHECK(grown != MAP_FAILED);
    expect(grown, 0, GIB, 8);
    expect_zero(grown, GIB, GIB + 64 * MIB);
    CHECK(mremap(grown, GIB + 64 * MIB, 32 * MIB, 0) == grown);
    expect(grown, 0, 32 * MIB, 8);

    // A file over a part.
    char name[] = "/tmp/superpage-test-XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0 && unlink(name) == 0 && ftruncate(file, MIB) == 0);
    CHECK(pwrite(file, "file", 4, 0) == 4);
    char *mixed = map(GIB);
    fill(mixed, 0, GIB, 9);
    char *over = mmap(mixed + 2 * MIB, MIB, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0);
    CHECK(over == mixed + 2 * MIB && memcmp(over, "file", 4) == 0);
    expect(mixed, 0, 2 * MIB, 9);
    expect(mixed, 3 * MIB, GIB, 9);
    CHECK(syscall(SYS_munmap, mixed, GIB) == 0);
    return 0;
}

struct Share {
    char *memory;
    size_t slots, index;
    pthread_barrier_t *barrier;
};

static void *touch_all(void *argument) {
    struct Share *share = argument;
    for (size_t slot = 0; slot < share->slots; slot++) {
        pthread_barrier_wait(share->barrier);
        char *slot_start = share->memory + slot * GIB;
        for (size_t page = share->index; page < 4096; page += 8)
            *(uint64_t *)(slot_start + page * PAGE * 64) = word(share->index, page);
    }
    return NULL;
}

// Eight threads touch each GiB at the same moment; none may lose what another wrote.
static int threads(size_t gib) {
    char *memory = map(gib * GIB);
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 8);
    pthread_t thread[8];
    struct Share share[8];
    for (size_t i = 0; i < 8; i++) {
        share[i] = (struct Share){memory, gib, i, &barrier};
        CHECK(pthread_create(&thread[i], NULL, touch_all, &share[i]) == 0);
    }
    for (size_t i = 0; i < 8; i++) pthread_join(thread[i], NULL);
    for (size_t slot = 0; slot < gib; slot++)
        for (size_t page = 0; page < 4096; page++)
            CHECK(*(uint64_t *)(memory + slot * GIB + page * PAGE * 64) == word(page % 8, page));
    printf("%zu\n", on_gigantic());
    return 0;
}

// Forks in each way; parent and child see what was there before, and not what the other writes then.
static int forks(void) {
    char *memory = map(GIB);
    fill(memory, 0, GIB, 10);
    printf("%zu\n", on_gigantic());
    fflush(stdout);
    int go[2];
    CHECK(pipe(go) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        CHECK(read(go[0], &byte, 1) == 1);
        expect(memory, 0, GIB, 10);
        fill(memory, 0, 64 * MIB, 11);
        char *own = map(2 * GIB);
        expect_zero(own, GIB - MIB, GIB + MIB);
        CHECK(munmap(memory + 64 * MIB, MIB) == 0);
        pid_t grandchild = fork();
        CHECK(grandchild >= 0);
        if (grandchild == 0) {
            expect(memory, 0, 64 * MIB, 11);
            _exit(0);
        }
        end_well(grandchild);
        _exit(0);
    }
    fill(memory, GIB - 64 * MIB, GIB, 12);
    CHECK(write(go[1], "x", 1) == 1);
    // The child was forked before the write above, and must not see it: it checks all with 10.
    end_well(child);
    expect(memory, 0, GIB - 64 * MIB, 10);
    expect(memory, GIB - 64 * MIB, GIB, 12);

    child = syscall(SYS_fork);
    CHECK(child >= 0);
    if (child == 0) {
        expect(memory, 0, GIB - 64 * MIB, 10);
        _exit(0);
    }
    end_well(child);
    CHECK(system("exit 0") == 0);
    FILE *output = popen("echo said", "r");
    char line[8];
    CHECK(output && fgets(line, sizeof line, output) && strcmp(line, "said\n") == 0);
    CHECK(pclose(output) == 0);
    return 0;
}

static void *reads_all(void *memory) {
    expect(memory, 0, GIB, 15);
    fill(memory, 0, GIB, 16);
    return NULL;
}

// Has a GiB filled by its first thread, before the second is there, and forks with both. Prints how much 1 GiB pages
// map with one thread, and with two.
static int second_thread(void) {
    char *memory = map(GIB);
    fill(memory, 0, GIB, 15);
    printf("%zu\n", on_gigantic());
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, reads_all, memory) == 0);
    char *other = map(GIB);
    fill(other, 0, GIB, 17);
    printf("%zu\n", on_gigantic());
    fflush(stdout);
    pthread_join(thread, NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        expect(memory, 0, GIB, 16);
        expect(other, 0, GIB, 17);
        _exit(0);
    }
    fill(memory, 0, GIB, 18);
    end_well(child);
    expect(memory, 0, GIB, 18);
    return 0;
}

// Closes every descriptor; memory that is touched then is served as before.
static int closes(void) {
    char *memory = map(2 * GIB);
    fill(memory, 0, GIB, 13);
    close_range(3, ~0U, 0);
    expect_zero(memory, GIB, GIB + MIB);
    fill(memory, GIB, 2 * GIB, 13);
    expect(memory, 0, 2 * GIB, 13);
    printf("%zu\n", on_gigantic());
    return 0;
}

// The kernel reads into memory that was never touched, and out of it.
static int by_the_kernel(void) {
    char *memory = map(2 * GIB);
    int zero = open("/dev/zero", O_RDONLY);
    CHECK(zero >= 0);
    CHECK(read(zero, memory + GIB / 2, MIB) == MIB);
    int null = open("/dev/null", O_WRONLY);
    CHECK(null >= 0 && write(null, memory + GIB, MIB) == MIB);
    int ends[2];
    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], "through a pipe", 14) == 14);
    CHECK(read(ends[0], memory + 2 * GIB - 14, 14) == 14);
    CHECK(memcmp(memory + 2 * GIB - 14, "through a pipe", 14) == 0);
    return 0;
}

static char *handled;
static volatile sig_atomic_t handlers;
static timer_t timer;

// The next signal comes 20 ms from now.
static int next_signal(void) {
    struct itimerspec once = {.it_value = {0, 20000000}};
    return timer_settime(timer, 0, &once, NULL);
}

static void handler(int signal) {
    (void)signal;
    // Touches a new GiB, and maps and unmaps memory, wherever the thread was.
    size_t at = (size_t)handlers * GIB + 17 * PAGE;
    *(uint64_t *)(handled + at) = word(14, handlers);
    char *memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) _exit(1);
    memory[0] = 1;
    if (munmap(memory, MIB) != 0) _exit(1);
    // A first touch may take longer than 20 ms: a signal that came in it would leave the calls no time.
    if (++handlers < 3 && next_signal() != 0) _exit(1);
}

// A signal handler does all of that in the middle of calls that do the same.
static int signals(void) {
    handled = map(4 * GIB);
    struct sigaction action = {.sa_handler = handler};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0);
    CHECK(next_signal() == 0);
    while (handlers < 3) {
        char *memory = map(3 * MIB);
        memory[MIB] = 1;
        CHECK(mprotect(memory, MIB, PROT_READ) == 0);
        CHECK(munmap(memory, 3 * MIB) == 0);
    }
    timer_delete(timer);
    for (int i = 0; i < 3; i++) CHECK(*(uint64_t *)(handled + i * GIB + 17 * PAGE) == word(14, i));
    return 0;
}

// The stack of a thread lies in memory that the program mapped, and the thread changes its neighbours.
static void *on_own_stack(void *argument) {
    char *memory = argument;
    volatile char deep[512 * 1024];
    for (int round = 0; round < 20; round++) {
        memset((char *)deep, round, sizeof deep);
        CHECK(mprotect(memory + GIB / 2, PAGE, PROT_READ) == 0);
        CHECK(deep[1000] == round);
        CHECK(mprotect(memory + GIB / 2, PAGE, PROT_READ | PROT_WRITE) == 0);
        CHECK(munmap(memory + GIB / 2 + MIB + round * PAGE, PAGE) == 0);
    }
    return NULL;
}

static int stacks(void) {
    char *memory = map(GIB);
    fill(memory, 0, GIB, 15);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstack(&attributes, memory, 8 * MIB) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, &attributes, on_own_stack, memory) == 0);
    pthread_join(thread, NULL);
    expect(memory, 8 * MIB, GIB / 2, 15);
    expect(memory, GIB / 2 + 2 * MIB, GIB, 15);
    return 0;
}

static int limited(void) {
    struct rlimit limit = {3 * GIB, 3 * GIB};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    // From here on nothing new fits that is larger than the limit leaves; what fits works.
    char *memory = map(MIB);
    fill(memory, 0, MIB, 16);
    expect(memory, 0, MIB, 16);
    return 0;
}

// Another thread writes to memory that it may not write to yet, again and again, until it may: what it wrote
// is there whatever happens to the rest of that GiB afterwards.
static char *awaited;
static volatile int wrote;

static void try_again(int signal) {
    (void)signal;
    sched_yield();
}

static void *write_when_possible(void *argument) {
    (void)argument;
    *(volatile char *)(awaited + 5 * MIB) = 42;
    wrote = 1;
    return NULL;
}

static int races(void) {
    struct sigaction action = {.sa_handler = try_again};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    for (int round = 0; round < 5; round++) {
        awaited = mmap(NULL, GIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(awaited != MAP_FAILED);
        wrote = 0;
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, write_when_possible, NULL) == 0);
        usleep(20000);
        CHECK(mprotect(awaited, GIB, PROT_READ | PROT_WRITE) == 0);
        pthread_join(thread, NULL);
        awaited[GIB - 1] = 1;
        CHECK(wrote && awaited[5 * MIB] == 42);
        CHECK(munmap(awaited, GIB) == 0);
    }
    // Memory that the kernel has populated is not emptied by a later touch.
    char *memory = mmap(NULL, GIB, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    CHECK(memory != MAP_FAILED);
    fill(memory, 0, GIB, 17);
    char *again = mmap(memory, GIB, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_POPULATE, -1, 0);
    CHECK(again == memory);
    fill(memory, 0, GIB, 18);
    CHECK(madvise(memory + 8 * MIB, 4 * MIB, MADV_DONTNEED) == 0);
    expect_zero(memory, 8 * MIB, 12 * MIB);
    expect(memory, 0, 8 * MIB, 18);
    expect(memory, 12 * MIB, GIB, 18);
    return 0;
}

// Wrong arguments are answered as the kernel answers them, and change nothing.
static int errors(void) {
    char *memory = map(4 * MIB);
    fill(memory, 0, 4 * MIB, 19);
    CHECK(mremap(memory, 4 * MIB, 0, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
    CHECK(mremap(memory, 4 * MIB, MIB, 0x70) == MAP_FAILED && errno == EINVAL);
    expect(memory, 0, 4 * MIB, 19);
    CHECK(munmap(memory + MIB, MIB) == 0);
    // The part before a hole is changed, and those around it are emptied.
    CHECK(madvise(memory, 4 * MIB, MADV_DONTNEED) == -1 && errno == ENOMEM);
    expect_zero(memory, 0, MIB);
    expect_zero(memory, 2 * MIB, 4 * MIB);
    CHECK(mmap(NULL, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 1) == MAP_FAILED);
    CHECK(errno == EINVAL);
    CHECK(mmap(NULL, 1UL << 46, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
          MAP_FAILED);
    CHECK(munmap(memory + 1, MIB) == -1 && errno == EINVAL);
    CHECK(unshare(CLONE_FS) == 0);
    return 0;
}

static int child_of_clone(void *memory) {
    expect(memory, 0, GIB, 20);
    fill(memory, 0, MIB, 21);
    char *own = map(GIB);
    fill(own, 0, GIB, 22);
    return 7;
}

// A child that libc's handlers of forks do not hear of.
static int clones(void) {
    char *memory = map(GIB);
    fill(memory, 0, GIB, 20);
    char *stack = map(8 * MIB);
    pid_t child = clone(child_of_clone, stack + 8 * MIB, SIGCHLD, memory);
    CHECK(child > 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    expect(memory, 0, GIB, 20);
    return 0;
}

// The last thread of the program leaves, and no other.
static int leaves(void) {
    char *memory = map(GIB);
    fill(memory, 0, MIB, 23);
    syscall(SYS_exit, 3);
    return 0;
}

// Fills memory that is mapped piece by piece, so that no first touch is one of a whole GiB, gives a piece back,
// and waits until the policy has promoted the GiB around it.
static int packed(void) {
    enum { LAST = 2304, MIDDLE = LAST / 2, HOLE = MIDDLE + 3 };
    static char *piece[LAST];
    for (int i = 0; i < LAST; i++) {
        piece[i] = map(MIB);
        fill(piece[i], 0, MIB, i);
    }
    CHECK(munmap(piece[HOLE], MIB) == 0 && !is_readable(piece[HOLE]));
    for (int tenth = 0; tenth < 600 && !gigantic_at(piece[MIDDLE]); tenth++) usleep(100000);
    for (int i = 0; i < LAST; i++)
        if (i != HOLE) expect(piece[i], 0, MIB, i);
    size_t promoted = gigantic_at(piece[MIDDLE]);
    // The hole is used again.
    char *again = map(MIB);
    expect_zero(again, 0, MIB);
    fill(again, 0, MIB, HOLE);
    CHECK(again == piece[HOLE] && gigantic_at(again) == promoted);
    char *unreadable = mmap(NULL, MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(unreadable != MAP_FAILED && !is_readable(unreadable));
    // Parts of the GiB go, and the GiB is demoted.
    for (int i = 0; i < LAST; i += 2) CHECK(munmap(piece[i], MIB) == 0);
    for (int i = 0; i < LAST; i += 2) CHECK(!is_readable(piece[i]));
    for (int i = 1; i < LAST; i += 2) expect(piece[i], 0, MIB, i);
    printf("%zu\n", promoted);
    return 0;
}

// Each page of the GiB that is promoted and demoted belongs to one thread, or to the other process.
enum { WRITERS = 3, DIRECT = WRITERS, OUTSIDE, OWNERS };
#include "writers.h"
static long writes[WRITERS];

static void *write_words(void *argument) {
    size_t owner = (size_t)argument;
    uint64_t *expected = calloc(OWNED, sizeof *expected), state = 88172645463325252UL + owner;
    CHECK(expected);
    while (!is_over) {
        size_t index = next(&state) % OWNED;
        volatile uint64_t *page = words(owned(owner, index));
        CHECK(page[3] == expected[index]);
        page[3] = ++expected[index];
        writes[owner]++;
    }
    for (size_t i = 0; i < OWNED; i++) CHECK(words(owned(owner, i))[3] == expected[i]);
    free(expected);
    return NULL;
}

// Asks for promotions that are refused, each for another reason: what memory holds is the same after each.
static int refuses(void) {
    char *memory = map_in_parts(), *locked = map_in_parts();
    fill(memory, 0, GIB, 26);
    fill(locked, 0, GIB, 27);
    CHECK(mlock(locked + 3 * MIB, PAGE) == 0);
    madvise(locked, GIB, MADV_COLLAPSE);
    CHECK(gigantic_at(locked) == 0);
    expect(locked, 0, GIB, 27);
    CHECK(munlock(locked + 3 * MIB, PAGE) == 0);
    // The library's threads may not look at the page tables any more.
    CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
    madvise(memory, GIB, MADV_COLLAPSE);
    expect(memory, 0, GIB, 26);
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
    CHECK(mlockall(MCL_FUTURE) == 0);
    // Where filling took long, the policy has promoted it by itself.
    size_t gigantic = gigantic_at(memory);
    madvise(memory, GIB, MADV_COLLAPSE);
    CHECK(gigantic_at(memory) == gigantic);
    expect(memory, 0, GIB, 26);
    expect(locked, 0, GIB, 27);
    return 0;
}

// The writes of the other process so far, which writes each value to the next page.
static uint64_t outside_writes(void) {
    static uint64_t last;
    for (uint64_t value; (value = *(volatile uint64_t *)owned(OUTSIDE, last + 1)) > last;) last = value;
    return last;
}

// Has one GiB promoted and demoted again and again, until the time is over; alone, without others that write to it.
static int promotes(long seconds, int alone) {
    shared = map_in_parts();
    for (size_t at = 0; at < GIB; at += PAGE) ((uint64_t *)(shared + at))[9] = word(25, at / PAGE);

    char path[] = "/var/tmp/superpage-direct-XXXXXX";
    close(make_file(path));
    pid_t outside = alone ? 0 : start_outside();

    pthread_t thread[WRITERS + 1];
    for (size_t i = 0; i < WRITERS; i++)
        CHECK(pthread_create(&thread[i], NULL, write_words, (void *)i) == 0);
    CHECK(alone || pthread_create(&thread[WRITERS], NULL, read_directly, path) == 0);

    // Races are promotions during which a direct read or a write of the other process ended.
    long promotions = 0, demotions = 0, races = 0;
    time_t end = time(NULL) + seconds;
    while (time(NULL) < end) {
        int was_gigantic = gigantic_at(shared) == GIB;
        uint64_t before = direct_reads + outside_writes();
        madvise(shared, GIB, MADV_COLLAPSE);
        uint64_t after = direct_reads + outside_writes();
        int is_gigantic = gigantic_at(shared) == GIB;
        promotions += is_gigantic;
        races += is_gigantic && !was_gigantic && after > before;
        usleep(20000);
        // Refused while a descriptor for direct reads is open.
        int changed = mprotect(shared + 5 * PAGE, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0;
        if (changed) CHECK(mprotect(shared + 5 * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
        demotions += changed;
    }
    is_over = 1;
    for (size_t i = 0; i < WRITERS + !alone; i++) pthread_join(thread[i], NULL);
    if (!alone) {
        int status = 0;
        CHECK(waitpid(outside, &status, WNOHANG) == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
        kill(outside, SIGKILL);
    }
    for (size_t at = 0; at < GIB; at += PAGE)
        if (at / PAGE % OWNERS != DIRECT) CHECK(((uint64_t *)(shared + at))[9] == word(25, at / PAGE));
    unlink(path);
    printf("%ld\n%ld %ld %ld\n", races, promotions, demotions, writes[0] + writes[1] + writes[2]);
    return 0;
}

static void expect_shared(void) {
    for (size_t at = 0; at < GIB; at += PAGE) CHECK(((uint64_t *)(shared + at))[9] == word(25, at / PAGE));
}

static void *promote_and_demote(void *unused) {
    while (!is_over) {
        madvise(shared, GIB, MADV_COLLAPSE);
        CHECK(mprotect(shared, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
        CHECK(mprotect(shared, PAGE, PROT_READ | PROT_WRITE) == 0);
    }
    return unused;
}

// Forks so many milliseconds after one GiB is first promoted and demoted by another thread, while others write to it.
static int forks_meanwhile(long milliseconds) {
    shared = map_in_parts();
    for (size_t at = 0; at < GIB; at += PAGE) ((uint64_t *)(shared + at))[9] = word(25, at / PAGE);
    pthread_t thread[WRITERS];
    for (size_t i = 0; i < WRITERS - 1; i++)
        CHECK(pthread_create(&thread[i], NULL, write_words, (void *)i) == 0);
    CHECK(pthread_create(&thread[WRITERS - 1], NULL, promote_and_demote, NULL) == 0);
    usleep(milliseconds * 1000);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        expect_shared();
        memset(shared, 1, GIB / 4);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    is_over = 1;
    for (size_t i = 0; i < WRITERS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    expect_shared();
    return 0;
}

int main(int count, char **words) {
    const char *part = count > 1 ? words[1] : "";
    long number = count > 2 ? atol(words[2]) : 1;
    if (!strcmp(part, "touch")) return touch(number);
    if (!strcmp(part, "holds")) return holds(number);
    if (!strcmp(part, "hugetlb")) return hugetlb();
    if (!strcmp(part, "sparse")) return sparse(number);
    if (!strcmp(part, "parts")) return parts();
    if (!strcmp(part, "threads")) return threads(number);
    if (!strcmp(part, "forks")) return forks();
    if (!strcmp(part, "second-thread")) return second_thread();
    if (!strcmp(part, "closes")) return closes();
    if (!strcmp(part, "by-the-kernel")) return by_the_kernel();
    if (!strcmp(part, "signals")) return signals();
    if (!strcmp(part, "stacks")) return stacks();
    if (!strcmp(part, "limited")) return limited();
    if (!strcmp(part, "races")) return races();
    if (!strcmp(part, "errors")) return errors();
    if (!strcmp(part, "clones")) return clones();
    if (!strcmp(part, "leaves")) return leaves();
    if (!strcmp(part, "packed")) return packed();
    if (!strcmp(part, "promotes")) return promotes(number, 0);
    if (!strcmp(part, "promotes-alone")) return promotes(number, 1);
    if (!strcmp(part, "forks-meanwhile")) return forks_meanwhile(number);
    if (!strcmp(part, "refuses")) return refuses();
    if (!strcmp(part, "writes-outside") && count > 3) return writes_outside(words);
    if (!strcmp(part, "exit")) return number;
    if (!strcmp(part, "die")) raise(number);
    if (!strcmp(part, "wait")) {
        puts("ready");
        fflush(stdout);
        pause();
    }
    fprintf(stderr, "no part %s\n", part);
    return 2;
}
