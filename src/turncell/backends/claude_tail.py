"""The last lines of a command that still runs.

The agent says in no message what a command has printed so far, but it writes that to a file
(CLI 2.1.332: `<tmp>/claude-<uid>/<directory>/<session>/tasks/<task>.output`, from the first
line on, removed at the end), and names the task of a command that takes longer than a few
seconds. Nobody promises that file: where it is not there, the lines come with the result.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from claude_agent_sdk import SystemMessage

from turncell import events as ev
from turncell.backends.base import Deliver

__all__ = ["Tails"]

_LOOK = 1.0  # seconds between two looks
_KEPT = 1000  # bytes of the end that are shown


class Tails:
    """Watches the commands of one connection while they run; `turn` names the present turn."""

    def __init__(self, deliver: Deliver, turn: Callable[[], str]) -> None:
        self._deliver, self._turn = deliver, turn
        self._watching: dict[str, asyncio.Task[None]] = {}

    def read(self, message: Any) -> None:
        """Begin or end to watch a command, as this message of the agent says."""
        if not isinstance(message, SystemMessage):
            return
        data, task_id = message.data, str(message.data.get("task_id"))
        if message.subtype == "task_started" and data.get("task_type") == "local_bash":
            if not data.get("is_backgrounded") and data.get("tool_use_id"):
                session = str(data.get("session_id") or "*")
                watching = self._watch(task_id, session, str(data["tool_use_id"]), self._turn())
                self._watching[task_id] = asyncio.ensure_future(watching)
        elif message.subtype in ("task_notification", "task_updated"):
            self._end(task_id)

    def close(self) -> None:
        """Watch nothing any more."""
        for task_id in tuple(self._watching):
            self._end(task_id)

    def _end(self, task_id: str) -> None:
        watching = self._watching.pop(task_id, None)
        if watching is not None:
            watching.cancel()

    async def _watch(self, task_id: str, session: str, tool_id: str, turn_id: str) -> None:
        shown = ""
        while True:
            look = partial(_tail, task_id, session)
            tail = await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
            if tail and tail != shown:
                shown = tail
                self._deliver(
                    ev.ToolOutput(turn_id=turn_id, at=time.monotonic(), tool_id=tool_id, tail=tail)
                )
            await asyncio.sleep(_LOOK)


def _tail(task_id: str, session: str) -> str:
    """The end of what the command printed, "" where that cannot be seen."""
    chosen = os.environ.get("CLAUDE_CODE_TMPDIR")
    bases = [Path(chosen)] if chosen else [Path("/tmp"), Path(tempfile.gettempdir())]
    user = os.getuid() if hasattr(os, "getuid") else "*"
    pattern = f"claude-{user}/*/{session}/tasks/{task_id}.output"
    try:
        path = next((path for base in bases for path in base.glob(pattern)), None)
        if path is None:
            return ""
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _KEPT))
            text = file.read().decode("utf-8", "replace")
    except OSError:  # it is gone, or not ours to read
        return ""
    # The first line may be cut.
    return text if size <= _KEPT else text.partition("\n")[2] or text
