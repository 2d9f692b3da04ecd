"""What the model is told with the first prompt after a turn that did not end by itself.

A stop looks like an error to the model, and a killed agent has not written down what it was
just saying. Pure: from the last turn, and what the agent's own record lacks of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from turncell import events as ev
from turncell.outcome import Outcome, Reason, ToolCall, TurnResult

__all__ = ["MOST_TEXT", "carried", "note_for", "said_in_blocks", "was_heard"]

#: Characters of lost text that are told again: of more, the end.
MOST_TEXT = 16_000
_MOST_INPUT = 200

_BY: dict[Reason | None, str] = {
    Reason.USER: "by the user",
    Reason.KERNEL_INTERRUPT: "by the user, with a kernel interrupt",
    Reason.TIMEOUT: "by the time limit that it was given",
    Reason.SHUTDOWN: "because the notebook's kernel was shut down",
    Reason.API: "by the program that runs it",
}


def note_for(
    last: TurnResult,
    lacks: Iterable[str] = (),
    prompt: str | None = None,
    told: str | None = None,
) -> str | None:
    """The note about the `last` turn, None where nothing needs to be told.

    `lacks`: what the agent said in that turn and its own record does not have; `prompt`: the
    prompt of that turn, if that is missing, too, and with it what was `told` beside it.
    """
    lost = [text for text in lacks if text.strip()]
    what = _what_happened(last)
    if what is None and not lost and prompt is None:
        return None
    parts = ["[A note from turncell, which runs this conversation; the user's prompt follows it.]"]
    parts.append(what or "A part of the record of this conversation was damaged.")
    running = [_named(tool) for tool in last.tools if tool.status in (None, "cancelled")]
    if what is not None and running:
        parts.append(f"Running at that moment: {'; '.join(running)}.")
    if what is not None:
        parts.append("Steps may be half done: check their state before you rely on them.")
    if told is not None:
        parts.append(f"Missing from the record above, you had been told:\n\n{told}\n")
    if prompt is not None:
        parts.append(f"Missing from the record above, the user had asked:\n\n{_end_of([prompt])}\n")
    if lost:
        parts.append(f"Missing from the record above, you had said:\n\n{_end_of(lost)}")
    return "\n".join(parts)


def was_heard(last: TurnResult) -> bool:
    """Whether the agent took the turn's prompt up: else it knows nothing of it."""
    return any(isinstance(event, ev.SessionOpened) for event in last.events)


def said_in_blocks(events: Iterable[ev.Event]) -> list[str]:
    """The blocks of text that were said, whole ones and those that were cut off."""
    blocks: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, ev.TextSettled):
            blocks[event.block] = [event.text]
        elif isinstance(event, ev.TextDelta):
            blocks.setdefault(event.block, []).append(event.text)
    return ["".join(parts) for parts in blocks.values()]


def _what_happened(last: TurnResult) -> str | None:
    if last.outcome is Outcome.LOST:
        return (
            "Your last turn was cut off: your process, or the notebook's kernel, ended under it. "
            "That was no error of yours."
        )
    if last.outcome is Outcome.FAILED and _broken_off(last):
        return (
            "Your last turn was interrupted from outside, perhaps because another notebook took "
            "this conversation over. That was no error of yours."
        )
    if last.outcome not in (Outcome.INTERRUPTED, Outcome.KILLED):
        return None
    by = _BY.get(last.reason, "on request")
    how = ", and had to be ended by force" if last.outcome is Outcome.KILLED else ""
    return f"Your last turn was stopped on purpose {by}{how}. That was no error of yours."


def _broken_off(last: TurnResult) -> bool:
    return any(isinstance(e, ev.AgentFinished) and e.end == "aborted" for e in last.events)


def _named(tool: ToolCall) -> str:
    words = (str(tool.input[key]) for key in ("command", "file_path", "url") if key in tool.input)
    detail = next(words, "")
    cut = detail[:_MOST_INPUT] + "…" * (len(detail) > _MOST_INPUT)
    return f"{tool.name} ({cut})" if detail else tool.name


def carried(conversation: str) -> str:
    """The note that gives a new session what an earlier one said."""
    return (
        "[A note from turncell, which runs this conversation; the user's prompt follows it.]\n"
        "This goes on from an earlier conversation, whose own record is not at hand. What was "
        f"said in it, without the tools:\n\n{conversation}"
    )


def _end_of(texts: list[str]) -> str:
    text = "\n\n".join(texts)
    return text if len(text) <= MOST_TEXT else f"[…]{text[-MOST_TEXT:]}"
