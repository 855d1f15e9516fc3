/* What the kernel says of a hole in a mapping. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

int main(void) {
    size_t m = (size_t)1 << 20;
    char *block = mmap(NULL, 8 * m, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(block, 1, 8 * m);
    munmap(block + m, m);
    printf("%d\n", msync(block + m, m, MS_ASYNC) ? errno : 0);
    return 0;
}
