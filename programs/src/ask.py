"""Asks a server at a socket of the Unix kind by HTTP, many times and by several threads, and says what it answered in sum."""
import collections
import hashlib
import http.client
import socket
import sys
import threading
import time

place, paths, count = sys.argv[1], sys.argv[2].split(","), int(sys.argv[3])
seen, lock = collections.Counter(), threading.Lock()

# The server may be about to begin.
for _ in range(200):
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(place) == 0:
            break
    time.sleep(0.05)


class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(place)


def work():
    for turn in range(count):
        for path in paths:
            connection = Connection("localhost", timeout=20)
            connection.request("GET", path)
            answer = connection.getresponse()
            digest = hashlib.md5(answer.read()).hexdigest()[:8]
            connection.close()
            with lock:
                seen[path, answer.status, digest] += 1


threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
for (path, status, digest), times in sorted(seen.items()):
    print(path, status, digest, times)
