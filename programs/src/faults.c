/* The faults that sanitizers look for, one for each argument. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int shared;

static void *add(void *argument) {
    shared++;
    return argument;
}

int main(int count, char **words) {
    const char *fault = count > 1 ? words[1] : "none";
    size_t size = (size_t)64 << 20;
    char *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(mapped, 1, size);
    char *block = malloc(100);
    volatile char *seen = block;
    seen[0] = 1;
    if (!strcmp(fault, "race")) {
        pthread_t thread;
        pthread_create(&thread, NULL, add, NULL);
        shared++;
        pthread_join(thread, NULL);
    }
    if (!strcmp(fault, "overflow")) seen[100] = 1;
    if (!strcmp(fault, "leak")) {
        char *volatile lost = malloc(12345);
        lost[0] = 1;
        lost = NULL;
    }
    free(block);
    if (!strcmp(fault, "after-free")) return seen[5];
    if (!strcmp(fault, "twice")) free((void *)seen);
    if (!strcmp(fault, "shift")) {
        volatile int by = 40 + shared;
        printf("%d\n", (1 << by) != 0);
    }
    puts("end");
    return 0;
}
