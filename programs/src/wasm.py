"""WebAssembly by wasmtime: memories with gigabytes of guards, traps that are faults, the allocator of instances, threads."""
import threading
import wasmtime

TEXT = """(module (memory (export "m") 1 4000)
 (func (export "grow") (param i32) (result i32) local.get 0 memory.grow)
 (func (export "load") (param i32) (result i32) local.get 0 i32.load)
 (func (export "store") (param i32 i32) local.get 0 local.get 1 i32.store)
 (func (export "div") (param i32 i32) (result i32) local.get 0 local.get 1 i32.div_s)
 (func $deep (export "deep") (param i32) (result i32) local.get 0 i32.const 1 i32.add call $deep i32.const 1 i32.add)
 (func (export "sum") (param i32) (result i32) (local i32)
  (loop $l (local.set 1 (i32.add (local.get 1) (i32.load (local.get 0)))) (local.set 0 (i32.sub (local.get 0) (i32.const 4)))
   (br_if $l (local.get 0))) (local.get 1)))"""


def trap(what, *arguments):
    try:
        return what(*arguments)
    except wasmtime.Trap as trapped:
        return str(trapped.trap_code)


def once(engine, module, number):
    store = wasmtime.Store(engine)
    exports = wasmtime.Instance(store, module, []).exports(store)
    call = lambda name, *arguments: trap(exports[name], store, *arguments)
    said = [call("grow", 1500), call("store", 90_000_000, number), call("load", 90_000_000), call("load", 2_000_000_000)]
    return said + [call("div", 1, 0), call("deep", 1), call("sum", 90_000_000), call("load", -4), exports["m"].data_len(store)]


for pooling in (False, True):
    config = wasmtime.Config()
    if pooling and hasattr(config, "allocation_strategy"):
        config.allocation_strategy = "pooling"
    engine = wasmtime.Engine(config)
    module = wasmtime.Module(engine, TEXT)
    print([once(engine, module, number) for number in range(3)])
    found = {}
    threads = [threading.Thread(target=lambda n=n: found.__setitem__(n, once(engine, module, n))) for n in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(sorted(found.items()))
