"""A question on screen: who can answer it, with which clicks or keys, and when it is too late."""

from __future__ import annotations

import importlib
import os
import pty
from collections.abc import Iterator
from typing import Any

import pytest
from screen import Script, Socket, Tty, noop, on_screen, shell_of

from turncell import events as ev
from turncell.picture import Snapshot
from turncell.questions import Answer, Question, Verdict
from turncell.views.asking import Asking
from turncell.views.notebook import NotebookView
from turncell.views.terminal import TerminalView
from turncell.views.typed import TypedAnswers, question_words

ONE = {"question": "Which colour?", "header": "c", "multiSelect": False,
       "options": [{"label": "Red", "description": "warm <b>"}, {"label": "Blue"}]}  # fmt: skip
SEVERAL = {"question": "Which fruits?", "header": "f", "multiSelect": True,
           "options": [{"label": "Apple"}, {"label": "Pear"}]}  # fmt: skip
BASH = {"tool": "Bash", "input": {"command": "rm -r <x>"}, "scope": "Bash(rm *)"}
OWN = {"tool": "AskUserQuestion", "input": {"questions": [ONE, SEVERAL]}}


class Taps:
    """Hears clicks as the tap of a blocked kernel does."""

    def __init__(self) -> None:
        self.ours: dict[str, Any] = {}

    def watch(self, comm_id: str, on_click: Any = None) -> None:
        self.ours[comm_id] = on_click

    def forget(self, comm_id: str) -> None:
        self.ours.pop(comm_id, None)


class Stage:
    """A notebook view with a question in it."""

    def __init__(self, **how: Any) -> None:
        self.answers: list[tuple[str, Answer]] = []
        self.socket, self.taps, self.script = Socket(), Taps(), Script()
        asking = Asking(lambda *pair: self.answers.append(pair), self.taps)
        shell = shell_of(self.socket)
        self.view = NotebookView(shell, noop, **{"live": True, "asking": asking, **how})
        self.view.open()

    def ask(self, question: dict[str, Any], question_id: str = "q") -> None:
        self.script.fold(ev.QuestionAsked(question_id=question_id, **question))
        self.view.show(self.script.at("waiting"))

    @property
    def buttons(self) -> dict[str, Any]:
        known = importlib.import_module("ipywidgets.widgets.widget")._instances
        return {known[comm].description: comm for comm in self.taps.ours}

    def click(self, label: str) -> None:
        comm = self.buttons[label]
        self.taps.ours[comm](comm)

    def settle(self, answer: str) -> None:
        self.script.fold(ev.QuestionSettled(question_id="q", answer=answer))
        self.view.show(self.script.at("running"))


@pytest.mark.parametrize("how", [{}, {"background": True}])
@pytest.mark.parametrize("verdict", Verdict)
def test_a_permission_has_three_buttons(verdict: Verdict, how: dict[str, Any]) -> None:
    stage = Stage(**how)
    assert stage.view.asks
    stage.ask(BASH)
    assert list(stage.buttons) == ["Allow once", "Allow for the session", "Deny"]
    stage.click(str(verdict).capitalize())
    stage.click(str(verdict).capitalize())
    assert stage.answers == [("q", Answer(verdict))]  # a double click is one answer
    stage.settle("allowed")
    assert stage.buttons == {}
    shown = str(on_screen(stage.socket.messages))
    assert ("may it use Bash rm -r <x> · allowed" in shown) or how


def test_a_widget_hears_the_click_where_no_tap_does() -> None:
    stage = Stage()
    stage.ask(BASH)
    known = importlib.import_module("ipywidgets.widgets.widget")._instances
    known[stage.buttons["Deny"]].click()
    assert stage.answers == [("q", Answer(Verdict.DENY))]


def test_the_agents_own_questions_come_one_after_the_other() -> None:
    stage = Stage()
    stage.ask(OWN)
    assert list(stage.buttons) == ["Red", "Blue", "Do not answer"]
    late = stage.buttons["Blue"]
    late_click = stage.taps.ours[late]
    stage.click("Red")
    late_click(late)  # the second half of a double click that comes late
    assert list(stage.buttons) == ["Apple", "Pear", "Done", "Do not answer"]
    stage.click("Done")  # nothing is chosen yet
    assert stage.answers == []
    stage.click("Apple")
    stage.click("Pear")
    stage.click("[x] Apple")
    stage.click("Done")
    chosen = {"Which colour?": "Red", "Which fruits?": "Pear"}
    assert stage.answers == [("q", Answer(Verdict.ONCE, chosen))]


def test_everything_that_is_allowed_can_be_seen(seat: Seat) -> None:
    command = "echo " + "a" * 2500 + "; rm -rf ~/important"
    path = "/data/" + "deep/" * 40 + ".bashrc"
    hidden = [
        {"tool": "Bash", "input": {"command": command}},
        {"tool": "Bash", "input": {"command": "ls", "dangerouslyDisableSandbox": True}},
        {"tool": "Edit", "input": {"file_path": path, "old_string": "a", "new_string": "b",
                                   "replace_all": True}},
        {"tool": "mcp__x", "input": {"todos": [{"content": "t"}], "target": "production"}},
        # A terminal takes the rest of the line for its title; a shell runs it.
        {"tool": "Bash", "input": {"command": "ls \x1b]; rm -rf ~"}},
        {"tool": "Bash", "input": {"command": "ls # \u202efr- mr ;"}},
        {"tool": "Bash", "input": {"command": "rm -rf /", "todos": [{"content": "tidy"}]}},
        {"tool": "mcp__patch", "input": {"old_string": "a", "new_string": "b", "content": "evil"}},
        {"tool": "Edit", "input": {"old_string": "a", "new_string": "b", "edits": ["evil"]}},
        {"tool": "mcp__run", "input": {"todos": [{"content": "tidy", "command": "rm -rf"}]}},
    ]  # fmt: skip
    for question, words in zip(
        hidden, ["rm -rf ~/important", "dangerouslyDisableSandbox", ".bashrc", "production",
                 "\\x1b]; rm -rf ~", "\\u202e", "rm -rf /", "evil", "evil", "rm -rf"],
        strict=True,
    ):  # fmt: skip
        stage = Stage()
        stage.ask(question)
        known = importlib.import_module("ipywidgets.widgets.widget")._instances.values()
        html = [w.value for w in known if "May the agent" in str(getattr(w, "value", ""))][-1]
        assert words in html
        stage.view.show(stage.script.end())
        assert words in question_words(Question("q", question["tool"], question["input"]))
    huge = question_words(Question("q", "Bash", {"command": "x" * 60_000}))
    assert "[10,000 more characters]" in huge


def test_a_question_needs_no_answer() -> None:
    stage = Stage()
    stage.ask(OWN)
    stage.click("Do not answer")
    assert stage.answers == [("q", Answer(Verdict.DENY))]


def test_the_end_takes_open_questions_away() -> None:
    widgets = importlib.import_module("ipywidgets.widgets.widget")
    before = set(widgets._instances)
    stage = Stage()
    stage.ask(BASH)
    stage.ask(OWN, "q2")
    stage.view.show(stage.script.end())
    assert stage.taps.ours == {}
    assert set(widgets._instances) == before
    (bundle,) = on_screen(stage.socket.messages)
    assert bundle["text/plain"].count("· cancelled") == 2


def test_nobody_is_asked_where_nothing_can_be_pressed() -> None:
    assert not Stage(live=False).view.asks
    assert not Stage(asking=None).view.asks
    assert not NotebookView(shell_of(Socket()), None, live=True).asks
    assert not TerminalView(Tty()).asks


# In a terminal.


class Seat:
    """A terminal with a person at it."""

    def __init__(self) -> None:
        self.keys, slave = pty.openpty()
        self.stdin = os.fdopen(slave)
        self.screen = Tty()
        self.answers: list[tuple[str, Answer]] = []
        self.view = TerminalView(
            self.screen, stdin=self.stdin, on_answer=lambda *pair: self.answers.append(pair)
        )
        self.script = Script()

    def ask(self, question: dict[str, Any]) -> None:
        self.script.fold(ev.QuestionAsked(question_id="q", **question))
        self.show(self.script.at("waiting"))
        self.view.listen()

    def show(self, picture: Snapshot) -> None:
        self.view.show(picture)

    def type(self, line: str) -> None:
        os.write(self.keys, f"{line}\n".encode())
        self.view.listen()


@pytest.fixture
def seat() -> Iterator[Seat]:
    made = Seat()
    yield made
    os.close(made.keys)
    made.stdin.close()


KEYS = [("o", Verdict.ONCE), ("s", Verdict.SESSION), ("d", Verdict.DENY)]


@pytest.mark.parametrize(("key", "verdict"), KEYS)
def test_a_key_answers_in_a_terminal(seat: Seat, key: str, verdict: Verdict) -> None:
    assert seat.view.asks
    os.write(seat.keys, b"d\n")  # typed before: meant for something else
    seat.ask(BASH)
    assert "May the agent use this?" in seat.screen.getvalue()
    assert "rm -r <x>" in seat.screen.getvalue()
    assert seat.answers == []
    for words in ("what?", "stop", "oh no", "sure, no"):
        seat.type(words)
    assert seat.answers == []
    seat.type(key)
    assert seat.answers == [("q", Answer(verdict))]
    seat.type("d")
    assert len(seat.answers) == 1


def test_a_tool_that_was_allowed_is_seen_to_end(seat: Seat) -> None:
    given = BASH["input"]
    seat.show(seat.script.fold(ev.ToolStarted(tool_id="q", name="Bash", input=given)))
    seat.ask(BASH)
    seat.type("o")
    seat.show(seat.script.fold(ev.QuestionSettled(question_id="q", answer="allowed")))
    seat.show(seat.script.fold(ev.ToolEnded(tool_id="q", status="done", output="")))
    assert "Bash rm -r <x> · done" in seat.screen.getvalue()


def test_numbers_and_words_answer_the_agents_questions(seat: Seat) -> None:
    seat.ask(OWN)
    seat.type("7")
    assert "no such number" in seat.screen.getvalue()
    seat.type("2")
    assert "Which fruits?" in seat.screen.getvalue()
    seat.type("\u00b2")  # a digit that is no number: his own words
    assert seat.answers[0][1].chosen["Which fruits?"] == "\u00b2"
    seat.answers.clear()
    seat.type("late")  # it is answered; nothing happens
    assert seat.answers == []


def test_words_answer_too(seat: Seat) -> None:
    seat.ask(OWN)
    seat.type(",")
    assert "no such number" in seat.screen.getvalue()
    seat.type("2")
    seat.type("none of these")
    chosen = {"Which colour?": "Blue", "Which fruits?": "none of these"}
    assert seat.answers == [("q", Answer(Verdict.ONCE, chosen))]


def test_several_numbers_where_several_may_be_taken() -> None:
    made = Seat()
    typed = TypedAnswers(made.stdin)
    question = Question("q", "AskUserQuestion", {"questions": [SEVERAL]})
    assert typed.take(question) == (None, "")
    os.write(made.keys, b"1, 2\n")
    assert typed.take(question) == (Answer(Verdict.ONCE, {"Which fruits?": "Apple, Pear"}), "")


def test_the_terminal_keeps_still_while_somebody_types(seat: Seat) -> None:
    seat.ask(BASH)
    before = seat.screen.getvalue()
    seat.show(seat.script.at("waiting", after=5.0))
    assert seat.screen.getvalue() == before
