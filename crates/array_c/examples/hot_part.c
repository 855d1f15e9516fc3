/* Sums words of an array at random, nine of ten in its first fifth, on base pages and with that fifth on huge pages.
 *
 *     cc -O2 hot_part.c $(pkg-config --cflags --libs superpage) -o hot_part && ./hot_part
 */

#include <inttypes.h>
#include <stdio.h>
#include <superpage.h>
#include <time.h>

#define WORDS ((size_t)64 << 20)
#define READS 20000000

static double seconds_of(const uint32_t *words, uint32_t *sum) {
    struct timespec begun, ended;
    uint64_t state = 1;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (int i = 0; i < READS; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t range = (state >> 60) % 10 ? WORDS / 5 : WORDS;
        *sum += words[(state >> 20) % range];
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    return (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) / 1e9;
}

int main(void) {
    const char *pages[] = {"base", "huge:20%"};
    for (int i = 0; i < 2; i++) {
        uint32_t *words = superpage_alloc(WORDS * sizeof *words, pages[i], 0);
        struct superpage_placement placement = {.size = sizeof placement};
        uint32_t sum = 0;
        if (!words) {
            fprintf(stderr, "%s\n", superpage_error());
            return 1;
        }
        for (size_t at = 0; at < WORDS; at++) words[at] = (uint32_t)at;
        double seconds = seconds_of(words, &sum);
        if (superpage_pages(words, WORDS * sizeof *words, &placement) != 0) {
            fprintf(stderr, "%s\n", superpage_error());
            return 1;
        }
        printf("%s: %.2f s, %" PRIu64 " MiB on huge pages, sum %" PRIu32 "\n", pages[i], seconds, placement.huge >> 20, sum);
        superpage_free(words);
    }
    return 0;
}
