/* Forks while children, threads and pages are in use, and checks the data of parent and child: by fork, vfork, posix_spawn, clone. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static uint64_t *block;
static const size_t words = ((size_t)48 << 20) / 8, step = 512;
static volatile int go_on = 1;

static long check(uint64_t tag) {
    long wrong = 0;
    for (size_t at = 0; at < words; at += step) wrong += block[at] != (tag | at);
    return wrong;
}

static void fill(uint64_t tag) {
    for (size_t at = 0; at < words; at += step) block[at] = tag | at;
}

static void *busy(void *argument) {
    while (go_on) {
        char *own = malloc(1 << 20);
        memset(own, 1, 1 << 20);
        free(own);
    }
    return argument;
}

static void wait_for(const char *what, pid_t child) {
    int status = 0;
    if (child < 0) { printf("%s: %s\n", what, errno == EAGAIN ? "orderly" : strerror(errno)); return; }
    if (waitpid(child, &status, 0) < 0) { printf("%s: %s\n", what, strerror(errno)); return; }
    if (WIFEXITED(status)) printf("%s: %s %d\n", what, WEXITSTATUS(status) == 7 ? "orderly" : "exit code", WEXITSTATUS(status) == 7 ? 0 : WEXITSTATUS(status));
    else printf("%s: signal %d\n", what, WTERMSIG(status));
}

static int in_child(uint64_t tag) {
    if (check(tag)) return 1;
    fill(9ull << 48);
    char *own = malloc(20 << 20);
    memset(own, 5, 20 << 20);
    if (own[(20 << 20) - 1] != 5 || check(9ull << 48)) return 2;
    return 7;
}

static int cloned(void *argument) { return in_child((uint64_t)(uintptr_t)argument << 48); }

int main(void) {
    block = mmap(NULL, words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(1ull << 48);
    pthread_t thread;
    pthread_create(&thread, NULL, busy, NULL);
    for (uint64_t round = 1; round < 5; round++) {
        fflush(stdout);
        pid_t child = fork();
        if (!child) _exit(in_child(round << 48));
        fill((round + 1) << 48);
        wait_for("fork", child);
        printf("%ld wrong pages\n", check((round + 1) << 48));
    }
    go_on = 0;
    pthread_join(thread, NULL);
    fflush(stdout);
    pid_t outer = fork();
    if (!outer) {
        pid_t inner = fork();
        if (!inner) _exit(in_child(5ull << 48));
        int status = 0;
        waitpid(inner, &status, 0);
        _exit(WIFEXITED(status) && in_child(5ull << 48) == 7 ? WEXITSTATUS(status) : 3);
    }
    wait_for("fork in a fork", outer);
    char *arguments[] = {"sh", "-c", "exit 7", NULL};
    pid_t child = vfork();
    if (!child) { execv("/bin/sh", arguments); _exit(127); }
    wait_for("vfork", child);
    if (posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ)) child = -1;
    wait_for("posix_spawn", child);
    size_t stack = 1 << 20;
    char *own = malloc(stack);
    child = clone(cloned, own + stack, SIGCHLD, (void *)5);
    wait_for("clone", child);
    child = clone(cloned, own + stack, SIGCHLD | CLONE_VM | CLONE_VFORK, (void *)5);
    wait_for("clone with shared memory", child);
    printf("%ld wrong pages\n", check(9ull << 48));
    fflush(stdout);
    child = syscall(SYS_fork);
    if (!child) _exit(in_child(9ull << 48));
    wait_for("the system call", child);
    return 3;
}
