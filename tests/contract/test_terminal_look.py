"""A terminal of 80 columns, with and without colours: what passes fits, no colour is needed."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len
from screen import Script, Tty, whole_turn

from turncell import events as ev
from turncell.views.terminal import TerminalView

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]|\x1b\[[0-9;]*4[0-7]")
ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@pytest.fixture
def eighty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("COLUMNS", "80"), ("LINES", "24"), ("TERM", "xterm-256color")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def drawn() -> str:
    screen = Tty()
    view = TerminalView(screen)
    for picture in whole_turn():
        view.show(picture)
    return screen.getvalue()


@pytest.mark.parametrize("session", ["main", "\u4f1a\u8bdd" * 30, "\U0001f600" * 40])
def test_what_passes_fits_into_one_line(eighty: None, session: str) -> None:
    screen, script = Tty(), Script(session)
    view = TerminalView(screen)
    script.fold(ev.SessionOpened(session_id="s", model="a-model-with-a-rather-long-name"))
    call = {"command": "a long command " * 9}
    view.show(script.fold(ev.ToolStarted(tool_id="x", name="Bash", input=call)))
    passing = ESCAPE.sub("", screen.getvalue().split("\r")[-1])
    assert "running" in passing
    assert cell_len(passing) <= 79


def test_colours_say_nothing_alone(eighty: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with_colours = drawn()
    assert COLOUR.search(with_colours)
    monkeypatch.setenv("NO_COLOR", "1")
    without = drawn()
    assert not COLOUR.search(without)
    assert ESCAPE.sub("", without) == ESCAPE.sub("", with_colours)
    for word in ("warning: look out", "cancelled", "stopped by you"):
        assert word in without
