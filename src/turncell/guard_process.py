"""The guard: a small process that outlives a killed kernel and ends what it left.

Run as a script by `guard.Guard`, with the kernel's pid as its only argument, in
the bare interpreter (`-I -S`): it needs the standard library only, so that it
starts at once and breaks with no package. It reads one line a token on stdin
(`+TOKEN`, `quit`), and it knows the kernel is dead when it is not its child any
more, or when the pipe ends. The pipe alone would not do: a forked child of the
kernel can hold it open. Then it ends every process that carries a token, looks
until nothing is left, and leaves, after 8 s at the latest.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

#: Twin of `procs.TOKEN`, which this script cannot import.
NAME = b"TURNCELL_TOKEN="
#: Seconds between two looks at the parent.
BEAT = 0.25
#: Seconds an agent gets to write its transcript before it is killed.
GRACE = 0.7
#: Seconds after which the guard leaves whatever it finds.
LIMIT = 8.0
#: Looks in a row that must find nothing.
CLEAN_LOOKS = 3


def main(parent: int) -> int:
    """Wait for the kernel's end, or its word, and sweep; 0 when nothing was left, else 1."""
    tokens: set[bytes] = set()
    pending = b""
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], BEAT)
        if not readable:
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            break
        *lines, pending = (pending + chunk).split(b"\n")
        tokens |= {line[1:] for line in lines if line.startswith(b"+")}
        if b"quit" in lines:
            # The kernel has ended all of it, as far as it knows.
            return sweep(tokens) if any(carriers(tokens)) else 0
    return sweep(tokens | last_words(pending))


def last_words(pending: bytes) -> set[bytes]:
    """The tokens that the dead kernel had written and nobody had read."""
    while select.select([0], [], [], 0)[0]:
        chunk = os.read(0, 65536)
        if not chunk:
            break
        pending += chunk
    return {line[1:] for line in pending.split(b"\n") if line.startswith(b"+")}


def sweep(tokens: set[bytes]) -> int:
    """SIGTERM what carries a token, then SIGKILL; until nothing is left, or LIMIT."""
    began = time.monotonic()
    clean = 0
    asked: set[int] = set()
    while tokens and clean < CLEAN_LOOKS:
        now = time.monotonic() - began
        if now > LIMIT:
            return 1
        found = set(carriers(tokens))
        clean = 0 if found else clean + 1
        for pid in found:
            if now > GRACE or pid not in asked:
                send(pid, signal.SIGKILL if now > GRACE else signal.SIGTERM)
                asked.add(pid)
        time.sleep(0.1)
    return 0


def send(pid: int, number: int) -> None:
    """Signal one process, which may be gone."""
    with suppress(OSError):
        os.kill(pid, number)


def carriers(tokens: set[bytes]) -> Iterator[int]:
    """The pids of living processes that carry one of the tokens."""
    look = from_proc if os.path.isdir("/proc/self") else from_ps
    for pid, words in look():
        if pid != os.getpid() and any(word[len(NAME) :] in tokens for word in words):
            yield pid


def from_proc() -> Iterator[tuple[int, list[bytes]]]:
    """(pid, its token words) of every living process we may look into (Linux)."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with suppress(OSError):
            with open(f"/proc/{entry}/environ", "rb") as file:
                words = [w for w in file.read().split(b"\0") if w.startswith(NAME)]
            with open(f"/proc/{entry}/stat", "rb") as file:
                state = file.read().rpartition(b")")[2].split()[0]
            if words and state != b"Z":
                yield int(entry), words


def from_ps() -> Iterator[tuple[int, list[bytes]]]:
    """The same where there is no /proc (macOS; not run yet)."""
    done = subprocess.run(["ps", "-axEww", "-o", "pid=,command="], capture_output=True)
    for line in done.stdout.splitlines():
        pid, *words = line.split()
        yield int(pid), [word for word in words if word.startswith(NAME)]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
