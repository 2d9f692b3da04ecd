"""Bad input and bad days: one or two lines say what happened and what to do, and it goes on."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from driver import Cell
from places import SCRIPT, AgentKernel

from turncell.modelserver import Cut, HttpError, Pause, Reply, Scenario, Script

pytestmark = [pytest.mark.kernel, pytest.mark.cli]


def refused(cell: Cell, name: str, *words: str) -> None:
    """The cell ended with one short readable error of this name, with these words in it."""
    assert cell.reply.get("ename") == name, cell.text
    (trace,) = cell.reply["traceback"]
    assert trace == f"{name}: {cell.reply['evalue']}"
    assert trace.count("\n") <= 1
    assert max(map(len, trace.splitlines())) < 330
    assert not {"Traceback", "\x1b", ".py", "claude_agent_sdk"} & set(trace.split())
    for word in words:
        assert word in trace


def goes_on(kernel: AgentKernel) -> None:
    """The next cell works."""
    kernel.server.script = SCRIPT
    cell = kernel.run("%%agent\nand on")
    assert cell.status == "ok", cell.error
    assert cell.text.startswith("echo: and on")


@contextmanager
def environment(kernel: AgentKernel, **variables: str) -> Iterator[None]:
    """The kernel with other variables in its environment for a while."""
    names = list(variables)
    kernel.run(f"import os; before = {{n: os.environ.get(n, '') for n in {names}}}")
    kernel.run(f"os.environ.update({variables})")
    try:
        yield
    finally:
        kernel.run("os.environ.update(before)")


# The words of a cell: nothing is run.


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--frobnicate", ["unknown option --frobnicate", "--help"]),
        ("--mod x", ["unknown option --mod", "--help"]),
        ("tell me", ["unexpected word tell", "lines below"]),
        ("-s 'open", ["cannot be read", "Correct the line"]),
        ("--timeout", ["--timeout", "expected one argument"]),
        ("--timeout soon", ["--timeout", "'soon' is not a number"]),
        ("--timeout -1", ["timeout", "seconds, 0 or more"]),
        ("--timeout nan", ["timeout", "seconds, 0 or more"]),
        ("--ack -3", ["ack", "seconds, from 0 to 3600"]),
        ("--max-turns 1.5", ["--max-turns", "'1.5' is not a whole number"]),
        ("--max-turns 0", ["max-turns", "1 or more"]),
        ("--max-budget 0", ["max-budget", "above 0"]),
        ("--strategy maybe", ["interrupt_then_kill", "Choose one"]),
        ("-o a.b", ["a.b is no variable name"]),
        ("-o class", ["class is no variable name"]),
        ("-s a/b", ["'a/b' is no session name", "use letters"]),
        ("--resume nonsense", ["There is no session nonsense"]),
        ("--in-use maybe", ["--in-use maybe is not one of refuse, wait, take"]),
        (f"--new --resume {uuid.uuid4()}", ["exclude each other"]),
        ("--fork other", ["cannot be branched", "Send it a prompt first"]),
        ("--fork a/b", ["'a/b' is no session name"]),
        ("--fork other --new", ["--new and --fork exclude each other"]),
        ("--var x", ["not there yet"]),
    ],
)
def test_words_it_cannot_use(agent_kernel: AgentKernel, line: str, words: list[str]) -> None:
    cell = agent_kernel.run(f"%%agent {line}\nhello")
    refused(cell, "UsageError", *words)
    assert cell.outputs[:-1] == []  # the error itself, and no dead button
    assert agent_kernel.server.requests == []


@pytest.mark.parametrize("body", ["", "\n\n", "  \n\t\n"], ids=["none", "lines", "blanks"])
def test_an_empty_prompt(agent_kernel: AgentKernel, body: str) -> None:
    cell = agent_kernel.run(f"%%agent\n{body}\n")
    assert "UsageError" in cell.text + cell.error  # without any line IPython itself says it
    assert "empty" in cell.text + cell.error
    assert agent_kernel.server.requests == []


def test_a_session_that_nobody_knows(agent_kernel: AgentKernel) -> None:
    agent_kernel.run("%%agent\nhi")
    refused(agent_kernel.run("%agent use nobody"), "UsageError", "no session nobody", "main")
    unknown = str(uuid.uuid4())
    cell = agent_kernel.run(f"%%agent --resume {unknown}\nhi")
    refused(cell, "UsageError", f"no session {unknown}, nor does the agent know it", "nearest")
    goes_on(agent_kernel)


@pytest.mark.parametrize(
    ("variable", "value"), [("TURNCELL_TIMEOUT", "soon"), ("TURNCELL_MAX_TURNS", "0")]
)
def test_a_bad_variable(agent_kernel: AgentKernel, variable: str, value: str) -> None:
    with environment(agent_kernel, **{variable: value}):
        refused(agent_kernel.run("%%agent\nhi"), "UsageError", f"{variable}={value}", "unset")
    goes_on(agent_kernel)


# What the agent is told to work with.


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--cwd /nowhere/at/all", ["/nowhere/at/all", "does not exist", "--cwd"]),
        (f"--cwd {__file__}", ["not a directory", "--cwd"]),
        ("--permission-mode sometimes", ["sometimes is not one of default, acceptEdits"]),
        ("--effort enormous", ["enormous is not one of low, medium"]),
        ("--settings mine", ["mine is not one of user, project, local"]),
    ],
)
def test_settings_the_agent_has_not(agent_kernel: AgentKernel, line: str, words: list[str]) -> None:
    refused(agent_kernel.run(f"%%agent {line}\nhi"), "TurnFailed", *words)
    assert agent_kernel.server.requests == []
    goes_on(agent_kernel)


def program(place: Path, text: str, mode: int = 0o755) -> str:
    path = place / f"agent-{uuid.uuid4().hex[:8]}"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


TOO_OLD = """#!/bin/sh
if [ "$1" = --version ]; then echo "1.0.9 (Claude Code)"; exit; fi
echo "error: unknown option '--input-format'" >&2
exit 1
"""
#: The right version, and then not the agent after all.
PRETENDS = """#!/bin/sh
if [ "$1" = --version ]; then echo "9.9.9 (Claude Code)"; exit; fi
{}
"""


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda home: str(home / "missing"), ["cannot be run", "TURNCELL_CLI"]),
        (lambda home: program(home, "x", 0o644), ["cannot be run", "TURNCELL_CLI"]),
        (lambda home: program(home, "no program\n"), ["does not run", "TURNCELL_CLI"]),
        (lambda home: sys.executable, ["is not the agent", "'Python 3", "TURNCELL_CLI"]),
        (lambda home: program(home, TOO_OLD), ["too old", "1.0.9", "or newer", "TURNCELL_CLI"]),
        (
            lambda home: program(home, PRETENDS.format("echo broken disk >&2; exit 3")),
            ["could not start", "exit code 3", "broken disk", "%agent doctor"],
        ),
        (
            lambda home: program(home, PRETENDS.format("exit 0")),
            ["could not start", "exit code 0", "said nothing", "%agent doctor"],
        ),
        (
            lambda home: program(home, PRETENDS.format("kill -9 $$")),
            ["could not start", "signal 9", "%agent doctor"],
        ),
    ],
    ids=["missing", "not executable", "text", "python", "old", "fails", "ends", "dies"],
)
def test_an_agent_that_is_none(
    agent_kernel: AgentKernel, make: Callable[[Path], str], words: list[str]
) -> None:
    kernel = agent_kernel
    with environment(kernel, TURNCELL_CLI=make(kernel.place.home)):
        refused(kernel.run("%%agent\nhi", 15), "TurnFailed", *words)
        if "could not start" not in words:
            assert words[0] in kernel.run("%agent doctor").text
    goes_on(kernel)


def test_a_start_that_never_ends_can_be_stopped(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    deaf = program(kernel.place.home, PRETENDS.format("exec tail -f /dev/null"))
    with environment(kernel, TURNCELL_CLI=deaf):
        cell = kernel.start("%%agent -o r\nhi")
        kernel.wait_for(lambda: kernel.place.named("tail"), 10)
        kernel.click(kernel.button("Stop"))
        refused(kernel.wait(cell, 8), "TurnStopped", "before it said anything")
    assert kernel.value("[str(r.outcome), r.receipt.survivors]") == ["interrupted", []]
    assert not kernel.place.named("tail")
    goes_on(kernel)


def test_a_settings_directory_that_cannot_be_written(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.run("%%agent -o before\nstay")
    with environment(kernel, CLAUDE_CONFIG_DIR=f"{kernel.place.home}/work/file/below"):
        (kernel.place.cwd / "file").touch()
        cell = kernel.run("%%agent -s elsewhere\nhi")
        refused(cell, "TurnFailed", "cannot keep conversations", "CLAUDE_CONFIG_DIR")
        assert "cannot keep conversations" in kernel.run("%agent doctor").text
    goes_on(kernel)


def test_no_credentials(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    with environment(kernel, ANTHROPIC_API_KEY="", ANTHROPIC_BASE_URL=""):
        cell = kernel.run("%%agent -s nobody\nhi")
        refused(cell, "TurnFailed", "Not logged in", "ANTHROPIC_API_KEY", "%agent doctor")
        assert "none found" in kernel.run("%agent doctor").text
    goes_on(kernel)


def test_a_server_that_is_not_there(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    with environment(kernel, ANTHROPIC_BASE_URL="http://127.0.0.1:9", CLAUDE_CODE_MAX_RETRIES="0"):
        cell = kernel.run("%%agent -s nowhere\nhi")
        refused(cell, "TurnFailed", "refused", "%agent doctor", "run the cell again")
    goes_on(kernel)


# What the API answers.


@pytest.fixture(scope="module")
def impatient(new_place: Callable[[], object]) -> Iterator[AgentKernel]:
    """A kernel whose agent tries a failed request once more, and then gives up."""
    with AgentKernel(new_place(), CLAUDE_CODE_MAX_RETRIES="1") as kernel:
        yield kernel


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, ["400 no such luck", "--new"]),
        (401, ["401 no such luck", "ANTHROPIC_API_KEY", "%agent doctor"]),
        (403, ["403 no such luck", "%agent doctor"]),
        (404, ["selected model", "--model NAME"]),
        (413, ["too large", "--new"]),
        (429, ["429", "no such luck", "Wait a little", "run the cell again"]),
        (500, ["500 no such luck", "run the cell again"]),
        (529, ["529 no such luck", "run the cell again"]),
    ],
)
def test_an_api_error(impatient: AgentKernel, status: int, words: list[str]) -> None:
    kernel = impatient
    kernel.server.script = Script(
        Scenario("bad", replies=[Reply(HttpError(status, "no such luck"))])
    )
    cell = kernel.run("%%agent -o r\nhi")
    refused(cell, "TurnFailed", *words)
    assert kernel.value("[str(r.outcome), r.text, r.receipt, r.cost_usd]") == [
        "failed", "", None, None,
    ]  # fmt: skip
    assert kernel.value("r.error") == cell.reply["evalue"]
    assert words[0] in cell.text  # and it is told in the saved output
    goes_on(kernel)


def test_a_model_that_does_not_exist(impatient: AgentKernel) -> None:
    kernel = impatient
    kernel.server.script = Script(
        Scenario("known", model="opus", replies=[Reply("hi")]),
        Scenario("unknown", replies=[Reply(HttpError(404, "model: claude-none-9"))]),
    )
    cell = kernel.run("%%agent -m claude-none-9\nhi")
    refused(cell, "TurnFailed", "claude-none-9", "--model NAME")
    goes_on(kernel)


@pytest.mark.parametrize("cut", [Cut(), HttpError(529, "no such luck")], ids=["cut", "error event"])
def test_an_answer_that_breaks_off_is_kept(impatient: AgentKernel, cut: object) -> None:
    kernel = impatient
    kernel.server.script = Script(Scenario("bad", replies=[Reply("As far as ", Pause(0.5), cut)]))
    cell = kernel.run("%%agent -o r\nhi")
    refused(cell, "TurnFailed", "run the cell again")
    assert cell.text.startswith("As far as")
    assert "text is partial" in cell.text
    assert kernel.value("str(r.outcome)") == "failed"
    assert kernel.value("r.text").startswith("As far as ")  # once for each try that was shown
    goes_on(kernel)


def test_an_answer_that_comes_after_all(impatient: AgentKernel) -> None:
    kernel = impatient
    busy = HttpError(529, times=1)
    kernel.server.script = Script(Scenario("busy", replies=[Reply(busy, "At last.")]))
    cell = kernel.run("%%agent -o r\nhi")
    assert cell.status == "ok"
    assert kernel.value("r.text") == "At last."
    assert "ApiRetry" in kernel.value("[type(event).__name__ for event in r.events]")


def test_retries_are_shown_and_a_time_limit_ends_them(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.server.script = Script(Scenario("busy", replies=[Reply(HttpError(529))]))
    cell = kernel.start("%%agent -o r --timeout 3\nhi")
    statuses = kernel.widgets
    kernel.wait_for(
        lambda: any("retrying 1/" in str(state.get("value")) for state in statuses.values()), 10
    )
    refused(kernel.wait(cell), "TurnStopped", "before it said anything")
    assert kernel.value("[str(r.outcome), str(r.reason)]") == ["interrupted", "timeout"]
    goes_on(kernel)
