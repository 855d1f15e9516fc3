/* A program that executes itself, with or without a child that lives on, and forks again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int child(const char *name, int lives) {
    int pid = fork();
    if (pid) return pid;
    char *block = malloc(5 << 20);
    memset(block, 1, 5 << 20);
    printf("%s %d\n", name, block[1 << 20]);
    fflush(stdout);
    if (lives) sleep(3);
    _exit(0);
}

int main(int argc, char **argv) {
    int status, lives = argc > 1 && strchr(argv[1], 'l') != 0;
    char *block = malloc(20 << 20);
    memset(block, 7, 20 << 20);
    if (argc > 2) {
        int pid = child("second", 0);
        waitpid(pid, &status, 0);
        printf("second ended with %x\n", status);
        return 0;
    }
    int pid = child("first", lives);
    if (lives) sleep(1); else waitpid(pid, &status, 0);
    execl("/proc/self/exe", argv[0], argv[1], "again", (char *)0);
}
