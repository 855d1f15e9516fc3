/* Fills 300 MiB, and has the child of a fork look at them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    size_t length = (size_t)300 << 20, wrong = 0;
    unsigned char *block = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(block, 7, length);
    fflush(stdout);
    int child = fork(), status;
    if (child < 0) return perror("fork"), 1;
    if (child == 0) {
        for (size_t at = 0; at < length; at++) wrong += block[at] != 7;
        printf("the child has %zu wrong bytes\n", wrong);
        fflush(stdout);
        _exit(wrong > 0);
    }
    waitpid(child, &status, 0);
    printf("the child ended with %x\n", status);
    return 0;
}
