// What the programs of these tests share: a check that ends the program with exit code 1.

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB (1UL << 20)

#define CHECK(holds)                                                                   \
    do {                                                                               \
        if (!(holds)) {                                                                \
            fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #holds, errno);      \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)
