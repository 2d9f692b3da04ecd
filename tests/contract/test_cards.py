"""What the cards of tool calls, the lists and the folds of a turn show."""

from __future__ import annotations

import os
import re
from html import unescape
from typing import Any

import pytest
from screen import Script, on_screen, shown

from turncell import events as ev
from turncell.outcome import ToolCall
from turncell.picture import Snapshot, Todo
from turncell.views.cards import blocks, diff
from turncell.views.words import question_line, status_line, tool_line


def words(html: str) -> str:
    return unescape(re.sub("<[^>]*>", "", html))


def kinds(tool: ToolCall) -> list[str]:
    return [block.kind for block in blocks(tool)]


def test_each_kind_of_call_shows_what_matters() -> None:
    assert kinds(ToolCall("1", "Bash", {"command": "ls"}, "done", output="a")) == [
        "command",
        "output",
    ]
    edit = ToolCall("1", "Edit", {"file_path": "f", "old_string": "a", "new_string": "b"}, "done")
    assert [tuple(block) for block in blocks(edit)] == [("diff", "@@ -1 +1 @@\n-a\n+b", 0, False)]
    write = ToolCall("1", "Write", {"file_path": "f", "content": "x\ny\n"})
    assert blocks(write)[0].text == "+x\n+y"
    real = ToolCall("1", "Write", {"content": "x"}, "done", change="@@ -1,1 +1,1 @@\n-old\n+x")
    assert blocks(real)[0].text == "@@ -1,1 +1,1 @@\n-old\n+x"
    todos = [{"content": "one", "status": "completed"}, {"content": "two", "status": "in_progress"}]
    assert blocks(ToolCall("1", "TodoWrite", {"todos": todos}))[0].text == "[x] one\n[>] two"
    (other,) = blocks(ToolCall("1", "Other", {"a": 1, "b": "x" * 9000}))
    assert len(other.text) == 2000 and other.text.startswith('{\n "a": 1,\n "b": "xxx')
    assert blocks(ToolCall("1", "Other")) == []


ODD = [{"todos": "x"}, {"todos": [1]}, {"edits": [1]}, {"old_string": 1, "new_string": None}]


@pytest.mark.parametrize("odd", ODD)
def test_odd_inputs_are_shown_as_they_are(odd: dict[str, Any]) -> None:
    assert all(block.text for block in blocks(ToolCall("1", "Edit", odd)))


def test_a_command_shows_its_end_and_a_file_its_beginning() -> None:
    output = "".join(f"line {n}\n" for n in range(2000))
    command = blocks(ToolCall("1", "Bash", {"command": "x"}, "done", output=output))[-1]
    assert command.text.endswith("line 1999") and command.tail and command.left > 10_000
    read = blocks(ToolCall("1", "Read", {"file_path": "x"}, "done", output=output))[-1]
    assert read.text.startswith("line 0\n") and not read.tail


def test_a_path_in_the_working_directory_is_short() -> None:
    here = os.path.join(os.getcwd(), "a", "b.py")
    assert tool_line(ToolCall("1", "Read", {"file_path": here}, "done")) == "Read a/b.py · done"


def test_a_diff_of_long_texts_takes_no_time() -> None:
    old = "".join(f"{n}\n" for n in range(30_000))
    assert len(diff(old, old.upper())) == 60_000


def ended(script: Script, **facts: Any) -> dict[str, Any]:
    (bundle,) = on_screen(shown([script.end(**facts)]).messages)
    return bundle


def call(script: Script, tool_id: str, status: str = "done", **how: Any) -> None:
    output = how.pop("output", "")
    how = {"name": "Bash", "input": {"command": f"run {tool_id}"}, **how}
    script.fold(ev.ToolStarted(tool_id=tool_id, **how))
    if status:
        script.fold(ev.ToolEnded(tool_id=tool_id, status=status, output=output))


def test_the_whole_output_is_one_click_away() -> None:
    script = Script()
    call(script, "a", output="first\n" + "x" * 9000)
    html = ended(script)["text/html"]
    assert html.count("the whole output") == 1
    assert html.index("the whole output") < html.index("first\n")
    for n in range(30):
        call(script, f"big{n}", output="y" * 60_000)
    html = ended(script)["text/html"]
    assert "is in the result" in html  # the notebook stays small enough to be saved
    assert len(html) < 900_000


def test_the_calls_of_a_sub_agent_stand_in_its_card() -> None:
    script = Script()
    task = {"description": "Count", "prompt": "count"}
    script.fold(ev.ToolStarted(tool_id="t", name="Task", input=task))
    call(script, "in1", parent="t")
    call(script, "in2", status="failed", parent="t")
    script.fold(ev.ToolEnded(tool_id="t", status="done", output="Seven."))
    bundle = ended(script)
    task_card = bundle["text/html"].index("Task</b> Count · done")
    assert task_card < bundle["text/html"].index("run in1") < bundle["text/html"].index("Seven.")
    assert "\n  Bash run in1 · done" in bundle["text/plain"]
    assert "failed" in words(bundle["text/html"])


def test_many_steps_are_folded_while_they_come() -> None:
    script, pictures = Script(), []
    for n in range(60):
        script.fold(ev.ThinkingDelta(text="hm", block=f"t{n}"))
        call(script, f"c{n}")
        pictures.append(script.at())
    socket = shown(pictures)
    outputs = on_screen(socket.messages)[1:]
    assert len(outputs) <= 40  # a front end shows no more than 50
    lines = "\n".join(out["text/plain"] for out in outputs).split("\n")
    told = [line.partition(" · ")[0] for line in lines if line.startswith("Bash")]
    assert told == [f"Bash run c{n}" for n in range(60)]
    assert socket.size < 450_000


def test_thinking_can_be_unfolded_live_and_after() -> None:
    script = Script()
    pictures = [script.fold(ev.ThinkingDelta(text="secret plan", block="t"))]
    assert "secret plan" not in str(on_screen(shown(pictures).messages)[1:])
    pictures.append(script.fold(ev.TextDelta(text="Answer", block="b")))
    assert "secret plan" in on_screen(shown(pictures).messages)[1]["text/html"]
    assert "secret plan" in ended(script)["text/html"]


def test_a_question_leaves_a_line() -> None:
    script = Script()
    ask = {"question_id": "q", "tool": "Bash", "input": {"command": "rm <x>"}, "scope": "Bash(rm)"}
    script.fold(ev.QuestionAsked(**ask))
    open_one = script.at("waiting")
    assert [q.question_id for q in open_one.questions] == ["q"]
    assert question_line(open_one.questions[0]).endswith("waiting for an answer")
    script.fold(ev.QuestionSettled(question_id="q", answer="denied", note="not today"))
    bundle = ended(script)
    for text in (bundle["text/plain"], words(bundle["text/html"])):
        assert "asked: may it use Bash rm <x> · denied (not today)" in text
    script = Script()
    script.fold(ev.QuestionAsked(**ask))
    assert "rm <x> · cancelled" in ended(script)["text/plain"]


def test_the_agents_list_has_one_place() -> None:
    script = Script()
    entries = [{"text": "Write <it>", "status": "in_progress"}, {"text": "T", "status": "pending"}]
    script.fold(ev.TodosChanged(todos=tuple(entries)))
    pictures = [script.at(), *script.say("Some text. " * 9)]
    entries[0] = {"text": "Write <it>", "status": "completed"}
    pictures.append(script.fold(ev.TodosChanged(todos=tuple(entries))))
    _status, todos, text = on_screen(shown(pictures).messages)
    assert todos["text/plain"] == "[x] Write <it>\n[ ] T"
    assert "<li>[x] Write &lt;it&gt;</li>" in todos["text/html"]
    bundle = ended(script)
    assert "[x] Write <it>\n[ ] T" in bundle["text/plain"]
    assert bundle["text/html"].index("[x] Write") < bundle["text/html"].index("Some text")


def test_the_status_says_what_is_going_on() -> None:
    script = Script()
    script.fold(ev.SessionOpened(session_id="s", model="model-x"))
    script.fold(
        ev.TodosChanged(
            todos=(
                {"text": "Write it", "status": "completed"},
                {"text": "Test it", "status": "in_progress"},
            )
        ),
        ev.HookReported(hook_id="h", name="Stop", status="running"),
        ev.UsageReported(cost_usd=0.5, usage={"output_tokens": 7}, final=False),
        ev.ToolStarted(tool_id="a", name="Bash", input={"command": "sleep 9"}),
    )
    line = status_line(script.at(after=5.0))
    assert line.endswith(
        "model-x · your hook Stop runs 5 s · Bash sleep 9 5 s · 1 of 2 done: Test it"
        " · 7 tokens out · 0.5000 USD"
    )
    # The figures of a turn that nobody counted to its end are no total.
    last = script.end(**{"outcome": "killed", "reason": "user"})
    assert (last.cost_usd, last.usage) == (None, None)
    assert Todo("Write it", "completed") in last.todos


def test_a_live_card_shows_the_last_lines_of_what_runs() -> None:
    script = Script()
    call(script, "a", status="")
    picture: Snapshot = script.fold(ev.ToolOutput(tool_id="a", tail="line 1\nline 2"))
    card = on_screen(shown([picture]).messages)[1]["text/html"]
    assert "line 2" in card and "<details" in card and " open>" in card
