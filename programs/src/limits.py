"""Sets a limit of address space or data, if it is told to, and says how much memory it still gets, and whether a thread and a child do."""
import resource, subprocess, sys, threading
kind, limit = (sys.argv[1:] + ["none", "0"])[:2]
if kind != "none":
    resource.setrlimit(getattr(resource, "RLIMIT_" + kind), (int(limit) << 20,) * 2)
blocks = []
try:
    for _ in range(40):
        blocks.append(bytearray(16 << 20))
except MemoryError:
    pass
# The libraries that are loaded, and what is placed on whole pages, may take up to two of the blocks.
print("most of it" if len(blocks) * 16 > int(limit) * 0.7 or len(blocks) >= 38 else f"only {len(blocks) * 16} MiB of {limit}")
del blocks[len(blocks) // 2:]
thread = threading.Thread(target=lambda: print("thread"))
thread.start()
thread.join()
print(subprocess.run(["true"]).returncode)
