"""The agent's own list of what it has to do, from the calls of the tools that keep it: pure.

There are two kinds of such tools (CLI 2.1.332): `TodoWrite` is given the whole list each time,
`TaskCreate` and `TaskUpdate` change one entry, which the result of the first gives an id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["TodoList"]


class TodoList:
    """The list of one session as it is after each call."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[str, str]] = {}

    def read(self, result: Any) -> tuple[dict[str, str], ...] | None:
        """The entries after a call with this result (its structured form), each with `text`
        and `status` (pending, in_progress, completed); None where it changed nothing."""
        if not isinstance(result, Mapping):
            return None
        todos, task, changed = result.get("newTodos"), result.get("task"), result.get("taskId")
        if isinstance(todos, list):
            listed = [each for each in todos if isinstance(each, Mapping)]
            self._entries = {str(n): _entry(each, "content") for n, each in enumerate(listed)}
        elif isinstance(task, Mapping) and "subject" in task and "status" not in task:
            self._entries[str(task.get("id"))] = _entry(task, "subject")
        elif isinstance(change := result.get("statusChange"), Mapping) and changed is not None:
            self._change(str(changed), str(change.get("to")))
        else:
            return None
        return tuple(self._entries.values())

    def _change(self, task_id: str, status: str) -> None:
        entry = self._entries.pop(task_id, None) if status == "deleted" else None
        if entry is None and task_id in self._entries:
            self._entries[task_id] = {**self._entries[task_id], "status": status}


def _entry(data: Mapping[str, Any], text: str) -> dict[str, str]:
    return {"text": str(data.get(text, "")), "status": str(data.get("status", "pending"))}
