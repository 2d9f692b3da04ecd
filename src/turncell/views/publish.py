"""Output that lands in its own cell, from any thread, whichever cell runs.

A kernel addresses output by the parent header of the request that caused it. What that
parent is on another thread differs between kernel versions (and on some it is the cell that
happens to run), so the cell's own header is kept and every message is sent with it. Where
the publisher is not a kernel's (a `%%capture` block, a test) its `publish` is used.
"""

from __future__ import annotations

import contextvars
import sys
import uuid
from collections.abc import Callable
from typing import Any

__all__ = ["CellPublisher", "Pace", "Piece"]

# The shell, its display publisher and its session are untyped here: `Any` marks that border.

_NEEDED = ("session", "pub_socket", "topic", "parent_header")


class CellPublisher:
    """Publishes into the cell that was running when it was made (on the main thread)."""

    def __init__(self, shell: Any) -> None:
        self._publisher = shell.display_pub
        self._parent = dict(getattr(self._publisher, "parent_header", None) or {})
        self._direct = bool(self._parent) and all(hasattr(self._publisher, n) for n in _NEEDED)
        self._context = contextvars.copy_context()

    def run(self, call: Callable[[], None]) -> None:
        """Call with the cell's context, which decides where a widget's messages go."""
        self._context.copy().run(call)

    def flush(self) -> None:
        """Let what the cell printed so far go first."""
        sys.stdout.flush()
        sys.stderr.flush()

    def display(self, bundle: dict[str, Any], display_id: str) -> None:
        """Add an output to the cell."""
        self._data("display_data", bundle, display_id)

    def update(self, bundle: dict[str, Any], display_id: str) -> None:
        """Replace an output that `display` made."""
        self._data("update_display_data", bundle, display_id)

    def clear(self) -> None:
        """Remove the cell's outputs when the next one comes."""
        if self._direct:
            self._send("clear_output", {"wait": True})
        else:
            self.run(lambda: self._publisher.clear_output(wait=True))

    def _data(self, kind: str, bundle: dict[str, Any], display_id: str) -> None:
        transient = {"display_id": display_id}
        if self._direct:
            self._send(kind, {"data": bundle, "metadata": {}, "transient": transient})
            return
        update = kind == "update_display_data"
        publish = self._publisher.publish
        self.run(lambda: publish(data=bundle, metadata={}, transient=transient, update=update))

    def _send(self, kind: str, content: dict[str, Any]) -> None:
        pub = self._publisher
        message = pub.session.msg(kind, content, parent=self._parent)
        pub.session.send(pub.pub_socket, message, ident=pub.topic)


class Piece:
    """One output of the cell. Only what differs from the last time is sent."""

    def __init__(self, publisher: CellPublisher) -> None:
        self._publisher = publisher
        self._id = uuid.uuid4().hex
        self._sent: dict[str, Any] | None = None

    def show(self, bundle: dict[str, Any]) -> int:
        """Show the bundle; return about how many bytes were sent."""
        if bundle == self._sent:
            return 0
        send = self._publisher.display if self._sent is None else self._publisher.update
        send(bundle, self._id)
        self._sent = bundle
        return sum(len(text) for text in bundle.values() if isinstance(text, str))

    def empty(self) -> None:
        """Show nothing: an output cannot be taken back, only emptied."""
        if self._sent is not None:
            self.show({"text/plain": "", "text/html": ""})


class Pace:
    """Spaces out a thing that is sent again and again by the bytes it takes.

    With a bound on bytes a second, the cost of a stream is linear in its length however
    often it changes. `least` seconds are between two, however small they are.
    """

    def __init__(self, rate: float, least: float = 0.0) -> None:
        self._rate, self._least = rate, least
        self._free_at = 0.0

    def free(self, now: float) -> bool:
        """Tell whether the next one may be sent."""
        return now >= self._free_at

    def spend(self, count: int, now: float) -> None:
        """Count what was sent."""
        self._free_at = now + max(self._least, count / self._rate)
