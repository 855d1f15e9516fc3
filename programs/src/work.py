"""Objects, arenas, large buffers, mappings, threads, children by every way, and a deep recursion."""
import gc, mmap, multiprocessing, os, pickle, subprocess, sys, threading

def work(n):
    return sum(len(str(i)) for i in range(n * 3000))

def main():
    table = {f"key{i}": "v" * (i % 50) for i in range(150_000)}
    for i in range(150_000):
        if i % 3:
            del table[f"key{i}"]
    gc.collect()
    print(len(table), sum(map(len, table.values())))
    print(len(pickle.loads(pickle.dumps(table))))
    buffers = [bytearray(b"%c" % (65 + i)) * (8 << 20) for i in range(10)]
    print(sum(b[-1] for b in buffers))
    del buffers[::2]
    with mmap.mmap(-1, 64 << 20) as m:
        m[1 << 20] = 7
        m.resize(128 << 20)
        print(m[1 << 20], len(m))
    results = [0] * 8
    def thread(n):
        results[n] = work(n)
    threads = [threading.Thread(target=thread, args=(n,)) for n in range(8)]
    [t.start() for t in threads], [t.join() for t in threads]
    print(results)
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(3) as pool:
            print(method, pool.map(work, range(6)))
    pid = os.fork()
    if not pid:
        os._exit(len(bytearray(50 << 20)) >> 20)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    print(subprocess.run([sys.executable, "-c", "print(len('x' * 10**8))"], capture_output=True, text=True).stdout)
    sys.stdout.flush()
    return 9

if __name__ == "__main__":
    sys.exit(main())
