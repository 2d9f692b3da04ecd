"""The model server over real HTTP: what a well-behaved exchange looks like, and its record."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path

import pytest
from modelserver.api_client import Client, body_for, read_events

from turncell.modelserver import (
    ModelServer,
    Pause,
    Ping,
    Reply,
    Scenario,
    Script,
    Stall,
    Thinking,
    ToolUse,
    Words,
    shell_lines,
)


def play(server: ModelServer, *replies: Reply) -> None:
    server.script = Script(Scenario("the one", replies=replies))


def test_frames_come_in_the_order_of_the_api(server: ModelServer, client: Client) -> None:
    play(
        server,
        Reply("Hello you", Ping(), Pause(0.01), Words(1), ToolUse("Bash", {"a": 1}, chunk=3)),
    )
    events = client.events("hi")
    assert [e["type"] for e in events] == [
        "message_start",
        "content_block_start", "content_block_delta", "content_block_delta", "ping",
        "content_block_delta", "content_block_stop",
        "content_block_start", *["content_block_delta"] * 3, "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip
    message = events[0]["message"]
    assert message["id"].startswith("msg_")
    assert message["model"] == "scripted-1"
    assert message["usage"]["input_tokens"] == 100
    assert [e["index"] for e in events if "index" in e] == [0] * 5 + [1] * 5
    tool = events[7]["content_block"]
    assert (tool["type"], tool["name"], tool["input"]) == ("tool_use", "Bash", {})
    assert tool["id"].startswith("toolu_")
    assert "".join(e["delta"]["partial_json"] for e in events[8:11]) == '{"a": 1}'
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert events[-2]["usage"] == {"output_tokens": 6}


def test_thinking_ends_with_its_signature(server: ModelServer, client: Client) -> None:
    play(server, Reply(Thinking("so so", signature="sig"), "Done."))
    deltas = [e["delta"] for e in client.events("hi") if e["type"] == "content_block_delta"]
    assert deltas == [
        {"type": "thinking_delta", "thinking": "so "},
        {"type": "thinking_delta", "thinking": "so"},
        {"type": "signature_delta", "signature": "sig"},
        {"type": "text_delta", "text": "Done."},
    ]


def test_text_arrives_as_it_was_written(server: ModelServer, client: Client) -> None:
    text = 'line\n\n"quoted" \\ ü 漢字 \U0001f600 end '
    play(server, Reply(text))
    assert client.text("hi") == text


def test_a_message_that_is_not_streamed(server: ModelServer, client: Client) -> None:
    reply = Reply(Thinking("hm"), "One ", "two", ToolUse("T"), input_tokens=5, output_tokens=6)
    play(server, reply)
    message = json.loads(client.post("hi", stream=False).read())
    kinds = [block["type"] for block in message["content"]]
    assert kinds == ["thinking", "text", "tool_use"]
    assert message["content"][1]["text"] == "One two"
    assert message["content"][2]["input"] == {}
    assert (message["type"], message["role"], message["stop_reason"]) == (
        "message", "assistant", "tool_use",
    )  # fmt: skip
    assert message["usage"]["input_tokens"] == 5
    assert message["usage"]["output_tokens"] == 6


def test_no_words_still_make_a_message(server: ModelServer, client: Client) -> None:
    play(server, Reply(Words(0)))
    assert client.events("hi")[-1]["type"] == "message_stop"
    play(server, Reply())
    assert client.events("hi")[0]["message"]["content"] == []


def test_each_round_of_tools_gets_the_next_reply(server: ModelServer, client: Client) -> None:
    play(server, Reply(ToolUse("T")), Reply("after one"), Reply("after more"))
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}
    call = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t", "name": "T", "input": {}}],
    }
    history: list[object] = [{"role": "user", "content": "go"}]
    said = []
    for _ in range(4):
        said.append(client.text(history))
        history += [call, result]
    assert said == ["", "after one", "after more", "after more"]
    assert [r.round for r in server.requests] == [0, 1, 2, 3]


def test_the_record_of_a_request(server: ModelServer, client: Client) -> None:
    before = time.monotonic()
    messages: list[object] = [
        {"role": "user", "content": "first"},
        {"role": "system", "content": "environment"},
        {"role": "assistant", "content": [{"type": "text", "text": "fine"}]},
        {"role": "user", "content": [{"type": "text", "text": "second"}]},
    ]
    headers = {"user-agent": "me", "x-api-key": "secret", "authorization": "Bearer secret"}
    assert b"echo: " in client.post(messages, headers=headers).read()
    record = server.wait_for(lambda r: r.outcome is not None)
    assert (record.index, record.path, record.stream) == (0, "/v1/messages", True)
    assert (record.scenario, record.prompt, record.round) == ("echo", "second", 0)
    assert (record.model, record.status, record.outcome) == ("scripted-1", 200, "completed")
    assert record.history == tuple(messages)
    assert record.deltas == 2
    assert record.headers["user-agent"] == "me"
    assert "secret" not in json.dumps(record.to_json())
    assert record.ended_at is not None
    assert before <= record.arrived_at <= record.ended_at <= time.monotonic()


def test_history_is_capped(tmp_path: Path) -> None:
    with ModelServer(Script(), history_limit=10) as server:
        Client(server).events("x" * 25)
        assert server.requests[0].history[0]["content"] == "x" * 10 + "... [15 more characters]"


def test_the_other_paths(server: ModelServer, client: Client) -> None:
    assert client.request("HEAD", "/").status == 200
    assert client.json("GET", "/") == {"ok": True}
    assert client.json("GET", "/v1/models")["data"][0]["type"] == "model"
    counted = client.json("POST", "/v1/messages/count_tokens?beta=true", body_for("hi"))
    assert counted["input_tokens"] > 0
    missing = client.request("GET", "/v1/nothing")
    assert missing.status == 404
    assert json.loads(missing.read())["error"]["type"] == "not_found_error"
    paths = ["/", "/", "/v1/models", "/v1/messages/count_tokens", "/v1/nothing"]
    assert [r.path for r in server.requests] == paths


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"messages": "hi"}', b'{"messages": [1]}'])
def test_a_bad_body_is_refused(server: ModelServer, client: Client, body: bytes) -> None:
    response = client.request("POST", "/v1/messages", body)
    assert response.status == 400
    answer = json.loads(response.read())
    assert (answer["type"], answer["error"]["type"]) == ("error", "invalid_request_error")
    assert server.wait_for(lambda r: r.outcome == "error").status == 400


def test_control_over_http(server: ModelServer, client: Client) -> None:
    client.events("hi")
    listed = client.json("GET", "/turncell/requests")
    assert [r["prompt"] for r in listed] == ["hi"]
    assert client.json("POST", "/turncell/reset") == {"ok": True}
    assert client.json("GET", "/turncell/requests") == []
    assert server.requests == []


def test_the_script_can_be_changed_while_it_plays(server: ModelServer, client: Client) -> None:
    play(server, Reply("old ", Stall()))
    stream = read_events(client.post("hi"))
    assert [next(stream)["type"] for _ in range(3)][-1] == "content_block_delta"
    play(server, Reply("new"))
    assert client.text("hi") == "new"
    assert server.requests[0].outcome is None


def test_wait_for_says_what_there_was(server: ModelServer, client: Client) -> None:
    client.events("hi")
    with pytest.raises(TimeoutError, match="prompt='hi'"):
        server.wait_for(lambda r: r.status == 500, timeout=0.05)


def test_stop_is_quick_with_a_stalled_answer_open(client: Client, server: ModelServer) -> None:
    play(server, Reply("so far ", Stall()))
    client.post("hi").readline()
    thread = next(t for t in threading.enumerate() if t.name == "turncell-model-server")
    port, began = server.port, time.monotonic()
    server.stop()
    assert time.monotonic() - began < 3
    assert not thread.is_alive()
    assert server.requests[0].outcome == "cut"
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1)
    with pytest.raises(RuntimeError):
        _ = server.url
    server.stop()


def test_it_starts_once_and_again_after_a_stop() -> None:
    server = ModelServer(Script())
    with server, pytest.raises(RuntimeError):
        server.start()
    with server:
        assert Client(server).text("again") == "echo: again"


def test_a_taken_port_is_an_os_error(server: ModelServer) -> None:
    with pytest.raises(OSError):
        ModelServer(Script(), port=server.port).start()


def test_the_environment_for_the_agent(server: ModelServer, tmp_path: Path) -> None:
    env = server.env(tmp_path)
    assert env["ANTHROPIC_BASE_URL"] == f"http://127.0.0.1:{server.port}"
    assert Path(env["CLAUDE_CONFIG_DIR"]).is_relative_to(tmp_path)
    assert f"export ANTHROPIC_BASE_URL={server.url}" in shell_lines(env)
    assert shell_lines({"A": "b c", "E": ""}) == ["export A='b c'", "export E=''"]
    with pytest.raises(ValueError):
        server.env()
