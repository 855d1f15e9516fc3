/* Loads a plugin as its arguments say (deep, lazy, base, namespace), and passes memory to it and back: small and large blocks and mappings. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void (*take)(void *);
static char *(*give)(int), *(*grow)(char *, size_t), *(*by_libc)(int);
static void *(*map)(size_t);
static int (*unmap)(void *, size_t);

static void *pass(void *is_own) {
    for (int round = 0; round < 2000; round++) {
        size_t size = round % 100 ? 16 + round : (size_t)3 << 20;
        char *block = malloc(size);
        memset(block, 1, size);
        if (is_own) { free(block); continue; }
        if (round % 3) block = grow(block, 2 * size);
        take(block);
        free(give(round));
        free(by_libc(round));
    }
    return NULL;
}

int main(int count, char **words) {
    int mode = RTLD_NOW;
    const char *is_apart = NULL, *is_base = NULL;
    for (int at = 2; at < count; at++) {
        if (!strcmp(words[at], "deep")) mode |= RTLD_DEEPBIND;
        if (!strcmp(words[at], "lazy")) mode = (mode & ~RTLD_NOW) | RTLD_LAZY;
        if (!strcmp(words[at], "base")) is_base = words[at];
        if (!strcmp(words[at], "namespace")) is_apart = words[at];
    }
    void *plugin = is_apart ? dlmopen(LM_ID_NEWLM, words[1], mode)
                   : is_base ? dlmopen(LM_ID_BASE, words[1], mode) : dlopen(words[1], mode);
    if (!plugin) { puts(dlerror()); return 2; }
    take = dlsym(plugin, "take"), give = dlsym(plugin, "give"), grow = dlsym(plugin, "grow");
    by_libc = dlsym(plugin, "by_libc"), map = dlsym(plugin, "map"), unmap = dlsym(plugin, "unmap");
    size_t size = (size_t)48 << 20;
    char *mine = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *theirs = map(size);
    memset(mine, 2, size), memset(theirs, 3, size);
    printf("%d %d\n", mine[size - 1], theirs[size - 1]);
    /* A libc of its own has an allocator of its own: its blocks are its own business. */
    if (is_apart) {
        for (int round = 0; round < 1000; round++) take(give(round)), take(by_libc(round));
    } else {
        pthread_t thread;
        pthread_create(&thread, NULL, pass, NULL);
        pass(NULL);
        pthread_join(thread, NULL);
    }
    printf("%d %d\n", unmap(mine, size), munmap(theirs, size));
    printf("%d\n", dlclose(plugin));
    puts("end");
    return 5;
}
