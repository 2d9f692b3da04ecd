"""Assistant text as sheets of a cell: blocks that are done, then the tail.

A block is sent once, the tail again and again at a bounded rate, so the bytes of a text are
linear in its length.
"""

from __future__ import annotations

from typing import Any

from turncell.picture import Segment
from turncell.views import frames
from turncell.views.blocks import PLAIN_AFTER, Splitter, presentable
from turncell.views.cleaning import Cleaner
from turncell.views.deck import Deck, Sheet
from turncell.views.publish import Pace

__all__ = ["Prose"]


_AT_ONCE = 16_000  # characters of one picture; a larger one would hold up the next


class Prose:
    """One stretch of assistant text."""

    def __init__(self, deck: Deck, pace: Pace, *, math: bool = False) -> None:
        self._deck, self._pace, self._math = deck, pace, math
        self._sheets: list[Sheet] = []
        self._last: Segment | None = None
        self._begin()

    def _begin(self) -> None:
        self._hurried = False  # too much came at once to be rendered before the end
        self._done = 0  # blocks that stay as they are
        self._seen = ""  # the text taken in so far
        self.behind = False  # the tail is longer than what is shown of it
        self._tail_drawn: tuple[str, bool] | None = None
        self._cleaner, self._splitter = Cleaner(), Splitter()

    def draw(self, segment: Segment, now: float, *, newest: bool) -> None:
        """Bring the outputs up to this picture of the text."""
        over = segment.settled or not newest
        if segment is self._last and self._tail_drawn == (self._splitter.tail, over):
            self.behind = False
            return
        if not self._continues(segment):
            self._begin()
        moved = self._take(segment, grows=newest)
        drawn = self._tail_drawn
        wanted = drawn != (self._splitter.tail, over)
        turned = drawn is None or drawn[1] != over  # it begins, or something stands below it now
        due = segment.settled or moved or turned or self._pace.free(now)
        self.behind = wanted and not due
        if wanted and due:
            self._draw_tail(now, over=over)
        if over:
            for sheet in self._sheets:
                sheet.done = True
        if segment.settled:
            for sheet in self._sheets[self._done + 1 :]:
                sheet.empty()
        self._last = segment

    def empty(self) -> None:
        """Show nothing."""
        for sheet in self._sheets:
            sheet.empty()

    def _continues(self, segment: Segment) -> bool:
        # A settled text may differ from its preview anywhere; deltas only add to it.
        if segment.settled:
            return segment.text.startswith(self._seen)
        return len(segment.text) >= len(self._seen)

    def _take(self, segment: Segment, *, grows: bool) -> bool:
        """Take the new text in; tell whether a block was cut off the tail that was shown."""
        piece = self._cleaner.feed(segment.text[len(self._seen) :], last=segment.settled)
        self._seen = segment.text
        self._hurried = len(piece) > _AT_ONCE
        if not grows:
            # Something stands below already: a new output would come after it.
            self._splitter.hold(piece)
            return False
        blocks = self._splitter.feed(piece)
        for block in blocks:
            self._put(self._done, block, plain=True)
            self._sheets[self._done].done = True
            self._done += 1
            self._tail_drawn = None
        return bool(blocks)

    def _draw_tail(self, now: float, *, over: bool) -> None:
        tail = self._splitter.tail
        self._tail_drawn = (tail, over)
        shown = tail if over or len(self._seen) > PLAIN_AFTER else presentable(tail)
        if shown.strip() or len(self._sheets) > self._done:
            # The words of a tail come with its block; those of the first one at once, for
            # front ends that show nothing else.
            plain = over or not self._done
            self._pace.spend(self._put(self._done, shown, plain=plain), now)

    def _put(self, index: int, text: str, *, plain: bool) -> int:
        if index == len(self._sheets):
            self._sheets.append(self._deck.add(is_text=True))
        return self._sheets[index].show(self._bundle(text, plain=plain))

    def _bundle(self, text: str, *, plain: bool) -> dict[str, Any]:
        rich = len(self._seen) <= PLAIN_AFTER and not self._hurried
        bundle = {"text/plain": text} if plain or not rich else {}
        if rich:
            html = frames.text_html(text, math=self._math, live=True)
            bundle["text/html"] = frames.frame(html, math=self._math)
        return bundle
