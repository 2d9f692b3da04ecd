"""The journal of one turn: what happened, as JSON lines, on disk before it is on screen.

The first line says what was asked, each further one is an event (`turncell.events`), the
last is the result. Deltas of a block that come together make one line. `add` only takes an
event in; `write` may block, and belongs into a worker thread, one at a time.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from turncell import events as ev
from turncell.archive.files import private
from turncell.outcome import TurnResult
from turncell.transcript import cut_output

__all__ = ["CLOSED", "LIMIT", "Journal", "encode"]

#: Bytes that the journal of one turn may take; what is over it is counted.
LIMIT = 16_000_000
#: The mode of a file that nobody writes any more: it is told by the mode, for where the disk is
#: full the last line cannot tell it.
CLOSED = 0o400
# The result is written whatever the limit says: it is small.
_RESERVE = 1_000_000


class Journal:
    """Writes one file, private to the user. `trouble` says why it cannot (None: it can)."""

    def __init__(self, path: Path, head: dict[str, Any], limit: int = LIMIT) -> None:
        self.path = path
        self.trouble: str | None = None
        self.left_out = 0  # events that were over the limit
        self._limit = limit
        self._pending: deque[ev.Event] = deque()  # one thread adds, another takes
        self._unwritten = bytearray(encode({"turncell": 1, **head}))
        self._length = 0  # bytes that are in the file
        self._line = bytearray()  # of these, what is not a whole line
        self._file: int | None = None

    @property
    def behind(self) -> bool:
        """Whether something happened that is not in the file."""
        return bool(self._pending or self._unwritten)

    def add(self, event: ev.Event) -> None:
        """Something happened."""
        self._pending.append(event)

    def write(self) -> None:
        """Write what was taken in; what cannot be written is tried again the next time."""
        taken = (self._pending.popleft() for _ in range(len(self._pending)))
        for event in _joined(taken):
            self._append(encode(ev.to_json(event)))
        self._flush()

    def close(self, result: TurnResult) -> None:
        """Write the rest and the result, but for what is in the events: text, tools, note."""
        self.write()
        data = result.to_json()
        del data["text"], data["tools"], data["told"]
        self._limit += _RESERVE
        self._append(encode({"result": data, "left_out": self.left_out}))
        self.settle()

    def settle(self) -> None:
        """Write what could not be written when it was closed, if that is possible by now."""
        self._flush()
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self.path.chmod(CLOSED)

    def move(self, path: Path) -> None:
        """Its session has another id."""
        private(path.parent)
        self.path.rename(path)
        self.path = path

    def _append(self, line: bytes) -> None:
        if self._length + len(self._unwritten) + len(line) > self._limit:
            self.left_out += 1
        else:
            self._unwritten += line

    def _flush(self) -> None:
        if not self._unwritten:
            return
        try:
            file = self._open()
            while self._unwritten:
                self._wrote(os.write(file, self._unwritten))
        except OSError as error:
            self.trouble = error.strerror or str(error)
            self._take_back()
        else:
            self.trouble = None

    def _wrote(self, count: int) -> None:
        self._line = (self._line + self._unwritten[:count]).rpartition(b"\n")[2]
        del self._unwritten[:count]
        self._length += count

    def _take_back(self) -> None:
        """Leave no half line: who reads the file meanwhile would cut it off."""
        if self._line and self._file is not None:
            self._length -= len(self._line)
            os.ftruncate(self._file, self._length)
            self._unwritten[:0] = self._line
            self._line = bytearray()

    def _open(self) -> int:
        if self._file is None:
            private(self.path.parent)
            with suppress(FileNotFoundError):
                self.path.chmod(0o600)  # it was closed, and there is more after all
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            self._file = os.open(self.path, flags, 0o600)
        return self._file


def encode(data: dict[str, Any]) -> bytes:
    """One line of a journal."""
    # Half a character can come by itself: an emoji is two for some who send it.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.encode("utf-8", "surrogatepass") + b"\n"


def _joined(events: Iterable[ev.Event]) -> Iterator[ev.Event]:
    """The same events, with the deltas of a block that follow each other as one."""
    first: ev.TextDelta | ev.ThinkingDelta | None = None
    parts: list[str] = []
    for event in events:
        delta = event if isinstance(event, (ev.TextDelta, ev.ThinkingDelta)) else None
        if first is not None and not (
            delta is not None
            and type(delta) is type(first)
            and (delta.block, delta.turn_id) == (first.block, first.turn_id)
        ):
            yield replace(first, text="".join(parts))
            first, parts = None, []
        if delta is None:
            yield _cut(event)
        else:
            first = first or delta
            parts.append(delta.text)
    if first is not None:
        yield replace(first, text="".join(parts))


def _cut(event: ev.Event) -> ev.Event:
    return (
        replace(event, output=cut_output(event.output))
        if isinstance(event, ev.ToolEnded)
        else event
    )
