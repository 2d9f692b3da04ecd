"""The journals that were written: list them, read one, repair it, prune them."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from turncell import events as ev
from turncell.archive.claims import host, lives
from turncell.archive.journal import CLOSED
from turncell.outcome import Outcome, TurnResult
from turncell.picture import Snapshot
from turncell.transcript import Transcript

__all__ = ["Journals", "Logged"]

#: How much of a journal is read to see how its turn ended, from its end (bytes).
_TAIL = 65_536
#: How a file's name says when its turn began (UTC).
_STAMP = "%Y%m%dT%H%M%S.%f"
NO_ROOM = "the disk was full: how it ended is not in the journal, nor is all that it said"
CUT_OFF = "the kernel ended while it ran; this is what it had said by then"


@dataclass(frozen=True)
class Logged:
    """One turn as its journal has it. `head` is the first line, `ending` the result, None
    where the turn was not over; `torn` says that the last line was not whole, `closed` that
    nobody writes it any more."""

    path: Path
    head: dict[str, Any]
    events: tuple[ev.Event, ...] = ()
    ending: dict[str, Any] | None = None
    torn: bool = False
    closed: bool = False
    left_out: int = 0  # events that were over the limit

    @property
    def turn_id(self) -> str:
        """The turn."""
        return str(self.head.get("turn_id", ""))

    @property
    def heard(self) -> bool:
        """Whether the agent took its prompt up: else it knows nothing of it."""
        return any(isinstance(event, ev.SessionOpened) for event in self.events)

    @property
    def running(self) -> bool:
        """Whether it may still be going on: it is not over, and its kernel lives."""
        if self.ending is not None or self.closed:
            return False
        pid, since = self.head.get("pid"), self.head.get("started")
        # Of a process on another machine nobody here can say that it is gone.
        return not self.here or (isinstance(pid, int) and lives(pid, str(since)))

    @property
    def here(self) -> bool:
        """Whether its process can be looked at from here."""
        return bool(self.head.get("host", host()) == host())

    @property
    def outcome(self) -> str:
        """How it ended, in one word."""
        if self.ending is None:
            return "running" if self.running else str(Outcome.LOST)
        return str(self.ending.get("outcome", Outcome.LOST))

    def snapshot(self) -> Snapshot:
        """The picture of a turn that is not over."""
        transcript, began = self._fold(), float(self.head.get("at", 0.0))
        now = max([began, *(event.at for event in self.events)])
        return transcript.paint(
            Snapshot(
                turn_id=self.turn_id,
                session=str(self.head.get("session", "")),
                phase="running",
                now=now,
                began=began,
                session_id=str(self.head.get("session_id", "")),
            )
        )

    def result(self) -> TurnResult:
        """The turn as it was left; one that was cut off is `lost`."""
        picture, transcript = self.snapshot(), self._fold()
        transcript.close(picture.now)
        said = {"text": transcript.text(), "told": transcript.told}

        def made_of(data: dict[str, Any]) -> TurnResult:
            return TurnResult.from_json({**data, **said}, transcript.tools(), self.events)

        try:
            return made_of(self.ending or self._cut_off(picture))
        except (KeyError, TypeError, ValueError):  # of another version; what was said is the same
            return made_of(self._cut_off(picture))

    def _cut_off(self, picture: Snapshot) -> dict[str, Any]:
        return {
            "outcome": str(Outcome.LOST),
            "session_id": picture.session_id,
            "turn_id": picture.turn_id,
            "session": picture.session,
            "duration": picture.elapsed,
            "model": picture.model,
            "error": NO_ROOM if self.closed else CUT_OFF,
        }

    def _fold(self) -> Transcript:
        transcript = Transcript()
        for event in self.events:
            transcript.fold(event)
        return transcript


class Journals:
    """The journals in one directory: a folder a session, a file a turn. Methods may block."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, session_id: str, turn_id: str) -> Path:
        """Where the journal of a turn that begins now goes; a later one sorts after it."""
        folder = self._directory / session_id
        now = datetime.now(timezone.utc).replace(tzinfo=None)
        newest = max((path.name for path in folder.glob("*.jsonl")), default="")
        with suppress(ValueError):  # a clock can be set back
            last = datetime.strptime(newest.partition("-")[0], _STAMP)
            now = max(now, last + timedelta(microseconds=1))
        return folder / f"{now.strftime(_STAMP)}-{turn_id}.jsonl"

    def paths(self, session_id: str = "*", turn_id: str = "") -> list[Path]:
        """The files of a session and of turns whose id begins so, the newest first."""
        found = self._directory.glob(f"{session_id}/*-{turn_id}*.jsonl")
        return sorted(found, key=lambda path: path.name, reverse=True)

    def last(self, session_id: str) -> Logged | None:
        """The last turn of a session that its agent took up; else its last one, if any."""
        first: Logged | None = None
        for path in self.paths(session_id):
            logged = self.read(path)
            if logged.heard:
                return logged
            first = first or logged
        return first

    def read(self, path: Path) -> Logged:
        """One journal. A torn last line is cut off, in the file too when nobody writes there."""
        closed = _is_closed(path)  # first: it can be closed while it is read, not opened again
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        lines = [line for line in map(_parse, data[:whole].splitlines()) if line is not None]
        events = tuple(event for event in map(_event, lines) if event is not None)
        logged = _logged(path, lines, torn=whole < len(data), closed=closed)
        mine_to_mend = logged.torn and logged.here and not logged.running
        if mine_to_mend and path.stat().st_size == len(data):
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(0o600)
            os.truncate(path, whole)
            path.chmod(mode)
        return dataclasses.replace(logged, events=events)

    def glance(self, path: Path) -> Logged:
        """Its first and last line alone: cheap, whatever its length."""
        with path.open("rb") as file:
            first = file.readline()
            file.seek(max(len(first), os.fstat(file.fileno()).st_size - _TAIL))
            rest = file.read()
        ends = rest[: rest.rfind(b"\n") + 1].splitlines()[-1:]
        lines = [line for line in map(_parse, [first, *ends]) if line is not None]
        return _logged(path, lines, torn=False, closed=_is_closed(path))

    def prune(self, days: float, size: int) -> int:
        """Remove what is older than `days`, and of the rest the oldest that are over `size`
        bytes in all; never one that is being written. Returns how many."""
        removed, total, oldest = 0, 0, time.time() - days * 86_400
        for path in self.paths():
            with suppress(OSError):  # another kernel prunes, too
                found = path.stat()
                total += found.st_size
                due = found.st_mtime < oldest or total > size
                if due and not self.glance(path).running:
                    path.unlink()
                    total -= found.st_size
                    removed += 1
                    path.parent.rmdir()  # when it was the last one; else it fails
        return removed


def _is_closed(path: Path) -> bool:
    return stat.S_IMODE(path.stat().st_mode) == CLOSED


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(line.decode("utf-8", "surrogatepass"))
    except ValueError:
        return None  # damaged in the middle: the others are worth all the more
    return data if isinstance(data, dict) else None


def _event(line: dict[str, Any]) -> ev.Event | None:
    try:
        return ev.from_json(line) if "event" in line else None
    except ValueError:
        return None  # of a newer version


def _logged(path: Path, lines: list[dict[str, Any]], *, torn: bool, closed: bool) -> Logged:
    head = lines[0] if lines and "turncell" in lines[0] else {}
    last = lines[-1] if lines else {}
    result = last.get("result")
    ending = result if isinstance(result, dict) else None
    left_out = int(last.get("left_out") or 0)
    return Logged(path, head, ending=ending, torn=torn, closed=closed, left_out=left_out)
