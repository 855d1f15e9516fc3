/* Holds a marked block until a file called stop is there, for debuggers: they read it, write it and go. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *tag;
volatile int poked;

int main(void) {
    size_t size = (size_t)150 << 20;
    tag = malloc(size);
    for (size_t at = 0; at < size; at += 4096) memcpy(tag + at, "MARKMARK", 8);
    FILE *file = fopen("up", "w");
    fprintf(file, "%d\n", getpid());
    fclose(file);
    rename("up", "pid");
    for (int wait = 0; wait < 600 && access("stop", F_OK); wait++) usleep(50000);
    long wrong = 0;
    for (size_t at = 0; at < size; at += 4096) wrong += memcmp(tag + at, "MARKMARK", 8) != 0;
    printf("%ld wrong, poked %d\n", wrong, poked);
    return 6;
}
