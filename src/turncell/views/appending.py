"""What is new in a picture, for output that can only be added to.

Pure: `Appender.advance` compares a picture with what it gave out before and returns the
words to add. A text that was replaced after it was shown is given out again, whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from turncell.picture import Segment, Snapshot
from turncell.views.cleaning import Cleaner, clean
from turncell.views.typed import question_words
from turncell.views.words import (
    earlier_lines,
    error_text,
    final_line,
    question_line,
    status_line,
    survivor_lines,
    tool_line,
)

__all__ = ["Addition", "Appender"]

_AGAIN = "[the agent sent this answer again]"


class Addition(NamedTuple):
    """Words to add. `style` is text, dim, info, warning, error or alarm."""

    words: str
    style: str


class _Printed:
    """One text as far as it was given out."""

    def __init__(self) -> None:
        self.last: Segment | None = None
        self.text = ""
        self.cleaner = Cleaner()


class Appender:
    """Remembers what was given out for one turn. `quiet` waits for the end; `asks`: a question
    is given out in full, ready to be answered."""

    def __init__(self, *, start: bool, quiet: bool = False, asks: bool = False) -> None:
        self.at_line_start, self.ended = True, False
        self._start, self._quiet, self._asks = start, quiet, asks
        self._texts: dict[str, _Printed] = {}
        self._told: set[str] = set()
        self._writing: str | None = None  # the text that the next words may go on with

    def advance(self, snapshot: Snapshot) -> list[Addition]:
        """Return what this picture adds; nothing after the ended one."""
        if self.ended or (self._quiet and snapshot.phase != "ended"):
            return []
        self.ended = snapshot.phase == "ended"
        return list(self._additions(snapshot))

    def _additions(self, snapshot: Snapshot) -> Iterator[Addition]:
        if not self.ended and self._start:
            yield from self._once("start", status_line(snapshot), "dim")
        for segment in snapshot.segments:
            add = self._text if segment.kind == "text" else self._step
            yield from add(segment)
        if self.ended:
            yield from self._ending(snapshot)
            return
        yield from self._events(snapshot)
        for question in snapshot.questions[:1] if self._asks else ():
            key = f"asked {question.question_id}"
            yield from self._once(key, question_words(question), "info")

    def _events(self, snapshot: Snapshot) -> Iterator[Addition]:
        retry, stop = snapshot.retry, snapshot.stop
        if retry is not None:
            yield from self._once(f"retry {retry.at} {retry.attempt}", status_line(snapshot), "dim")
        if stop is not None:
            yield from self._once(f"stop {stop.rung}", status_line(snapshot), "warning")

    def _text(self, segment: Segment) -> Iterator[Addition]:
        printed = self._texts.setdefault(segment.key, _Printed())
        if segment is printed.last and not self.ended:
            return
        if not segment.text.startswith(printed.text):
            self._texts[segment.key] = printed = _Printed()
            yield self._line(_AGAIN, "dim")
        more = segment.text[len(printed.text) :]
        words = printed.cleaner.feed(more, last=segment.settled or self.ended)
        printed.last, printed.text = segment, segment.text
        if words:
            yield self._words(segment.key, words)

    def _words(self, key: str, words: str) -> Addition:
        gap = ""
        if self._writing != key:
            gap = "" if self.at_line_start else "\n"
            gap += "\n" if self._told or self._writing else ""
        self._writing = key
        self.at_line_start = words.endswith("\n")
        return Addition(gap + words, "text")

    def _step(self, segment: Segment) -> Iterator[Addition]:
        if segment.kind == "notice":
            level = "" if segment.level == "info" else f"{segment.level}: "
            yield from self._once(segment.key, clean(level + segment.text), segment.level)
        elif segment.question is not None and segment.question.answer is not None:
            yield from self._once(segment.key, question_line(segment.question), "dim")
        elif segment.tool is not None and segment.tool.status is not None:
            within = "  " if segment.tool.parent else ""
            yield from self._once(segment.key, within + tool_line(segment.tool), "dim")

    def _ending(self, snapshot: Snapshot) -> Iterator[Addition]:
        error = error_text(snapshot)
        if error:
            yield self._line(f"error: {error}", "error")
        for line in survivor_lines(snapshot):
            yield self._line(line, "alarm")
        for line in earlier_lines(snapshot):
            yield self._line(line, "dim")
        yield self._line(final_line(snapshot), "info")

    def _once(self, key: str, words: str, style: str) -> Iterator[Addition]:
        if key not in self._told:
            self._told.add(key)
            yield self._line(words, style)

    def _line(self, words: str, style: str) -> Addition:
        gap = "" if self.at_line_start else "\n"
        self.at_line_start, self._writing = True, None
        self._told.add("")
        return Addition(f"{gap}{words}\n", style)
