"""Process trees: find, kill, and look again whether they are really gone.

A process is named by pid and creation time, so a pid that was used again is
never touched. Two marks in the environment tell whose a process is, wherever it
was re-parented to: our token (`TOKEN`), which every process of one connection
inherits, and `CHILD_MARK`, which the agent sets for its tools but not for its
MCP servers (measured with the agent CLI 2.1.332).
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from turncell.outcome import Survivor

__all__ = [
    "CHILD_MARK", "TOKEN", "Proc", "Verdict", "alive", "below", "clear", "interrupt", "is_tool",
    "leftovers", "listed", "marked", "new_token", "start_of", "terminate", "tools_below", "tree",
]  # fmt: skip

#: Environment variable that every process of one connection carries.
TOKEN = "TURNCELL_TOKEN"
#: The agent's own mark on the processes of its tools.
CHILD_MARK = ("CLAUDE_CODE_CHILD_SESSION", "1")

# Looks that must find nothing before a forced stop believes it: what forks and exits
# all the time can be missed by one.
_CLEAN_LOOKS = 3
# Seconds between two looks at a tree that is being killed.
_LAP = 0.02
# Windows has one signal for both.
_KILL = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL


@dataclass(frozen=True, slots=True)
class Proc:
    """One process: `created` (seconds since the epoch) makes the pid unmistakable."""

    pid: int
    created: float
    command: str = field(default="", compare=False)

    def survivor(self) -> Survivor:
        """The same process as a receipt lists it."""
        return Survivor(self.pid, self.command)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a clearing found at its end: what could not be killed, what was spared, and
    what should have been but went with the agent (`taken`)."""

    survivors: tuple[Survivor, ...] = ()
    spared: tuple[Survivor, ...] = ()
    taken: tuple[Survivor, ...] = ()


def new_token() -> str:
    """A token for one connection. It names its owner, so that a leftover is known by
    the death of the process that started it."""
    return f"{os.getpid()}-{_stamp(psutil.Process())}-{secrets.token_hex(8)}"


def leftovers() -> dict[str, set[Proc]]:
    """What agents of dead kernels left running here: token -> processes."""
    found: dict[str, set[Proc]] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            token = process.environ().get(TOKEN, "")
            proc = _proc(process)
            if proc is not None and token and not _owner_lives(token):
                found.setdefault(token, set()).add(proc)
    return found


def _owner_lives(token: str) -> bool:
    pid, _, rest = token.partition("-")
    stamp = rest.partition("-")[0]
    if not (pid.isdigit() and stamp.isdigit()):
        return True  # not one of ours: hands off
    with suppress(psutil.Error):
        owner = psutil.Process(int(pid))
        return owner.status() != psutil.STATUS_ZOMBIE and str(_stamp(owner)) == stamp
    return False


def start_of(pid: int) -> str | None:
    """When a process was started, as its system counts (on Linux clock ticks since the boot,
    which setting the clock does not change); None when it is gone."""
    with suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        if not sys.platform.startswith("linux"):
            return f"{process.create_time():.1f}"
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    return None


def _stamp(process: psutil.Process) -> int:
    return round(process.create_time() * 100)


def tree(pid: int | None) -> set[Proc]:
    """The process `pid` and all its present descendants (empty when it is gone)."""
    if pid is None:
        return set()
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        return {proc for p in [root, *root.children(recursive=True)] if (proc := _proc(p))}
    return set()


def below(procs: Iterable[Proc]) -> set[Proc]:
    """Those of `procs` that still run, and all their present descendants; one look."""
    children, found, todo = _children(), set[Proc](), list(alive(procs))
    while todo:
        proc = todo.pop()
        if proc not in found:
            found.add(proc)
            todo += [kid for child in children.get(proc.pid, ()) if (kid := _proc(child))]
    return found


def tools_below(pid: int | None) -> set[Proc]:
    """What the tools of the agent `pid` run now, whatever their environment; one quick look.
    (An MCP server and what is below it are no tools.)"""
    children, tools, todo = _children(), set[Proc](), [] if pid is None else [pid]
    while todo:
        kids = children.get(todo.pop(), ())
        marked_ones = [kid for kid in kids if is_tool(kid)]
        tools |= {proc for kid in marked_ones if (proc := _proc(kid))}
        todo += [kid.pid for kid in kids if kid not in marked_ones]
    return below(tools)


def is_tool(process: psutil.Process) -> bool:
    """Whether it carries the agent's mark on its tools; False where nobody may look."""
    with suppress(psutil.Error, OSError):
        return bool(process.environ().get(CHILD_MARK[0]) == CHILD_MARK[1])
    return False


def _children() -> dict[int, list[psutil.Process]]:
    children: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter(["ppid"]):
        children.setdefault(process.info["ppid"], []).append(process)
    return children


def marked(token: str, *, tools_only: bool = False) -> set[Proc]:
    """Every living process that carries our token; `tools_only` spares MCP servers
    and the agent itself."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            env = process.environ()
            if env.get(TOKEN) != token:
                continue
            if tools_only and not is_tool(process):
                continue
            proc = _proc(process)
            if proc is not None:
                found.add(proc)
    return found


def alive(procs: Iterable[Proc]) -> set[Proc]:
    """Those of `procs` that still run (a zombie does not)."""
    return {proc for proc in procs if _live(proc) is not None}


def clear(
    token: str,
    known: Iterable[Proc] = (),
    *,
    spare: Iterable[Proc] = (),
    tools_only: bool = False,
    seconds: float = 1.5,
    patience: float = 0.0,
) -> Verdict:
    """Kill what carries `token` and what is in `known`, and look until nothing is left.

    `spare` and its descendants are left alone. For the first `patience` seconds it is told
    to end (SIGTERM), so that it can put its locks and files in order. Takes at most about
    `seconds`.
    """
    known, spare, told = set(known), set(spare), set[Proc]()
    began = time.monotonic()
    deadline = began + seconds
    killed = False  # not one look may end without it, however few seconds there are
    looks = all_looks = 1 if tools_only else _CLEAN_LOOKS
    while True:
        spared = below(spare) if spare else set()
        left = below(known | marked(token, tools_only=tools_only)) - spared
        known |= left  # who loses its parent, and has no token, would be lost from sight
        looks = looks - 1 if not left else all_looks
        if looks == 0 or (killed and time.monotonic() >= deadline):
            return Verdict(listed(left), listed(alive(spared)))
        patient = time.monotonic() < began + min(patience, seconds / 2)
        for proc in _children_first(left - told if patient else left):
            _send(proc, signal.SIGTERM if patient else _KILL)
        told |= left
        killed = not patient
        time.sleep(_LAP)


def interrupt(pid: int | None) -> None:
    """SIGINT to one process; nothing where it is gone or the platform has no SIGINT."""
    if sys.platform != "win32":
        _signal(pid, signal.SIGINT)


def terminate(pid: int | None) -> None:
    """SIGTERM to one process; nothing where it is gone."""
    _signal(pid, signal.SIGTERM)


def _signal(pid: int | None, number: int) -> None:
    if pid is not None:
        with suppress(psutil.Error, OSError):
            psutil.Process(pid).send_signal(number)


def listed(found: set[Proc]) -> tuple[Survivor, ...]:
    """The same as a receipt lists them, in order of their pids."""
    return tuple(proc.survivor() for proc in sorted(found, key=lambda proc: proc.pid))


def _children_first(procs: set[Proc]) -> list[Proc]:
    # A parent that sees its child die may start another one: younger ones go first.
    return sorted(procs, key=lambda proc: (-proc.created, -proc.pid))


def _send(proc: Proc, number: int) -> None:
    process = _live(proc)
    if process is not None:
        with suppress(psutil.Error, OSError):
            process.send_signal(number)


def _live(proc: Proc) -> psutil.Process | None:
    with suppress(psutil.Error):
        process = psutil.Process(proc.pid)
        same = process.create_time() == proc.created
        if same and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def _proc(process: psutil.Process) -> Proc | None:
    with suppress(psutil.Error):
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        command = " ".join(process.cmdline()) or process.name()
        return Proc(process.pid, process.create_time(), command[:120])
    return None
