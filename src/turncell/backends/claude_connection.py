"""One live Claude agent: `ClaudeSDKClient` on a process of ours.

This file and its siblings are the only ones that import the SDK; importing
them takes 1 to 3 s, so the runtime does it in a worker thread on first use.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from typing import Any

import anyio
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultError,
    StreamEvent,
)
from claude_agent_sdk._errors import MessageParseError

from turncell import events as ev
from turncell import procs
from turncell.backends.base import Ack, Deliver, Hangup, Launch, Prompt
from turncell.backends.claude_launch import advice_for, content_of, options_for
from turncell.backends.claude_process import ClaudeProcess
from turncell.backends.claude_tail import Tails
from turncell.backends.claude_tools import ToolRules
from turncell.backends.claude_wire import Wire
from turncell.errors import AgentStartError
from turncell.guard import Guard
from turncell.questions import Answer

__all__ = ["ClaudeConnection"]

# After the process has ended, how long (seconds) what it wrote may take to be
# read. Its children can hold the pipe open, so its end is no sign.
_LAST_WORDS = 0.3
# An agent that closed its output, which nobody can hear any more, may take so long
# (seconds) to leave before it counts as gone.
_MUTE = 2.0
# How long (seconds) an agent may take to say what its conversation cost so far.
_ANSWER = 2.0
# Seconds between two looks whether the guard is there.
_BEAT = 2.0


class ClaudeConnection:
    """One live agent CLI."""

    def __init__(self, launch: Launch, deliver: Deliver, guard: Guard) -> None:
        self.history_missing = False
        self._token = launch.token
        self._guard = guard
        self._deliver = deliver
        self._wire = Wire()
        self._opened = launch.opened
        self._tails = Tails(deliver, lambda: self._rules.turn_id)
        self._rules = ToolRules(self._wire, deliver, launch.granted)
        self._advice = advice_for(launch.settings, os.environ)
        self._hung_up = False
        self._tasks: list[asyncio.Task[Any]] = []
        options = options_for(launch)
        # Tools that need a permission are asked about over the control channel.
        spoken = replace(options, permission_prompt_tool_name="stdio")
        self.process = ClaudeProcess(spoken, launch.token, launch.settings.cli)
        # Flags go to the process; the client itself needs only what it answers.
        listening = ClaudeAgentOptions(
            can_use_tool=self._rules.may_use,
            hooks=self._rules.hooks(),
            verbatim_prompts=options.verbatim_prompts,
        )
        self._client = ClaudeSDKClient(listening, transport=self.process)

    @property
    def pid(self) -> int | None:
        """The CLI's pid; None once it has ended, for it may be another's by then."""
        return self.process.pid if self.process.is_ready() else None

    @property
    def alive(self) -> bool:
        """Whether it can take a prompt."""
        return self.process.is_ready() and not self._hung_up

    @property
    def works_behind(self) -> bool:
        """Whether a sub-agent works in the background."""
        return self._wire.tasks.agents

    async def open(self) -> None:
        """Connect; raises AgentStartError with the agent's last words."""
        self._guard.watch(self._token)
        connecting = asyncio.ensure_future(self._client.connect())
        try:
            while self.process.pid is None and not connecting.done():
                await asyncio.sleep(0.002)
            if self.process.pid is not None:
                await self._await_either(connecting)
            await connecting
        except (OSError, ResultError) as error:
            raise self._start_error(error) from error
        except Exception as error:  # noqa: BLE001 - the SDK raises bare Exceptions here
            if isinstance(error, AgentStartError) or not _is_sdk_error(error):
                raise
            raise self._start_error(error) from error
        finally:
            connecting.cancel()
        self._wire.cost_so_far = await self._spent() if self._opened else 0.0
        listening = asyncio.ensure_future(self._listen())
        self._tasks += [listening, asyncio.ensure_future(self._watch(listening))]

    async def _spent(self) -> float | None:
        """What this conversation cost so far (USD), by the agent's own count: what it carried
        over depends on how its last process ended. None when it does not say."""
        query: Any = self._client._query
        # Else it reads the transcripts of a week, for figures that nobody asked for.
        request = {"subtype": "get_usage", "skip_behaviors": True}
        try:
            with anyio.fail_after(_ANSWER):
                answer = await query._send_control_request(request)
            return float(answer["session"]["total_cost_usd"])
        except Exception as error:  # noqa: BLE001 - the SDK raises a bare Exception
            logging.getLogger("turncell").debug("the cost so far is not known: %r", error)
            return None

    async def _await_either(self, connecting: asyncio.Future[None]) -> None:
        """Until the agent answers or its process ends, which the SDK would not notice."""
        ended = asyncio.ensure_future(self.process.wait())
        stderr = asyncio.ensure_future(self.process.read_stderr())
        self._tasks += [ended, stderr]
        first: list[asyncio.Future[Any]] = [connecting, ended]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not connecting.done() or connecting.exception() is not None:
            await asyncio.wait([*first, stderr], timeout=_LAST_WORDS)
            if ended.done():
                raise self.process.refusal()

    def _start_error(self, error: BaseException) -> AgentStartError:
        if isinstance(error, ResultError):
            return AgentStartError(
                f"The agent could not resume: {error}.\n"
                "The session stays as it was; %agent sessions lists those of this notebook."
            )
        said = self.process.last_words or str(error)
        return AgentStartError(
            f"The agent could not start ({self.process.ending}): {said}\n{self._advice}"
        )

    async def send(self, prompt: Prompt) -> None:
        """Write the prompt, named by its uuid."""
        self._guard.watch(self._token)
        self._rules.begin(prompt)
        self._wire.sent(prompt.turn_id)

        async def one() -> AsyncIterator[dict[str, Any]]:
            yield {
                "type": "user",
                "uuid": prompt.turn_id,
                "message": {"role": "user", "content": content_of(prompt)},
                "parent_tool_use_id": None,
            }

        await self._client.query(one())

    async def interrupt(self) -> Ack:
        """Ask the running turn to stop and drop the prompts behind it."""
        query: Any = self._client._query
        request = {"subtype": "interrupt", "cancel_queued": True}
        try:
            answer = await query._send_control_request(request)
        except Exception as error:  # noqa: BLE001 - the SDK raises a bare Exception
            raise OSError(f"the interrupt was not taken: {error}") from error
        return Ack(tuple((answer or {}).get("cancelled") or ()))

    def refuse(self, turn_id: str) -> None:
        """Deny every further tool of this turn, and end what it runs in the background:
        the agent takes a turn of its own when such a task is killed under it."""
        # Not when it is refused again, by force: the end of a tool would send the agent on.
        tasks = self._wire.tasks.take(turn_id) if self._rules.refuse(turn_id) else ()
        for task_id in tasks:
            self._later(self._stop_task(task_id))

    def answer(self, question_id: str, answer: Answer) -> None:
        """Settle an open question."""
        self._rules.answer(question_id, answer)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(asyncio.ensure_future(work))

    async def _report_spent(self) -> None:
        """Say what the turn under way has used, after each of its model calls."""
        turn, before = self._wire.turn(), self._wire.cost_so_far
        cost = await self._spent()
        if (turn, before) == (self._wire.turn(), self._wire.cost_so_far):  # else it is over
            self._deliver(self._wire.spent(cost, time.monotonic()))

    async def _stop_task(self, task_id: str) -> None:
        try:
            await self._client.stop_task(task_id)
        except Exception as error:  # noqa: BLE001 - the SDK raises a bare Exception
            # Nothing is lost: its processes are swept, as those of any tool.
            logging.getLogger("turncell").debug("task %s was not stopped: %s", task_id, error)

    def hang_up(self) -> None:
        """Close the agent's stdin in the background."""
        self._hung_up = True
        self._later(self.process.end_input())

    async def aclose(self) -> None:
        """Let go of the SDK's tasks and of the pipes; bounded."""
        self._hung_up = True
        self._tails.close()
        for task in self._tasks:
            task.cancel()
        with anyio.move_on_after(1.0):
            await self._client.disconnect()
        await self.process.release()

    async def _listen(self) -> None:
        """Hand on every message until the agent closes its output."""
        while True:
            try:
                return await self._hand_on()
            except MessageParseError:
                continue  # one message of an unknown shape; the stream itself goes on
            except Exception as error:  # noqa: BLE001 - the SDK raises what ended the process
                if not _is_sdk_error(error):  # a fault of ours: nobody would read any more
                    logging.getLogger("turncell").exception("the agent could not be understood")
                    procs.terminate(self.pid)
                return  # `_watch` says so, with the exit code

    async def _hand_on(self) -> None:
        async for message in self._client.receive_messages():
            for event in self._wire.read(message, time.monotonic()):
                if isinstance(event, ev.AgentFinished):
                    self._rules.over(event.turn_id)
                self._deliver(event)
            self._tails.read(message)
            if isinstance(message, StreamEvent) and message.event.get("type") == "message_stop":
                self._later(self._report_spent())

    async def _watch(self, listening: asyncio.Task[None]) -> None:
        ended = asyncio.ensure_future(self.process.wait())
        self._tasks.append(ended)
        first: list[asyncio.Future[Any]] = [ended, listening]
        while not (ended.done() or listening.done()):
            self._guard.watch(self._token)  # a tool can have killed it
            await asyncio.wait(first, timeout=_BEAT, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([ended], timeout=_MUTE)
        if ended.done():
            await asyncio.wait([listening], timeout=_LAST_WORDS)
        else:  # it could work on, and nobody would know
            procs.terminate(self.pid)
        self._hung_up = True
        how = f"process ended ({self.process.ending})" if ended.done() else "closed its output"
        said = self.process.last_words
        self._deliver(Hangup(f"the agent {how}: {said}" if said else f"the agent {how}"))


def _is_sdk_error(error: Exception) -> bool:
    # The SDK's own errors, and the bare Exception of its control channel.
    module = type(error).__module__
    return type(error) is Exception or module.startswith("claude_agent_sdk")
