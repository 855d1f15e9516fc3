// Memory on chosen pages by libsuperpage_c.so: what is refused, and what is given.

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

static int says(const char *part) { return strstr(superpage_error(), part) != NULL; }

int main(void) {
    struct superpage_placement placement;
    int somewhere;
    CHECK(!strcmp(superpage_error(), ""));
    CHECK(!superpage_alloc(MIB, "4k", 0) && says("huge:20%"));
    CHECK(!superpage_alloc(MIB, NULL, 0) && says("huge"));
    CHECK(!superpage_alloc(0, "huge", 0) && says("length"));
    CHECK(!superpage_alloc(MIB, "huge", 8) && says("flags"));
    CHECK(!superpage_alloc((size_t)-1, "base", 0) && says("larger"));
    CHECK(!superpage_alloc((size_t)1 << 60, "base", 0) && says("memory"));
    CHECK(superpage_free(&somewhere) == -1 && says("superpage_alloc"));
    CHECK(superpage_free(NULL) == 0);
    CHECK(superpage_pages(NULL, 1, &placement) == -1 && says("NULL"));
    CHECK(superpage_collapse(NULL, 1) == -1);

    char *memory = superpage_alloc(20 * MIB, "huge:50%", 0);
    CHECK(memory && (size_t)memory % (2 * MIB) == 0);
    for (size_t i = 0; i < 20 * MIB; i++) CHECK(memory[i] == 0);
    memset(memory, 7, 20 * MIB);
    CHECK(superpage_pages(memory, 20 * MIB, &placement) == 0);
    CHECK(placement.huge + placement.base == 20 * MIB && placement.absent == 0);
    CHECK(superpage_collapse(memory, 20 * MIB) == 0 && memory[20 * MIB - 1] == 7);
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
