/* A child of a fork keeps 200 MiB while its parent becomes another program that fills 200 MiB of its own; then the child looks at
   what it has. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH ((size_t)200 << 20)

static unsigned long *fill(unsigned long salt) {
    unsigned long *block = mmap(0, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; at < LENGTH / 8; at++) block[at] = at * salt;
    return block;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        unsigned long *own = fill(5);
        printf("the next program has %d\n", own[1000] == 5000);
        fflush(stdout);
        wait(0);
        return 0;
    }
    if (!fork()) {
        unsigned long *block = fill(3), wrong = 0;
        sleep(6);
        for (size_t at = 0; at < LENGTH / 8; at++) wrong += block[at] != at * 3;
        printf("the child has %lu wrong words\n", wrong);
        return 0;
    }
    sleep(3);
    execl("/proc/self/exe", argv[0], "again", (char *)0);
}
