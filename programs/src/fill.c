/* Fills memory, with its name in each page, over and over for a while, and says how many pages held something else. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count < 3) return 2;
    size_t size = (size_t)40 << 20, step = 4096 / sizeof(uint64_t);
    uint64_t tag = (uint64_t)words[1][0] << 48;
    uint64_t *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long wrong = 0;
    for (int pass = 0; pass < atoi(words[2]); pass++) {
        for (size_t at = 0; at < size / sizeof *block; at += step) {
            if (pass && block[at] != (tag | at)) wrong++;
            block[at] = tag | at;
        }
        usleep(200000);
    }
    printf("%s: %ld wrong pages\n", words[1], wrong);
    return wrong != 0;
}
