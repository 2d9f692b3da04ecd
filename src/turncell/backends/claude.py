"""The Claude agent: starts it, and knows what it keeps on disk.

This file and its siblings are the only ones that import the SDK; importing
them takes 1 to 3 s, so the runtime does it in a worker thread on first use.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import anyio
from claude_agent_sdk import ProcessError, ResultError

from turncell import procs
from turncell.backends import claude_transcript
from turncell.backends.base import Deliver, Kept, Launch, Processes
from turncell.backends.claude_connection import ClaudeConnection
from turncell.errors import AgentStartError
from turncell.guard import Guard
from turncell.outcome import Survivor

__all__ = ["ClaudeBackend"]

# A start that takes longer than this is given up (seconds); slow disks and big
# MCP set-ups were reported to take 80 s. A stop does not wait for it.
_START_LIMIT = 180.0


class ClaudeBackend:
    """Starts Claude agents, each watched by `guard` should this process be killed."""

    processes: Processes = procs

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def connect(self, launch: Launch, deliver: Deliver) -> ClaudeConnection:
        """Start an agent, resumed or afresh as the launch says.

        A session the agent will not start under its id is tried once the other
        way round: an id that exists cannot be started, one that is gone cannot be
        resumed. `launch.exact` forbids the second.
        """
        try:
            return await self._start(launch, deliver)
        except AgentStartError as error:
            # A refused resume is a result; an id that exists is refused on stderr only.
            refused_resume = isinstance(error.__cause__, ResultError)
            ended = isinstance(error.__cause__, ProcessError)
            if launch.exact or not ended or refused_resume != launch.opened:
                raise
            try:
                other = await self._start(replace(launch, opened=not launch.opened), deliver)
            except AgentStartError:
                raise error from None
            if launch.opened:
                other.history_missing = True
            return other

    async def _start(self, launch: Launch, deliver: Deliver) -> ClaudeConnection:
        connection = ClaudeConnection(launch, deliver, self._guard)
        try:
            with anyio.fail_after(_START_LIMIT):
                await connection.open()
        except TimeoutError:
            connection.process.let_go()
            raise AgentStartError(
                f"The agent was not ready after {_START_LIMIT:.0f} s, so it was closed. Run the "
                "cell again, or see %agent doctor."
            ) from None
        except BaseException:
            connection.process.let_go()
            raise
        return connection

    def kept(self, session_id: str) -> Kept | None:
        """What the agent has written down of a conversation."""
        return claude_transcript.kept(session_id)

    def length(self, session_id: str) -> int:
        """How long its record is."""
        return claude_transcript.length(session_id)

    def prompted_since(self, session_id: str, length: int, ours: Collection[str]) -> bool:
        """Whether somebody prompted it since it was so long."""
        return claude_transcript.prompted_since(session_id, length, ours)

    def users(self, session_id: str) -> Sequence[Survivor]:
        """The agents of others that have it open, in a terminal say."""
        return claude_transcript.users(session_id)

    def fork(self, session_id: str) -> str:
        """Copy a conversation as it is written down now; the id of the copy.

        Raises UsageError when nothing is written down.
        """
        return claude_transcript.fork(session_id)
