"""What an agent asks a person, and what the person answers: frozen values.

Two kinds: may it use a tool (`Question.choices` is empty), and which of a few answers the
person prefers (the agent's `AskUserQuestion`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

__all__ = [
    "Answer", "Choice", "Option", "Question", "Unattended", "Verdict", "choices_in", "settled_as",
]  # fmt: skip


class Verdict(str, Enum):
    """What a person says to a question."""

    ONCE = "allow once"
    SESSION = "allow for the session"
    DENY = "deny"

    def __str__(self) -> str:
        return self.value


class Unattended(str, Enum):
    """What a question gets where nobody can answer it."""

    DENY = "deny"
    ALLOW = "allow"  # permissions only; the agent's own questions stay unanswered

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person answered. `chosen` has the chosen label (several: joined by ", ") under
    the text of each of the agent's own questions."""

    verdict: Verdict
    chosen: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Option:
    """One answer that the agent offers."""

    label: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the agent's own questions. `several`: more than one option may be taken."""

    text: str
    options: tuple[Option, ...]
    several: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """A question and, once it is settled, its `answer`: allowed, answered, denied or
    cancelled, with a `note`. `scope` says what "for the session" would allow."""

    question_id: str
    tool: str
    input: dict[str, Any] = field(default_factory=dict)
    scope: str = ""
    answer: str | None = None
    note: str = ""

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What the agent wants to know; empty for a permission."""
        return choices_in(self.tool, self.input)


def settled_as(answer: Answer) -> tuple[str, str]:
    """The word and the note of the event that settles a question with this answer."""
    if answer.verdict is Verdict.DENY:
        return "denied", ""
    if answer.chosen:
        return "answered", "; ".join(answer.chosen.values())
    return "allowed", "for the session" if answer.verdict is Verdict.SESSION else ""


def choices_in(tool: str, given: Mapping[str, Any]) -> tuple[Choice, ...]:
    """The agent's own questions in the input of its tool, each text once (the answers are
    matched by it); what is malformed is left out."""
    asked = given.get("questions") if tool == "AskUserQuestion" else None
    read = (_choice(each) for each in asked) if isinstance(asked, (list, tuple)) else ()
    return tuple({choice.text: choice for choice in read if choice is not None}.values())


def _choice(data: Any) -> Choice | None:
    if not isinstance(data, Mapping) or not isinstance(data.get("question"), str):
        return None
    offered = data.get("options")
    listed = offered if isinstance(offered, (list, tuple)) else ()
    options = tuple(
        Option(str(each["label"]), str(each.get("description") or ""))
        for each in listed
        if isinstance(each, Mapping) and each.get("label")
    )
    return Choice(data["question"], options, data.get("multiSelect") is True) if options else None
