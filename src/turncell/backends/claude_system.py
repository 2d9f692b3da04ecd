"""What the agent says about itself, beside its answer: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turncell import events as ev

__all__ = ["Tasks", "about_itself"]

_HOOK_ENDS = {"success": "done", "error": "failed"}


def about_itself(subtype: str, data: Mapping[str, Any], turn_id: str, at: float) -> list[ev.Event]:
    """The events of a system message that belongs to no answer; none for an unknown kind."""
    names: dict[str, Any] = {"turn_id": turn_id, "at": at}
    if subtype == "api_retry":
        return [
            ev.ApiRetry(
                **names,
                attempt=int(data.get("attempt") or 0),
                limit=int(data.get("max_retries") or 0),
                delay=float(data.get("retry_delay_ms") or 0) / 1000,
                status=data.get("error_status"),
            )
        ]
    if subtype == "compact_boundary":
        return [ev.Notice(**names, text="the agent shortened its memory of the conversation")]
    if subtype in ("hook_started", "hook_response"):
        ended = _HOOK_ENDS.get(str(data.get("outcome")), "cancelled")
        return [
            ev.HookReported(
                **names,
                hook_id=str(data.get("hook_id")),
                name=str(data.get("hook_name")),
                status="running" if subtype == "hook_started" else ended,
            )
        ]
    return []


class Tasks:
    """What the agent runs beside its answer, and of which turn each is."""

    def __init__(self) -> None:
        self._turns: dict[str, str] = {}
        self._agents: set[str] = set()  # sub-agents in the background

    def read(self, subtype: str, data: Mapping[str, Any], turn_id: str) -> None:
        """Take a system message in."""
        task_id, status = str(data.get("task_id")), (data.get("patch") or {}).get("status")
        if subtype == "task_started":
            self._turns[task_id] = turn_id
            if data.get("is_backgrounded") and data.get("task_type") == "local_agent":
                self._agents.add(task_id)
        elif subtype == "task_notification" or (
            subtype == "task_updated" and status not in (None, "running")
        ):
            self._turns.pop(task_id, None)
            self._agents.discard(task_id)

    def take(self, turn_id: str) -> list[str]:
        """The ids of those that this turn began and that still run; once."""
        mine = [task for task, turn in self._turns.items() if turn == turn_id]
        for task in mine:
            del self._turns[task]
        return mine

    @property
    def agents(self) -> bool:
        """Whether a sub-agent works in the background, whatever turn it is of."""
        return bool(self._agents)
