"""The line forms of `%agent`: what they print, and what they change."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable

import pytest
from places import AgentKernel

pytestmark = [pytest.mark.kernel, pytest.mark.cli]


def rows(kernel: AgentKernel, line: str) -> list[dict[str, str]]:
    """What a line form returns, as data."""
    return kernel.value(f"[{{k: str(v) for k, v in row.items()}} for row in get_ipython()."
                        f"run_line_magic('agent', {line!r})]")  # fmt: skip


def test_status_before_and_after_a_turn(new_kernel: Callable[..., AgentKernel]) -> None:
    kernel = new_kernel()
    fresh = kernel.run("%agent").text
    assert "session: main" in fresh
    assert "running: nothing" in fresh
    assert "Stop button" in fresh
    assert "kernel interrupt" in fresh
    assert kernel.run("%agent sessions").text == "(none)"
    assert kernel.run("%agent wait").text == "Nothing to wait for."
    assert kernel.run("%agent stop").text == "Nothing is running."
    assert kernel.run("%agent last").error.startswith("UsageError: No turn")
    assert kernel.place.processes(kernel.pid) == []  # none of that starts an agent


def test_status_tells_what_runs_and_what_ran(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.run("%%agent\nhi")
    kernel.run("%%agent --bg\ncount")
    text = kernel.run("%agent status").text
    assert re.search(r"running: turn \w{8} of session main", text)
    assert re.search(r"recent: main · completed · [\d.]+ s · 8 characters", text)
    kernel.run("%agent stop\n%agent wait")
    assert "recent: main · interrupted" in kernel.run("%agent status").text


def test_sessions_are_listed(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.run("%%agent -s listed -o r\nhi")
    kernel.run("%%agent -s listed --timeout 1 --no-raise-error\ncount")
    (row,) = [row for row in rows(kernel, "sessions") if row["name"] == "listed"]
    assert row["id"] == kernel.value("r.session_id")
    assert [row["turns"], row["left"], row["resumable"]] == ["2", "interrupted", "True"]
    assert "listed" in kernel.run("%agent sessions").text


def test_use_and_new_choose_the_current_session(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.run("%%agent -s chosen -o first\nsaid in chosen")
    try:
        assert kernel.run("%agent use chosen").text.startswith("The current session is chosen (")
        kernel.run("%%agent -o r\nmore")
        assert kernel.value("[r.session, r.session_id == first.session_id]") == ["chosen", True]
        said = kernel.run("%agent new").text
        kernel.run("%%agent -o r\nafresh")
        assert kernel.value("r.session_id") in said
        assert kernel.value("[r.session, r.session_id == first.session_id]") == ["chosen", False]
        assert "said in chosen" not in json.dumps(kernel.server.requests[-1].history)
        kernel.run("%agent new another")
        kernel.run("%%agent -o r\nhi")
        assert kernel.value("r.session") == "another"
    finally:
        kernel.run("%agent use main")


def test_resume_by_id_and_by_name(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.run("%%agent -s old -o old\nremember the heron")
    kernel.run("%agent new reborn")
    try:
        # One of this kernel is chosen by its id as by its name.
        said = kernel.run(f"%agent resume {kernel.value('old.session_id')}").text
        assert "current session is old" in said
        kernel.run("%agent use reborn")
        assert "current session is old" in kernel.run("%agent resume old").text
        # Said with a prompt, another name takes it up.
        kernel.run("%%agent -s reborn --resume old -o r\nwhat was it?")
        assert kernel.value("[r.session, r.session_id == old.session_id]") == ["reborn", True]
        assert "remember the heron" in json.dumps(kernel.server.requests[-1].history)
    finally:
        kernel.run("%agent use main")


def test_resume_goes_on_after_a_restart(new_kernel: Callable[..., AgentKernel]) -> None:
    before = new_kernel()
    before.run("%%agent -o r\nremember the heron")
    session_id = before.value("r.session_id")
    before.__exit__()
    after = new_kernel()
    after.run(f"%agent resume {session_id}")
    after.run("%%agent -o r\nwhat was it?")
    assert after.value("r.session_id") == session_id
    assert "remember the heron" in json.dumps(after.server.requests[-1].history)


def test_a_resume_that_fails_changes_nothing(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.run("%%agent -o good\nstay")
    nowhere = str(uuid.uuid4())
    failed = kernel.run(f"%%agent --resume {nowhere}\nhi")
    assert failed.reply["ename"] == "UsageError"
    assert "nor does the agent know it" in failed.error
    assert kernel.run("%%agent -o r\nand on").status == "ok"
    assert kernel.value("r.session_id == good.session_id")
    assert "echo: stay" in json.dumps(kernel.server.requests[-1].history)


def test_last_is_the_last_result(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    kernel.run("%%agent -o r\none for the record")
    cell = kernel.run("%agent last")
    assert "echo: one for the record" in cell.text
    assert kernel.run("found = %agent last").status == "ok"
    assert kernel.value("found is r")


def test_config_names_every_value_and_its_origin(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    table = {row["setting"]: row for row in rows(kernel, "config")}
    assert table["ack"] == {"setting": "ack", "value": "5.0", "origin": "default"}
    assert table["strategy"]["value"] == "interrupt_then_kill"
    assert {"model", "timeout", "cwd", "tools", "cli", "max_warm", "idle_limit"} <= set(table)


def test_doctor_tells_without_telling_the_secret(agent_kernel: AgentKernel) -> None:
    text = agent_kernel.run("%agent doctor").text
    key = agent_kernel.server.env()["ANTHROPIC_API_KEY"]
    assert key not in text
    assert "an API key in ANTHROPIC_API_KEY" in text
    assert agent_kernel.server.url in text
    assert re.search(r"agent +\d+\.\d+\.\d+ \(Claude Code\) at /", text)
    for what in ("python", "turncell", "ipykernel", "claude-agent-sdk", "settings directory"):
        assert re.search(rf"^{what} +\S", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("%agent frobnicate", "commands are"),
        ("%agent use", "%agent use NAME"),
        ("%agent use nobody", "There is no session nobody"),
        ("%agent wait nobody", "There is no session nobody"),
        ("%agent resume nothing", "There is no session nothing"),
        ("%agent show nothing", "There is no session nothing"),
        ("%agent new a/b", "is no session name"),
        ("%agent sessions --now", "unknown option --now"),
        ("%agent new x --carry", "which session?"),
        ("%agent new x --carry nothing", "There is no session nothing"),
        ("%agent last one two", "one name at most"),
        ("%agent fork", "Give the branch a name"),
        ("%agent fork a/b", "is no session name"),
        ("%agent timeline nothing", "There is no session nothing"),
        ("%agent 'open", "cannot be read"),
    ],
)
def test_words_it_does_not_know(agent_kernel: AgentKernel, line: str, hint: str) -> None:
    cell = agent_kernel.run(line)
    assert cell.reply["ename"] == "UsageError"
    assert hint in cell.error
    assert len(cell.reply["traceback"]) == 1
