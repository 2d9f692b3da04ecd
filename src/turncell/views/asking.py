"""A question in the cell: what is asked, and a button for each answer, as ipywidgets.

A click counts once; that a question is settled is said by the next picture, whoever settled
it. The agent's own questions come one after the other. Every button is tapped before it is
on screen, and its widget hears the click where no tap does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from turncell.questions import Answer, Choice, Question, Verdict
from turncell.views import frames, widgets
from turncell.views.base import Taps
from turncell.views.cleaning import clean
from turncell.views.words import question_line

__all__ = ["Asking", "OnAnswer", "QuestionPanel"]

# ipywidgets is untyped: `Any` marks that border.

#: Takes the id of a question and its answer.
OnAnswer = Callable[[str, Answer], None]

_SAVED = "(its buttons need ipywidgets and a live kernel; interrupt the kernel to stop the turn)"
_LABEL = 60  # characters of an answer on its button; the text above has all of it


class Asking(NamedTuple):
    """Where answers go, and what hears the clicks meanwhile."""

    on_answer: OnAnswer
    taps: Taps


class QuestionPanel:
    """The widgets of one question. `run` calls with the context of the cell."""

    def __init__(
        self,
        question: Question,
        on_answer: OnAnswer,
        taps: Taps,
        run: Callable[[Callable[[], None]], None],
    ) -> None:
        import ipywidgets

        self._question, self._on_answer, self._taps, self._run = question, on_answer, taps, run
        self._ipywidgets = ipywidgets
        self._at = 0  # which of the agent's own questions is on screen
        self._chosen: dict[str, str] = {}  # by their text
        self._picked: list[str] = []  # labels, where several may be taken
        self._made: list[Any] = []
        self._ids: dict[Any, str] = {}  # the comm of each button: a closed one has none
        self._over = False
        wrap = ipywidgets.Layout(flex_flow="row wrap", margin="0")
        # Whole as they are made: there are front ends that hear of no later change.
        self._text: Any = ipywidgets.HTML(self._fill())
        self._row: Any = ipywidgets.HBox(self._made, layout=wrap)
        self._box: Any = ipywidgets.VBox([self._text, self._row])

    def bundle(self) -> dict[str, Any]:
        """What displays it. Its plain text is what a notebook saved meanwhile shows."""
        return widgets.shown(self._box, f"{question_line(self._question)}\n{_SAVED}")

    def close(self) -> None:
        """Remove it from the screen and from the kernel, parts included."""
        self._over = True
        self._clear(self._made)
        widgets.close(self._box, self._row, self._text)

    def _show(self) -> None:
        """Show the next of the questions."""
        old = self._made
        self._text.value = self._fill()
        self._row.children = list(self._made)
        self._clear(old)
        if self._over:  # it was closed meanwhile, by the thread that draws
            self._clear(self._made)

    def _fill(self) -> str:
        """Make the buttons of what is to be answered now, the permission or one of the
        questions, and return the HTML that asks it."""
        self._made = []
        asked = self._question
        if asked.choices:
            return self._fill_choice(asked.choices[self._at])
        for verdict in Verdict:
            self._button(str(verdict).capitalize(), partial(self._say, Answer(verdict)))
        return frames.permission(asked)

    def _fill_choice(self, choice: Choice) -> str:
        for option in choice.options:
            self._button(option.label, partial(self._take, self._at, option.label))
        if choice.several:
            self._button("Done", partial(self._next, self._at), "primary")
        self._button("Do not answer", partial(self._say, Answer(Verdict.DENY)))
        return frames.choice(choice, self._at + 1, len(self._question.choices))

    def _button(self, label: str, on_click: Callable[[Any], None], style: str = "") -> None:
        layout = self._ipywidgets.Layout(width="auto", margin="2px 6px 2px 0")
        button = self._ipywidgets.Button(
            description=_short(label), tooltip=clean(label), button_style=style, layout=layout
        )
        button.on_click(on_click)
        self._ids[button] = button.model_id
        self._taps.watch(button.model_id, on_click)
        self._made.append(button)

    # A click can come late, when the next question is on screen: it says which it is for.

    def _take(self, at: int, label: str, _: Any) -> None:
        if at != self._at:
            return
        others = [other for other in self._picked if other != label]
        self._picked = others if len(others) < len(self._picked) else [*others, label]
        if self._question.choices[at].several:
            self._run(self._mark)
        else:
            self._next(at, _)

    def _mark(self) -> None:
        """Say which answers are taken, in words that need no colour."""
        options = self._question.choices[self._at].options
        for option, button in zip(options, self._made, strict=False):
            taken = "[x] " if option.label in self._picked else ""
            button.description = f"{taken}{_short(option.label)}"

    def _next(self, at: int, _: Any) -> None:
        if at != self._at or not self._picked:
            return
        choices = self._question.choices
        self._chosen[choices[at].text] = ", ".join(self._picked)
        self._picked = []
        if at + 1 < len(choices):
            self._at += 1
            self._run(self._show)
        else:
            self._say(Answer(Verdict.ONCE, dict(self._chosen)), _)

    def _say(self, answer: Answer, _: Any) -> None:
        if not self._over:
            self._over = True
            self._on_answer(self._question.question_id, answer)

    def _clear(self, buttons: list[Any]) -> None:
        for button in buttons:
            comm_id = self._ids.pop(button, None)
            if comm_id is None:
                continue  # the other thread was here
            self._taps.forget(comm_id)
            widgets.close(button)


def _short(label: str) -> str:
    words = clean(label)
    return words if len(words) <= _LABEL else f"{words[: _LABEL - 1]}…"
