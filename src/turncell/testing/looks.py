"""Looks at processes and at the disk, which do not ask what runs the turn."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import psutil

from turncell.archive.archive import Archive
from turncell.outcome import Survivor
from turncell.procs import TOKEN

__all__ = ["alive", "below", "dead", "in_journal", "named"]


def alive(token: str) -> list[psutil.Process]:
    """Every living process with this token."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            dead = process.status() == psutil.STATUS_ZOMBIE
            if not dead and process.environ().get(TOKEN) == token:
                found.append(process)
    return found


def dead() -> set[int]:
    """The pids that only wait to be buried."""
    everybody = psutil.process_iter(["status"])
    return {p.pid for p in everybody if p.info["status"] == psutil.STATUS_ZOMBIE}


def named(processes: Iterable[psutil.Process]) -> tuple[Survivor, ...]:
    """The same as a receipt lists them."""
    found = []
    for process in processes:
        with suppress(psutil.Error):  # what has ended meanwhile is not alive
            found.append(Survivor(process.pid, " ".join(process.cmdline())[:120]))
    return tuple(found)


def below(pid: int | None) -> set[int]:
    """The pids of all that is below this one now."""
    with suppress(psutil.Error):
        return {p.pid for p in psutil.Process(pid).children(recursive=True)} if pid else set()
    return set()


def in_journal(archive: Archive, turn_id: str) -> str:
    """The text of a turn that is on disk, "" where it has no journal."""
    journals = archive.journals
    texts = (journals.read(path).result().text for path in journals.paths(turn_id=turn_id))
    return next(texts, "")
