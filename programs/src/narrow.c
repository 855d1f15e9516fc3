// A program of 32 bits: its pointers, its memory, its children.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char *block = malloc(150 << 20);
    memset(block, 3, 150 << 20);
    int status = 0;
    if (!fork()) execl("/bin/sh", "sh", "-c", "exit 4", (char *)0);
    wait(&status);
    printf("%d bytes of pointer, %d, child %d, preload %s\n", (int)sizeof(void *), block[99 << 20], WEXITSTATUS(status), getenv("LD_PRELOAD") ? "set" : "not set");
}
