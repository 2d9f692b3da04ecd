"""The outputs of one cell: in order, and few of them whatever comes.

A front end shows only the first fifty or so outputs of a cell (JupyterLab: 50, then "Show more
outputs"), and none can be taken back or put between others. So what is shown is a row of
sheets, and when there are many, those that are done are laid together into one output and the
others move up. An output is sent again only for that, and when it is so old that it is folded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from turncell.views import frames
from turncell.views.publish import CellPublisher, Piece

__all__ = ["Deck", "Sheet"]

_OUTPUTS = 40  # at most; with the status and what the cell printed itself under 50
# In characters that the front end is given (of HTML, where there is any).
_PILE = 60_000  # after which another pile is begun
_OPEN = 120_000  # at the end that are not folded
_KEPT = 1_200_000  # what is older is only counted, and comes back at the end


class Sheet:
    """One thing that is shown: a block of text, a step. `done`: it will hardly change."""

    def __init__(self, deck: Deck, *, is_text: bool) -> None:
        self._deck = deck
        self.is_text = is_text
        self.done = False
        self.pile: _Pile | None = None
        self.bundle: dict[str, Any] = {}

    def show(self, bundle: dict[str, Any]) -> int:
        """Show this; return about how many bytes were sent."""
        self.bundle = bundle
        return self._deck.draw(self)

    def empty(self) -> None:
        """Show nothing."""
        self.done = True
        self.show({"text/plain": "", "text/html": ""})

    @property
    def size(self) -> int:
        """How many characters a front end is given for it."""
        return len(self.bundle.get("text/html") or self.plain)

    @property
    def plain(self) -> str:
        """Its words."""
        return str(self.bundle.get("text/plain", ""))


class _Pile:
    """The sheets of one output."""

    def __init__(self, sheets: Iterable[Sheet], *, away: bool = False) -> None:
        self.sheets = list(sheets)
        self.away = away  # only counted
        for sheet in self.sheets:
            sheet.pile = self

    @property
    def size(self) -> int:
        return sum(sheet.size for sheet in self.sheets)

    @property
    def done(self) -> bool:
        return all(sheet.done for sheet in self.sheets)

    @property
    def words(self) -> str:
        """All of it as text: blocks of one text follow each other, a step has a line."""
        parts: list[str] = []
        for sheet in self.sheets:
            parts.append(sheet.plain if sheet.is_text or not parts else f"\n{sheet.plain}")
        return "".join(parts)

    @property
    def summary(self) -> str:
        """What is folded, in a few words."""
        steps = sum(not sheet.is_text and bool(sheet.plain) for sheet in self.sheets)
        characters = sum(len(sheet.plain) for sheet in self.sheets if sheet.is_text)
        counted = [f"{steps} steps"] * bool(steps)
        counted += [f"{characters:,} characters"] * bool(characters)
        return f"earlier: {', '.join(counted)}"


class Deck:
    """The sheets of a cell, laid out on its outputs. `math` is left to the front end."""

    def __init__(self, publisher: CellPublisher, *, math: bool = False) -> None:
        self._publisher, self._math = publisher, math
        self._piles: list[_Pile] = []
        self._outputs: list[Piece] = []
        self._fresh = 0  # characters that came since all was laid together

    def add(self, *, is_text: bool = False) -> Sheet:
        """A new sheet below all others; it has no output before it shows something."""
        return Sheet(self, is_text=is_text)

    def draw(self, sheet: Sheet) -> int:
        """Show a sheet as it is now."""
        if sheet.pile is None:
            self._fresh += self._piles[-1].size if self._piles else 0
            if len(self._piles) >= _OUTPUTS or self._fresh > 2 * _OPEN:
                self._lay_together()
            self._piles.append(_Pile([sheet]))
        assert sheet.pile is not None, "it was piled"
        at = self._piles.index(sheet.pile)
        below = sum(pile.size for pile in self._piles[at + 1 :])
        return self._show(at, folded=below > _OPEN)

    def _lay_together(self) -> None:
        self._fresh = 0
        piles: list[_Pile] = []
        for pile in self._piles:
            last = piles[-1] if piles else None
            if last is None or not _fit(last, pile):
                piles.append(pile)
            else:
                piles[-1] = _Pile([*last.sheets, *pile.sheets])
        self._piles = _put_away(piles)
        below = sum(pile.size for pile in self._piles)
        for at, pile in enumerate(self._piles):
            below -= pile.size
            self._show(at, folded=below > _OPEN)
        for output in self._outputs[len(self._piles) :]:
            output.empty()

    def _show(self, at: int, *, folded: bool) -> int:
        while len(self._outputs) <= at:
            self._outputs.append(Piece(self._publisher))
        return self._outputs[at].show(self._bundle(self._piles[at], folded=folded))

    def _bundle(self, pile: _Pile, *, folded: bool) -> dict[str, Any]:
        if pile.away:
            words = f"{pile.summary}, shown when the turn is over"
            return {"text/plain": words, "text/html": frames.frame(frames.line(words))}
        if len(pile.sheets) == 1 and not (folded and pile.done):
            return pile.sheets[0].bundle
        html = "".join(map(_html, pile.sheets))
        if folded:
            html = frames.frame(frames.earlier(html, pile.summary), math=self._math)
        return {"text/plain": pile.words, "text/html": html}


def _fit(last: _Pile, pile: _Pile) -> bool:
    """Whether two neighbours can share an output."""
    done = last.done and pile.done and not last.away
    return done and last.size + pile.size <= _PILE


def _put_away(piles: list[_Pile]) -> list[_Pile]:
    """Count the oldest of very much instead of showing it. Half of it goes at once: what stays
    moves up, and is sent again."""
    if sum(pile.size for pile in piles if not pile.away) <= _KEPT:
        return piles
    left, first = _KEPT // 2, len(piles)
    while first and (left > 0 or not piles[first - 1].done):
        first -= 1
        left -= piles[first].size
    if not first:
        return piles
    oldest = [sheet for pile in piles[:first] for sheet in pile.sheets]
    return [_Pile(oldest, away=True), *piles[first:]]


def _html(sheet: Sheet) -> str:
    html = sheet.bundle.get("text/html")
    return str(html) if html is not None else frames.frame(frames.plain_html(sheet.plain))
