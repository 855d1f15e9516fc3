/* Prints what each of C's functions of memory answers and what errno is then: as it was, where a function succeeds. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define BEFORE 1234
/* Compilers know what the functions promise, so that sizes are hidden from them. */
static volatile size_t zero = 0, one = 1, kib = 1024, most = SIZE_MAX / 2, all = SIZE_MAX;

static const char *name(int error) {
    return error == BEFORE ? "as before" : error == ENOMEM ? "ENOMEM" : error == EINVAL ? "EINVAL" : error ? strerror(error) : "0";
}

#define SHOW(call)                                                                   \
    do {                                                                             \
        errno = BEFORE;                                                              \
        void *block = (call);                                                        \
        int error = errno;                                                           \
        printf("%s: %s, errno %s\n", #call, block ? "a block" : "NULL", name(error)); \
        errno = BEFORE;                                                              \
        free(block);                                                                 \
        if (errno != BEFORE) printf("free: errno %s\n", name(errno));                \
    } while (0)

#define CODE(call)                                                                             \
    do {                                                                                       \
        void *block = &zero;                                                                   \
        errno = BEFORE;                                                                        \
        int code = (call);                                                                     \
        printf("%s: %s, errno %s%s\n", #call, name(code), name(errno), block == &zero ? ", untouched" : ""); \
        if (block != &zero) free(block);                                                       \
    } while (0)

/* Blocks of all sizes come and go, whose memory the kernel may refuse to give back or to advise. */
static void *churn(void *what) {
    static __thread void *blocks[64];
    size_t state = (size_t)what + 88172645463325252u, wrong = 0;
    for (int round = 0; round < 40000; round++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        void **block = &blocks[state % 64];
        size_t size = (size_t)1 << (state >> 20) % 22;
        errno = BEFORE;
        free(*block);
        wrong += errno != BEFORE;
        *block = malloc(size + (state >> 40) % size);
        wrong += *block && errno != BEFORE;
        if (*block) *(char *)*block = 1;
    }
    for (int at = 0; at < 64; at++) free(blocks[at]), blocks[at] = NULL;
    malloc_trim(0);
    return (void *)wrong;
}

static void churns(const char *where) {
    pthread_t thread;
    void *wrong, *here;
    pthread_create(&thread, NULL, churn, (void *)7);
    here = churn(NULL);
    pthread_join(thread, &wrong);
    printf("%s: %zu changed errors\n", where, (size_t)here + (size_t)wrong);
}

int main(void) {
    SHOW(malloc(kib));
    SHOW(malloc(zero));
    SHOW(malloc(most));
    SHOW(malloc(all));
    SHOW(malloc((size_t)1 << 46));
    SHOW(malloc((size_t)600 << 20));
    SHOW(calloc(kib, kib));
    SHOW(calloc(most, kib));
    SHOW(calloc(zero, all));
    SHOW(realloc(NULL, zero));
    SHOW(realloc(malloc(kib), kib * kib));
    SHOW(realloc(malloc(kib), zero));
    SHOW(reallocarray(NULL, most, kib));
    SHOW(reallocarray(malloc(kib), zero, kib));
    SHOW(reallocarray(malloc(kib), kib, kib));
    SHOW(aligned_alloc(kib, kib));
    SHOW(aligned_alloc(kib, most));
    SHOW(memalign(3 * kib, kib));
    SHOW(memalign(most + 2, one));
    SHOW(memalign(kib * kib, all));
    SHOW(valloc(one));
    SHOW(valloc(all));
    SHOW(pvalloc(one));
    SHOW(pvalloc(all));
    CODE(posix_memalign(&block, kib, kib));
    CODE(posix_memalign(&block, one, kib));
    CODE(posix_memalign(&block, zero, kib));
    CODE(posix_memalign(&block, 3 * kib, kib));
    CODE(posix_memalign(&block, kib, most));
    CODE(posix_memalign(&block, kib, zero));
    char *block = malloc(kib);
    memset(block, 5, kib);
    errno = BEFORE;
    void *none = realloc(block, most);
    printf("realloc to too much: %s, errno %s, the block has %d\n", none ? "a block" : "NULL", name(errno), block[kib - 1]);
    errno = BEFORE;
    printf("usable %d %zu", malloc_usable_size(block) >= kib, malloc_usable_size(NULL));
    free(block);
    free(NULL);
    printf(", errno %s\n", name(errno));
    churns("ordinary memory");
    mlockall(MCL_FUTURE);
    churns("locked memory");
    munlockall();
    fflush(stdout);
    return 0;
}
