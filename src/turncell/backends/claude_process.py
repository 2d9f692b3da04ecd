"""The agent CLI as a process of ours: the SDK's transport, with five differences.

1. It lives in a session of its own from its first instruction, so that a kernel
   interrupt (SIGINT to the kernel's whole group) never reaches it.
2. On Linux it is told to die with the thread that started it (SIGTERM), so that a
   killed kernel leaves no agent that works and spends on.
3. It carries our token, and none of the marks of an agent session around us.
4. Bytes that are not UTF-8, chatter and broken lines are skipped; a
   line may be as long as memory allows.
5. Closing is instant. How long an end may take is decided by the stop ladder.

The SDK still builds the command line (a private method, checked by a test).
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, Process
from claude_agent_sdk import ClaudeAgentOptions, ProcessError, ResultError, Transport
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport

from turncell.backends.claude_launch import (
    agent_environment,
    check_directory,
    config_directory,
    find_cli,
    launcher,
)
from turncell.backends.claude_wire import LIFECYCLE
from turncell.errors import SettingError

__all__ = ["ClaudeProcess"]

# How long (seconds) the system may take to hand over the exit code of a dead process.
_REAPED = 0.3
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class ClaudeProcess(Transport):
    """The transport the SDK client speaks through."""

    def __init__(self, options: ClaudeAgentOptions, token: str, cli: str | None) -> None:
        self._options = options
        self._token = token
        self._cli = cli
        self._process: Process | None = None
        self._write_lock = anyio.Lock()
        self._stderr: deque[str] = deque(maxlen=40)
        self._refused: dict[str, Any] = {}  # the error result it may write before it ends

    @property
    def pid(self) -> int | None:
        """The agent's pid once it was started."""
        return self._process.pid if self._process else None

    @property
    def exit_code(self) -> int | None:
        """Its exit code (negative: a signal), None while it runs."""
        return self._process.returncode if self._process else None

    @property
    def ending(self) -> str:
        """How it ended, in two words."""
        code = self.exit_code
        if code is None:
            return "it still runs"
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    @property
    def last_words(self) -> str:
        """The last lines it wrote to stderr, at most 600 characters."""
        return " ".join(" ".join(self._stderr).split())[-600:]

    def refusal(self) -> ProcessError:
        """Why a process that ended before it was ready did so, as the SDK would say it."""
        if not self._refused:
            return ProcessError("it said nothing")
        said = self._refused.get("errors") or [self._refused.get("result") or "no reason given"]
        return ResultError("; ".join(map(str, said)), data=self._refused)

    async def connect(self) -> None:
        """Start the process. Raises SettingError when it cannot be started."""
        env = agent_environment({**os.environ, **self._options.env}, self._token)
        home = config_directory(env)
        cli = await anyio.to_thread.run_sync(find_cli, self._cli, env, abandon_on_cancel=True)
        await anyio.to_thread.run_sync(check_directory, home, abandon_on_cancel=True)
        builder = SubprocessCLITransport(prompt="", options=self._options)
        builder._cli_path = cli
        cwd = self._options.cwd
        if cwd is not None and not Path(cwd).is_dir():
            wrong = "is not a directory" if Path(cwd).exists() else "does not exist"
            raise SettingError(f"The agent cannot work in {cwd}: it {wrong}. Correct --cwd.")
        try:
            self._process = await anyio.open_process(
                [*launcher(), *builder._build_command()],
                stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=cwd, env=env, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise SettingError(
                f"The agent {cli} could not be started ({error.strerror})."
            ) from error

    async def write(self, data: str) -> None:
        """Write one line. Raises OSError when the process cannot take it."""
        async with self._write_lock:
            process = self._process
            if process is None or process.stdin is None or process.returncode is not None:
                raise BrokenPipeError("the agent process has ended")
            try:
                await process.stdin.send(data.encode())
            except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                raise BrokenPipeError("the agent process takes no input any more") from error

    async def end_input(self) -> None:
        """Close its stdin, even under a writer that is stuck: a full pipe must not
        keep the agent from being hung up on."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError, anyio.BrokenResourceError):
                await self._process.stdin.aclose()

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Every JSON object the process writes, until it closes its output."""
        return self._read_messages()

    async def _read_messages(self) -> AsyncIterator[dict[str, Any]]:
        if self._process is None or self._process.stdout is None:
            return
        async for line in _lines(self._process.stdout):
            frame = self._parse(line)
            if frame is not None:
                yield frame

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        try:
            frame = json.loads(line.decode("utf-8", "replace")) if line.startswith(b"{") else None
        except (ValueError, RecursionError):  # no JSON, or nested more deeply than anybody can read
            frame = None
        if not isinstance(frame, dict):
            if line.strip():
                logging.getLogger("turncell").debug("the agent wrote no frame: %r", line[:200])
            return None
        if frame.get("type") == "result" and frame.get("is_error"):
            self._refused = frame
        if frame.get("type") == LIFECYCLE:
            # The SDK drops this kind; as a system message it keeps its place in line.
            return {**frame, "type": "system", "subtype": LIFECYCLE}
        return frame

    async def read_stderr(self) -> None:
        """Drain stderr for ever, keeping its tail: a full pipe would block the agent."""
        if self._process is not None and self._process.stderr is not None:
            async for line in _lines(self._process.stderr):
                self._stderr.append(_COLOURS.sub("", line.decode("utf-8", "replace"))[:2000])

    async def wait(self) -> int:
        """Wait for the process to end and return its exit code."""
        assert self._process is not None
        return await self._process.wait()

    async def close(self) -> None:
        """Let go of its input and output. Never waits for the process.

        Its stderr is read on: the SDK closes what could not start, and its last
        words are wanted.
        """
        process = self._process
        for stream in (process.stdin, process.stdout) if process else ():
            if stream is not None:
                with suppress(OSError, anyio.BrokenResourceError):
                    await stream.aclose()

    async def release(self) -> None:
        """Let go of a process that has ended, or was given up; bounded."""
        if self._process is not None:
            with anyio.move_on_after(_REAPED):
                await self._process.wait()
            self.let_go()

    def let_go(self) -> None:
        """Kill the process if it runs, and close its pipes at once."""
        # Only asyncio's transport can close them whatever was not read or written, and
        # whoever else holds them; left open, it complains when the loop is long gone.
        inner = getattr(self._process, "_process", None)
        transport = getattr(inner, "_transport", None)
        if transport is not None:
            transport.close()

    def is_ready(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.returncode is None


async def _lines(stream: ByteReceiveStream) -> AsyncIterator[bytes]:
    """Whole lines, however they were cut into chunks; the last may lack its end."""
    pending: list[bytes] = []
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        async for chunk in stream:
            *whole, rest = chunk.split(b"\n")
            for line in whole:
                yield b"".join([*pending, line])
                pending.clear()
            if rest:
                pending.append(rest)
    if pending:
        yield b"".join(pending)
