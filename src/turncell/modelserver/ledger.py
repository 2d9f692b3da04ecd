"""The record of every request: frozen values, safe to read from any thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

RequestOutcome: TypeAlias = Literal["completed", "client_disconnected", "cut", "error"]


@dataclass(frozen=True)
class Request:
    """One request as it stood when it was read; times are seconds on `time.monotonic()`.

    `outcome` and `ended_at` are None while the answer is under way, `status` until there is one.
    `prompt` and `round` (model call of the turn, from 0) chose the reply; `history` is the
    messages as received, long strings cut; `deltas` counts the deltas streamed so far.
    """

    index: int
    arrived_at: float
    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    stream: bool = False
    model: str = ""
    scenario: str | None = None
    prompt: str = ""
    round: int = 0
    history: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    status: int | None = None
    deltas: int = 0
    outcome: RequestOutcome | None = None
    ended_at: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return asdict(self)


class Entry:
    """The place of one request in the ledger, held by whoever answers it."""

    def __init__(self, changed: threading.Condition, request: Request) -> None:
        """Used by `Ledger.open`."""
        self._changed = changed
        self.request = request

    def update(self, **changes: Any) -> None:
        """Replace fields of the record."""
        with self._changed:
            self.request = replace(self.request, **changes)
            self._changed.notify_all()

    def close(self, outcome: RequestOutcome) -> None:
        """Record how the request ended; only the first call counts."""
        if self.request.outcome is None:
            self.update(outcome=outcome, ended_at=time.monotonic())


class Ledger:
    """All requests since the start or the last `clear`, in order of arrival."""

    def __init__(self) -> None:
        """Start empty."""
        self._changed = threading.Condition()
        self._entries: list[Entry] = []

    def open(self, method: str, path: str, headers: Mapping[str, str]) -> Entry:
        """Record that a request has arrived."""
        with self._changed:
            index = len(self._entries)
            request = Request(index, time.monotonic(), method, path, headers)
            entry = Entry(self._changed, request)
            self._entries.append(entry)
            self._changed.notify_all()
        return entry

    def requests(self) -> list[Request]:
        """A copy of the records as they are now."""
        with self._changed:
            return [entry.request for entry in self._entries]

    def clear(self) -> None:
        """Forget everything; requests under way go on unrecorded."""
        with self._changed:
            self._entries.clear()
            self._changed.notify_all()

    def wait_for(self, predicate: Callable[[Request], bool], timeout: float) -> Request:
        """The first record that fits, waiting for it up to `timeout` seconds.

        Raises `TimeoutError`, which lists the records there are.
        """
        deadline = time.monotonic() + timeout
        seen: list[Request] = []
        while True:
            with self._changed:
                if self._unchanged_since(seen):
                    self._changed.wait(max(0.0, deadline - time.monotonic()))
                seen = [entry.request for entry in self._entries]
            # Outside the lock: a slow predicate must not hold the server up.
            for request in seen:
                if predicate(request):
                    return request
            if time.monotonic() >= deadline:
                break
        listed = "".join(f"\n  {request}" for request in seen) or " none"
        raise TimeoutError(f"no such request within {timeout:g} s; recorded:{listed}")

    def _unchanged_since(self, seen: list[Request]) -> bool:
        pairs = zip(seen, self._entries, strict=False)
        same = all(request is entry.request for request, entry in pairs)
        return same and len(seen) == len(self._entries)
