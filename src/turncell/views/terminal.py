"""A turn in a terminal: text as it comes, a line for each step, one passing status line.

The status is written only where a line begins, and removed before anything else is, so
nothing that was shown moves. `rich` is imported by the first picture.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from turncell.picture import Snapshot
from turncell.questions import Answer, Question, Verdict
from turncell.views.appending import Addition, Appender
from turncell.views.cleaning import writable
from turncell.views.typed import TypedAnswers
from turncell.views.words import status_line

if TYPE_CHECKING:
    from rich.console import Console

    from turncell.views.asking import OnAnswer

__all__ = ["TerminalView"]

_HINT = "Ctrl-C stops the turn"
_AGAIN = "once more: by force"
_STYLES = {
    "dim": "dim",
    "info": "",
    "warning": "yellow",
    "error": "red",
    "alarm": "bold white on red",
}


class TerminalView:
    """Appends to a terminal. `quiet` writes only the end; `hint` says how to stop;
    `on_answer` takes what a person types to a question."""

    comm_id = None

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        hint: str | None = None,
        quiet: bool = False,
        on_answer: OnAnswer | None = None,
        stdin: TextIO | None = None,
    ) -> None:
        self._stream, self._hint, self._quiet = stream, hint or _HINT, quiet
        self._on_answer, self._typed = on_answer, TypedAnswers(stdin)
        self._question: Question | None = None  # the one that can be answered now
        self._appender = Appender(start=False, quiet=quiet, asks=self.asks)
        self._console: Console | None = None
        self._status = ""  # the passing line that is on screen now

    @property
    def asks(self) -> bool:
        """Whether a person can type an answer."""
        return self._on_answer is not None and not self._quiet and self._typed.possible

    def listen(self) -> None:
        """Take what a person has typed, on the thread that waits for the turn."""
        question, on_answer = self._question, self._on_answer
        if question is None or on_answer is None:
            return
        try:
            answer, words = self._typed.take(question)
        except (OSError, ValueError):  # the terminal went, or sends what is no text
            answer, words = Answer(Verdict.DENY), ""
        if words:
            stream = self._stream or sys.stdout
            stream.write(f"{writable(words, stream)}\n")
            stream.flush()
        if answer is not None:
            self._question = None
            on_answer(question.question_id, answer)

    def open(self) -> None:
        """Nothing to prepare; the first picture says that the turn starts."""

    def show(self, snapshot: Snapshot) -> None:
        """Write what this picture adds, then the status of a turn that goes on."""
        console = self._console or self._make_console()
        additions = self._appender.advance(snapshot)
        going_on = not (self._appender.ended or self._quiet) and console.is_terminal
        asked = next(iter(snapshot.questions), None) if self.asks else None
        going_on = going_on and asked is None  # else it would be written into what is typed
        status = self._passing(snapshot) if going_on and self._appender.at_line_start else ""
        if additions or status != self._status:
            self._replace(console, additions, status)
        self._question = asked  # only now: it is on screen

    def _make_console(self) -> Console:
        from rich.console import Console  # not at import: loading the extension must be fast

        self._console = Console(file=self._stream or sys.stdout, highlight=False, emoji=False)
        return self._console

    def _passing(self, snapshot: Snapshot) -> str:
        hint = _AGAIN if snapshot.phase == "stopping" else self._hint
        return f"{status_line(snapshot)} · {hint}"

    def _replace(self, console: Console, additions: list[Addition], status: str) -> None:
        from rich.cells import set_cell_size

        if self._status:
            self._erase(console)
        for words, style in additions:
            self._write(console, words, style)
        if status:
            self._write(console, set_cell_size(status, console.width - 1).rstrip(), "dim")
        self._status = status
        console.file.flush()

    def _erase(self, console: Console) -> None:
        from rich.control import Control
        from rich.segment import ControlType

        console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))

    def _write(self, console: Console, words: str, style: str) -> None:
        words = writable(words, console.file)
        if style == "text":
            # Straight to the terminal: it breaks the lines, copied text stays as written.
            console.file.write(words)
            return
        from rich.text import Text

        console.print(Text(words, style=_STYLES[style]), end="", soft_wrap=True)
