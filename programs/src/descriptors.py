"""Says which of the first three descriptors are open, which others are, and that memory works."""
import os, sys
def is_open(n):
    try:
        os.fstat(n)
    except OSError:
        return False
    return True
found = [n for n in range(3) if is_open(n)]
block = bytearray(90 << 20)
block[-1] = 1
with open(sys.argv[1], "a") as file:
    print("open", found, len(block), file=file)
