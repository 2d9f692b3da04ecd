"""A turn on a plain stream: only words, in order, no escapes and no cursor control."""

from __future__ import annotations

from typing import TextIO

from turncell.picture import Snapshot
from turncell.views.appending import Appender
from turncell.views.cleaning import writable

__all__ = ["PlainView"]


class PlainView:
    """Appends to a stream (a pipe, a file, a log). `quiet` writes only the end."""

    comm_id = None
    asks = False

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._stream = stream
        self._appender = Appender(start=True, quiet=quiet)

    def listen(self) -> None:
        """Nobody types here."""

    def open(self) -> None:
        """Nothing to prepare; the first picture says that the turn starts."""

    def show(self, snapshot: Snapshot) -> None:
        """Write what this picture adds."""
        words = "".join(addition.words for addition in self._appender.advance(snapshot))
        if words:
            self._stream.write(writable(words, self._stream))
            self._stream.flush()
