"""A small blocking HTTP client for the model server, for these tests."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from turncell.modelserver import ModelServer

Prompt: TypeAlias = str | list[Any]
NONE: Mapping[str, str] = {}


class Client:
    """Requests to one model server; a connection for each."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._open: list[http.client.HTTPConnection] = []

    def request(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] = NONE
    ) -> http.client.HTTPResponse:
        """The response, its body unread."""
        return self.send(method, path, body, headers).getresponse()

    def send(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] = NONE
    ) -> http.client.HTTPConnection:
        """The connection, the request sent and the response unread."""
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=20)
        self._open.append(connection)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, dict(headers))
        return connection

    def json(self, method: str, path: str, body: object = None) -> Any:
        """The body of the response."""
        return json.loads(self.request(method, path, body).read())

    def post(
        self, prompt: Prompt, stream: bool = True, headers: Mapping[str, str] = NONE
    ) -> http.client.HTTPResponse:
        """The response to a message request, unread."""
        return self.request("POST", "/v1/messages?beta=true", body_for(prompt, stream), headers)

    def events(self, prompt: Prompt) -> list[dict[str, Any]]:
        """All events of a streamed answer."""
        return list(read_events(self.post(prompt)))

    def text(self, prompt: Prompt) -> str:
        """The text of a streamed answer."""
        deltas = [e["delta"] for e in self.events(prompt) if e["type"] == "content_block_delta"]
        return "".join(delta.get("text", "") for delta in deltas)

    def hang_up(self) -> None:
        """Close every connection, whatever is under way."""
        for connection in self._open:
            if connection.sock is not None:
                connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._open.clear()


def body_for(prompt: Prompt, stream: bool = True) -> dict[str, Any]:
    """A message request."""
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return {"model": "scripted-1", "max_tokens": 9, "stream": stream, "messages": messages}


def read_events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The events as they come; the name of each must be the type of its data."""
    assert response.status == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    name = ""
    for raw in response:
        line = raw.decode().rstrip("\n")
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            data = json.loads(line[6:])
            assert data["type"] == name
            yield data
