"""The moving picture of a turn in its cell: blocks of text that stay, one tail that grows.

`CellFlow` gives each block and each step a sheet of its own, in order. `WholeFlow` draws all of
it into one output, for a cell that has returned: a front end takes no new output for it, only
updates of those it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turncell.picture import ASKED, Segment, Snapshot
from turncell.questions import Question
from turncell.views import frames
from turncell.views.asking import QuestionPanel
from turncell.views.cleaning import clean
from turncell.views.deck import Deck, Sheet
from turncell.views.prose import Prose
from turncell.views.publish import CellPublisher, Pace, Piece
from turncell.views.saved import running_bundle
from turncell.views.words import question_line, tool_line

__all__ = ["Ask", "CellFlow", "WholeFlow"]

#: Makes the panel of a question; None where no button can be pressed.
Ask = Callable[[Question], QuestionPanel] | None

_WHOLE_RATE = 12_000.0  # bytes a second for a whole turn that is shown again and again
_TAIL_RATE = 40_000.0  # for the end of a text that grows
# Seconds between two of them. JupyterLab looks through all outputs for headings when nothing has
# changed for 0.2 s: an even beat below that is smooth, and spares the page this in mid text.
_TAIL_BEAT = 0.14
_COUNT_RATE = 600.0  # for a counter: about twice a second


class CellFlow:
    """Draws the segments of a turn as outputs of its cell; only what changed is sent."""

    def __init__(self, publisher: CellPublisher, ask: Ask = None, *, math: bool = False) -> None:
        self._deck, self._ask, self._math = Deck(publisher, math=math), ask, math
        self._drawn: dict[str, Prose | _Step | _Asked] = {}
        self._pace = Pace(_TAIL_RATE, _TAIL_BEAT)

    def draw(self, snapshot: Snapshot) -> bool:
        """Bring the cell up to this picture; tell whether some text was too early for it."""
        segments = snapshot.segments
        if snapshot.phase == "running" and not segments:
            frames.text_html("")  # now the model thinks: a good time to load the parser
        for segment in segments:
            part = self._drawn.get(segment.key) or self._new(segment)
            part.draw(segment, snapshot.now, newest=segment is segments[-1])
        if len(self._drawn) > len(segments):
            self._drop({segment.key for segment in segments})
        return any(isinstance(part, Prose) and part.behind for part in self._drawn.values())

    def close(self) -> None:
        """Take the questions away that are still open."""
        for part in self._drawn.values():
            if isinstance(part, _Asked):
                part.close()

    def _new(self, segment: Segment) -> Prose | _Step | _Asked:
        part: Prose | _Step | _Asked
        if segment.kind == "text":
            part = Prose(self._deck, self._pace, math=self._math)
        elif segment.kind == "question":
            part = _Asked(self._deck.add(), self._ask)
        else:
            part = _Step(self._deck.add())
        self._drawn[segment.key] = part
        return part

    def _drop(self, kept: set[str]) -> None:
        # A broken try of an answer that has now come whole.
        for key in [key for key in self._drawn if key not in kept]:
            self._drawn.pop(key).empty()


class _Step:
    """A tool call, a notice or a count of thinking."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self._pace = Pace(_COUNT_RATE)
        self._drawn: tuple[Segment, int] | None = None

    def draw(self, segment: Segment, now: float, *, newest: bool) -> None:
        # What changes a picture of it: the segment, or the seconds that a tool runs.
        runs = segment.tool is not None and segment.tool.status is None
        runs = runs and segment.text != ASKED
        over = segment.settled or not newest
        state = (segment, int(now - segment.began) if runs else -int(over))
        if self._drawn == state:
            return
        first = self._drawn is None or self._drawn[0].settled != segment.settled
        if not (first or over and not runs or self._pace.free(now)):
            return
        self._drawn = state
        seconds = state[1] if runs else None
        text = _words(segment, over=over, seconds=seconds)
        html = frames.frame(_html(segment, text, over=over))
        self._sheet.done = over and not runs and segment.kind != "todos"
        self._pace.spend(self._sheet.show({"text/plain": text, "text/html": html}), now)

    def empty(self) -> None:
        self._sheet.empty()


def _words(segment: Segment, *, over: bool, seconds: int | None = None) -> str:
    if segment.tool is not None:
        return tool_line(segment.tool, seconds, asked=segment.text == ASKED)
    if segment.kind == "thinking":
        return frames.thinking_line(segment, over=over)
    if segment.kind == "todos":
        return clean(segment.text)
    return frames.notice_line(segment)


def _html(segment: Segment, text: str, *, over: bool) -> str:
    if segment.tool is not None:
        html = frames.card(segment.tool, said=text)
        return frames.within(html) if segment.tool.parent else html
    if over and segment.kind == "thinking":
        return frames.step(segment)
    if segment.kind == "todos":
        return frames.todo_list(segment.text)
    return frames.line(text, segment.level) if segment.kind == "notice" else frames.flat(text)


class _Asked:
    """A question: buttons while it is open, then one line."""

    def __init__(self, sheet: Sheet, ask: Ask) -> None:
        self._sheet, self._ask = sheet, ask
        self._panel: QuestionPanel | None = None
        self._drawn: Question | None = None

    def draw(self, segment: Segment, now: float, *, newest: bool) -> None:
        question = segment.question
        assert question is not None, "it is the segment of a question"
        if question.answer is None and self._ask is not None:
            if self._panel is None:
                self._panel = self._ask(question)
                self._sheet.show(self._panel.bundle())
            return
        if question is self._drawn:
            return
        self._drawn, words = question, question_line(question)
        self._sheet.done = question.answer is not None
        self._sheet.show({"text/plain": words, "text/html": frames.frame(frames.flat(words))})
        self.close()

    def close(self) -> None:
        if self._panel is not None:
            panel, self._panel = self._panel, None
            panel.close()

    def empty(self) -> None:
        self._sheet.empty()
        self.close()


class WholeFlow:
    """Draws a turn into one output that is there from the start, and asks in another."""

    def __init__(self, publisher: CellPublisher, ask: Ask = None, *, math: bool = False) -> None:
        self._piece, self._asked, self._ask = Piece(publisher), Piece(publisher), ask
        self._math = math
        self._pace = Pace(_WHOLE_RATE)
        self._panel: tuple[str, QuestionPanel] | None = None

    def open(self) -> None:
        """Make the outputs."""
        self.show({"text/plain": "", "text/html": ""})
        if self._ask is not None:
            self._asked.show({"text/plain": "", "text/html": ""})

    def draw(self, snapshot: Snapshot) -> bool:
        """Bring the output up to this picture, the less often the longer it is."""
        if snapshot.segments and self._pace.free(snapshot.now):
            bundle = running_bundle(snapshot, math=self._math)
            self._pace.spend(self._piece.show(bundle), snapshot.now)
        self._draw_question(next(iter(snapshot.questions), None))
        return False

    def _draw_question(self, question: Question | None) -> None:
        asked = question.question_id if question is not None else None
        if self._panel is not None and self._panel[0] != asked:
            self.close()
        if question is not None and self._panel is None and self._ask is not None:
            self._panel = question.question_id, self._ask(question)
            self._asked.show(self._panel[1].bundle())

    def show(self, bundle: dict[str, Any]) -> None:
        """Show this bundle in place of the picture."""
        self._piece.show(bundle)

    def close(self) -> None:
        """Take an open question away."""
        if self._panel is not None:
            panel, self._panel = self._panel[1], None
            self._asked.empty()
            panel.close()
