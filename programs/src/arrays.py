"""NumPy and pandas: large temporaries, views, growing arrays, a mapped file, and threads of OpenBLAS."""
import numpy, os, pandas, tempfile
rng = numpy.random.default_rng(7)
a = rng.integers(0, 1000, (2000, 2000))
f8 = a.astype(float)
print(int(a.sum()), int((f8 @ numpy.eye(2000)).sum()))
b = numpy.concatenate([a[i::7].ravel() for i in range(7)])
b.sort()
print(int(b[::1000].sum()))
f = pandas.DataFrame({"key": rng.integers(0, 1000, 500_000), "value": numpy.arange(500_000)})
g = f.groupby("key").value.agg(["sum", "count"])
print(int(g["sum"].sum()), len(g), len(f.merge(g, on="key")))
with tempfile.NamedTemporaryFile() as file:
    m = numpy.memmap(file.name, dtype="u8", mode="w+", shape=4_000_000)
    m[:] = numpy.arange(4_000_000)
    m.flush()
    print(int(numpy.fromfile(file.name, dtype="u8").sum()))
c = numpy.ones(10)
for i in range(19):
    c = numpy.resize(c, c.size * 2)
print(c.size, float(c.sum()))
