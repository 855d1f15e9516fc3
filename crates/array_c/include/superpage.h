/* Memory on chosen pages: the first part of an array on huge (2 MiB) or gigantic (1 GiB) pages, the rest on base pages.
 *
 *     float *ranks = superpage_alloc(n * sizeof *ranks, "huge:20%", 0);
 *     if (!ranks) { fprintf(stderr, "%s\n", superpage_error()); return 1; }
 *
 * Compile with `cc program.c $(pkg-config --cflags --libs superpage)`. All functions may be called by several threads.
 * The child of a fork has a copy of what is on gigantic pages, on smaller ones.
 *
 * A function that fails returns NULL or -1, sets errno, and has a sentence in superpage_error(). One that succeeds leaves errno as
 * it was. errno is
 *
 *     EINVAL   an argument that the function does not take: unknown pages or flags, a length of 0, an alignment that is no power of
 *              two, memory that superpage_alloc has not returned, a structure without its size
 *     ENOMEM   less memory than was asked for, or with SUPERPAGE_REQUIRE fewer huge or gigantic pages
 *     EFAULT   addresses that no process has
 *     ENOENT, EACCES, ENOTTY, EIO, or another error of the kernel's: it does not say which pages memory is on, because /proc is not
 *              there, or the kernel is older than 6.11
 *
 * The library's SONAME changes with its binary interface. Structures may grow without that: set their first member, `size`, to
 * sizeof of the structure. A program that was compiled with an older header gets the members that it knows, one with a newer
 * header zeroes in those that the library does not know.
 */

#ifndef SUPERPAGE_H
#define SUPERPAGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. */
#define SUPERPAGE_VERSION_MAJOR 0
#define SUPERPAGE_VERSION_MINOR 1
#define SUPERPAGE_VERSION_PATCH 0
#define SUPERPAGE_VERSION (SUPERPAGE_VERSION_MAJOR * 10000 + SUPERPAGE_VERSION_MINOR * 100 + SUPERPAGE_VERSION_PATCH)

/* The version of the library that runs, as SUPERPAGE_VERSION is that of the header. */
unsigned superpage_version(void);

/* There is no memory where the kernel has fewer huge or gigantic pages than were asked for. Without it, smaller ones are used. */
#define SUPERPAGE_REQUIRE 1u

/* Bytes of memory (whole base pages) by the pages that they are on. */
struct superpage_placement {
    uint64_t size; /* sizeof(struct superpage_placement), set by the caller */
    uint64_t base;
    uint64_t huge;
    uint64_t gigantic;
    uint64_t swapped;
    uint64_t absent; /* never touched, or only read */
};

/* `length` bytes of zeroes on `pages`: "base", "huge", "gigantic", the first part in memory order as in "huge:20%", or
 * "default", which asks the kernel for nothing. Huge and
 * gigantic pages are there when it returns. The memory begins at a border of its pages. NULL where there is none. A length of 0 is refused. */
void *superpage_alloc(size_t length, const char *pages, unsigned flags);

/* As superpage_alloc, at a border of `alignment` as well, a power of two, which may be larger than a page. */
void *superpage_aligned_alloc(size_t alignment, size_t length, const char *pages, unsigned flags);

/* Makes memory of superpage_alloc or superpage_aligned_alloc shorter or longer; pages, flags and alignment are as it was asked for.
 * Shorter memory stays where it is, and whole ranges of 2 MiB behind its end go back to the kernel, but for gigantic pages. Longer
 * memory is new and has a copy of the old, which is given back after that; what is behind the copy is zeroes. NULL where that cannot
 * be: the old memory stays as it was. A length of 0 and NULL are refused. */
void *superpage_realloc(void *memory, size_t length);

/* Gives memory of these functions back. NULL does nothing. -1 for what they have not returned, which stays. */
int superpage_free(void *memory);

/* Which pages any memory of this process is on, as the kernel says. `placement` may be NULL. 0, or -1.
 *
 *     struct superpage_placement placement = {.size = sizeof placement};
 *     if (superpage_pages(ranks, n * sizeof *ranks, &placement) == 0) printf("%" PRIu64 "\n", placement.huge);
 */
int superpage_pages(const void *memory, size_t length, struct superpage_placement *placement);

/* Puts memory on huge pages in place, each range of 2 MiB that lies in it as a whole, as far as there are free ones. What it holds
 * stays. 0, or -1. */
int superpage_collapse(void *memory, size_t length);

/* The last error of this thread, in one sentence; never NULL. The string stays until the next call of this thread. */
const char *superpage_error(void);

#ifdef __cplusplus
}
#endif

#endif
