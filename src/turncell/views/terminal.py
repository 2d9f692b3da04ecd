"""A turn in a terminal: text as it comes, a line for each step, one passing status line.

The status is written only where a line begins, and removed before anything else is, so
nothing that was shown moves. `rich` is imported by the first picture.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from turncell.transcript import Snapshot
from turncell.views.appending import Addition, Appender
from turncell.views.base import status_line, tool_line
from turncell.views.cleaning import writable

if TYPE_CHECKING:
    from rich.console import Console

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
    """Appends to a terminal. `quiet` writes only the end; `hint` says how to stop."""

    comm_id = None

    def __init__(
        self, stream: TextIO | None = None, *, hint: str | None = None, quiet: bool = False
    ) -> None:
        self._stream, self._hint, self._quiet = stream, hint or _HINT, quiet
        self._appender = Appender(start=False, quiet=quiet)
        self._console: Console | None = None
        self._status = ""  # the passing line that is on screen now

    def open(self) -> None:
        """Nothing to prepare; the first picture says that the turn starts."""

    def show(self, snapshot: Snapshot) -> None:
        """Write what this picture adds, then the status of a turn that goes on."""
        console = self._console or self._make_console()
        additions = self._appender.advance(snapshot)
        going_on = not (self._appender.ended or self._quiet) and console.is_terminal
        status = self._passing(snapshot) if going_on and self._appender.at_line_start else ""
        if additions or status != self._status:
            self._replace(console, additions, status)

    def _make_console(self) -> Console:
        from rich.console import Console  # not at import: loading the extension must be fast

        self._console = Console(file=self._stream or sys.stdout, highlight=False, emoji=False)
        return self._console

    def _passing(self, snapshot: Snapshot) -> str:
        running = [s.tool for s in snapshot.segments if s.tool and s.tool.status is None]
        hint = _AGAIN if snapshot.phase == "stopping" else self._hint
        parts = [status_line(snapshot), *map(tool_line, running[-1:]), hint]
        return " · ".join(parts)

    def _replace(self, console: Console, additions: list[Addition], status: str) -> None:
        if self._status:
            self._erase(console)
        for words, style in additions:
            self._write(console, words, style)
        if status:
            self._write(console, status[: console.width - 1], "dim")
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
