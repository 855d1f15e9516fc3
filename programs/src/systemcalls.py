"""Writes a seccomp filter: `allow SET` kills for all system calls but those of a set of systemd's, as SystemCallFilter=SET does, and
`refuse ERRNO NAME` has one call fail."""
import errno
import re
import struct
import subprocess
import sys

HEADER = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"
ALLOW, KILL, FAIL = 0x7FFF0000, 0x80000000, 0x00050000


def members(name):
    listed = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines()[1:]:
        word = line.strip()
        if word.startswith("@"):
            yield from members(word)
        elif word and not word.startswith("#"):
            yield word


def rule(code, then, otherwise, value):
    return struct.pack("HBBI", code, then, otherwise, value)


numbers = dict(re.findall(r"#define __NR_(\w+) (\d+)", open(HEADER).read()))
if sys.argv[1] == "allow":
    calls, found, others = set(members(sys.argv[2])), ALLOW, KILL
else:
    calls, found, others = {sys.argv[3]}, FAIL | getattr(errno, sys.argv[2]), ALLOW
filter = rule(0x20, 0, 0, 0)
for number in sorted(int(numbers[call]) for call in calls if call in numbers):
    filter += rule(0x15, 0, 1, number) + rule(0x06, 0, 0, found)
sys.stdout.buffer.write(filter + rule(0x06, 0, 0, others))
