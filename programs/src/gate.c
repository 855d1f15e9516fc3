/* Forks while a thread gets memory, which takes as long as this program's own mmap: it is slow, ends the thread, or is interrupted. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK ((size_t)300 << 20)

static __thread int is_slow, ends;
static volatile pid_t forked;

/* An allocator that asks for memory by this function has it wait in the middle of its work; libc's own does not. */
void *mmap(void *address, size_t length, int protection, int flags, int descriptor, off_t offset) {
    if (length >= (size_t)32 << 20 && ends) syscall(SYS_exit, 0);
    if (length >= (size_t)32 << 20 && is_slow)
        for (int tenths = 0; tenths < 30; tenths++) usleep(100000);
    return (void *)syscall(SYS_mmap, address, length, protection, flags, descriptor, offset);
}

static void *grow(void *how) {
    is_slow = !strcmp(how, "slow") || !strcmp(how, "handler");
    ends = !strcmp(how, "ended");
    char *volatile block = malloc(BLOCK);
    free(block);
    while (!strcmp(how, "handler") && !forked) usleep(1000);
    return NULL;
}

static void fork_in_handler(int signal) {
    forked = fork();
    if (forked == 0) _exit(signal == SIGUSR1 ? 5 : 1);
}

static int ended_with(pid_t child) {
    int status = 0;
    if (child <= 0 || waitpid(child, &status, 0) != child) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "";
    pthread_t thread;
    char *volatile first = malloc(1);
    free(first);
    pthread_create(&thread, NULL, grow, (void *)how);
    usleep(300000);
    if (!strcmp(how, "handler")) {
        signal(SIGUSR1, fork_in_handler);
        pthread_kill(thread, SIGUSR1);
    } else {
        forked = fork();
        if (forked == 0) {
            alarm(20);
            /* Nobody gives back what a thread that has ended held. */
            char *block = strcmp(how, "ended") ? malloc(BLOCK) : malloc(100);
            _exit(block ? 5 : 1);
        }
    }
    pthread_join(thread, NULL);
    printf("%s: the child ended with %d\n", how, ended_with(forked));
    fflush(stdout);
    _exit(0);
}
