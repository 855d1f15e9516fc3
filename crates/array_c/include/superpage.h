/* Memory on chosen pages: the first part of an array on huge (2 MiB) or gigantic (1 GiB) pages, the rest on base pages.
 *
 *     float *ranks = superpage_alloc(n * sizeof *ranks, "huge:20%", 0);
 *     if (!ranks) { fprintf(stderr, "%s\n", superpage_error()); return 1; }
 *
 * Compile with `cc program.c $(pkg-config --cflags --libs superpage)`. All functions may be called by several threads.
 * The child of a fork has a copy of what is on gigantic pages, on smaller ones.
 */

#ifndef SUPERPAGE_H
#define SUPERPAGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* There is no memory where the kernel has fewer huge or gigantic pages than were asked for. Without it, smaller ones are used. */
#define SUPERPAGE_REQUIRE 1u

/* Bytes of memory (whole base pages) by the pages that they are on. */
struct superpage_placement {
    uint64_t base;
    uint64_t huge;
    uint64_t gigantic;
    uint64_t swapped;
    uint64_t absent; /* never touched, or only read */
};

/* `length` bytes of zeroes on `pages`: "base", "huge", "gigantic", the first part in memory order as in "huge:20%", or
 * "default", which asks the kernel for nothing. Huge and
 * gigantic pages are there when it returns. The memory begins at a border of its pages. NULL, with a sentence in
 * superpage_error(), where there is none. A length of 0 is refused. */
void *superpage_alloc(size_t length, const char *pages, unsigned flags);

/* Gives memory of superpage_alloc back. NULL does nothing. -1 for what superpage_alloc has not returned, which stays. */
int superpage_free(void *memory);

/* Which pages any memory of this process is on, as the kernel says. 0, or -1 with a sentence in superpage_error(). */
int superpage_pages(const void *memory, size_t length, struct superpage_placement *placement);

/* Puts memory on huge pages in place, each range of 2 MiB that lies in it as a whole, as far as there are free ones. What it holds
 * stays. 0, or -1 with a sentence in superpage_error(). */
int superpage_collapse(void *memory, size_t length);

/* The last error of this thread, in one sentence; never NULL. The string stays until the next call of this thread. */
const char *superpage_error(void);

#ifdef __cplusplus
}
#endif

#endif
