/* Limits its own address space, and starts shells that say their limit: one that keeps it, and one for which a lower limit is set
   in the child, before it becomes the shell. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char *const words[] = {"sh", "-c", "ulimit -v", NULL};
extern char **environ;

static void set(rlim_t mib) {
    struct rlimit limit = {mib << 20, mib << 20};
    setrlimit(RLIMIT_AS, &limit);
}

int main(void) {
    set(8000);
    for (int way = 0; way < 4; way++) {
        fflush(stdout);
        pid_t child = way & 1 ? vfork() : fork();
        if (!child) {
            if (way & 2) set(1000);
            execve("/bin/sh", words, environ);
            _exit(127);
        }
        int status;
        waitpid(child, &status, 0);
        printf("%d\n", status);
    }
    return 6;
}
