"""Sessions in real kernels: found after a restart, branched, carried over, shown again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from driver import Cell
from places import AgentKernel, Place

pytestmark = [pytest.mark.kernel, pytest.mark.cli]

NewKernel = Callable[..., AgentKernel]


def notebook(place: Place, name: str) -> dict[str, str]:
    """The environment of a kernel of this notebook."""
    return {"JPY_SESSION_NAME": str(place.cwd / name)}


def blocks(kernel: AgentKernel) -> list[str]:
    """The texts of the last message that the model got, without what the agent itself puts
    before the first one of its process."""
    message = next(m for m in reversed(kernel.server.requests[-1].history) if m["role"] == "user")
    content = message["content"]
    texts = [content] if isinstance(content, str) else [block["text"] for block in content]
    return [text for text in texts if not text.startswith("<system-reminder>")]


def told_before(kernel: AgentKernel) -> str:
    return json.dumps(kernel.server.requests[-1].history)


def run(kernel: AgentKernel, code: str) -> Cell:
    cell = kernel.run(code)
    assert cell.status == "ok", cell.error
    return cell


def rows(kernel: AgentKernel, line: str) -> list[dict[str, Any]]:
    run(kernel, f"found = get_ipython().run_line_magic('agent', {line!r})")
    found: list[dict[str, Any]] = kernel.value("list(found)")
    return found


def test_a_new_kernel_offers_the_last_session_and_resumes_it(
    place: Place, new_kernel: NewKernel
) -> None:
    mine = notebook(place, "mine.ipynb")
    with AgentKernel(place, **mine) as first:
        assert "%agent resume" not in run(first, "%%agent\nremember the heron").text
        run(first, "%%agent -s plots\nremember the egret")
        session_id = rows(first, "sessions")[1]["id"]
    with AgentKernel(place, **notebook(place, "other.ipynb")) as other:
        assert "%agent resume" not in run(other, "%%agent\nhi").text
    kernel = new_kernel(**mine)
    assert [row["name"] for row in rows(kernel, "sessions")] == ["plots", "main"]
    fresh = run(kernel, "%%agent\nhi").text
    assert f"%agent resume goes on with plots ({session_id[:8]}" in fresh
    assert "warning" not in fresh
    assert "heron" not in told_before(kernel)
    assert "%agent resume" not in run(kernel, "%%agent\nhi again").text  # said once
    assert session_id in run(kernel, "%agent resume").text
    run(kernel, "%%agent -o r\nwhat was it?")
    assert kernel.value("[r.session, r.session_id]") == ["plots", session_id]
    assert "remember the egret" in told_before(kernel)
    assert session_id in run(kernel, "%agent resume").text  # there is no other to go on with
    assert len(rows(kernel, "sessions --all")) == len(rows(kernel, "sessions")) + 1


def test_it_is_found_by_name_id_and_beginning_from_elsewhere(
    place: Place, new_kernel: NewKernel
) -> None:
    with AgentKernel(place, **notebook(place, "a.ipynb")) as first:
        run(first, "%%agent -s plots -o r\nremember the heron")
        session_id = first.value("r.session_id")
    kernel = new_kernel(**notebook(place, "b.ipynb"))
    run(kernel, "import os; os.makedirs('deep/er'); os.chdir('deep/er')")
    for number, which in enumerate(("plots", session_id[:6], session_id)):
        run(kernel, f"%%agent -s s{number} --resume {which} -o r\nwhat was it?")
        assert kernel.value("r.session_id") == session_id
        assert "remember the heron" in told_before(kernel)
    assert "There is no session s9. The nearest: s2 (" in kernel.run("%agent resume s9").error


def test_a_branch_leaves_its_parent_alone(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    run(kernel, "%%agent -s trunk -o trunk\nremember the heron")
    run(kernel, "%%agent -s trunk --fork twig -o twig\nin the twig")
    assert "remember the heron" in told_before(kernel)
    assert kernel.value("[twig.session, twig.session_id != trunk.session_id]") == ["twig", True]
    run(kernel, "%%agent -s trunk -o r\nin the trunk")
    assert kernel.value("r.session_id == trunk.session_id")
    assert "in the twig" not in told_before(kernel)
    run(kernel, "%%agent -s twig -o r\nmore")
    assert "in the trunk" not in told_before(kernel)
    assert kernel.value("r.session_id == twig.session_id")
    assert "There is a session twig already" in kernel.run("%%agent --fork twig\nx").error
    try:
        run(kernel, "%agent use trunk")
        assert "branches from trunk" in run(kernel, "%agent fork bough").text
        run(kernel, "%%agent -o r\nagain")
        assert kernel.value("r.session") == "bough"
    finally:
        run(kernel, "%agent use main")


def test_the_model_is_told_of_a_stop_once_and_only_when_wanted(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    stop = "%%agent -s told --timeout 1 --no-raise-error\ncount"
    run(kernel, "%%agent -s told\nhi")
    run(kernel, stop)
    assert (
        "    Your last turn was stopped on purpose by the time limit" in run(kernel, "%agent").text
    )
    run(kernel, "%%agent -s told -o r\nand now")
    note, prompt = blocks(kernel)[-2:]  # the agent joins messages that were not answered
    assert prompt == "and now"
    assert "stopped on purpose by the time limit" in note
    assert kernel.value("r.told") == note
    assert "on purpose" not in run(kernel, "%agent").text
    run(kernel, "%%agent -s told -o r\nand then")
    assert blocks(kernel) == ["and then"]
    run(kernel, stop)
    run(kernel, "%%agent -s told --no-tell -o r\nquietly")
    assert blocks(kernel)[-2:] == ["[Request interrupted by user]\n", "quietly"]
    assert kernel.value("r.told") is None


def test_a_transcript_that_is_gone_is_said_and_carried_over(
    place: Place, new_kernel: NewKernel
) -> None:
    with AgentKernel(place) as first:
        run(first, "%%agent -s lost -o r\nremember the heron")
        session_id = first.value("r.session_id")
    (transcript,) = place.home.glob(f"claude-config/projects/*/{session_id}.jsonl")
    transcript.unlink()
    kernel = new_kernel()
    failed = kernel.run("%agent resume lost")
    assert failed.reply["ename"] == "UsageError"
    assert "is gone" in failed.error
    assert f"%agent new NAME --carry {session_id}" in failed.error
    run(kernel, f"%agent new found --carry {session_id}")
    run(kernel, "%%agent -o r\nwhat was it?")
    note, prompt = blocks(kernel)
    assert prompt == "what was it?"
    assert "User: remember the heron\n\nYou: echo: remember the heron" in note
    assert kernel.value("[r.session, r.told]") == ["found", note]
    run(kernel, "%%agent\nmore")
    assert blocks(kernel) == ["more"]


def test_turns_are_shown_again(place: Place, new_kernel: NewKernel) -> None:
    with AgentKernel(place) as first:
        run(first, "%%agent -o r\nremember the heron")
        run(first, "%%agent -s other --timeout 1 --no-raise-error\ncount")
        turn_id = first.value("r.turn_id")
    kernel = new_kernel()
    last = run(kernel, "%agent last")
    assert "stopped by the time limit" in last.text or "time limit" in last.text
    assert "w0 w1" in last.text
    for which in (turn_id, turn_id[:8], "main"):
        shown = run(kernel, f"%agent show {which}")
        assert "echo: remember the heron" in shown.text
        assert "application/vnd.turncell.turn+json" in shown.outputs[-1]["data"]
    assert [row["outcome"] for row in rows(kernel, "log")] == ["interrupted", "completed"]
    assert rows(kernel, "log")[1]["prompt"] == "remember the heron"


def test_a_running_turn_is_shown_so_far(agent_kernel: AgentKernel) -> None:
    kernel = agent_kernel
    cell = kernel.start("%%agent --bg\ncount")
    kernel.wait_for(lambda: "w8" in cell.text, 30)
    shown = run(kernel, "%agent show").text
    assert "still running" in shown
    assert "w0 w1 w2 w3" in shown
    run(kernel, "%agent stop")
    kernel.run("%agent wait")


def test_a_damaged_entry_takes_no_other_along(place: Place, new_kernel: NewKernel) -> None:
    with AgentKernel(place) as first:
        run(first, "%%agent -s good\nhi")
        run(first, "%%agent -s bad -o r\nhi")
        session_id = first.value("r.session_id")
    (entry,) = place.home.glob(f"state/turncell/sessions/{session_id}.json")
    entry.write_text(entry.read_text()[:40])
    kernel = new_kernel()
    listed = run(kernel, "%agent sessions").text
    assert "good" in listed
    assert f"%agent resume {session_id} finds it" in listed
    assert session_id in run(kernel, f"%agent resume {session_id}").text
