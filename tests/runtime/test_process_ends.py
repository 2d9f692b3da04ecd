"""What becomes of the runtime when the Python process forks or ends."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]

SOURCE = str(Path(__file__).parents[2] / "src")

BEGIN = """
import os, sys, threading, time
from turncell import Session, errors, events, session
from turncell.testing import *

def said(turn):
    while not any(isinstance(e, events.TextDelta) for e in turn._events):
        time.sleep(0.005)
    return turn

SLOW = Play(Say("word " * 30, pace=0.05), when="slow")
FROZEN = Play("half ", Freeze(), when="freeze")
"""


def run(code: str) -> tuple[float, str]:
    """Run it in a Python of its own; the seconds since it printed `MARK`, what it printed."""
    process = subprocess.Popen(
        [sys.executable, "-W", "always::ResourceWarning", "-c",
         BEGIN + textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    marked, lines = 0.0, []
    assert process.stdout is not None and process.stderr is not None
    for line in process.stdout:
        if line.strip() == "MARK":
            marked = time.monotonic()
        lines.append(line)
    code_at_end = process.wait(30)
    took = time.monotonic() - marked
    errors = process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    assert (code_at_end, errors) == (0, ""), errors
    return took, "".join(lines)


def test_a_forked_child_has_a_runtime_of_its_own() -> None:
    _, out = run("""
        with scripted(SLOW, Play("parent")) as agent:
            s = Session()
            turn = said(s.start("slow"))
            pid = os.fork()
            if pid == 0:
                assert [t.name for t in threading.enumerate()] == ["MainThread"]
                s.stop(now=True)
                try:
                    turn.stop(now=True)
                except errors.RuntimeGone as error:
                    assert str(os.getppid()) in str(error)
                else:
                    raise AssertionError("it is no business of ours")
                s.close()
                session.book().close()
                session.book().close()
                assert not session.book().portal.running
                with scripted(Play("child")):
                    result = Session().start("hi").result(20)
                    again = s.start("hi").result(20)  # the name means the child's session now
                print(result.text, again.text, result.session_id == again.session_id, flush=True)
                sys.exit(0)  # with its atexit hooks, like a careless worker
            assert os.waitpid(pid, 0)[1] == 0
            result = turn.result(20)
            print(result.outcome, len(result.text), result.session_id == s.session_id)
            print(s.start("hi").result(20).text)
    """)
    assert out.splitlines() == ["child child True", "completed 150 True", "parent"]


@pytest.mark.parametrize("prompt", ["slow", "freeze"])
def test_the_interpreter_ends_under_a_running_turn(prompt: str) -> None:
    took, _ = run(f"""
        (keep := scripted(SLOW, FROZEN)).__enter__()
        said(Session().start({prompt!r}))
        print("MARK", flush=True)
    """)
    assert took < 3.5


def test_the_interpreter_ends_with_an_idle_agent() -> None:
    took, _ = run("""
        (keep := scripted(Play("done"))).__enter__()
        Session().start("hi").result(20)
        print("MARK", flush=True)
    """)
    assert took < 2.0


def test_the_interpreter_ends_under_a_stuck_view_and_a_waiting_thread() -> None:
    took, out = run("""
        class Stuck:
            def show(self, picture):
                threading.Event().wait()

        (keep := scripted(FROZEN)).__enter__()
        turn = said(Session().start("freeze", view=Stuck()))

        def wait():
            print(turn.result(raise_error=False).outcome, flush=True)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        print("MARK", flush=True)
        session.book().close()
        thread.join()
    """)
    assert took < 4.5
    assert out.split() == ["MARK", "killed"]
