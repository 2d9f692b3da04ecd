"""What the agent says about itself, beside its answer: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turncell import events as ev

__all__ = ["about_itself"]

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
