"""Apache Arrow with its three allocators, DuckDB with a limit of memory and threads, Polars."""
import os
import pyarrow
import pyarrow.compute
import pyarrow.parquet
import duckdb

pools = [pyarrow.system_memory_pool()]
for name in pyarrow.supported_memory_backends():
    pools.append({"jemalloc": pyarrow.jemalloc_memory_pool, "mimalloc": pyarrow.mimalloc_memory_pool, "system": pyarrow.system_memory_pool}[name]())
for pool in pools:
    pyarrow.set_memory_pool(pool)
    table = pyarrow.table({"k": [n * 7919 % 100_003 for n in range(500_000)], "s": [f"text {n % 977}" for n in range(500_000)]})
    table = table.sort_by("k").take(list(range(0, 500_000, 7)))
    grouped = table.group_by("s").aggregate([("k", "sum")]).sort_by("s")
    print(pool.backend_name, grouped.num_rows, grouped.column("k_sum")[5].as_py())
    pyarrow.parquet.write_table(table, "t.parquet")
    read = pyarrow.parquet.read_table("t.parquet", memory_map=True)
    print(read.equals(table), pyarrow.compute.sum(read.column("k")).as_py())
    del table, read, grouped

with duckdb.connect("d.db") as base:
    base.execute("set threads = 4; set memory_limit = '200MB'; set temp_directory = 'spill'")
    base.execute("create table t as select range as n, range * 7919 % 1000003 as k, 'text ' || range as s from range(2000000)")
    print(base.execute("select count(*), sum(k), max(s) from t").fetchall())
    print(base.execute("select count(*), sum(a.n) from t a join t b on a.k = b.n").fetchall())
    print(base.execute("select s from (select s from t order by k desc, s) limit 3").fetchall())
    print(base.execute("select n from t order by s offset 1999990").fetchall()[:2])
    base.execute("checkpoint")
if os.fork() == 0:
    print(duckdb.sql("select sum(range) from range(100000)").fetchall(), flush=True)
    os._exit(0)
print(os.wait()[1])
