// Threads that compute and allocate under a profiler's timer, and say how much of it reached them.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile long turns;

__attribute__((noinline)) long hot(long seed) {
    for (int at = 0; at < 3000000; at++) seed = seed * 6364136223846793005 + 1442695040888963407;
    return seed;
}

static void *work(void *number) {
    long kept = 0;
    for (int turn = 0; turn < 40; turn++) {
        char *block = malloc(200000 + turn * 1000);
        memset(block, turn, 200000);
        kept += hot(turn) & 1;
        kept += block[100];
        free(block);
        __atomic_add_fetch(&turns, 1, __ATOMIC_RELAXED);
    }
    return (void *)kept;
}

int main(int argc, char **argv) {
    char *large = malloc(100 << 20);
    memset(large, 1, 100 << 20);
    pthread_t threads[3];
    for (long at = 0; at < 3; at++) pthread_create(threads + at, 0, work, (void *)at);
    long all = 0;
    for (int at = 0; at < 3; at++) {
        void *kept;
        pthread_join(threads[at], &kept);
        all += (long)kept;
    }
    if (argc > 1) sleep(atoi(argv[1]));
    printf("turns %ld kept %ld large %d\n", turns, all, large[77 << 20]);
}
