"""What the agent asks us about its tools, and our answers.

Until a question can be put to a person, a tool that needs a permission is denied,
with a line that says how to allow it. Once a turn is being stopped, every further
tool of it is refused.
"""

from __future__ import annotations

import time
from typing import Any

from claude_agent_sdk import HookMatcher, PermissionResultDeny

from turncell import events as ev
from turncell.backends.base import Deliver
from turncell.backends.claude_wire import Wire

__all__ = ["ToolRules"]

_STOPPED = "The user stopped this turn."


class ToolRules:
    """Answers for one connection; `turn_id` is the turn that its agent works on."""

    def __init__(self, wire: Wire, deliver: Deliver) -> None:
        self.turn_id = ""
        self._wire = wire
        self._deliver = deliver
        self._refused = ""

    def refuse(self, turn_id: str) -> bool:
        """Deny every further tool of this turn; whether that is new."""
        new, self._refused = self._refused != turn_id, turn_id
        self._wire.stopping(turn_id)
        return new

    def hooks(self) -> Any:
        """The SDK's hooks: the one place that every tool passes, allowed or not."""
        return {"PreToolUse": [HookMatcher(hooks=[self._before_tool])]}

    async def _before_tool(self, data: Any, tool_id: str | None, _: Any) -> Any:
        if self.turn_id != self._refused:
            return {}
        decision = {"permissionDecision": "deny", "permissionDecisionReason": _STOPPED}
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}

    async def may_use(self, name: str, given: dict[str, Any], ctx: Any) -> PermissionResultDeny:
        """The SDK's `can_use_tool`: a tool needs a permission that nobody gave."""
        tool_id, turn_id, now = str(ctx.tool_use_id or ""), self.turn_id, time.monotonic()
        stopping = turn_id == self._refused
        self._wire.denied(tool_id)
        self._deliver(
            ev.QuestionAsked(turn_id=turn_id, at=now, question_id=tool_id, tool=name, input=given)
        )
        answer = "cancelled" if stopping else "denied"
        self._deliver(
            ev.QuestionSettled(turn_id=turn_id, at=now, question_id=tool_id, answer=answer)
        )
        if stopping:
            return PermissionResultDeny(message=_STOPPED)
        note = (
            f"{name} was denied: nobody can be asked here yet. To allow it, run the cell with "
            f"--tools {name} or with --permission-mode acceptEdits or bypassPermissions."
        )
        self._deliver(ev.Notice(turn_id=turn_id, at=now, text=note, level="warning"))
        return PermissionResultDeny(message=note)
