"""The ASGI application: the paths of the Messages API, and two of our own."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from turncell.modelserver.answers import send_error, send_json
from turncell.modelserver.backstage import Backstage
from turncell.modelserver.exchange import Exchange
from turncell.modelserver.ledger import Entry
from turncell.modelserver.plan import plan
from turncell.modelserver.prompt import asked, capped
from turncell.modelserver.steps import HttpError
from turncell.modelserver.wire import Heading, new_id

# Recorded by name, so that no key or token can slip in.
_HEADERS = (
    "accept",
    "anthropic-beta",
    "anthropic-version",
    "content-type",
    "user-agent",
    "x-app",
    "x-stainless-retry-count",
    "x-stainless-timeout",
)
_MODEL = {
    "type": "model",
    "id": "scripted",
    "display_name": "Scripted model",
    "created_at": "2025-01-01T00:00:00Z",
}
_MODELS = {"data": [_MODEL], "has_more": False, "first_id": "scripted", "last_id": "scripted"}


class _Plain:
    """A short answer, recorded: JSON with status 200, or an error."""

    def __init__(self, entry: Entry, body: object) -> None:
        self._entry = entry
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if isinstance(self._body, HttpError):
            await send_error(send, self._entry, self._body)
            self._entry.close("error")
            return
        await send_json(send, self._entry, 200, self._body)
        self._entry.close("completed")


def _refusal(body: object) -> HttpError | None:
    """What the API would have against `body` as a message request."""
    if not isinstance(body, dict):
        return HttpError(400, "The request body is not a JSON object")
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        return HttpError(400, "messages: Input should be a valid array of objects")
    return None


class _Front:
    """The endpoints, over one `Backstage`."""

    def __init__(self, backstage: Backstage) -> None:
        self._backstage = backstage

    def _entry(self, request: Request) -> Entry:
        headers = {name: request.headers[name] for name in _HEADERS if name in request.headers}
        return self._backstage.ledger.open(request.method, request.url.path, headers)

    def fixed(self, body: object) -> Callable[[Request], Awaitable[ASGIApp]]:
        """An endpoint that always answers `body`."""

        async def endpoint(request: Request) -> ASGIApp:
            return _Plain(self._entry(request), body)

        return endpoint

    async def missing(self, request: Request, error: Exception) -> Any:
        """Answer for paths and methods that there are not."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        return _Plain(self._entry(request), HttpError(status, f"Not found: {request.url.path}"))

    async def messages(self, request: Request) -> ASGIApp:
        """Answer `POST /v1/messages` by the script."""
        entry = self._entry(request)
        try:
            body: Any = json.loads(await request.body())
        except ClientDisconnect:
            entry.close("client_disconnected")
            return _Plain(entry, HttpError(400, "The client hung up"))
        except ValueError:
            body = None
        if error := _refusal(body):
            return _Plain(entry, error)
        return self._exchange(entry, body)

    def _exchange(self, entry: Entry, body: dict[str, Any]) -> Exchange:
        backstage = self._backstage
        found = asked(body["messages"])
        model = str(body.get("model", ""))
        scenario = backstage.script.find(found.prompt, model)
        entry.update(
            stream=bool(body.get("stream")),
            model=model,
            scenario=scenario.name,
            prompt=capped(found.prompt, backstage.history_limit),
            round=found.round,
            history=tuple(capped(body["messages"], backstage.history_limit)),
        )
        heading = Heading(scenario.reply(found.round), model, new_id("msg"))
        moves = plan(backstage.due(scenario, found), found.prompt, found.remembered)
        return Exchange(backstage, entry, heading, moves)

    async def count_tokens(self, request: Request) -> ASGIApp:
        """Answer a guess: four bytes to a token."""
        entry = self._entry(request)
        body = await request.body()
        return _Plain(entry, {"input_tokens": max(1, len(body) // 4)})

    async def requests(self, request: Request) -> JSONResponse:
        """Answer the ledger."""
        return JSONResponse([item.to_json() for item in self._backstage.ledger.requests()])

    async def reset(self, request: Request) -> JSONResponse:
        """Empty the ledger."""
        self._backstage.reset()
        return JSONResponse({"ok": True})


def build_app(backstage: Backstage) -> Starlette:
    """The application that plays and records into `backstage`."""
    front = _Front(backstage)
    routes = [
        Route("/", front.fixed({"ok": True})),
        Route("/v1/messages", front.messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", front.count_tokens, methods=["POST"]),
        Route("/v1/models", front.fixed(_MODELS)),
        Route("/turncell/requests", front.requests),
        Route("/turncell/reset", front.reset, methods=["POST"]),
    ]
    handlers: Any = {HTTPException: front.missing}
    return Starlette(routes=routes, exception_handlers=handlers)
