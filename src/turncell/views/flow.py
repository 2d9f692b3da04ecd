"""The moving picture of a turn in its cell: blocks of text that stay, one tail that grows.

`CellFlow` gives each block and each step an output of its own, in order. `WholeFlow` draws
all of it into one output, for a cell that has returned: a front end takes no new output for
it, only updates of those it has.
"""

from __future__ import annotations

from typing import Any

from turncell.transcript import Segment, Snapshot
from turncell.views import frames
from turncell.views.base import tool_line
from turncell.views.blocks import PLAIN_AFTER, Splitter, presentable
from turncell.views.cleaning import Cleaner
from turncell.views.publish import CellPublisher, Pace, Piece
from turncell.views.saved import running_bundle

__all__ = ["CellFlow", "WholeFlow"]

_TAIL_RATE = 12_000.0  # bytes a second for the text that is shown again and again
_COUNT_RATE = 600.0  # for a counter: about twice a second


class CellFlow:
    """Draws the segments of a turn as outputs of its cell; only what changed is sent."""

    def __init__(self, publisher: CellPublisher) -> None:
        self._publisher = publisher
        self._drawn: dict[str, _Text | _Line] = {}
        self._pace = Pace(_TAIL_RATE)

    def draw(self, snapshot: Snapshot) -> None:
        """Bring the cell up to this picture."""
        segments = snapshot.segments
        if snapshot.phase == "running" and not segments:
            frames.text_html("")  # now the model thinks: a good time to load the parser
        for segment in segments:
            part = self._drawn.get(segment.key) or self._new(segment)
            part.draw(segment, snapshot.now, newest=segment is segments[-1])
        if len(self._drawn) > len(segments):
            self._drop({segment.key for segment in segments})

    def _new(self, segment: Segment) -> _Text | _Line:
        is_text = segment.kind == "text"
        part = _Text(self._publisher, self._pace) if is_text else _Line(self._publisher)
        self._drawn[segment.key] = part
        return part

    def _drop(self, kept: set[str]) -> None:
        # A broken try of an answer that has now come whole.
        for key in [key for key in self._drawn if key not in kept]:
            self._drawn.pop(key).empty()


class _Line:
    """A tool call, a notice or a count of thinking: one line."""

    def __init__(self, publisher: CellPublisher) -> None:
        self._piece = Piece(publisher)
        self._pace = Pace(_COUNT_RATE)
        self._drawn: tuple[Segment, bool] | None = None

    def draw(self, segment: Segment, now: float, *, newest: bool) -> None:
        over = segment.settled or not newest
        if self._drawn is not None and self._drawn[0] is segment and self._drawn[1] == over:
            return
        if not (over or segment.tool or self._pace.free(now)):
            return
        self._drawn = (segment, over)
        text, style = _words(segment, over=over)
        html = frames.frame(frames.line(text, style))
        self._pace.spend(self._piece.show({"text/plain": text, "text/html": html}), now)

    def empty(self) -> None:
        self._piece.empty()


def _words(segment: Segment, *, over: bool) -> tuple[str, str]:
    if segment.tool is not None:
        return tool_line(segment.tool), "dim"
    if segment.kind == "thinking":
        return frames.thinking_line(segment, over=over), "dim"
    return frames.notice_line(segment), segment.level


class _Text:
    """One stretch of assistant text: blocks that are done, then the tail."""

    def __init__(self, publisher: CellPublisher, pace: Pace) -> None:
        self._publisher, self._pace = publisher, pace
        self._pieces: list[Piece] = []
        self._last: Segment | None = None
        self._begin()

    def _begin(self) -> None:
        self._done = 0  # blocks that stay as they are
        self._seen = ""  # the text taken in so far
        self._tail_drawn: tuple[str, bool] | None = None
        self._cleaner, self._splitter = Cleaner(), Splitter()

    def draw(self, segment: Segment, now: float, *, newest: bool) -> None:
        over = segment.settled or not newest
        if segment is self._last and self._tail_drawn == (self._splitter.tail, over):
            return
        if not self._continues(segment):
            self._begin()
        moved = self._take(segment, grows=newest)
        if over or moved or self._pace.free(now):
            self._draw_tail(now, over=over)
        if segment.settled:
            for piece in self._pieces[self._done + 1 :]:
                piece.empty()
        self._last = segment

    def _continues(self, segment: Segment) -> bool:
        # A settled text may differ from its preview anywhere; deltas only add to it.
        if segment.settled:
            return segment.text.startswith(self._seen)
        return len(segment.text) >= len(self._seen)

    def _take(self, segment: Segment, *, grows: bool) -> bool:
        """Take the new text in; tell whether a block was cut off the tail that was shown."""
        piece = self._cleaner.feed(segment.text[len(self._seen) :], last=segment.settled)
        self._seen = segment.text
        if not grows:
            # Something stands below already: a new output would come after it.
            self._splitter.hold(piece)
            return False
        blocks = self._splitter.feed(piece)
        for block in blocks:
            self._put(self._done, block)
            self._done += 1
            self._tail_drawn = None
        return bool(blocks)

    def _draw_tail(self, now: float, *, over: bool) -> None:
        tail = self._splitter.tail
        if self._tail_drawn == (tail, over):
            return
        self._tail_drawn = (tail, over)
        shown = tail if over or len(self._seen) > PLAIN_AFTER else presentable(tail)
        if shown.strip() or len(self._pieces) > self._done:
            self._pace.spend(self._put(self._done, shown), now)

    def _put(self, index: int, text: str) -> int:
        if index == len(self._pieces):
            self._pieces.append(Piece(self._publisher))
        return self._pieces[index].show(self._bundle(text))

    def _bundle(self, text: str) -> dict[str, Any]:
        bundle = {"text/plain": text}
        if len(self._seen) <= PLAIN_AFTER:
            bundle["text/html"] = frames.frame(frames.text_html(text))
        return bundle

    def empty(self) -> None:
        for piece in self._pieces:
            piece.empty()


class WholeFlow:
    """Draws a turn into one output that is there from the start."""

    def __init__(self, publisher: CellPublisher) -> None:
        self._piece = Piece(publisher)
        self._pace = Pace(_TAIL_RATE)

    def open(self) -> None:
        """Make the output."""
        self.show({"text/plain": "", "text/html": ""})

    def draw(self, snapshot: Snapshot) -> None:
        """Bring the output up to this picture, the less often the longer it is."""
        if snapshot.segments and self._pace.free(snapshot.now):
            self._pace.spend(self._piece.show(running_bundle(snapshot)), snapshot.now)

    def show(self, bundle: dict[str, Any]) -> None:
        """Show this bundle in place of the picture."""
        self._piece.show(bundle)
