"""Whatever a front end can do: faults of outputs and widgets, see docs/faults.md.

What the kernel sends is recorded once, and shown by front ends of several kinds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from driver import VIEW, Cell
from places import AgentKernel, Place

from turncell.modelserver import Echo, Reply, Scenario, Script, ToolUse, Words

pytestmark = [pytest.mark.kernel, pytest.mark.cli]

LOOK = ToolUse("Bash", {"command": "echo looked"})
SCRIPT = Script(
    Scenario("tour", when="tour", replies=[
        Reply("I look. ", LOOK), Reply(Words(60, pace=0.02), "The end of it."),
    ]),
    Scenario("alpha", when="alpha", replies=[Reply(Words(60, pace=0.02, word="a{i} "))]),
    Scenario("beta", when="beta", replies=[Reply(Words(20, pace=0.02, word="b{i} "))]),
    Scenario("make", when="make", replies=[Reply(ToolUse("Bash", {"command": "touch made"})),
                                           Reply("made")]),
    Scenario("count", when="count", replies=[Reply(Words(400, pace=0.05))]),
    Scenario("rest", replies=[Reply(Echo())]),
)  # fmt: skip
SHOWS = ("display_data", "update_display_data")
SENT = {*SHOWS, "stream", "execute_result", "error", "clear_output"}


class Recorder(AgentKernel):
    """A kernel that keeps what it sends, in order."""

    def __init__(self, place: Place) -> None:
        self.log: list[tuple[str, str, dict[str, Any]]] = []  # request, type, content
        super().__init__(place)

    def _handle(self, channel: str, message: dict[str, Any]) -> None:
        request = message["parent_header"].get("msg_id", "")
        if channel == "iopub":
            kept = json.loads(json.dumps(message["content"], default=str))
            self.log.append((request, message["msg_type"], kept))
        super()._handle(channel, message)


@pytest.fixture(scope="module")
def recorder(new_place: Callable[[], Place]) -> Iterator[Recorder]:
    with Recorder(new_place()) as kernel:
        kernel.server.script = SCRIPT
        yield kernel


@pytest.fixture(autouse=True)
def _tidy(recorder: Recorder) -> Iterator[None]:
    yield
    recorder.wait_for(recorder.clean, 20, "an orderly kernel")
    recorder.server.script = SCRIPT
    recorder.log.clear()


def shown(log: list[Any], cell: Cell, updates: str) -> list[list[str]]:
    """The plain text of every output of a cell, after each message, in a front end that
    applies updates of outputs, ignores them, or adds them below."""
    ids: list[str] = []
    texts: list[str] = []
    clear, states = False, []
    for request, kind, content in log:
        if request != cell.msg_id or kind not in SENT:
            continue
        said = content.get("text", content.get("data", {}).get("text/plain", ""))
        name = content.get("transient", {}).get("display_id", "")
        if kind == "clear_output":
            clear = True
        elif kind == "update_display_data" and updates == "applies":
            texts[ids.index(name)] = said
        elif kind != "error" and (kind != "update_display_data" or updates == "adds"):
            if clear:
                ids, texts, clear = [], [], False
            ids.append(name)
            texts.append(said)
        states.append(list(texts))
    return states


# OUT-G1: each text in its own cell.


def test_out_g1_back_to_back_after_a_stop(recorder: Recorder) -> None:
    kernel = recorder
    kernel.run("%%agent\nwarm up")
    for number in range(3):
        first = kernel.start(f"%%agent -o a --no-raise-error\nalpha {number}")
        second = kernel.start(f"%%agent -o b\nbeta {number}")
        kernel.wait_for(lambda first=first: "a9 " in first.text, 30, "the stream")
        kernel.click(kernel.button("Stop"))
        assert kernel.wait(second).status == "ok", second.error
        assert kernel.value("str(a.outcome)") == "interrupted"
        assert "a9 " in first.text and "stopped by you" in first.text and "b0 " not in first.text
        assert "b19" in second.text and "a0 " not in second.text and "stopped" not in second.text


def test_out_g1_a_tail_that_still_arrives_stays_in_its_cell(recorder: Recorder) -> None:
    kernel = recorder
    behind = kernel.run("%%agent -o a --bg\nalpha")
    other = kernel.start("%%agent -s beside -o b\nbeta")
    kernel.wait_for(lambda: "a3 " in behind.text, 30, "the stream")
    plain = kernel.start("import time\nfor i in range(20): print('mine', i); time.sleep(0.02)")
    kernel.wait(plain)
    kernel.wait_for(lambda: "over" in behind.text, 30, "the end")
    assert kernel.wait(other).status == "ok", other.error
    whole = {c: "".join(f"{c}{i} " for i in range(n)).strip() for c, n in (("a", 60), ("b", 20))}
    for cell, own, strange in ((behind, "a", "b1 "), (other, "b", "a1 ")):
        assert cell.text.count(whole[own]) == 1
        assert strange not in cell.text and "mine" not in cell.text
    assert plain.text == "".join(f"mine {i}\n" for i in range(20))
    assert kernel.run("%agent wait").status == "ok"


# OUT-G6: updates by id that are not applied.


@pytest.fixture(scope="module")
def tour(recorder: Recorder) -> tuple[list[Any], Cell]:
    """A turn with a tool, as it was sent."""
    recorder.server.script = SCRIPT
    cell = recorder.run("%%agent -o r --tools Bash\ntour", timeout=60)
    assert cell.status == "ok", cell.error
    return list(recorder.log), cell


@pytest.mark.parametrize("updates", ["applies", "ignores", "adds"])
def test_out_g6_the_end_is_complete_without_updates(tour: Any, updates: str) -> None:
    log, cell = tour
    sent = [kind for request, kind, _ in log if request == cell.msg_id]
    assert "update_display_data" in sent  # it could make a difference
    (text,) = shown(log, cell, updates)[-1]
    assert text.count("The end of it.") == 1 and text.count("I look.") == 1
    assert "".join(f"w{i} " for i in range(60)) in text
    assert "Bash echo looked · done" in text and "completed" in text


def test_out_g6_a_background_turn_can_be_shown_again(recorder: Recorder) -> None:
    kernel = recorder
    cell = kernel.run("%%agent --bg -o r --tools Bash\ntour")
    kernel.wait_for(lambda: "over" in cell.text, 30, "the end")
    kernel.run("%agent wait")
    seen = "\n".join(shown(kernel.log, cell, "ignores")[-1])
    assert "The end" not in seen  # a cell that has returned gets nothing but updates
    last = shown(kernel.log, cell, "adds")[-1]
    assert sum("completed" in text for text in last) == 1
    for line in ("%agent last", "%agent show"):
        again = kernel.run(line)
        (text,) = shown(kernel.log, again, "ignores")[-1]
        assert text.count("The end of it.") == 1 and "completed" in text


# WID-G5: a front end that gets the first state of widgets and no update of one.


def test_wid_g5_the_answer_needs_no_widget(tour: Any) -> None:
    log, cell = tour
    comms = json.dumps([content for _, kind, content in log if kind.startswith("comm_")])
    assert "Stop" in comms and "w1 " not in comms and "I look" not in comms
    lengths = [sum(map(len, texts)) for texts in shown(log, cell, "applies")[:-1]]
    assert len(set(lengths)) > 8  # it streamed


def first_states(log: list[Any]) -> dict[str, dict[str, Any]]:
    return {c["comm_id"]: c["data"]["state"] for _, kind, c in log if kind == "comm_open"}


def seen_in(states: dict[str, dict[str, Any]], model: str) -> list[dict[str, Any]]:
    """The states of a widget and all that it shows."""
    state = states[model]
    inner = [name.removeprefix("IPY_MODEL_") for name in state.get("children", ())]
    return [state, *(found for name in inner for found in seen_in(states, name))]


def test_wid_g5_a_question_is_whole_in_its_first_state(recorder: Recorder) -> None:
    kernel = recorder
    cell = kernel.start("%%agent -o r --permission-mode default\nmake")
    kernel.wait_for(lambda: kernel.button("Deny"), 30, "a question")
    states = first_states(kernel.log)
    bundles = [c["data"] for _, kind, c in kernel.log if kind in SHOWS]
    models = [bundle[VIEW]["model_id"] for bundle in bundles if VIEW in bundle]
    stop, question = (seen_in(states, model) for model in models)
    assert [state["description"] for state in stop if "description" in state][:1] == ["Stop"]
    labels = [s["description"] for s in question if s["_model_name"] == "ButtonModel"]
    kernel.click(kernel.button("Deny"))
    assert kernel.wait(cell).status == "ok"
    assert labels == ["Allow once", "Allow for the session", "Deny"]
    assert "May the agent use" in json.dumps(question) and "touch made" in str(question)
