"""The model server's bad manners over real HTTP: errors, cuts, silence, floods, lost clients."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from typing import Any

import pytest
from modelserver.api_client import Client, read_events

from turncell.modelserver import (
    Cut,
    Echo,
    HttpError,
    ModelServer,
    Pause,
    Reply,
    Request,
    Scenario,
    Script,
    Silence,
    Stall,
    Step,
    Thinking,
    ToolUse,
    Words,
)
from turncell.modelserver.answers import StreamedAnswer
from turncell.modelserver.ledger import Ledger
from turncell.modelserver.plan import Begin, Deltas
from turncell.modelserver.wire import Heading

PROMPT_SECONDS = 2.0  # generous: how soon a lost client must be noticed


def play(server: ModelServer, *steps: Step | str) -> None:
    server.script = Script(Scenario("the one", replies=[Reply(*steps)]))


def started(request: Request) -> bool:
    return request.scenario is not None


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (529, "overloaded_error"),
    ],
)
def test_errors_have_the_shape_of_the_api(
    server: ModelServer, client: Client, status: int, kind: str
) -> None:
    play(server, HttpError(status, "because"))
    for stream in (True, False):
        response = client.post("hi", stream=stream)
        assert response.status == status
        assert response.headers["retry-after"] is None
        body = json.loads(response.read())
        assert body["type"] == "error"
        assert body["error"] == {"type": kind, "message": "because"}
        assert body["request_id"] == response.headers["request-id"]
    assert server.wait_for(lambda r: r.index == 1 and r.outcome == "error").status == status


def test_an_error_a_few_times_then_the_rest(server: ModelServer, client: Client) -> None:
    play(server, HttpError(429, times=2, retry_after=1.5), HttpError(500, times=1), Echo())
    responses = [client.post("one") for _ in range(4)]
    assert [r.status for r in responses] == [429, 429, 500, 200]
    assert responses[0].headers["retry-after"] == "1.5"
    assert client.post("two").status == 429, "another prompt counts for itself"
    assert client.post("one").status == 200
    server.reset()
    assert client.post("one").status == 429


def test_an_error_in_mid_stream_is_an_event(server: ModelServer, client: Client) -> None:
    play(server, "some ", HttpError(529, "busy"), "never")
    events = client.events("hi")
    assert events[-1]["type"] == "error"
    assert events[-1]["error"] == {"type": "overloaded_error", "message": "busy"}
    record = server.wait_for(lambda r: r.outcome == "error")
    assert (record.status, record.deltas) == (200, 1)


@pytest.mark.parametrize("step", [Words(5), Thinking("a b c d e"), ToolUse("T", {"k": "v" * 5})])
def test_a_cut_breaks_the_stream_off(server: ModelServer, client: Client, step: Step) -> None:
    play(server, step, Cut(), "never")
    response = client.post("hi")
    with pytest.raises(http.client.IncompleteRead) as caught:
        response.read()
    assert b"content_block_delta" in caught.value.partial
    assert b"content_block_stop" not in caught.value.partial
    assert server.wait_for(lambda r: r.outcome is not None).outcome == "cut"


@pytest.mark.parametrize("stream", [True, False])
def test_a_cut_at_once_gives_no_response(server: ModelServer, client: Client, stream: bool) -> None:
    play(server, Cut())
    with pytest.raises(http.client.RemoteDisconnected):
        client.post("hi", stream=stream)
    record = server.wait_for(lambda r: r.outcome == "cut")
    assert record.status is None


def test_a_stall_sends_what_came_before_and_then_nothing(
    server: ModelServer, client: Client
) -> None:
    play(server, Words(3), Stall())
    response = client.post("hi")
    stream = read_events(response)
    types = [next(stream)["type"] for _ in range(5)]
    assert types == ["message_start", "content_block_start", *["content_block_delta"] * 3]
    assert server.requests[0].outcome is None


def test_a_stall_at_once_still_sends_headers(server: ModelServer, client: Client) -> None:
    play(server, Stall())
    assert client.post("hi").status == 200


@pytest.mark.parametrize(
    "steps",
    [
        (Words(3), Stall()),
        (Words(3), Pause(60)),
        (Words(1000, pace=60),),
        (Stall(),),
        (Silence(),),
        (Pause(60),),
    ],
    ids=["stall", "pause", "pace", "stall at once", "silence", "pause at once"],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_lost_client_is_noticed(
    server: ModelServer, client: Client, steps: tuple[Step, ...], stream: bool
) -> None:
    play(server, *steps)
    connection = client.send(
        "POST", "/v1/messages", {"stream": stream, "messages": [{"role": "user", "content": "hi"}]}
    )
    server.wait_for(started)
    assert connection.sock is not None
    left = time.monotonic()
    client.hang_up()
    record = server.wait_for(lambda r: r.outcome is not None, PROMPT_SECONDS)
    assert record.outcome == "client_disconnected"
    assert record.ended_at is not None
    assert left <= record.ended_at <= left + PROMPT_SECONDS


def test_a_lost_client_ends_a_flood(server: ModelServer, client: Client) -> None:
    play(server, Words(50_000_000))
    stream = read_events(client.post("hi"))
    for _ in range(10):
        next(stream)
    client.hang_up()
    record = server.wait_for(lambda r: r.outcome is not None, PROMPT_SECONDS)
    assert record.outcome == "client_disconnected"
    assert 0 < record.deltas < 50_000_000


def test_twenty_thousand_deltas_take_no_time(server: ModelServer, client: Client) -> None:
    play(server, Words(20_000))
    began = time.monotonic()
    body = client.post("hi").read()
    took = time.monotonic() - began
    assert body.count(b"event: content_block_delta\n") == 20_000
    assert b'"text": "w19999 "' in body
    assert took < 2.0  # about 0.05 s when nothing else runs
    record = server.wait_for(lambda r: r.outcome == "completed")
    assert record.deltas == 20_000


def test_a_flood_is_sent_in_few_writes() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    entry = Ledger().open("POST", "/v1/messages", {})
    answer = StreamedAnswer(send, entry, Heading(Reply(), "m", "msg_1"))
    block = Begin(0, "text")
    asyncio.run(answer.show(Deltas(block, Words(20_000).pieces(), 0.0)))
    assert len(sent) < 100
    assert entry.request.deltas == 20_000


def test_others_are_served_during_a_flood(server: ModelServer, client: Client) -> None:
    server.script = Script(Scenario("flood", when="flood", replies=[Reply(Words(50_000_000))]))
    client.post("flood").readline()
    assert client.text("hi") == "echo: hi"


def test_pace_spreads_the_deltas(server: ModelServer, client: Client) -> None:
    play(server, Words(5, pace=0.05))
    began = time.monotonic()
    stream = read_events(client.post("hi"))
    times = [time.monotonic() - began for e in stream if e["type"] == "content_block_delta"]
    assert all(at >= 0.05 * i - 0.005 for i, at in enumerate(times))
    assert time.monotonic() - began >= 0.25 - 0.005
