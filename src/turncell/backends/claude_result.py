"""What the agent's terminal message makes of a turn: pure."""

from __future__ import annotations

from typing import Any

from claude_agent_sdk import ResultMessage

__all__ = ["Tally", "end_of", "error_of", "refused", "usage_of"]

#: What the agent's `terminal_reason` or `subtype` makes of a turn.
_ENDS = {
    "completed": "completed",
    "stop_hook_prevented": "completed",  # the user's hook let it end, after its answer
    "aborted_streaming": "aborted",
    "aborted_tools": "aborted",
    "max_turns": "max_turns",
    "error_max_turns": "max_turns",
    "budget_exceeded": "budget",
    "max_budget_usd": "budget",
    "error_max_budget_usd": "budget",
}
_KEPT = "The conversation is kept: run the cell again to go on."
_OTHERWISE = (
    "Another prompt may pass. If none does, the agent's record of the conversation is damaged: "
    "--new starts the session afresh, %agent new NAME --carry {} with what the journal has."
)
#: What to do about an API error, by the kind the agent gives it.
_ADVICE = {
    "authentication_failed": "Set ANTHROPIC_API_KEY, or start the agent's program in a "
    "terminal and type /login. %agent doctor says where it is, and which credentials are used.",
    "billing_error": "Put the account's billing right. " + _KEPT,
    "model_not_found": "Choose another with --model NAME or %config AgentMagics.model.",
    "rate_limit": "Wait a little. " + _KEPT,
    "server_error": "%agent doctor says which server is asked. " + _KEPT,
}


def end_of(message: ResultMessage, *, stopping: bool = False) -> str:
    """One word: completed, aborted, max_turns, budget or error. `stopping`: we asked for it."""
    # Without a word why ends a command of the agent's own; with this one and no answer, a turn
    # that was interrupted while a Stop hook of the user ran.
    silent = message.terminal_reason in (None, "") or (
        message.terminal_reason == "stop_hook_prevented" and not message.result
    )
    if stopping and silent and not message.is_error:
        return "aborted"
    end = _ENDS.get(message.terminal_reason or "") or _ENDS.get(message.subtype)
    if end in ("aborted", "max_turns", "budget"):
        return end
    finished = end == "completed" or (message.terminal_reason is None and not message.is_error)
    return "completed" if finished and not message.is_error else "error"


def error_of(message: ResultMessage, end: str, kind: str | None) -> str | None:
    """What went wrong, and on a line of its own what to do; None when nothing did.

    `kind` is the kind of the API error that the agent reported in this turn.
    """
    if end == "max_turns":
        return "the agent used up its turns (--max-turns)"
    if end == "budget":
        return "the agent used up its budget (--max-budget)"
    if end != "error":
        return None
    said = "; ".join(message.errors or ())
    if message.is_error:  # else the result is the answer
        said = message.result or said
    said = said or f"the agent ended early ({message.terminal_reason or message.subtype})"
    if kind is None:
        return said
    advice = _ADVICE.get(kind, _OTHERWISE)
    return f"{said}\n{advice.format(message.session_id)}"


def refused(why: str | None) -> str | None:
    """What went wrong where a hook, say, kept the prompt from the model."""
    if why is None:
        return None
    return (
        f"the prompt was refused before the model saw it: {why.strip()}\n"
        "Hooks come from the agent's settings files: --settings chooses which are read."
    )


def usage_of(usage: dict[str, Any] | None) -> dict[str, int] | None:
    """Token counts of this turn. All zero means that no model call was counted
    to its end (a stop does that), which is not the same as none was used."""
    names = (
        "input_tokens", "output_tokens",
        "cache_creation_input_tokens", "cache_read_input_tokens",
    )  # fmt: skip
    counts = {name: int((usage or {}).get(name) or 0) for name in names}
    return counts if any(counts.values()) else None


class Tally:
    """Counts the tokens of the model calls of one turn while it goes on."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._call: dict[str, int] = {}  # of the model call under way

    def begin(self, usage: dict[str, Any] | None) -> None:
        """A model call began; what it says of its output so far is said again at its end."""
        self._counts = self.usage or {}
        self._call = usage_of({**(usage or {}), "output_tokens": 0}) or {}

    def end(self, usage: dict[str, Any] | None) -> None:
        """A model call is over; what it says now holds for the whole of it."""
        self._call.update((n, count) for n, count in (usage_of(usage) or {}).items() if count)

    def clear(self) -> None:
        """The turn is over."""
        self._counts, self._call = {}, {}

    @property
    def usage(self) -> dict[str, int] | None:
        """What was counted, None before the first call."""
        names = {**self._counts, **self._call}
        return {n: self._counts.get(n, 0) + self._call.get(n, 0) for n in names} or None
