"""A NumPy array that may be larger than memory: filled, summed, indexed at random, sorted; timed.

    heap_numpy.py BYTES

Standard output gets one JSON object: the seconds of each, and what was found.
"""

import json
import sys
import time

import numpy

#: Elements that are worked on at a time, so that no second array as large is needed. Chosen, not measured.
PIECE = 1 << 20
#: The elements of a base page: as many single elements are read at random as the array has base pages.
PER_PAGE = 512

SECONDS = {}


def timed(name, work):
    begun = time.perf_counter()
    result = work()
    SECONDS[name] = time.perf_counter() - begun
    return result


def fill(array, random):
    for first in range(0, len(array), PIECE):
        piece = array[first : first + PIECE]
        random.random(len(piece), out=piece)


def is_sorted(array):
    pieces = (array[first : first + PIECE + 1] for first in range(0, len(array), PIECE))
    return all(bool((piece[:-1] <= piece[1:]).all()) for piece in pieces)


def main(size):
    random = numpy.random.default_rng(27491095)
    array = numpy.empty(int(size) // 8)
    at = random.integers(len(array), size=len(array) // PER_PAGE)
    timed("fill", lambda: fill(array, random))
    total = timed("sum", lambda: float(array.sum()))
    gathered = timed("index", lambda: float(array[at].sum()))
    timed("sort", array.sort)
    if not is_sorted(array):
        sys.exit("the array is not sorted")
    print(json.dumps({"seconds": SECONDS, "found": [total, gathered, float(array.sum())]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
