"""A turn in a notebook cell: a Stop button, its status, the text as it comes.

The end replaces all of it by one output that needs no kernel, no widget and no update to be
read. A cell that has returned (`--bg`) cannot be cleared; its outputs are made by `open` and
only updated. Where nobody can answer (`live=False`) nothing is shown before the end.

Make it on the main thread inside the cell, put the click tap on `comm_id`, then `open`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from turncell.picture import Snapshot
from turncell.questions import Question
from turncell.views import frames
from turncell.views.asking import Asking, QuestionPanel
from turncell.views.blocks import PLAIN_AFTER
from turncell.views.button import StopButton
from turncell.views.flow import CellFlow, WholeFlow
from turncell.views.publish import CellPublisher, Piece
from turncell.views.saved import ended_bundle, plain_text
from turncell.views.words import status_line, stop_label

__all__ = ["NotebookView"]

_HINT = "to stop: interrupt the kernel"
_STARTED = "background turn started"
_OVER = "background turn over"
_LONG = 20_000  # characters of an answer whose last picture takes more than a moment


class NotebookView:
    """Draws one turn in the cell that was running when it was made.

    `on_stop` is called for a click where no tap took it; None means no button. `hint` says
    how to stop where no button is shown; `asking` takes the answers to questions; `math` leaves
    what stands between dollars to the front end.
    """

    def __init__(
        self,
        shell: Any,
        on_stop: Callable[[], None] | None,
        *,
        live: bool,
        background: bool = False,
        hint: str | None = None,
        asking: Asking | None = None,
        math: bool = False,
    ) -> None:
        self._publisher = CellPublisher(shell)
        self._live, self._background = live, background
        self._hint = hint or _HINT
        self._ended = False
        self._asking, self._math = asking, math
        self._status, self._sign = Piece(self._publisher), Piece(self._publisher)
        if live and on_stop is not None and "ipywidgets" not in sys.modules:
            # Its import can take longer than anybody should wait for a sign of life.
            self._sign.show(_words("starting"))
        self._button = _button(on_stop) if live else None
        flow = WholeFlow if background else CellFlow
        self._flow = flow(self._publisher, self._ask if self.asks else None, math=math)

    @property
    def comm_id(self) -> str | None:
        """The comm that clicks on the Stop button arrive on; None without a button."""
        return self._button.comm_id if self._button else None

    @property
    def asks(self) -> bool:
        """Whether questions have buttons here."""
        return self._button is not None and self._asking is not None

    def listen(self) -> None:
        """Nobody types here."""

    def _ask(self, question: Question) -> QuestionPanel:
        asking, panels = self._asking, []
        assert asking is not None, "`asks` said so"

        def make() -> None:
            taps, run = asking.taps, self._publisher.run
            panels.append(QuestionPanel(question, asking.on_answer, taps, run))

        self._publisher.run(make)
        return panels[0]

    def open(self) -> None:
        """Show the button and "starting", and make what a background turn will update."""
        self._publisher.flush()
        if self._button is not None:
            self._status.show(self._button.bundle())
        elif self._live:
            self._show_status("starting")
        elif self._background:
            self._status.show(_words(_STARTED))
        self._sign.empty()
        if isinstance(self._flow, WholeFlow):
            self._flow.open()

    def show(self, snapshot: Snapshot) -> bool:
        """Draw the picture. The ended one is the last; what comes after it is ignored."""
        if self._ended:
            return False
        if snapshot.phase == "ended":
            self._end(snapshot)
        elif self._live:
            self._draw_status(snapshot)
            return self._flow.draw(snapshot)
        return False

    def _draw_status(self, snapshot: Snapshot) -> None:
        status, button = status_line(snapshot), self._button
        if button is None:
            self._show_status(status)
            return
        self._publisher.run(lambda: button.draw(stop_label(snapshot), status))

    def _show_status(self, status: str) -> None:
        bundle = _words(f"{status} · {self._hint}")
        self._status.show({**bundle, "text/html": frames.style() + bundle["text/html"]})

    def _end(self, snapshot: Snapshot) -> None:
        self._ended = True
        bundle: dict[str, Any] = {"text/plain": plain_text(snapshot)}
        try:
            try:
                self._draw_last_words(snapshot)
            finally:
                bundle = ended_bundle(snapshot, math=self._math)
        finally:  # whatever goes wrong with the rich forms, the words are shown
            self._replace(bundle)

    def _draw_last_words(self, snapshot: Snapshot) -> None:
        # Before the work on all of them, which takes a moment.
        long = _LONG < len(snapshot.text) <= PLAIN_AFTER
        if self._live and long and isinstance(self._flow, CellFlow):
            self._flow.draw(snapshot)

    def _replace(self, bundle: dict[str, Any]) -> None:
        try:
            if isinstance(self._flow, WholeFlow):
                self._flow.show(bundle)
                self._status.show(_words(_OVER))
                return
            if self._live:
                self._publisher.clear()
            Piece(self._publisher).show(bundle)
        finally:
            self._publisher.run(self._flow.close)
            if self._button is not None:
                self._publisher.run(self._button.close)


def _words(words: str) -> dict[str, Any]:
    html = frames.frame(frames.line(words), "status")
    return {"text/plain": words, "text/html": html}


def _button(on_stop: Callable[[], None] | None) -> StopButton | None:
    if on_stop is None:
        return None
    try:
        return StopButton(on_stop)
    except ImportError:
        return None
