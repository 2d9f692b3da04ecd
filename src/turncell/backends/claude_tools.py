"""What the agent asks us about its tools, and our answers.

A tool that needs a permission is asked about: a person answers it, or, where nobody can, the
setting `unattended`, with a line that says so. A question waits for as long as the person
does; what settles it besides is a stop, or the agent that takes it back. Once a turn is being
stopped, every further tool of it is refused.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import replace
from typing import Any

from claude_agent_sdk import HookMatcher, PermissionResultAllow, PermissionResultDeny
from claude_agent_sdk.types import PermissionRuleValue, PermissionUpdate

from turncell import events as ev
from turncell.backends.base import Deliver, Prompt
from turncell.backends.claude_outputs import shallow
from turncell.backends.claude_wire import Wire
from turncell.questions import Answer, Unattended, Verdict, choices_in, settled_as

__all__ = ["ToolRules"]

_EDITS = {"Edit", "MultiEdit", "NotebookEdit", "Write"}  # what the mode acceptEdits allows
_STOPPED = "The user stopped this turn."
_DENIED = "The user does not allow this."
_UNANSWERED = "The user did not answer. Go on without an answer, or ask in your text."


class ToolRules:
    """Answers for one connection, whose agent works on one prompt at a time. `granted` holds
    what was allowed "for the session" in this kernel; it outlives the agent."""

    def __init__(self, wire: Wire, deliver: Deliver, granted: set[str]) -> None:
        self._prompt = Prompt("", "")
        self._wire = wire
        self._deliver = deliver
        self._granted = granted
        self._refused = ""
        self._open: dict[str, asyncio.Future[Answer | None]] = {}  # None: the turn was stopped

    @property
    def turn_id(self) -> str:
        """The turn that the agent works on."""
        return self._prompt.turn_id

    def begin(self, prompt: Prompt) -> None:
        """A prompt is being handed over: what is asked from now on is asked by its turn."""
        self._prompt = prompt

    def refuse(self, turn_id: str) -> bool:
        """Deny every further tool of this turn, and what it asks now; whether that is new."""
        new, self._refused = self._refused != turn_id, turn_id
        self._wire.stopping(turn_id)
        for waiting in self._open.values():
            _settle(waiting, None)
        return new

    def over(self, turn_id: str) -> None:
        """The turn is over: nobody can see what is still asked, or is asked from now on (a
        sub-agent in the background may)."""
        if self._prompt.turn_id == turn_id:
            self._prompt = replace(self._prompt, asks=False)
            for waiting in self._open.values():
                _settle(waiting, Answer(Verdict.DENY))

    def answer(self, question_id: str, answer: Answer) -> None:
        """A person answered."""
        if question_id in self._open:
            _settle(self._open[question_id], answer)

    def hooks(self) -> Any:
        """The SDK's hooks: the one place that every tool passes, allowed or not."""
        return {"PreToolUse": [HookMatcher(hooks=[self._before_tool])]}

    async def _before_tool(self, data: Any, tool_id: str | None, _: Any) -> Any:
        if self._prompt.turn_id != self._refused:
            return {}
        decision = {"permissionDecision": "deny", "permissionDecisionReason": _STOPPED}
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}

    async def may_use(
        self, name: str, given: dict[str, Any], ctx: Any
    ) -> PermissionResultAllow | PermissionResultDeny:
        """The SDK's `can_use_tool`: a tool needs a permission that nobody gave yet."""
        wider, own = _wider(name, ctx.suggestions), bool(choices_in(name, given))
        scope = "" if own else ", ".join(map(_in_words, wider))
        if scope and scope in self._granted and self._refused != self._prompt.turn_id:
            return PermissionResultAllow(updated_permissions=wider)
        asked = ev.QuestionAsked(
            turn_id=self._prompt.turn_id, at=time.monotonic(), tool=name,
            question_id=self._new_id(ctx.tool_use_id), input=shallow(given), scope=scope,
        )  # fmt: skip
        self._deliver(asked)
        if not self._prompt.asks and self._refused != asked.turn_id:
            return self._unattended(asked)
        try:
            answer = await self._person(asked)
        except asyncio.CancelledError:  # the agent takes it back
            self._settled(asked, "cancelled")
            raise
        if answer is None:
            # With its interrupt: a mere denial would let the agent go on to the next model call
            # before it is asked to stop.
            return replace(self._deny(asked, "cancelled", _STOPPED), interrupt=True)
        if answer.verdict is Verdict.DENY or (own and not answer.chosen):
            return self._deny(asked, "denied", _UNANSWERED if own else _DENIED)
        self._settled(asked, *settled_as(answer))
        if own:
            return PermissionResultAllow(updated_input={**given, "answers": dict(answer.chosen)})
        if answer.verdict is not Verdict.SESSION:
            return PermissionResultAllow()
        self._granted.add(scope)
        return PermissionResultAllow(updated_permissions=wider)

    def _new_id(self, tool_id: str | None) -> str:
        # Nobody promises that there is one, or that it is asked about once.
        return tool_id if tool_id and tool_id not in self._open else uuid.uuid4().hex

    async def _person(self, asked: ev.QuestionAsked) -> Answer | None:
        if self._refused == asked.turn_id:
            return None
        waiting: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        self._open[asked.question_id] = waiting
        try:
            return await waiting
        finally:
            del self._open[asked.question_id]

    def _unattended(self, asked: ev.QuestionAsked) -> PermissionResultAllow | PermissionResultDeny:
        own = bool(choices_in(asked.tool, asked.input))
        if self._prompt.unattended is Unattended.ALLOW and not own:
            self._settled(asked, "allowed", "nobody can be asked here, and unattended is allow")
            return PermissionResultAllow()
        if own:
            return self._deny(asked, "denied", _UNANSWERED, "nobody can be asked here")
        edits = ", --permission-mode acceptEdits" if asked.tool in _EDITS else ""
        note = (
            f"{asked.tool} was denied: nobody can be asked here. To allow it, run the cell with "
            f"--tools {asked.tool}{edits} or --unattended allow."
        )
        return self._deny(asked, "denied", note, note)

    def _deny(
        self, asked: ev.QuestionAsked, answer: str, message: str, note: str = ""
    ) -> PermissionResultDeny:
        if answer == "denied":
            self._wire.denied(asked.question_id)
        self._settled(asked, answer, note)
        return PermissionResultDeny(message=message)

    def _settled(self, asked: ev.QuestionAsked, answer: str, note: str = "") -> None:
        self._deliver(
            ev.QuestionSettled(
                turn_id=asked.turn_id,
                at=time.monotonic(),
                question_id=asked.question_id,
                answer=answer,
                note=note,
            )  # fmt: skip
        )


def _settle(waiting: asyncio.Future[Answer | None], answer: Answer | None) -> None:
    if not waiting.done():  # the first answer counts
        waiting.set_result(answer)


def _wider(name: str, suggested: list[PermissionUpdate]) -> list[PermissionUpdate]:
    """What "for the session" allows: the rules that the agent suggests, else every use of the
    tool. Not its other suggestions, which allow more than was asked; and for this session
    alone, for it also suggests to write rules into the user's files."""
    rules = [
        replace(s, destination="session")
        for s in suggested
        if s.type == "addRules" and s.behavior == "allow" and s.rules
    ]
    everything = PermissionUpdate(
        "addRules", [PermissionRuleValue(name)], behavior="allow", destination="session"
    )
    return rules or [everything]


def _in_words(update: PermissionUpdate) -> str:
    return ", ".join(
        f"{rule.tool_name}({rule.rule_content})" if rule.rule_content else f"every {rule.tool_name}"
        for rule in update.rules or ()
    )
