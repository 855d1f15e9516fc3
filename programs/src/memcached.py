"""Fills a memcached with values of many sizes, drops some, and reads the others back."""
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
f = s.makefile("rwb")
def value(n):
    return b"%c" % (65 + n % 26) * (n * 37 % 20000 if n % 100 else 900_000)
for n in range(4000):
    v = value(n)
    f.write(b"set k%d 0 0 %d\r\n%s\r\n" % (n, len(v), v))
    f.flush()
    assert f.readline() == b"STORED\r\n"
for n in range(0, 4000, 3):
    f.write(b"delete k%d\r\n" % n)
    f.flush()
    f.readline()
wrong = 0
for n in range(4000):
    f.write(b"get k%d\r\n" % n)
    f.flush()
    line = f.readline()
    if line == b"END\r\n":
        wrong += n % 3 != 0
        continue
    got = f.read(int(line.split()[3]) + 2)[:-2]
    f.readline()
    wrong += got != value(n)
print(wrong, "wrong")
