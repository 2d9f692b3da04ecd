"""The real agent binary against the model server: it must take the server for the API."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import claude_agent_sdk as sdk
import pytest

from turncell.modelserver import (
    HttpError,
    ModelServer,
    Reply,
    Scenario,
    Script,
    Stall,
    Thinking,
    ToolUse,
    Words,
)

pytestmark = [pytest.mark.cli, pytest.mark.timeout(120)]

SCRIPT = Script(
    Scenario("hello", when="hello", replies=[Reply("Good ", "morning.")]),
    Scenario(
        "shell",
        when="shell",
        replies=[
            Reply("I run it. ", ToolUse("Bash", {"command": "echo from-the-shell"}, chunk=5)),
            Reply("It ran."),
        ],
    ),
    Scenario("think", when="think", replies=[Reply(Thinking("Let me see."), "Seen.")]),
    Scenario("busy", when="busy", replies=[Reply(HttpError(529, times=1), "At last.")]),
    Scenario("hang", when="hang", replies=[Reply(Words(5), Stall())]),
)


async def turn(client: sdk.ClaudeSDKClient, prompt: str) -> tuple[list[Any], sdk.ResultMessage]:
    """All content blocks of one turn, and its result."""
    await client.query(prompt)
    return await rest(client)


async def rest(client: sdk.ClaudeSDKClient) -> tuple[list[Any], sdk.ResultMessage]:
    blocks: list[Any] = []
    result: sdk.ResultMessage | None = None
    async for message in client.receive_response():
        if isinstance(message, (sdk.AssistantMessage, sdk.UserMessage)):
            blocks += message.content
        elif isinstance(message, sdk.ResultMessage):
            result = message
    assert result is not None
    return blocks, result


def options(server: ModelServer, home: Path) -> sdk.ClaudeAgentOptions:
    return sdk.ClaudeAgentOptions(
        env=server.env(home),
        cwd=home,
        permission_mode="bypassPermissions",
        setting_sources=[],
    )


async def conversation(server: ModelServer, home: Path) -> None:
    async with sdk.ClaudeSDKClient(options(server, home)) as client:
        blocks, result = await turn(client, "Say hello")
        assert [b.text for b in blocks] == ["Good morning."]
        assert (result.subtype, result.result) == ("success", "Good morning.")

        blocks, result = await turn(client, "Use the shell")
        outputs = [b.content for b in blocks if isinstance(b, sdk.ToolResultBlock)]
        assert outputs == ["from-the-shell"]
        assert result.result == "It ran."

        blocks, result = await turn(client, "Now think")
        assert [b.thinking for b in blocks if isinstance(b, sdk.ThinkingBlock)] == ["Let me see."]
        assert result.result == "Seen."


def test_text_tools_thinking_and_history(tmp_path: Path) -> None:
    with ModelServer(SCRIPT) as server:
        asyncio.run(conversation(server, tmp_path))
        records = [r for r in server.requests if r.path == "/v1/messages"]
    assert [(r.scenario, r.round) for r in records] == [
        ("hello", 0), ("shell", 0), ("shell", 1), ("think", 0),
    ]  # fmt: skip
    assert [r.outcome for r in records] == ["completed"] * 4
    second = [m for m in records[1].history if m["role"] == "assistant"]
    assert second == [{"role": "assistant", "content": [{"type": "text", "text": "Good morning."}]}]
    assert records[1].prompt == "Use the shell"
    assert (tmp_path / "claude-config").is_dir()


async def stopped(server: ModelServer, home: Path) -> None:
    async with sdk.ClaudeSDKClient(options(server, home)) as client:
        await client.query("hang please")
        # The deltas are out only once the model call is under way: no race with the prompt.
        await asyncio.to_thread(server.wait_for, lambda r: r.deltas == 5, 60.0)
        await client.interrupt()
        _, result = await rest(client)
        assert result.subtype == "error_during_execution"
        await asyncio.to_thread(server.wait_for, lambda r: r.outcome == "client_disconnected", 30.0)
        _, result = await turn(client, "hello again")
        assert result.result == "Good morning."


def test_an_interrupt_is_seen_as_a_lost_client(tmp_path: Path) -> None:
    with ModelServer(SCRIPT) as server:
        asyncio.run(stopped(server, tmp_path))


async def retried(server: ModelServer, home: Path) -> None:
    async with sdk.ClaudeSDKClient(options(server, home)) as client:
        _, result = await turn(client, "busy?")
        assert result.result == "At last."


def test_an_error_is_retried(tmp_path: Path) -> None:
    with ModelServer(SCRIPT) as server:
        asyncio.run(retried(server, tmp_path))
        statuses = [r.status for r in server.requests if r.scenario == "busy"]
    assert statuses == [529, 200]


def test_the_users_own_account_and_proxy_do_not_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for service in ("BEDROCK", "FOUNDRY", "VERTEX"):
        monkeypatch.setenv(f"CLAUDE_CODE_USE_{service}", "1")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "not-for-tests")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there
    with ModelServer(SCRIPT) as server:
        asyncio.run(retried(server, tmp_path))
