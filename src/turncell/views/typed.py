"""A question in a terminal: its words, and the answer that a person types.

The waiting cell looks for a typed line between two looks at the turn, so a Ctrl-C stops the
turn while a question is open. What was typed before the question was there is thrown away: it
was meant for something else.
"""

from __future__ import annotations

import os
import select
import sys
from typing import TextIO

from turncell.plain import visible
from turncell.questions import Answer, Choice, Question, Verdict
from turncell.views.cards import asked_for, cut_note
from turncell.views.cleaning import clean
from turncell.views.words import question_call

__all__ = ["TypedAnswers", "question_words"]

# Whole words: who types "stop" does not mean the session.
_VERDICTS = {"o": Verdict.ONCE, "s": Verdict.SESSION, "d": Verdict.DENY}
_VERDICTS |= {"once": Verdict.ONCE, "session": Verdict.SESSION, "deny": Verdict.DENY}
_PERMISSION = "[o] allow once  [s] allow for the session ({scope})  [d] deny; then Enter: "


def question_words(question: Question) -> str:
    """What is asked, ready to be printed; ends where the answer is typed."""
    if question.choices:
        return _choice_words(question.choices[0])
    shown = [f"{b.text}\n{cut_note(b)}".rstrip() for b in asked_for(question)]
    head = f"May the agent use this? {question_call(question)}"
    return "\n".join([head, *shown, _PERMISSION.format(scope=visible(question.scope))])


def _choice_words(choice: Choice) -> str:
    offered = [
        f"  [{n}] {clean(o.label)}" + (f": {clean(o.description)}" if o.description else "")
        for n, o in enumerate(choice.options, 1)
    ]
    how = "numbers, like 1,3" if choice.several else "a number"
    last = f"{how}, or an answer in your own words, or nothing to leave it; then Enter: "
    return "\n".join([f"The agent asks: {clean(choice.text)}", *offered, last])


class TypedAnswers:
    """Reads answers from a terminal, on the thread that waits."""

    def __init__(self, stdin: TextIO | None = None) -> None:
        self._stdin = stdin
        self._id, self._typed = "", b""
        self._chosen: dict[str, str] = {}

    @property
    def possible(self) -> bool:
        """Whether there is a person at a terminal whose lines can be waited for."""
        stdin = self._stdin or sys.stdin
        return sys.platform != "win32" and stdin is not None and stdin.isatty()

    def take(self, question: Question) -> tuple[Answer | None, str]:
        """The answer that was typed, if one was, and words to print."""
        stdin = self._stdin or sys.stdin
        if question.question_id != self._id:
            self._id, self._chosen, self._typed = question.question_id, {}, b""
            _throw_away(stdin)
        if not select.select([stdin], [], [], 0)[0]:
            return None, ""
        # Not by `readline`, which would wait for the rest of a line that Ctrl-D sent off.
        piece = os.read(stdin.fileno(), 4096)
        self._typed += piece
        if not piece:  # the terminal is gone
            return Answer(Verdict.DENY), ""
        if not self._typed.endswith(b"\n"):
            return None, ""
        line, self._typed = self._typed.decode("utf-8", "replace").strip(), b""
        return self._choose(question, line) if question.choices else _verdict(line)

    def _choose(self, question: Question, line: str) -> tuple[Answer | None, str]:
        choices = question.choices
        if len(self._chosen) >= len(choices):
            return None, ""  # it is answered; the picture that says so is on its way
        if not line:
            return Answer(Verdict.DENY), ""
        choice = choices[len(self._chosen)]
        label = _label(choice, line)
        if label is None:
            return None, f"There is no such number. {_choice_words(choice)}"
        self._chosen[choice.text] = label
        if len(self._chosen) < len(choices):
            return None, _choice_words(choices[len(self._chosen)])
        return Answer(Verdict.ONCE, dict(self._chosen)), ""


def _verdict(line: str) -> tuple[Answer | None, str]:
    verdict = _VERDICTS.get(line.lower())
    return (Answer(verdict), "") if verdict else (None, "Type o, s or d; then Enter: ")


def _label(choice: Choice, line: str) -> str | None:
    """The label of what was typed, or the person's own words; None for a number too high."""
    numbers = line.replace(",", " ").split()
    if not all(number.isdecimal() for number in numbers):
        return line
    picked = list(dict.fromkeys(int(number) - 1 for number in numbers))
    if not picked:
        return None
    too_many = len(picked) > 1 and not choice.several
    if too_many or not all(0 <= at < len(choice.options) for at in picked):
        return None
    return ", ".join(choice.options[at].label for at in picked)


def _throw_away(stdin: TextIO) -> None:
    import termios  # only where there are terminals

    termios.tcflush(stdin.fileno(), termios.TCIFLUSH)
