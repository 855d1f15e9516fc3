/* Writes that leave XXH3 of a page as it was: with these low halves two of its products are zero, so that one added to the one
   high half and taken from the other changes nothing. A heap that goes by the hash loses them. */
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

int main(void) {
    size_t size = (size_t)64 << 20, step = 512;
    uint64_t *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t words = size / 8;
    for (size_t at = 0; at < words; at += step) {
        for (size_t word = 0; word < step; word++) block[at + word] = at + word;
        block[at] = 0x396cfeb8ull | (uint64_t)(1000 + at) << 32;
        block[at + 8] = 0x2c81017cull | (uint64_t)(50000000 - at) << 32;
    }
    volatile uint64_t sum = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t at = 0; at < words; at += step) sum += block[at + 77];
    for (size_t at = 0; at < words; at += step) block[at] += 1ull << 32, block[at + 8] -= 1ull << 32;
    for (int pass = 0; pass < 2; pass++)
        for (size_t at = 0; at < words; at += step) sum += block[at + 77];
    long lost = 0;
    for (size_t at = 0; at < words; at += step) lost += block[at] >> 32 != 1001 + at || block[at + 8] >> 32 != 49999999 - at;
    printf("%ld writes lost\n", lost);
    return lost != 0;
}
