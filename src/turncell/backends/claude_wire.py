"""SDK messages to our events: a fold without I/O.

Theory of operation
    The agent says when it takes a prompt up (a `command_lifecycle` frame that the
    transport passes on as a system message) and names it in most messages. What
    has no name belongs to the prompt that was taken up last; after its terminal
    message nothing belongs to it any more. Agents too old to say either are
    matched by the prompt that was sent last.

    Deltas come by message id and block index. The whole message comes one block
    at a time, without an index, in the order of its blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from turncell import events as ev
from turncell.backends.base import NOBODY
from turncell.backends.claude_lists import TodoList
from turncell.backends.claude_outputs import change_of, output_of, shallow
from turncell.backends.claude_result import Tally, end_of, error_of, refused, usage_of
from turncell.backends.claude_system import Tasks, about_itself

__all__ = ["LIFECYCLE", "Wire"]

#: Subtype under which the transport passes `command_lifecycle` frames on.
LIFECYCLE = "command_lifecycle"
#: The capability of agents that send them.
_ANNOUNCES = "msg_lifecycle_v1"


class Wire:
    """Reads one connection's messages. `cost_so_far` is what the agent's running
    total stands at (USD), None when nobody knows."""

    def __init__(self, cost_so_far: float | None = None) -> None:
        self.cost_so_far = cost_so_far
        self._sent = ""
        self._current: str | None = None
        self._announces = False
        self._message_id = ""
        self._blocks: dict[str, str] = {}  # block key -> kind, of the message under way
        self._settled: set[str] = set()
        self._extra, self._stopping = 0, ""
        self._denied: set[str] = set()
        self._api_error: str | None = None
        # Which prompt was not put to the model, and why.
        self._refusal: tuple[str, str] | None = None
        self._todos = TodoList()
        self._tally = Tally()
        self.tasks = Tasks()

    def sent(self, turn_id: str) -> None:
        """A prompt is being handed over."""
        self._sent = turn_id

    def stopping(self, turn_id: str) -> None:
        """This turn was asked to stop: its failing tools were cancelled."""
        self._stopping = turn_id

    def denied(self, tool_id: str) -> None:
        """We did not allow this tool call."""
        self._denied.add(tool_id)

    def read(self, message: Any, at: float) -> list[ev.Event]:
        """Return the events of one SDK message read at `at` (monotonic seconds).

        A message nobody knows gives no events.
        """
        if isinstance(message, StreamEvent):
            return list(self._stream(message, at))
        if isinstance(message, AssistantMessage):
            return list(self._assistant(message, at))
        if isinstance(message, UserMessage):
            return list(self._user(message, at))
        if isinstance(message, ResultMessage):
            return list(self._result(message, at))
        if isinstance(message, SystemMessage):
            return list(self._system(message, at))
        return []

    def turn(self, message: Any = None) -> str:
        """Whose this message, or what the agent says now, is."""
        named = getattr(message, "user_message_uuids", None) or ()
        if self._current in named:
            return str(self._current)
        if named:
            return str(named[-1])
        origin = getattr(message, "origin", None)
        if origin is not None and origin["kind"] == "task-notification":
            return NOBODY  # a task that was left running has ended: the agent's own account
        if self._current is not None:
            return self._current
        return NOBODY if self._announces else self._sent

    # The stream: a preview.

    def _stream(self, message: StreamEvent, at: float) -> Iterator[ev.Event]:
        if message.parent_tool_use_id is not None:
            return
        event = message.event
        kind = event.get("type")
        if kind == "message_start":
            self._open_message(str(event["message"].get("id")))
            self._tally.begin(event["message"].get("usage"))
        elif kind == "content_block_start":
            block = event.get("content_block") or {}
            self._blocks[self._key(event)] = str(block.get("type"))
        elif kind == "content_block_delta":
            yield from self._delta(message, event, at)
        elif kind == "message_delta":
            self._tally.end(event.get("usage"))

    def _open_message(self, message_id: str) -> None:
        self._message_id = message_id
        self._blocks.clear()
        self._settled.clear()

    def spent(self, cost_so_far: float | None, at: float) -> ev.UsageReported:
        """What the turn under way has used, the agent's running total standing at this (USD)."""
        before, cost = self.cost_so_far, None
        if before is not None and cost_so_far is not None:
            cost = round(max(0.0, cost_so_far - before), 9) or None
        return ev.UsageReported(
            turn_id=self.turn(), at=at, cost_usd=cost, usage=self._tally.usage,
            final=False,
        )  # fmt: skip

    def _key(self, event: dict[str, Any]) -> str:
        return f"{self._message_id}:{event.get('index')}"

    def _delta(self, message: StreamEvent, event: dict[str, Any], at: float) -> Iterator[ev.Event]:
        delta, names = event.get("delta") or {}, {"turn_id": self.turn(message)}
        names["block"] = self._key(event)
        if delta.get("type") == "text_delta":
            yield ev.TextDelta(**names, at=at, text=str(delta.get("text", "")))
        elif delta.get("type") == "thinking_delta":
            yield ev.ThinkingDelta(**names, at=at, text=str(delta.get("thinking", "")))

    # Whole messages: the authority.

    def _assistant(self, message: AssistantMessage, at: float) -> Iterator[ev.Event]:
        if message.error is not None:
            self._api_error = message.error
            return  # an API error in the clothes of an answer; the result carries it too
        turn_id = self.turn(message)
        parent = message.parent_tool_use_id
        for block in message.content:
            if isinstance(block, ToolUseBlock):
                yield ev.ToolStarted(
                    turn_id=turn_id, at=at, tool_id=block.id, name=block.name,
                    input=shallow(block.input), parent=parent,
                )  # fmt: skip
            elif isinstance(block, TextBlock) and parent is None:
                key, _ = self._claim(message.message_id, "text")
                yield ev.TextSettled(turn_id=turn_id, at=at, text=block.text, block=key)
            elif isinstance(block, ThinkingBlock) and parent is None:
                key, streamed = self._claim(message.message_id, "thinking")
                if not streamed:
                    yield ev.ThinkingDelta(turn_id=turn_id, at=at, text=block.thinking, block=key)

    def _claim(self, message_id: str | None, kind: str) -> tuple[str, bool]:
        """The key of the streamed block that this whole block settles, or a new one."""
        if message_id == self._message_id:
            for key, streamed_kind in self._blocks.items():
                if streamed_kind == kind and key not in self._settled:
                    self._settled.add(key)
                    return key, True
        self._extra += 1
        return f"{message_id}:whole-{self._extra}", False

    def _user(self, message: UserMessage, at: float) -> Iterator[ev.Event]:
        if not isinstance(message.content, list):
            return
        turn_id, result = self.turn(), message.tool_use_result
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                yield ev.ToolEnded(
                    turn_id=turn_id, at=at, tool_id=block.tool_use_id,
                    status=self._status(block, turn_id),
                    output=output_of(block.content, result), change=change_of(result),
                )  # fmt: skip
        todos = self._todos.read(result) if message.parent_tool_use_id is None else None
        if todos is not None:
            yield ev.TodosChanged(turn_id=turn_id, at=at, todos=todos)

    def _status(self, block: ToolResultBlock, turn_id: str) -> str:
        if block.tool_use_id in self._denied:
            return "denied"
        if not block.is_error:
            return "done"
        return "cancelled" if turn_id == self._stopping else "failed"

    def _system(self, message: SystemMessage, at: float) -> Iterator[ev.Event]:
        data = message.data
        if message.subtype == LIFECYCLE:
            self._announces = True
            if data.get("state") == "started":
                self._current = str(data.get("command_uuid"))
        elif message.subtype == "init":
            self._announces |= _ANNOUNCES in (data.get("capabilities") or ())
            yield ev.SessionOpened(
                turn_id=self.turn(), at=at, session_id=str(data.get("session_id")),
                model=data.get("model"), cwd=data.get("cwd"),
                permission_mode=data.get("permissionMode"),
                agent_version=data.get("claude_code_version"),
                capabilities=tuple(data.get("capabilities") or ()),
            )  # fmt: skip
        elif message.subtype == "informational":
            yield from self._informed(data, at)
        else:
            self.tasks.read(message.subtype, data, self.turn())
            yield from about_itself(message.subtype, data, self.turn(), at)

    def _informed(self, data: dict[str, Any], at: float) -> Iterator[ev.Event]:
        said, outcome = str(data.get("content") or ""), data.get("prompt_submit_outcome")
        if isinstance(outcome, dict):  # the line that ends a prompt before a model call
            self._refusal = self.turn(), str(outcome.get("reason") or said or "no reason given")
        elif data.get("level") in ("warning", "error"):
            yield ev.Notice(turn_id=self.turn(), at=at, text=said, level=data["level"])

    def _result(self, message: ResultMessage, at: float) -> Iterator[ev.Event]:
        turn_id = self.turn(message)
        refusal = self._refusal[1] if self._refusal and self._refusal[0] == turn_id else None
        end = end_of(message, stopping=turn_id == self._stopping) if refusal is None else "error"
        usage, cost = usage_of(message.usage), self._turn_cost(message)
        if cost == 0:
            cost = None  # nothing was counted, which does not mean that it was free
        yield ev.UsageReported(
            turn_id=turn_id, at=at, cost_usd=cost, usage=usage, model_turns=message.num_turns
        )
        yield ev.AgentFinished(
            turn_id=turn_id, at=at, end=end, session_id=message.session_id,
            error=refused(refusal) or error_of(message, end, self._api_error),
        )  # fmt: skip
        self._api_error = None
        self._tally.clear()
        if turn_id == self._current:
            self._current = None

    def _turn_cost(self, message: ResultMessage) -> float | None:
        # The agent reports a running total, of its process and of what it carried over.
        before, self.cost_so_far = self.cost_so_far, message.total_cost_usd
        if before is None or self.cost_so_far is None:
            return None
        return round(max(0.0, self.cost_so_far - before), 9)
