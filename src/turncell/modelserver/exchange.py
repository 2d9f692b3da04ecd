"""One `POST /v1/messages` from the first move to the end, whichever side ends it."""

from __future__ import annotations

from asyncio import Transport
from collections.abc import Iterable

from anyio import CancelScope, create_task_group, sleep, sleep_forever
from starlette.types import Receive, Scope, Send

from turncell.modelserver.answers import Answer, StreamedAnswer, WholeAnswer
from turncell.modelserver.backstage import Backstage
from turncell.modelserver.ledger import Entry, RequestOutcome
from turncell.modelserver.plan import Move
from turncell.modelserver.steps import Cut, HttpError, Pause, Silence, Stall
from turncell.modelserver.wire import Heading


class Exchange:
    """An ASGI response that plays moves while it watches for the client hanging up."""

    def __init__(
        self, backstage: Backstage, entry: Entry, heading: Heading, moves: Iterable[Move]
    ) -> None:
        """Play `moves` under `heading`; the course of it goes into `entry`."""
        self._backstage = backstage
        self._entry = entry
        self._heading = heading
        self._moves = moves

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        kind = StreamedAnswer if self._entry.request.stream else WholeAnswer
        answer: Answer = kind(send, self._entry, self._heading)
        transport: Transport = scope["state"]["transport"]
        try:
            async with create_task_group() as group:
                group.start_soon(self._watch, receive, group.cancel_scope)
                outcome = await self._play(answer)
                self._entry.close(outcome)
                if outcome == "cut":
                    transport.close()  # flushes what was sent, then ends without the last chunk
                    await sleep_forever()  # until the watch sees it closed
                group.cancel_scope.cancel()
        finally:
            self._entry.close("error")  # counts only if something above has gone wrong

    async def _watch(self, receive: Receive, scope: CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._entry.close("cut" if self._backstage.closing else "client_disconnected")
        scope.cancel()

    async def _play(self, answer: Answer) -> RequestOutcome:
        for move in self._moves:
            match move:
                case Cut():
                    return "cut"
                case HttpError():
                    await answer.fail(move)
                    return "error"
                case Pause():
                    await sleep(move.seconds)
                case Silence():
                    await sleep_forever()
                case Stall():
                    await answer.open()
                    await sleep_forever()
                case _:
                    await answer.show(move)
        await answer.finish()
        return "completed"
