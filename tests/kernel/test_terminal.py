"""IPython in a terminal and in a pipe: the text as it comes, and Ctrl-C as the Stop."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pexpect
import pytest
from places import Place

pytestmark = [pytest.mark.kernel, pytest.mark.cli]

PLAIN = ["-m", "IPython", "--no-banner", "--no-confirm-exit", "--colors=NoColor"]
#: IPython where ipykernel cannot be imported.
WITHOUT_IPYKERNEL = (
    "import sys; sys.modules['ipykernel'] = None; import IPython; sys.exit(IPython.start_ipython())"
)
ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[=>()][0B]?)")


class Terminal:
    """A person at IPython: types cells, presses Ctrl-C, reads."""

    def __init__(self, place: Place, *arguments: str) -> None:
        self.place = place
        env = {**place.env, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.child = pexpect.spawn(
            sys.executable, list(arguments), env=env, cwd=place.cwd, encoding="utf-8",
            dimensions=(40, 120), timeout=40,
        )  # fmt: skip
        self.child.delaybeforesend = None
        self.number = 1
        self.prompted()

    def prompted(self) -> str:
        """Wait for the next prompt; what was shown before it, without escapes."""
        self.child.expect(rf"In \[{self.number}\]:")
        return ESCAPES.sub("", self.child.before).replace("\r", "\n")

    def type(self, *lines: str) -> None:
        """Type a cell and run it."""
        for line in lines:
            self.child.send(line + "\r")
        if len(lines) > 1:
            self.child.send("\x1b\r")  # Alt-Enter: run, wherever the cursor is
        self.number += 1

    def run(self, *lines: str) -> str:
        """Type a cell, run it, and return what it shows."""
        self.type(*lines)
        return self.prompted()

    def streaming(self, line: str = "%%agent -o r") -> None:
        """A turn in mid stream."""
        self.type(line, "count")
        self.child.expect("w3 ")

    def interrupt(self) -> None:
        self.child.sendintr()


@contextmanager
def terminal(place: Place, *arguments: str) -> Iterator[Terminal]:
    seat = Terminal(place, *(arguments or PLAIN))
    try:
        assert "Error" not in seat.run("%load_ext turncell")
        yield seat
        seat.child.send("exit()\r")
        seat.child.expect(pexpect.EOF)
    finally:
        seat.child.close(force=True)


def test_a_turn_streams_and_ctrl_c_stops_it(place: Place) -> None:
    with terminal(place) as seat:
        seat.streaming()
        seat.interrupt()
        shown = seat.prompted()
        assert "stopped by a kernel interrupt (interrupt" in shown
        assert "TurnStopped: the partial text is kept" in shown
        assert "Traceback" not in shown
        assert "KeyboardInterrupt" not in shown
        assert "interrupted warm" in seat.run("print(r.outcome, r.receipt.connection)")
        assert "echo: and on" in seat.run("%%agent", "and on")
        assert "w0 w1 w2 w3 " in json.dumps(place.server.requests[-1].history)
        assert "42" in seat.run("6 * 7")


def test_each_ctrl_c_is_the_next_rung(place: Place) -> None:
    with terminal(place) as seat:
        seat.streaming()
        (agent,) = place.named("claude")
        agent.send_signal(signal.SIGSTOP)
        for rung in ("interrupt", "sigint"):
            seat.interrupt()
            seat.child.expect(f"stopping: {rung}")
            time.sleep(0.5)  # sooner it would be the same press with a shaky finger
        seat.interrupt()
        shown = seat.prompted()
        assert "by force (kill" in shown
        assert "nothing left running" in shown
        assert not agent.is_running()
        assert "echo: and on" in seat.run("%%agent", "and on")


def test_it_works_where_ipykernel_is_missing(place: Place) -> None:
    with terminal(place, "-c", WITHOUT_IPYKERNEL, *PLAIN[2:]) as seat:
        seat.streaming()
        seat.interrupt()
        assert "TurnStopped" in seat.prompted()
        assert "echo: and on" in seat.run("%%agent", "and on")
        assert "terminal: Ctrl-C" in seat.run("%agent")
        assert "ModuleNotFoundError" in seat.run("import ipykernel")


def test_background_turns_and_leaving_in_mid_turn(place: Place) -> None:
    with terminal(place) as seat:
        seat.run("%%agent --bg -o r", "hello there")
        shown = seat.run("%agent wait") + seat.run("print(r.text)")
        assert "echo: hello there" in shown
        seat.run("%%agent --bg", "count")
        assert "Stopping 1 turn of" in seat.run("%agent stop")
        assert "TurnStopped" in seat.run("%agent wait")
        seat.run("%%agent --bg", "count on")
        place.server.wait_for(lambda request: "on" in request.prompt and request.deltas > 3, 30)
        seat.child.send("exit()\r")
        seat.child.expect(pexpect.EOF)
        place.wait_gone(seconds=5)


# Where nobody sits: a pipe, a log.

CELL = "get_ipython().run_cell_magic('agent', {line!r}, {prompt!r})"


def piped(place: Place, line: str, prompt: str) -> subprocess.Popen[str]:
    """IPython that runs one cell, with no terminal at either end."""
    code = "\n".join(["%load_ext turncell", CELL.format(line=line, prompt=prompt)])
    return subprocess.Popen(
        [sys.executable, *PLAIN, "-c", code], env=place.env, cwd=place.cwd, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip


def test_a_pipe_gets_plain_words(place: Place) -> None:
    with piped(place, "", "hello **there**") as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("starting")
    assert "echo: hello **there**" in lines
    assert lines[-1].startswith("completed · ")
    assert "\x1b" not in out + err
    assert "\r" not in out


def test_an_interrupted_pipe_is_a_stop(place: Place) -> None:
    with piped(place, "", "count") as process:
        request = place.server.wait_for(lambda request: request.deltas > 5, 30)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert request.scenario == "count"
    assert "w0 w1 w2 w3 w4 " in out
    assert "stopped by a kernel interrupt" in out
    assert "TurnStopped" in out + err
    assert "Traceback" not in out + err
    assert "\x1b" not in out + err
    assert process.returncode != 0
