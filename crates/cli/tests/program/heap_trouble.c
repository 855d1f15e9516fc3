// What may happen to a program whose memory lives in a file: a debugger, locks and pins on more than its memory, a thread of
// the library that is killed, reads that fail; and a device that shrinks beneath the file.
//
// heap_trouble PART [ARGUMENTS]

#define _GNU_SOURCE
#include <dirent.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/loop.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "memory.h"

// The data; the tests give memory for a part of it.
#define LENGTH (160 * MIB)

// ---------------------------------------------------------------- debuggers

enum { MOST_THREADS = 64 };
static pid_t threads[MOST_THREADS];
static size_t thread_count;

// Stops a thread as a debugger does.
static void stop(pid_t thread) {
    int status;
    CHECK(thread_count < MOST_THREADS);
    CHECK(ptrace(PTRACE_SEIZE, thread, NULL, NULL) == 0 && ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) == 0);
    CHECK(waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status));
    threads[thread_count++] = thread;
}

static void stop_all(const char *process) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/task", process);
    DIR *tasks = opendir(path);
    CHECK(tasks);
    for (struct dirent *task; (task = readdir(tasks));)
        if (task->d_name[0] != '.') stop(atoi(task->d_name));
    closedir(tasks);
}

static void go_on(void) {
    for (size_t i = 0; i < thread_count; i++) CHECK(ptrace(PTRACE_DETACH, threads[i], NULL, NULL) == 0);
}

// Reads all data of the process, and compares it. A page that is not there is waited for.
static void read_all(const char *process, off_t place) {
    static uint64_t page[PAGE / 8];
    for (size_t at = 0; at < LENGTH; at += PAGE) {
        struct iovec local = {page, PAGE}, remote = {(char *)place + at, PAGE};
        CHECK(process_vm_readv(atoi(process), &local, 1, &remote, 1, 0) == (ssize_t)PAGE);
        CHECK(page[0] == word(1, at / PAGE) && page[1] == 0);
    }
}

// The same as debuggers do it. The kernel refuses to wait for a page then, so it has no answer rather than a wrong one.
static void peek_at_all(const char *process, off_t place) {
    char path[64];
    static uint64_t page[PAGE / 8];
    snprintf(path, sizeof path, "/proc/%s/mem", process);
    int memory = open(path, O_RDONLY);
    CHECK(memory >= 0);
    size_t refused = 0;
    for (size_t at = 0; at < LENGTH; at += PAGE) {
        ssize_t done = pread(memory, page, PAGE, place + (off_t)at);
        CHECK(done == (ssize_t)PAGE || errno == EIO);
        if (done < 0) refused++;
        else CHECK(page[0] == word(1, at / PAGE) && page[1] == 0);
    }
    CHECK(refused > 0 && refused < LENGTH / PAGE);
    close(memory);
}

static pid_t start_reader(const char *process, off_t place) {
    pid_t reader = fork();
    CHECK(reader >= 0);
    if (reader == 0) {
        read_all(process, place);
        _exit(0);
    }
    return reader;
}

// Reads the memory of a process of which one thread is stopped, or all.
static int debugs(char **arguments) {
    const char *process = arguments[2];
    off_t place = (off_t)strtoul(arguments[3], NULL, 0);
    int status;
    alarm(60);
    if (!strcmp(arguments[4], "one")) {
        stop(atoi(process));
        peek_at_all(process, place);
        read_all(process, place);
        go_on();
        return 0;
    }
    stop_all(process);
    peek_at_all(process, place);
    // Nobody brings back what is in the file: a reader waits, can be killed, and goes on with the process.
    pid_t killed = start_reader(process, place), reader = start_reader(process, place);
    usleep(500000);
    CHECK(waitpid(killed, &status, WNOHANG) == 0 && waitpid(reader, &status, WNOHANG) == 0);
    CHECK(kill(killed, SIGKILL) == 0 && waitpid(killed, &status, 0) == killed && WIFSIGNALED(status));
    go_on();
    end_well(reader);
    return 0;
}

// ---------------------------------------------------------------- the program itself

// Locks more than there is memory for.
static int locks_much(char **arguments) {
    enum { LOCKED = 96 * MIB };
    char *memory = map(LENGTH);
    (void)arguments;
    for (uint64_t round = 0; round < 2; round++) {
        fill(memory, 0, LENGTH, round);
        CHECK(mlock(memory, LOCKED) == 0);
        expect(memory, 0, LENGTH, round);
        fill(memory, 0, LENGTH, round + 1);
        expect(memory, 0, LENGTH, round + 1);
        CHECK(munlock(memory, LOCKED) == 0);
        expect(memory, 0, LENGTH, round + 1);
    }
    return 0;
}

// Has a thread killed that reads or writes a file at a place, as the library's threads do.
static int loses_a_thread(char **arguments) {
    long number = !strcmp(arguments[2], "reads") ? SYS_pread64 : SYS_pwrite64;
    char *memory = map(LENGTH);
    fill(memory, 0, LENGTH, 1);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
    for (uint64_t round = 1; round < 4; round++) {
        expect(memory, 0, LENGTH, round);
        fill(memory, 0, LENGTH, round + 1);
    }
    return 0;
}

static sigjmp_buf lost;

static void on_loss(int signal) {
    (void)signal;
    siglongjmp(lost, 1);
}

// Has reads of a part of the file fail, as a disk does that has lost it. Pages that lie there are lost, and no others.
static int loses_pages(char **arguments) {
    enum { FROM = 32 * MIB, TO = 63 * MIB };
    char *memory = map(LENGTH);
    volatile size_t right = 0, wrong = 0;
    (void)arguments;
    fill(memory, 0, LENGTH, 1);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pread64, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, TO, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, FROM, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
    CHECK(signal(SIGBUS, on_loss) != SIG_ERR);
    for (volatile size_t at = 0; at < LENGTH; at += PAGE) {
        if (sigsetjmp(lost, 1)) {
            wrong++;
            // A lost page that the program gives up reads as zeroes.
            if (wrong == 1) {
                CHECK(madvise(memory + at, PAGE, MADV_DONTNEED) == 0);
                CHECK(memory[at] == 0);
            }
            continue;
        }
        expect(memory, at, at + PAGE, 1);
        right++;
    }
    CHECK(wrong > 0 && wrong <= (TO - FROM) / PAGE && right + wrong == LENGTH / PAGE);
    return 0;
}

// The frames of the pages of some memory.
static uint64_t *frames_of(const char *memory, size_t length) {
    size_t bytes = length / PAGE * sizeof(uint64_t);
    uint64_t *frames = malloc(bytes);
    int pages = open("/proc/self/pagemap", O_RDONLY);
    CHECK(frames && pages >= 0);
    CHECK(pread(pages, frames, bytes, (off_t)((uintptr_t)memory / PAGE * sizeof *frames)) == (ssize_t)bytes);
    CHECK(close(pages) == 0);
    for (size_t i = 0; i < length / PAGE; i++) frames[i] &= ((uint64_t)1 << 55) - 1;
    return frames;
}

// Has the kernel pin more than there is memory for, as devices do.
static int pins_much(char **arguments) {
    enum { PINNED = 96 * MIB };
    struct io_uring_params parameters = {0};
    char *memory = map(LENGTH);
    struct iovec pinned = {memory, PINNED};
    (void)arguments;
    int ring = (int)syscall(SYS_io_uring_setup, 1, &parameters);
    if (ring < 0) {
        printf("no io_uring: %s\n", strerror(errno));
        return 0;
    }
    fill(memory, 0, LENGTH, 1);
    CHECK(syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &pinned, 1) == 0);
    uint64_t *before = frames_of(memory, PINNED);
    CHECK(before[0] != 0);
    for (uint64_t round = 1; round < 3; round++) {
        expect(memory, 0, LENGTH, round);
        fill(memory, 0, LENGTH, round + 1);
    }
    // A device would write to these frames.
    uint64_t *after = frames_of(memory, PINNED);
    CHECK(!memcmp(before, after, PINNED / PAGE * sizeof *before));
    CHECK(syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, NULL, 0) == 0);
    for (uint64_t round = 3; round < 5; round++) {
        expect(memory, 0, LENGTH, round);
        fill(memory, 0, LENGTH, round + 1);
    }
    return 0;
}

// ---------------------------------------------------------------- the device

// Has a loop device end after so many bytes.
static int shrinks(char **arguments) {
    struct loop_info64 info;
    int device = open(arguments[2], O_RDWR);
    CHECK(device >= 0 && ioctl(device, LOOP_GET_STATUS64, &info) == 0);
    info.lo_sizelimit = strtoul(arguments[3], NULL, 0);
    CHECK(ioctl(device, LOOP_SET_STATUS64, &info) == 0);
    return 0;
}

static const struct {
    const char *name;
    int arguments;
    int (*part)(char **arguments);
} parts[] = {
    {"debugs", 3, debugs},
    {"locks-much", 0, locks_much},
    {"loses-a-thread", 1, loses_a_thread},
    {"loses-pages", 0, loses_pages},
    {"pins-much", 0, pins_much},
    {"shrinks", 2, shrinks},
};

int main(int count, char **arguments) {
    for (size_t i = 0; count >= 2 && i < sizeof parts / sizeof *parts; i++)
        if (!strcmp(arguments[1], parts[i].name) && count == parts[i].arguments + 2) return parts[i].part(arguments);
    return 2;
}
