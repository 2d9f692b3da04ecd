"""One suite over every view: whole pictures in, the complete answer out, nothing breaks it."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from screen import Script, Socket, Tty, on_screen, shell_of, whole_turn

from turncell import events as ev
from turncell.picture import Snapshot
from turncell.views import choose
from turncell.views.notebook import NotebookView
from turncell.views.plain import PlainView
from turncell.views.terminal import TerminalView

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Notebook:
    """A notebook view and what its cell shows."""

    def __init__(self, *, deaf: bool = False, **how: Any) -> None:
        self.socket, self.deaf = Socket(), deaf
        on_stop: Any = how.pop("on_stop", None)
        self.view = NotebookView(shell_of(self.socket), on_stop, **{"live": True, **how})

    def read(self) -> str:
        shown = on_screen(self.socket.messages, deaf=self.deaf)
        return "\n".join(bundle["text/plain"] for bundle in shown)

    def sent(self) -> int:
        return len(self.socket.messages)


class Stream:
    """A terminal or plain view and what it wrote."""

    def __init__(self, make: Callable[[Any], Any], stream: io.StringIO) -> None:
        self.stream, self.view = stream, make(stream)

    def read(self) -> str:
        return COLOURS.sub("", self.stream.getvalue())

    def sent(self) -> int:
        return len(self.stream.getvalue())


VIEWS: dict[str, Callable[[], Any]] = {
    "notebook": lambda: Notebook(on_stop=lambda: None),
    "no button": Notebook,
    "deaf front end": lambda: Notebook(deaf=True),
    "batch": lambda: Notebook(live=False),
    "background": lambda: Notebook(background=True, on_stop=lambda: None),
    "quiet background": lambda: Notebook(background=True, live=False),
    "terminal": lambda: Stream(TerminalView, Tty()),
    "no tty": lambda: Stream(TerminalView, io.StringIO()),
    "quiet terminal": lambda: Stream(lambda s: TerminalView(s, quiet=True), Tty()),
    "plain": lambda: Stream(PlainView, io.StringIO()),
    "quiet plain": lambda: Stream(lambda s: PlainView(s, quiet=True), io.StringIO()),
}


@pytest.fixture(params=VIEWS)
def stage(request: pytest.FixtureRequest) -> Any:
    """A view, opened, and its screen."""
    made = VIEWS[request.param]()
    made.view.open()
    return made


def test_the_end_says_everything(stage: Any) -> None:
    for picture in whole_turn():
        stage.view.show(picture)
    read = stage.read()
    for words in ("First **part**.", "And the *end*.", "Bash ls -l · done · 1.5 s"):
        assert read.count(words) == 1, words
    assert "Read /a/b.py · cancelled" in read
    assert "warning: look out" in read
    last = [line for line in read.splitlines() if "stopped by you (interrupt, 0.04 s)" in line]
    assert len(last) == 1
    for fact in ("partial", "kept warm", "nothing left running", "0.0123 USD", "main 01234567"):
        assert fact in last[0]


def test_each_picture_twice_changes_nothing(stage: Any) -> None:
    for picture in whole_turn("A long answer. " * 300):
        stage.view.show(picture)
        sent = stage.sent()
        stage.view.show(picture)
        stage.view.show(picture)
        assert stage.sent() == sent


def test_nothing_is_drawn_after_the_end(stage: Any) -> None:
    pictures = list(whole_turn())
    for picture in [*pictures, pictures[5], pictures[-1], pictures[0]]:
        stage.view.show(picture)
        if picture is pictures[-1]:
            read = stage.read()
    assert stage.read() == read


def test_the_last_picture_is_enough(stage: Any) -> None:
    stage.view.show(list(whole_turn())[-1])
    assert "First **part**." in stage.read()
    assert "stopped by you" in stage.read()


def test_from_another_thread(stage: Any) -> None:
    def draw() -> None:
        for picture in whole_turn():
            stage.view.show(picture)

    worker = threading.Thread(target=draw)
    worker.start()
    worker.join(20)
    assert "And the *end*." in stage.read()


def test_a_text_sent_again_is_whole(stage: Any) -> None:
    script = Script()
    for part in ("A broken try ", "that is long ", "and stops"):
        stage.view.show(script.fold(ev.TextDelta(text=part, block="b1")))
    stage.view.show(script.fold(ev.TextSettled(text="The answer in one.", block="b2")))
    stage.view.show(script.fold(ev.TextDelta(text="More text", block="b3")))
    stage.view.show(script.fold(ev.TextSettled(text="Other text.", block="b3")))
    stage.view.show(script.end())
    assert "The answer in one." in stage.read()
    assert "Other text." in stage.read()


def test_a_failure_shows_its_error_in_two_lines(stage: Any) -> None:
    script = Script()
    error = "API error 500: it broke\nsecond line\nthird line"
    stage.view.show(script.end(outcome="failed", error=error))
    read = stage.read()
    assert "error: API error 500: it broke\nsecond line" in read
    assert "third" not in read
    assert "failed" in read


BROKEN = {
    "lone surrogates": ("a\ud800b \udfff", "b \ufffd"),
    "surrogate pair": ("a\ud83d\ude00b", "a\U0001f600b"),
    "script": ("<script>alert(1)</script>", "<script>alert(1)</script>"),
    "dollars": ("$5 and $6", "$5 and $6"),
    "ansi": ("\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07 \x1b[2J", "red link"),
    "nul": ("a\x00b\x08\x07", "ab"),
    "bidi": ("a\u202eb\u2066c", "abc"),
    "returns": ("one\r\ntwo\rthree", "one\ntwo\nthree"),
    "markdown": ("``` **half `open [x](", "``` **half `open [x]("),
    "empty": ("", "completed"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("step", [1, 1000])
def test_broken_text(stage: Any, name: str, step: int) -> None:
    given, shown = BROKEN[name]
    script = Script("ses\x1b[31msion\ud800")
    for picture in script.say(given, step=step):
        stage.view.show(picture)
    odd: dict[str, Any] = {"a\ud800": [given, float("nan"), {1: object()}]}
    stage.view.show(script.fold(ev.ToolStarted(tool_id="x", name="Odd" + given, input=odd)))
    stage.view.show(script.fold(ev.ToolEnded(tool_id="x", status="failed", output=given)))
    stage.view.show(script.end(error=given))
    read = re.sub(r"\r\x1b\[2K", "", stage.read())  # the terminal's own status line
    assert shown in read
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", read)


def test_ten_megabytes(stage: Any) -> None:
    script = Script()
    text = "Some words to fill a line, and more.\n" * 280_000
    for picture in script.say(text, step=2_000_000):
        stage.view.show(picture)
    stage.view.show(script.end())
    assert text.strip() in stage.read()


def test_a_narrow_stream_is_written_to() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    for view in (PlainView(stream), TerminalView(stream)):
        for picture in whole_turn("caf\u00e9 \U0001f600"):
            view.show(picture)
    stream.seek(0)
    assert stream.read().count("caf? ?") == 2


def test_plain_has_no_cursor_control_and_the_terminal_ends_clean() -> None:
    plain, terminal = Stream(PlainView, io.StringIO()), Stream(TerminalView, Tty())
    for picture in whole_turn():
        plain.view.show(picture)
        terminal.view.show(picture)
    assert not re.search(r"[\x1b\r]", plain.read())
    assert "Ctrl-C stops the turn" in terminal.read()
    # What is left on the last line of the terminal is the final line, not a status.
    assert "Ctrl-C" not in terminal.read().rpartition("\x1b[2K")[2]


def pictures_of(shell: Any, **how: Any) -> Any:
    return choose(shell, None, **{"can_ask": True, "quiet": False, "background": False, **how})


def test_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(pictures_of(shell_of(Socket())), NotebookView)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert isinstance(pictures_of(None), PlainView)
    monkeypatch.setattr(sys, "stdout", Tty())
    assert isinstance(pictures_of(None), TerminalView)


def test_loading_the_views_imports_nothing_heavy() -> None:
    code = (
        "import sys, turncell.views.notebook, turncell.views.terminal, turncell.views.plain\n"
        "heavy = {'IPython', 'ipywidgets', 'rich', 'markdown_it', 'pygments'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_picture_is_not_changed() -> None:
    last: Snapshot = list(whole_turn("$5 \x1b[31m <b>"))[-1]
    stage = Notebook()
    stage.view.show(last)
    assert last.text.startswith("$5 \x1b[31m <b>")
