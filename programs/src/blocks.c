/* Allocates as a program with an allocator of its own choice does: every function, many threads, sizes and alignments. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *work(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument, wrong = 0;
    void *kept[500] = {0};
    for (int round = 0; round < 60000; round++) {
        int at = rand_r(&seed) % 500;
        size_t size = rand_r(&seed) % 5000 + (round % 1000 ? 1 : 2 << 20);
        if (kept[at] && round % 4 == 0) {
            kept[at] = realloc(kept[at], size);
        } else {
            free(kept[at]);
            size_t alignment = (size_t)16 << round % 9;
            kept[at] = round % 3 == 0 ? calloc(1, size) : round % 3 == 1 ? malloc(size) : aligned_alloc(alignment, size / alignment * alignment + alignment);
            wrong += round % 3 == 2 && (uintptr_t)kept[at] % alignment;
        }
        wrong += !kept[at] || malloc_usable_size(kept[at]) < size;
        memset(kept[at], at, size);
    }
    for (int at = 0; at < 500; at++) free(kept[at]);
    return (void *)(uintptr_t)wrong;
}

int main(void) {
    pthread_t threads[8];
    for (uintptr_t at = 0; at < 8; at++) pthread_create(&threads[at], NULL, work, (void *)at);
    uintptr_t wrong = 0;
    for (int at = 0; at < 8; at++) {
        void *result;
        pthread_join(threads[at], &result);
        wrong += (uintptr_t)result;
    }
    printf("%zu wrong\n", (size_t)wrong);
    void *gone = malloc((size_t)1 << 60);
    printf("%s\n", gone ? "too much" : "no memory");
    return wrong != 0;
}
