"""Assistant text as outputs of a cell: blocks that are done, then the tail.

A block is sent once, the tail again and again at a bounded rate, so the bytes of a text are
linear in its length. Of a very long text the oldest blocks are folded, many into one output,
so that the page has little to lay out.
"""

from __future__ import annotations

from typing import Any

from turncell.picture import Segment
from turncell.views import frames
from turncell.views.blocks import PLAIN_AFTER, Splitter, presentable
from turncell.views.cleaning import Cleaner
from turncell.views.publish import CellPublisher, Pace, Piece

__all__ = ["Prose"]

_OPEN = 120_000  # characters of blocks that are shown unfolded
_FOLD = 60_000  # characters that are folded at once, at least
_KEPT = 2_000_000  # characters that can be unfolded; what is older comes back at the end


class Prose:
    """One stretch of assistant text."""

    def __init__(self, publisher: CellPublisher, pace: Pace, *, math: bool = False) -> None:
        self._publisher, self._pace, self._math = publisher, pace, math
        self._pieces: list[Piece] = []
        self._last: Segment | None = None
        self._begin()

    def _begin(self) -> None:
        self._blocks: list[str] = []  # those that are done; they stay as they are
        self._folded, self._open, self._away = 0, 0, 0  # blocks, characters, characters
        self._seen = ""  # the text taken in so far
        self._tail_drawn: tuple[str, bool] | None = None
        self._cleaner, self._splitter = Cleaner(), Splitter()

    def draw(self, segment: Segment, now: float, *, newest: bool) -> None:
        """Bring the outputs up to this picture of the text."""
        over = segment.settled or not newest
        if segment is self._last and self._tail_drawn == (self._splitter.tail, over):
            return
        if not self._continues(segment):
            self._begin()
        moved = self._take(segment, grows=newest)
        if over or moved or self._pace.free(now):
            self._draw_tail(now, over=over)
        if segment.settled:
            for piece in self._pieces[len(self._blocks) + 1 :]:
                piece.empty()
        self._last = segment

    def empty(self) -> None:
        """Show nothing."""
        for piece in self._pieces:
            piece.empty()

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
            self._add(block)
        return bool(blocks)

    def _add(self, block: str) -> None:
        self._put(len(self._blocks), self._bundle(block))
        self._blocks.append(block)
        self._open += len(block)
        self._tail_drawn = None
        if self._open > _OPEN:
            self._fold()

    def _fold(self) -> None:
        """Fold the oldest blocks that are open into the output of the first of them."""
        first, size = self._folded, 0
        while size < _FOLD and self._folded < len(self._blocks) - 1:
            size += len(self._blocks[self._folded])
            self._folded += 1
        text = "".join(self._blocks[first : self._folded])
        self._open -= size
        self._away += size
        for piece in self._pieces[first : self._folded]:
            piece.empty()
        if self._folded > first and self._away <= _KEPT:
            html = frames.earlier(self._html(text), size)
            bundle = {"text/plain": text, "text/html": frames.frame(html, math=self._math)}
        else:
            words = f"earlier: {self._away:,} characters, shown when the turn is over"
            first, bundle = 0, {"text/plain": words, "text/html": frames.frame(frames.line(words))}
        self._put(first, bundle)

    def _draw_tail(self, now: float, *, over: bool) -> None:
        tail = self._splitter.tail
        if self._tail_drawn == (tail, over):
            return
        self._tail_drawn = (tail, over)
        shown = tail if over or len(self._seen) > PLAIN_AFTER else presentable(tail)
        done = len(self._blocks)
        if shown.strip() or len(self._pieces) > done:
            self._pace.spend(self._put(done, self._bundle(shown)), now)

    def _put(self, index: int, bundle: dict[str, Any]) -> int:
        if index == len(self._pieces):
            self._pieces.append(Piece(self._publisher))
        return self._pieces[index].show(bundle)

    def _bundle(self, text: str) -> dict[str, Any]:
        bundle = {"text/plain": text}
        if len(self._seen) <= PLAIN_AFTER:
            bundle["text/html"] = frames.frame(self._html(text), math=self._math)
        return bundle

    def _html(self, text: str) -> str:
        long = len(self._seen) > PLAIN_AFTER
        return frames.plain_html(text) if long else frames.text_html(text, math=self._math)
