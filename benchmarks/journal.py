"""The archive's price: the same flood with and without a journal, and a book of 10,000 sessions."""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import uuid
from pathlib import Path

from common import Bench, Report, TimedKernel, bench, rest, used
from flood import DELTAS, PROMPT, whole

from turncell.archive.claims import Claim
from turncell.archive.register import RUNNING, Entry

#: How many sessions, and how many of them were cut off.
SESSIONS, CUT_OFF = 10_000, 100
#: The same turn with nothing of it kept on disk.
WITHOUT = """
from turncell.conversation import Conversation
kept = Conversation._new_keeper
Conversation._new_keeper = lambda *order: None
"""
WITH = "Conversation._new_keeper = kept"


def main(pairs: int, lists: int) -> int:
    report = Report("journal")
    with bench() as place:
        flood(report, place, pairs)
    with bench() as place:
        sessions(report, place, lists)
    return report.code


def flood(report: Report, place: Bench, pairs: int) -> None:
    """A burst with and without, in turns."""
    kernel = place.kernel(extension=True)
    kernel.timed("%%agent\nping")
    walls: dict[bool, list[float]] = {True: [], False: []}
    cpus: dict[bool, list[float]] = {True: [], False: []}
    for number in range(pairs + 1):
        rest()
        for kept in (True, False) if number % 2 else (False, True):
            wall, cpu = burst(kernel, kept)
            if number:  # the first pair warms up
                walls[kept].append(wall)
                cpus[kept].append(cpu)
    for kept, name in ((True, "with"), (False, "without")):
        report.times(f"{DELTAS:,} deltas {name} a journal", walls[kept])
    ratio(report, "ratio", walls, 1.05)
    ratio(report, "ratio of the kernel's CPU time", cpus, None)


def burst(kernel: TimedKernel, kept: bool) -> tuple[float, float]:
    """Seconds and CPU seconds of one."""
    if not kept:
        kernel.timed(WITHOUT)
    before = used(kernel)
    _, seconds = kernel.timed(f"%%agent -o flooded\n{PROMPT}")
    cpu = used(kernel) - before
    assert whole(kernel, "flooded.text.strip()+' '")
    if not kept:
        kernel.timed(WITH)
    return seconds, cpu


def ratio(report: Report, what: str, by: dict[bool, list[float]], limit: float | None) -> None:
    """With against without."""
    pairwise = [a / b for a, b in zip(by[True], by[False], strict=True)]
    value = statistics.median(by[True]) / statistics.median(by[False])
    spread = f"pairs {min(pairwise):.2f} to {max(pairwise):.2f}, n = {len(pairwise)}"
    report.row(what, value, limit, "x", f"{spread}, median {statistics.median(pairwise):.3f}")


def sessions(report: Report, place: Bench, lists: int) -> None:
    """`%agent sessions` in a kernel whose user has many, all of this notebook."""
    kernel = place.kernel(extension=True)
    directory, notebook = kernel.value(
        "(lambda book: [str(book.archive.directory), book.notebook])"
        "(__import__('turncell.book').book.book())"
    )
    fill(Path(directory), notebook)
    took: dict[str, list[float]] = {"this notebook's": [], "every notebook's": []}
    for _ in range(lists):
        rest()
        for what, line in zip(took, ("%agent sessions", "%agent sessions --all"), strict=True):
            cell, seconds = kernel.timed(line)
            assert f"and {SESSIONS - 40:,} more" in cell.text, cell.text[-200:]
            took[what].append(seconds)
    for what, seconds in took.items():
        report.times(f"%agent sessions, {what} {SESSIONS:,}", seconds, 500)


def fill(directory: Path, notebook: str) -> None:
    """A register as kernels write it, and the claims of dead kernels."""
    for part in ("sessions", "claims"):
        (directory / part).mkdir(parents=True, exist_ok=True)
    for number in range(SESSIONS):
        session_id = str(uuid.uuid4())
        when = f"2026-01-{1 + number % 28:02}T12:{number % 60:02}:00.000000+00:00"
        cut = number % (SESSIONS // CUT_OFF) == 0
        entry = Entry(
            session_id, f"session-{number}", notebook, notebook, 1 + number % 50, when, when,
            RUNNING if cut else "completed", True, None, f"Prompt {number} " + 5 * "of words ",
        )  # fmt: skip
        text = json.dumps(dataclasses.asdict(entry), indent=1, ensure_ascii=False) + "\n"
        (directory / "sessions" / f"{session_id}.json").write_text(text)
        if cut:
            claim = Claim.mine(session_id, "gone", entry.name, notebook)
            dead = dataclasses.replace(claim, started="long ago")
            text = json.dumps(dataclasses.asdict(dead), indent=1)
            (directory / "claims" / f"{session_id}.json").write_text(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=11, help="pairs of bursts (11)")
    parser.add_argument("--lists", type=int, default=5, help="lists of the sessions (5)")
    options = parser.parse_args()
    sys.exit(main(options.n, options.lists))
