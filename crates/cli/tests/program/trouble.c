// A program that does what is hard for a library in its process, or to which that is done: each part is one of these,
// and checks every byte that it wrote. docs of trouble/mod.rs.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "memory.h"

// ---------------------------------------------------------------- signals

static _Thread_local sigjmp_buf *back;
static _Thread_local int caught;

static void jump_back(int signal) {
    caught = signal;
    siglongjmp(*back, 1);
}

static void handle(int signal) {
    struct sigaction action = {.sa_handler = jump_back, .sa_flags = SA_NODEFER};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

// The signal that reading a word causes, or 0 and the word.
static int signal_of(const char *memory, uint64_t *word) {
    sigjmp_buf here;
    back = &here;
    caught = 0;
    if (!sigsetjmp(here, 1)) *word = *(const volatile uint64_t *)memory;
    return caught;
}

static char *volatile unmapped;
static volatile int is_over;

static void *read_unmapped(void *faults) {
    while (!is_over) {
        uint64_t seen = 0;
        char *memory = unmapped;
        int signal = memory ? signal_of(memory + 5 * PAGE, &seen) : 0;
        CHECK(signal == 0 || signal == SIGSEGV);
        CHECK(seen == 0 || seen == word(1, 5));
        *(long *)faults += signal != 0;
    }
    return NULL;
}

// Threads read memory while another one maps, touches, changes and unmaps it. Each reads what was written there, zeroes, or
// gets the signal that it would get without the library.
static int unmaps(void) {
    handle(SIGSEGV);
    long faults[3] = {0};
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&thread[i], NULL, read_unmapped, &faults[i]) == 0);
    for (int round = 0; round < 20; round++) {
        char *memory = map(GIB);
        unmapped = memory;
        fill(memory, 0, 64 * PAGE, 1);
        usleep(5000);
        expect(memory, 0, 64 * PAGE, 1);
        if (round % 2) CHECK(munmap(memory + GIB / 2, PAGE) == 0);
        CHECK(munmap(memory, GIB) == 0);
        usleep(5000);
        unmapped = NULL;
    }
    is_over = 1;
    for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    CHECK(faults[0] + faults[1] + faults[2] > 0);
    return 0;
}

// A program with a handler for SIGBUS of its own gets it for what it did itself, once, and for nothing else.
static int handles_sigbus(void) {
    handle(SIGBUS);
    char *memory = map(2 * GIB);
    uint64_t seen = 0;
    for (size_t at = 0; at < 2 * GIB; at += MIB) CHECK(signal_of(memory + at, &seen) == 0 && seen == 0);
    fill(memory, 0, 2 * GIB, 2);
    char name[] = "/tmp/superpage-test-XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0 && unlink(name) == 0 && ftruncate(file, PAGE) == 0);
    char *mapped = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, file, 0);
    CHECK(mapped != MAP_FAILED && signal_of(mapped, &seen) == 0 && signal_of(mapped + PAGE, &seen) == SIGBUS);
    CHECK(munmap(memory + MIB, PAGE) == 0);
    CHECK(signal_of(memory + 2 * MIB, &seen) == 0 && seen == word(2, 2 * MIB / PAGE));
    expect(memory, 2 * MIB, 2 * GIB, 2);
    return 0;
}

// ---------------------------------------------------------------- processes

// What a child of this part does with what it has from its parent, and with memory of its own.
static void live_on(char *memory, uint64_t seed) {
    alarm(100); // a child has none of its parent's
    expect(memory, 0, GIB, seed);
    fill(memory, 0, GIB, seed + 1);
    char *own = map(GIB);
    fill(own, 0, 64 * MIB, 3);
    CHECK(munmap(memory + MIB, MIB) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        expect(memory, 2 * MIB, GIB, seed + 1);
        _exit(0);
    }
    end_well(child);
    expect(memory, 2 * MIB, GIB, seed + 1);
    expect(own, 0, 64 * MIB, 3);
}

// The program goes on in a child, when its first process and `superpage run` have ended.
static int becomes_daemon(void) {
    char *memory = map(GIB);
    fill(memory, 0, GIB, 4);
    pid_t before = getpid();
    CHECK(daemon(1, 1) == 0);
    while (kill(before, 0) == 0) usleep(10000);
    usleep(500000);
    live_on(memory, 4);
    puts("intact");
    return 0;
}

// As the daemon, on a terminal of its own, and the parent reads what it says.
static int forks_with_terminal(void) {
    char *memory = map(GIB), line[16];
    fill(memory, 0, GIB, 5);
    int terminal;
    pid_t child = forkpty(&terminal, NULL, NULL, NULL);
    CHECK(child >= 0);
    if (child == 0) {
        live_on(memory, 5);
        CHECK(write(1, "intact", 6) == 6);
        _exit(0);
    }
    fill(memory, 0, 64 * MIB, 6);
    CHECK(read(terminal, line, sizeof line) == 6 && memcmp(line, "intact", 6) == 0);
    end_well(child);
    expect(memory, 0, 64 * MIB, 6);
    expect(memory, 64 * MIB, GIB, 5);
    return 0;
}

// Another program takes the place of this one, with all that it had: so often.
static int executes(const char *self, long times) {
    char *memory = map(GIB), left[32];
    fill(memory, 0, GIB, times);
    expect(memory, 0, GIB, times);
    printf("%zu\n", gigantic_at(memory));
    fflush(stdout);
    snprintf(left, sizeof left, "%ld", times - 1);
    return times > 1 ? execl(self, self, "executes", left, NULL) : 0;
}

static void *load_and_unload(void *unused) {
    while (!is_over) {
        void *library = dlopen("libresolv.so.2", RTLD_NOW);
        CHECK(library && dlsym(library, "ns_initparse") && dlclose(library) == 0);
    }
    return unused;
}

// Libraries are loaded while other threads touch memory and change parts of it.
static int loads(void) {
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&thread[i], NULL, load_and_unload, NULL) == 0);
    for (int round = 0; round < 4; round++) {
        char *memory = map(GIB);
        fill(memory, 0, GIB, round);
        CHECK(munmap(memory + MIB, MIB) == 0);
        expect(memory, 2 * MIB, GIB, round);
        CHECK(munmap(memory, GIB) == 0);
    }
    is_over = 1;
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    return 0;
}

// ---------------------------------------------------------------- limits, and what the program does itself

// A program that limits its data has 2 GiB, gets half a GiB more, and no GiB. The library's own data counts as well, and
// is small beside that.
static int limits_its_data(void) {
    char *memory = map(2 * GIB);
    fill(memory, 0, GIB, 7);
    struct rlimit limit = {2 * GIB + GIB / 2 + 192 * MIB, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
    fill(memory, GIB, 2 * GIB, 7);
    char *more = map(GIB / 2);
    fill(more, 0, GIB / 2, 8);
    CHECK(mmap(NULL, GIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
    madvise(memory, GIB, MADV_COLLAPSE);
    expect(memory, 0, 2 * GIB, 7);
    CHECK(munmap(more, GIB / 2) == 0);
    more = map(GIB / 4);
    fill(more, 0, GIB / 4, 9);
    CHECK(munmap(memory + GIB, GIB) == 0);
    expect(memory, 0, GIB, 7);
    expect(more, 0, GIB / 4, 9);
    return 0;
}

static char *served;
static volatile int faults;

static void *serve_faults(void *argument) {
    int uffd = *(int *)argument;
    static char page[PAGE] __attribute__((aligned(4096)));
    struct uffd_msg message;
    while (read(uffd, &message, sizeof message) == sizeof message) {
        uint64_t address = message.arg.pagefault.address & ~(PAGE - 1);
        *(uint64_t *)page = word(10, (address - (uint64_t)served) / PAGE);
        struct uffdio_copy copy = {address, (uint64_t)page, PAGE, 0, 0};
        faults++; // the reader goes on as soon as the page is there
        CHECK(ioctl(uffd, UFFDIO_COPY, &copy) == 0);
    }
    return NULL;
}

// A program that serves faults itself gets those of its own memory, all of them.
static int serves_its_own_faults(void) {
    char *memory = map(2 * GIB);
    fill(memory, 0, GIB, 11);
    int uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {UFFD_API, 0, 0};
    CHECK(uffd >= 0 && ioctl(uffd, UFFDIO_API, &api) == 0);
    served = map(GIB);
    // Without huge pages: each page is to be a fault.
    CHECK(madvise(served, GIB, MADV_NOHUGEPAGE) == 0);
    struct uffdio_register all = {{(uint64_t)served, GIB}, UFFDIO_REGISTER_MODE_MISSING, 0};
    CHECK(ioctl(uffd, UFFDIO_REGISTER, &all) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, serve_faults, &uffd) == 0);
    expect(served, 0, 16 * MIB, 10);
    CHECK(faults == 16 * MIB / PAGE);
    madvise(memory, GIB, MADV_COLLAPSE);
    fill(memory, GIB, 2 * GIB, 11);
    expect(memory, 0, 2 * GIB, 11);
    return 0;
}

// ---------------------------------------------------------------- the library's threads fail

// A call by an instruction of the program's own, which the library does not see.
static long unseen(long call, long a, long b, const void *c) {
    long done;
    __asm__ volatile("syscall" : "=a"(done) : "a"(call), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return done;
}

// Has the kernel refuse a call to all threads of the process, the library's as well: where these bits of the lower half
// of an argument are such. The library would leave the memory to the kernel if it saw that.
static void refuse(unsigned call, unsigned argument, unsigned mask, unsigned bits, unsigned error) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * argument),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, bits, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(unseen(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
}

// The kernel says yes, or the library cannot copy a gigantic page any more.
static int is_done(int done) {
    CHECK(done || (errno == ENOMEM && gigantic_at(NULL) > 0));
    return done;
}

// What the program does with two GiB that it has not touched, and how it ends: by its first thread, which is the last.
static void go_on(char *memory) {
    fill(memory, 0, 2 * GIB, 12);
    expect(memory, 0, 2 * GIB, 12);
    CHECK(munmap(memory + MIB, MIB) == 0);
    if (is_done(mprotect(memory + 4 * MIB, PAGE, PROT_READ) == 0))
        CHECK(mprotect(memory + 4 * MIB, PAGE, PROT_READ | PROT_WRITE) == 0);
    expect(memory, 2 * MIB, 2 * GIB, 12);
    madvise(memory + GIB, GIB, MADV_COLLAPSE);
    expect(memory, 2 * MIB, 2 * GIB, 12);
    CHECK(madvise(memory + GIB, GIB, MADV_DONTNEED) == 0);
    expect_zero(memory, GIB, 2 * GIB);
    char *own = map(GIB);
    fill(own, 0, GIB, 13);
    pid_t child = fork();
    if (is_done(child >= 0)) {
        if (child == 0) {
            alarm(100);
            expect(memory, 2 * MIB, GIB, 12);
            expect(own, 0, GIB, 13);
            _exit(0);
        }
        end_well(child);
    }
    expect(memory, 2 * MIB, GIB, 12);
    expect(own, 0, GIB, 13);
    syscall(SYS_exit, 3);
}

// The library gets none of its threads, only the first, or no userfaultfd. libc makes threads by clone3.
static void is_refused_a_start(const char *what) {
    if (!strcmp(what, "threads")) refuse(SYS_clone, 0, CLONE_THREAD, CLONE_THREAD, EAGAIN);
    unsigned later = CLONE_THREAD | CLONE_FILES;
    if (!strcmp(what, "most-threads")) refuse(SYS_clone, 0, later, later, EAGAIN);
    if (!strcmp(what, "userfaultfd")) {
        refuse(SYS_userfaultfd, 0, 0, 0, EPERM);
        refuse(SYS_ioctl, 1, ~0U, USERFAULTFD_IOC_NEW, EPERM);
    }
    go_on(map(2 * GIB));
}

// The library's threads wait for faults, and get an error of the kernel from then on: they may read none, or serve none.
static void is_refused_to_serve(const char *what) {
    char *memory = map(2 * GIB);
    if (!strcmp(what, "reads")) refuse(SYS_read, 2, ~0U, sizeof(struct uffd_msg), EIO);
    if (!strcmp(what, "answers")) refuse(SYS_ioctl, 1, 0xFF00, UFFDIO << 8, EPERM);
    go_on(memory);
}

int main(int count, char **words) {
    const char *part = count > 1 ? words[1] : "", *what = count > 2 ? words[2] : "";
    // A part that waits for ever is to fail.
    alarm(100);
    if (!strcmp(part, "unmaps")) return unmaps();
    if (!strcmp(part, "handles-sigbus")) return handles_sigbus();
    if (!strcmp(part, "becomes-daemon")) return becomes_daemon();
    if (!strcmp(part, "forks-with-terminal")) return forks_with_terminal();
    if (!strcmp(part, "executes")) return executes(words[0], atol(what));
    if (!strcmp(part, "loads")) return loads();
    if (!strcmp(part, "limits-its-data")) return limits_its_data();
    if (!strcmp(part, "serves-its-own-faults")) return serves_its_own_faults();
    if (!strcmp(part, "is-refused-a-start")) is_refused_a_start(what);
    if (!strcmp(part, "is-refused-to-serve")) is_refused_to_serve(what);
    fprintf(stderr, "no part %s\n", part);
    return 2;
}
