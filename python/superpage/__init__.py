"""NumPy arrays on base, huge and gigantic pages, as asked.

    import superpage
    ranks = superpage.zeros(50_000_000, "float32", pages="huge:20%")
    print(superpage.pages(ranks))

Pages are ``base`` (4 KiB), ``huge`` (2 MiB), ``gigantic`` (1 GiB, of the kernel's pool), the first part of an array in memory
order on such pages, as in ``huge:20%``, or ``default``, which asks the kernel for nothing. Huge pages are there when the array is. Where the kernel has too few, smaller
ones are used, unless ``require=True``; `pages` says what an array is really on.

The child of a fork (``multiprocessing``) has a copy of what is on gigantic pages, on smaller ones.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy

from . import _superpage

__all__ = ["Placement", "advise", "array", "collapse", "empty", "pages", "zeros"]


@dataclass(frozen=True)
class Placement:
    """The bytes of an array's memory (whole base pages) by the pages that they are on."""

    base: int
    huge: int
    gigantic: int
    swapped: int
    #: Never touched, or only read.
    absent: int

    @property
    def huge_share(self) -> float:
        """The share of what is in memory that is on huge and gigantic pages."""
        large = self.huge + self.gigantic
        return large / (large + self.base) if large else 0.0


def zeros(shape, dtype=float, pages: str = "huge", *, order: str = "C", require: bool = False) -> numpy.ndarray:
    """A new array of zeroes on the given pages, its rows one after the other (``C``) or its columns (``F``).

    Raises ValueError for pages or a dtype that cannot be, and MemoryError where there is no memory, or, with ``require``, too
    few huge or gigantic pages.
    """
    dtype = numpy.dtype(dtype)
    if dtype.hasobject:
        raise ValueError(f"an array of {dtype} holds references, which cannot be placed: use plain numbers")
    dimensions = (shape,) if isinstance(shape, (int, numpy.integer)) else tuple(shape)
    if any(dimension < 0 for dimension in dimensions):
        raise ValueError(f"a shape has no negative numbers: {shape}")
    length = math.prod(dimensions) * dtype.itemsize
    if length > sys.maxsize:
        raise MemoryError(f"{length} bytes are larger than memory can be")
    memory = _superpage.Memory(length, pages, require)
    return numpy.ndarray(dimensions, dtype, buffer=memory, order=order)


#: As `zeros`: memory of the kernel's is zero anyway.
empty = zeros


def array(existing, pages: str = "huge", *, dtype=None, require: bool = False) -> numpy.ndarray:
    """A copy of an array, or of anything that NumPy makes one of, on the given pages; columns stay one after the other."""
    if isinstance(existing, numpy.ma.MaskedArray):
        raise TypeError("a masked array is two arrays: copy its .data and its .mask")
    source = numpy.asarray(existing, dtype=dtype)
    order = "F" if source.flags.fnc else "C"
    copy = zeros(source.shape, source.dtype, pages, order=order, require=require)
    copy[...] = source
    return copy


def _bounds(of: numpy.ndarray) -> tuple[int, int]:
    if not isinstance(of, numpy.ndarray):
        raise TypeError(f"a {type(of).__name__} is no NumPy array")
    if of.size == 0:
        return 0, 0
    low, high = numpy.lib.array_utils.byte_bounds(of) if hasattr(numpy.lib, "array_utils") else numpy.byte_bounds(of)
    return low, high - low


def pages(of: numpy.ndarray) -> Placement:
    """The pages that any NumPy array is really on, from its first byte to its last: strides count with what lies between."""
    return Placement(*_superpage.placement(*_bounds(of)))


def collapse(of: numpy.ndarray) -> Placement:
    """Puts any NumPy array on huge pages where it lies, as far as it holds whole ranges of 2 MiB; the pages that it is on then."""
    _superpage.collapse(*_bounds(of))
    return pages(of)


def advise(of: numpy.ndarray, how: str) -> None:
    """Says how any NumPy array will be used: ``random``, ``sequential``, ``willneed`` (it is read ahead now), ``cold`` (it leaves
    memory first) or ``normal``. The kernel is told, and under ``superpage run --heap`` the heap. What the array holds stays."""
    _superpage.advise(*_bounds(of), how)
