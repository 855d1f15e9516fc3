// Memory on chosen pages by libsuperpage_c.so: what is refused, and what is given.

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <superpage.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

#define CHECK(holds)                                                                    \
    do {                                                                                \
        if (!(holds)) {                                                                 \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #holds, superpage_error()); \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

/* Whether the last call failed with an error and a sentence that has this part. */
static int fails(int error, const char *part) {
    int is = errno == error && strstr(superpage_error(), part) != NULL;
    errno = 1234;
    return is;
}

/* A structure of another version than this header's. */
union other {
    struct superpage_placement known;
    uint64_t words[16];
};

static void structures(char *memory) {
    union other other = {.known = {.size = sizeof other}};
    memset(other.words + 1, 0xff, sizeof other - 8);
    CHECK(superpage_pages(memory, MIB, &other.known) == 0 && other.known.size == sizeof other);
    CHECK(other.known.huge + other.known.base + other.known.absent == MIB);
    for (size_t at = sizeof other.known / 8; at < 16; at++) CHECK(other.words[at] == 0);
    const uint64_t wrong[] = {0, 8, 40, 50, 1 << 20, UINT64_MAX};
    for (int i = 0; i < 6; i++) {
        other.known.size = wrong[i];
        CHECK(superpage_pages(memory, MIB, &other.known) == -1 && fails(EINVAL, "size"));
    }
    CHECK(superpage_pages(memory, MIB, NULL) == 0);
}

/* Memory that becomes longer and shorter, on pages of each kind. */
static void resized(const char *pages, size_t alignment) {
    char *memory = superpage_aligned_alloc(alignment, 3 * MIB, pages, 0);
    CHECK(memory && (size_t)memory % alignment == 0);
    memset(memory, 7, 3 * MIB);
    char *longer = superpage_realloc(memory, 9 * MIB);
    CHECK(longer && (size_t)longer % alignment == 0);
    for (size_t i = 0; i < 9 * MIB; i++) CHECK(longer[i] == (i < 3 * MIB ? 7 : 0));
    if (longer != memory) CHECK(superpage_free(memory) == -1 && fails(EINVAL, "superpage_alloc"));
    CHECK(superpage_realloc(longer, MIB) == longer && longer[MIB - 1] == 7);
    char *again = superpage_realloc(longer, 2 * MIB);
    CHECK(again && again[MIB - 1] == 7 && again[MIB] == 0 && again[2 * MIB - 1] == 0);
    CHECK(!superpage_realloc(again, (size_t)1 << 60) && fails(ENOMEM, "memory") && again[0] == 7);
    CHECK(!superpage_realloc(again, 0) && fails(EINVAL, "length") && again[0] == 7);
    CHECK(superpage_free(again) == 0);
}

int main(void) {
    struct superpage_placement placement = {.size = sizeof placement};
    int somewhere;
    CHECK(!strcmp(superpage_error(), ""));
    errno = 1234;
    CHECK(superpage_version() == SUPERPAGE_VERSION);
    CHECK(!superpage_alloc(MIB, "4k", 0) && fails(EINVAL, "huge:20%"));
    CHECK(!superpage_alloc(MIB, NULL, 0) && fails(EINVAL, "huge"));
    CHECK(!superpage_alloc(0, "huge", 0) && fails(EINVAL, "length"));
    CHECK(!superpage_alloc(MIB, "huge", 8) && fails(EINVAL, "flags"));
    CHECK(!superpage_alloc((size_t)-1, "base", 0) && fails(ENOMEM, "larger"));
    CHECK(!superpage_alloc((size_t)1 << 60, "base", 0) && fails(ENOMEM, "memory"));
    CHECK(!superpage_aligned_alloc(48, MIB, "base", 0) && fails(EINVAL, "power of two"));
    CHECK(!superpage_aligned_alloc(0, MIB, "base", 0) && fails(EINVAL, "power of two"));
    CHECK(!superpage_aligned_alloc((size_t)1 << 63, MIB, "base", 0) && fails(ENOMEM, "memory"));
    CHECK(!superpage_realloc(NULL, MIB) && fails(EINVAL, "NULL"));
    CHECK(!superpage_realloc(&somewhere, MIB) && fails(EINVAL, "superpage_alloc"));
    CHECK(superpage_free(&somewhere) == -1 && fails(EINVAL, "superpage_alloc"));
    CHECK(superpage_free(NULL) == 0);
    CHECK(superpage_pages(NULL, 1, &placement) == -1 && fails(EINVAL, "NULL"));
    CHECK(superpage_pages(&somewhere, SIZE_MAX / 2, &placement) == -1 && fails(EFAULT, "address"));
    CHECK(superpage_collapse(NULL, 1) == -1 && fails(EINVAL, "NULL"));
    for (size_t alignment = 1; alignment <= 64 * MIB; alignment *= 8) {
        resized("base", alignment);
        resized("default", alignment);
    }
    resized("huge:50%", 1);

    char *memory = superpage_alloc(20 * MIB, "huge:50%", 0);
    CHECK(memory && (size_t)memory % (2 * MIB) == 0);
    for (size_t i = 0; i < 20 * MIB; i++) CHECK(memory[i] == 0);
    memset(memory, 7, 20 * MIB);
    CHECK(superpage_pages(memory, 20 * MIB, &placement) == 0);
    CHECK(placement.huge + placement.base == 20 * MIB && placement.absent == 0);
    CHECK(superpage_collapse(memory, 20 * MIB) == 0 && memory[20 * MIB - 1] == 7);
    structures(memory);
    CHECK(errno == 1234);
    pid_t child = fork();
    if (child == 0) {
        memory[0] = 8;
        _exit(memory[0] != 8 || memory[1] != 7);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0 && memory[0] == 7);
    CHECK(superpage_free(memory) == 0);
    CHECK(superpage_free(memory) == -1);
    puts("all was refused as it should be");
    return 0;
}
