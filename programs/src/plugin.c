/* A plugin that takes memory of its host, gives memory to it, and lets libc allocate: by its constructor, by functions of libc
   that allocate for their caller, and by mappings of its own. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static char *kept;

__attribute__((constructor)) static void begin(void) {
    char *copy = strdup("from the constructor");
    kept = strdup(copy);
    free(copy);
}

__attribute__((destructor)) static void end(void) { free(kept); }

void take(void *block) { free(block); }

char *give(int size) {
    char *block = strdup(kept);
    return realloc(block, 100 + size);
}

char *grow(char *block, size_t size) { return realloc(block, size); }

char *by_libc(int which) {
    char *text = NULL;
    size_t size = 0;
    void *aligned;
    FILE *file;
    switch (which % 5) {
    case 0:
        return asprintf(&text, "printed %d", which) < 0 ? NULL : text;
    case 1:
        file = fopen("/proc/self/stat", "r");
        if (getline(&text, &size, file) < 0) return NULL;
        fclose(file);
        return text;
    case 2:
        return realpath("/proc/../usr", NULL);
    case 3:
        file = open_memstream(&text, &size);
        fprintf(file, "%10000d", which);
        fclose(file);
        return text;
    default:
        if (posix_memalign(&aligned, 4096, 10000)) return NULL;
        return memset(aligned, 1, 10000);
    }
}

void *map(size_t size) {
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int unmap(void *place, size_t size) { return munmap(place, size); }
