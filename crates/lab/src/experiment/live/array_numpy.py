"""A gather at random (numpy.take) from a NumPy array on chosen pages, timed.

    array_numpy.py PAGES BYTES TRIALS

PAGES is what `superpage.empty` takes, or "numpy" for an array of NumPy's own. Standard output gets one JSON object.
"""

import json
import sys
import time

import numpy
import superpage

#: Indices of a gather. Chosen, not measured: with a line of the cache for each they go through 512 MiB.
INDICES = 1 << 23
#: Elements that are filled at a time, so that no second array as large is needed. Chosen, not measured.
PIECE = 1 << 20
#: 80 % of the indices lie in the first fifth: the share of indices below x * n is x ** (1 / SKEW).
SKEW = numpy.log(0.2) / numpy.log(0.8)


def new(length, pages):
    return numpy.empty(length) if pages == "numpy" else superpage.empty(length, pages=pages)


def gather(array, indices, trials):
    """The seconds of each trial, after one that does not count; what was gathered is compared with what should be."""
    # On base pages whatever the array is on: they are gone through in order.
    gathered = superpage.empty(len(indices), pages="base")
    seconds = []
    for _ in range(trials + 1):
        begun = time.perf_counter()
        # With the mode "raise" NumPy would gather into a buffer first.
        numpy.take(array, indices, out=gathered, mode="clip")
        seconds.append(time.perf_counter() - begun)
    if not (gathered == indices).all():
        sys.exit("the elements that were gathered are not those at the indices")
    return seconds[1:]


def main(pages, size, trials):
    length = int(size) // 8
    begun = time.perf_counter()
    array = new(length, pages)
    for first in range(0, length, PIECE):
        last = min(first + PIECE, length)
        array[first:last] = numpy.arange(first, last)
    filled = time.perf_counter() - begun
    random = numpy.random.default_rng(27491095)
    indices = superpage.empty(INDICES, "int64", pages="base")
    said = {"numpy": numpy.__version__, "filled_s": filled}
    for name, power in [("uniform", 1), ("skewed", SKEW)]:
        indices[:] = length * random.random(INDICES) ** power
        said[name] = gather(array, indices, int(trials))
    # What it is on when all is done.
    on = superpage.pages(array)
    said["pages"] = {"base": on.base, "huge": on.huge, "gigantic": on.gigantic, "swapped": on.swapped}
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
