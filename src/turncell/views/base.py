"""What a view is.

A view draws pictures of one turn. `show` is called from a worker thread, one call at a
time, with the whole picture each time; drawing the same picture twice changes nothing.
The picture whose phase is "ended" is the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from turncell.picture import Snapshot

__all__ = ["CellView", "Taps", "View"]


class View(Protocol):
    """Draws one turn."""

    def show(self, snapshot: Snapshot) -> bool | None:
        """Draw the whole picture; the same one twice changes nothing. True: some of it was too
        early and is to be drawn soon."""


class Taps(Protocol):
    """What hears clicks while the cell blocks the kernel."""

    def watch(self, comm_id: str, on_click: Callable[[str], None] | None = None) -> None:
        """Take the clicks on this button."""

    def forget(self, comm_id: str) -> None:
        """Leave them to its widget again."""


class CellView(View, Protocol):
    """A view with a place of its own, opened on the main thread before the turn starts."""

    @property
    def comm_id(self) -> str | None:
        """The comm of the Stop button; None where there is none."""

    @property
    def asks(self) -> bool:
        """Whether a person can answer questions here."""

    def listen(self) -> None:
        """Take what a person typed; called again and again by the thread that waits."""

    def open(self) -> None:
        """Show the first sign of life."""
