"""Tests of the built package, on this machine's pages."""

import multiprocessing
import os
import re

import numpy
import pytest

import superpage

MIB = 1 << 20
HUGE = 2 * MIB


def smaps_of(address):
    """The fields of the VMA that holds an address, by the kernel's own account."""
    fields = None
    with open("/proc/self/smaps") as smaps:
        for line in smaps:
            bounds = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
            if bounds:
                if fields is not None:
                    return fields
                low, high = (int(bound, 16) for bound in bounds.groups())
                fields = {} if low <= address < high else None
            elif fields is not None:
                name, value = line.split(":", 1)
                fields[name] = value.strip()
    return fields


def address_of(array):
    return array.__array_interface__["data"][0]


def test_an_array_is_on_the_pages_that_were_asked_for():
    for asked, huge in [("huge", 20 * HUGE), ("huge:20%", 4 * HUGE), ("base", 0)]:
        made = superpage.zeros(20 * HUGE // 8, pages=asked)
        assert made.dtype == float and not made.any()
        made[:] = 1
        found = superpage.pages(made)
        assert (found.huge, found.base) == (huge, 20 * HUGE - huge), asked
        kernel = smaps_of(address_of(made))
        assert kernel["AnonHugePages"] == f"{huge // 1024} kB", asked


def test_shapes_and_dtypes_are_numpys():
    for shape in [(), 0, 7, (3, 4), (0, 5), (2, 3, 4)]:
        for dtype in ["u1", "float32", "complex128", "M8[s]", numpy.dtype([("a", "i4"), ("b", "f8")])]:
            made = superpage.empty(shape, dtype, pages="huge:50%")
            like = numpy.empty(shape, dtype)
            assert (made.shape, made.dtype) == (like.shape, like.dtype)
            assert made.size == 0 or made.strides == like.strides
            assert made.flags.writeable and made.flags.c_contiguous and made.flags.aligned


def test_what_cannot_be_is_refused():
    for pages in ["4k", "huge:120%", "", "base:20%"]:
        with pytest.raises(ValueError, match="say base, huge or gigantic"):
            superpage.empty(10, pages=pages)
    with pytest.raises(ValueError, match="references"):
        superpage.empty(10, object)
    with pytest.raises(ValueError, match="negative"):
        superpage.empty((2, -1))
    for too_many in [1 << 50, 1 << 60, 1 << 70]:
        with pytest.raises(MemoryError):
            superpage.empty(too_many)
    with pytest.raises(TypeError, match="no NumPy array"):
        superpage.pages([1, 2])


def test_more_gigantic_pages_than_there_are_is_refused_when_required():
    with open("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages") as free:
        wanted = int(free.read()) + 1
    if wanted > 2:
        pytest.skip("this machine has many gigantic pages free")
    with pytest.raises(MemoryError, match="gigantic"):
        superpage.empty(1, pages="gigantic", require=True) if wanted == 1 else superpage.empty(
            wanted << 30, "u1", pages="gigantic", require=True
        )


def test_a_copy_is_equal_and_its_own():
    source = numpy.arange(3 * HUGE, dtype="u4").reshape(-1, 2)[::3]
    source.setflags(write=False)
    copy = superpage.array(source, pages="huge")
    assert numpy.array_equal(copy, source) and copy.flags.writeable
    copy[0] = 99
    assert source[0, 0] == 0
    assert superpage.array([1, 2, 3], dtype="i2").tolist() == [1, 2, 3]
    columns = superpage.array(numpy.asfortranarray(numpy.arange(6).reshape(2, 3)))
    assert columns.flags.f_contiguous and columns.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(TypeError, match="masked"):
        superpage.array(numpy.ma.array([1, 2], mask=[True, False]))


def test_memory_lives_as_long_as_a_view():
    view = superpage.zeros(HUGE, "u1")[5:10]
    assert view.base is not None
    view[:] = 7
    pressure = [superpage.zeros(HUGE, "u1") for _ in range(8)]
    assert view.tolist() == [7] * 5 and len(pressure) == 8


def test_memory_is_given_back():
    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    for _ in range(30):
        superpage.zeros(16 * HUGE, "u1", pages="huge")
    assert resident() < before + 16 * HUGE


def test_any_array_is_told_and_can_be_collapsed():
    made = superpage.zeros(6 * HUGE, "u1", pages="base")
    made[:] = 3
    inner = made[1:-1]
    inner.setflags(write=False)
    assert superpage.pages(inner).huge == 0
    assert superpage.collapse(inner).huge == 4 * HUGE
    assert (made == 3).all()
    plain = numpy.ones(10 * MIB, "u1")
    found = superpage.pages(plain)
    assert found.base + found.huge >= plain.nbytes and 0 <= found.huge_share <= 1
    assert superpage.pages(plain[::2]).absent == 0
    assert superpage.pages(numpy.empty(0)) == superpage.Placement(0, 0, 0, 0, 0)
    assert superpage.collapse(numpy.ones(3)).huge >= 0


def test_how_an_array_will_be_used_can_be_said():
    made = numpy.arange(MIB)
    for how in ["random", "sequential", "willneed", "cold", "normal"]:
        superpage.advise(made[1:], how)
        superpage.advise(made[:3], how)
    assert (made == numpy.arange(MIB)).all()
    with pytest.raises(ValueError, match="give one of normal, random"):
        superpage.advise(made, "hot")
    with pytest.raises(TypeError):
        superpage.advise([1], "cold")


def in_child(array, results):
    results.put(int(array.sum()))
    array[:] = 9
    results.put(int(array[-1]))


@pytest.mark.parametrize("pages", ["base", "huge", "gigantic"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_child_of_a_fork_has_its_own_copy(pages):
    context = multiprocessing.get_context("fork")
    made = superpage.zeros(4 * HUGE, "u1", pages=pages)
    if pages == "gigantic" and not superpage.pages(made).gigantic:
        pytest.skip("the kernel's pool has no gigantic page; crates/array tests forks with some of its own")
    made[:] = 1
    results = context.Queue()
    child = context.Process(target=in_child, args=(made, results))
    child.start()
    assert [results.get(timeout=60), results.get(timeout=60)] == [4 * HUGE, 9]
    child.join()
    assert child.exitcode == 0
    assert int(made.sum()) == 4 * HUGE


def test_a_sparse_matrix_lies_on_it():
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.random(3000, 3000, density=0.01, format="csr", random_state=1)
    data, indices, indptr = (
        superpage.array(part, pages=asked)
        for part, asked in [(matrix.data, "huge"), (matrix.indices, "base"), (matrix.indptr, "base")]
    )
    placed = sparse.csr_matrix((data, indices, indptr), shape=matrix.shape, copy=False)
    assert numpy.shares_memory(placed.data, data)
    vector = superpage.array(numpy.arange(3000.0), pages="huge:20%")
    assert numpy.allclose(placed @ vector, matrix @ vector)


def test_a_data_frame_lies_on_it():
    pandas = pytest.importorskip("pandas")
    values = superpage.zeros((2 * MIB // 8, 3), pages="huge")
    frame = pandas.DataFrame(values, columns=list("abc"), copy=False)
    assert numpy.shares_memory(frame.to_numpy(), values)
    values[:, 1] = 2
    assert frame["b"].sum() == 2 * len(frame)


def test_a_tensor_lies_on_it():
    torch = pytest.importorskip("torch")
    values = superpage.zeros(MIB, "float32", pages="huge")
    torch.from_numpy(values).fill_(2)
    assert (values == 2).all()
