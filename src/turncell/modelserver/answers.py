"""Two ways to give an answer over ASGI: as a stream of events, or whole at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any, Protocol

from anyio import sleep
from anyio.lowlevel import checkpoint
from starlette.types import Send

from turncell.modelserver.ledger import Entry
from turncell.modelserver.plan import Begin, Deltas, End
from turncell.modelserver.steps import HttpError, Ping
from turncell.modelserver.wire import (
    Heading,
    block_deltas,
    block_start,
    block_stop,
    error_body,
    event,
    new_id,
    whole_block,
)

_BATCH = 400  # deltas in one write of a flood: about 60 kB
_NO_HEADERS: Mapping[str, str] = {}


async def send_json(
    send: Send, entry: Entry, status: int, body: object, headers: Mapping[str, str] = _NO_HEADERS
) -> None:
    """Send a whole JSON response and record its status."""
    data = json.dumps(body).encode()
    entry.update(status=status)
    fields = {"content-type": "application/json", "content-length": str(len(data)), **headers}
    raw = [(key.encode(), value.encode()) for key, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": data})


async def send_error(send: Send, entry: Entry, error: HttpError) -> None:
    """Send an error response of the API's shape."""
    request_id = new_id("req")
    headers = {"request-id": request_id}
    if error.retry_after is not None:
        headers["retry-after"] = f"{error.retry_after:g}"
    body = error_body(error.status, error.message, request_id)
    await send_json(send, entry, error.status, body, headers)


class Answer(Protocol):
    """One answer in the making."""

    async def show(self, move: Begin | Deltas | End | Ping) -> None:
        """Add a piece of content."""

    async def open(self) -> None:
        """Send the response headers, if this way of answering can do that before the end."""

    async def fail(self, error: HttpError) -> None:
        """End with an error."""

    async def finish(self) -> None:
        """End well."""


class StreamedAnswer:
    """The answer as server-sent events, each delta on its way as soon as it is due."""

    def __init__(self, send: Send, entry: Entry, heading: Heading) -> None:
        """Nothing is sent before the first move."""
        self._send = send
        self._entry = entry
        self._heading = heading
        self._opened = False
        self._started = False
        self._deltas = 0

    async def open(self) -> None:
        """Send the response headers, once."""
        if self._opened:
            return
        self._opened = True
        self._entry.update(status=200)
        raw = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
            (b"request-id", new_id("req").encode()),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": raw})

    async def show(self, move: Begin | Deltas | End | Ping) -> None:
        """Send the events of a move."""
        await self._start()
        if isinstance(move, Deltas):
            await self._flow(move)
        elif isinstance(move, Begin):
            await self._write(block_start(move))
        elif isinstance(move, End):
            await self._write(block_stop(move.block))
        else:
            await self._write(event("ping"))

    async def fail(self, error: HttpError) -> None:
        """Send the error as the response, or as an event when the response has begun."""
        if not self._opened:
            await send_error(self._send, self._entry, error)
            return
        body = error_body(error.status, error.message, new_id("req"))
        await self._write(event("error", error=body["error"]), more=False)

    async def finish(self) -> None:
        """Send the end of the message."""
        await self._start()
        await checkpoint()  # so that a client that has gone is seen to have gone
        await self._write(self._heading.stop(self._deltas), more=False)

    async def _start(self) -> None:
        await self.open()
        if not self._started:
            self._started = True
            await self._write(self._heading.start())

    async def _flow(self, move: Deltas) -> None:
        pieces = iter(move.pieces)
        size = 1 if move.pace else _BATCH
        while batch := list(islice(pieces, size)):
            await self._write(block_deltas(move.block, batch))
            self._deltas += len(batch)
            self._entry.update(deltas=self._deltas)
            # A flood yields too: or else a client that leaves goes unseen, and others wait.
            await (sleep(move.pace) if move.pace else checkpoint())

    async def _write(self, text: str, more: bool = True) -> None:
        body = text.encode("ascii")
        await self._send({"type": "http.response.body", "body": body, "more_body": more})


class WholeAnswer:
    """The answer as one JSON message, after the time that the stream would have taken."""

    def __init__(self, send: Send, entry: Entry, heading: Heading) -> None:
        """Nothing is sent before the end."""
        self._send = send
        self._entry = entry
        self._heading = heading
        self._content: list[dict[str, Any]] = []
        self._text: list[str] = []
        self._deltas = 0

    async def open(self) -> None:
        """Do nothing: here headers and body go together."""

    async def show(self, move: Begin | Deltas | End | Ping) -> None:
        """Collect the content of a move."""
        if isinstance(move, Deltas):
            pieces = list(move.pieces)
            self._text += pieces
            self._deltas += len(pieces)
            await sleep(move.pace * len(pieces))
        elif isinstance(move, End):
            self._content.append(whole_block(move.block, "".join(self._text)))
            self._text = []

    async def fail(self, error: HttpError) -> None:
        """Send the error as the response."""
        await send_error(self._send, self._entry, error)

    async def finish(self) -> None:
        """Send the message."""
        heading = self._heading
        output = heading.tokens(self._deltas)
        message = heading.message(self._content, heading.reply.reason, output)
        await send_json(self._send, self._entry, 200, message, {"request-id": new_id("req")})
