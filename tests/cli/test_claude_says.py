"""What the real agent says beside its text: questions, lists, sub-agents, changes, money."""

from __future__ import annotations

from typing import Any

import pytest
from agents import GENEROUS, Agents, bash, heard, wait_until

from turncell import Outcome, Session, Turn, TurnResult
from turncell import events as ev
from turncell.modelserver import Reply, Scenario, Text, ToolUse
from turncell.session import book

pytestmark = [pytest.mark.cli, pytest.mark.timeout(120)]

FILE = "one\ntwo\nthree\n"
SUB = {"description": "Count files", "prompt": "count them", "subagent_type": "general-purpose"}
CHOICE = {
    "question": "Which colour?", "header": "Colour", "multiSelect": False,
    "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cool"}],
}  # fmt: skip


def run(session: Session, prompt: str, **options: Any) -> TurnResult:
    return session.start(prompt, **options).result(GENEROUS)


def of(result: TurnResult, kind: type[Any]) -> list[Any]:
    return [event for event in result.events if isinstance(event, kind)]


def answered(turn: Turn, verdict: str) -> TurnResult:
    question = heard(turn, ev.QuestionAsked)
    turn.answer(question.question_id, verdict)
    return turn.result(GENEROUS)


def test_code_answers_a_question(agents: Agents) -> None:
    agents.play(Scenario("w", replies=[Reply(bash("touch made")), Reply("ok")]))
    session = agents.session("code", permission_mode="default")
    made = agents.cwd / "made"
    assert not answered(session.start("deny it", ask=True), "deny").error
    assert not made.exists()
    turn = session.start("allow it", ask=True)
    asked = heard(turn, ev.QuestionAsked)
    assert (asked.tool, asked.input["command"]) == ("Bash", "touch made")
    assert asked.scope == "Bash(touch made *)"
    turn.answer("no such question", "deny")  # is left alone, as is a second answer
    turn.answer(asked.question_id, "allow once")
    turn.answer(asked.question_id, "deny")
    assert turn.result(GENEROUS).outcome is Outcome.COMPLETED
    assert made.exists()
    with pytest.raises(ValueError, match="maybe"):
        turn.answer(asked.question_id, "maybe")
    session.close()


def test_code_answers_the_agents_own_question(agents: Agents) -> None:
    ask = ToolUse("AskUserQuestion", {"questions": [CHOICE]})
    agents.play(Scenario("q", replies=[Reply(ask), Reply("ok")]))
    session = agents.session("own")
    turn = session.start("ask me", ask=True)
    asked = heard(turn, ev.QuestionAsked)
    turn.answer(asked.question_id, chosen={"Which colour?": "a dark green"})
    result = turn.result(GENEROUS)
    assert [(e.answer, e.note) for e in of(result, ev.QuestionSettled)] == [
        ("answered", "a dark green")
    ]
    assert "a dark green" in str(agents.calls("ask me")[-1].history)
    # Where nobody can answer, the model is told so and goes on.
    result = run(session, "ask again")
    assert "nobody can be asked here" in of(result, ev.QuestionSettled)[0].note
    assert "did not answer" in str(agents.calls("ask again")[-1].history)
    session.close()


def test_the_agents_list(agents: Agents) -> None:
    agents.play(
        Scenario("list", replies=[
            Reply(ToolUse("TaskCreate", {"subject": "Write it", "description": "d"})),
            Reply(ToolUse("TaskCreate", {"subject": "Test it", "description": "d"})),
            Reply(ToolUse("TaskUpdate", {"taskId": "1", "status": "completed"})),
            Reply(ToolUse("TaskUpdate", {"taskId": "2", "status": "in_progress"})),
            Reply("ok"),
        ])
    )  # fmt: skip
    session = agents.session("list", tools=("TaskCreate", "TaskUpdate"))
    changes = [
        [(todo["text"], todo["status"]) for todo in event.todos]
        for event in of(run(session, "make a list"), ev.TodosChanged)
    ]
    assert changes == [
        [("Write it", "pending")],
        [("Write it", "pending"), ("Test it", "pending")],
        [("Write it", "completed"), ("Test it", "pending")],
        [("Write it", "completed"), ("Test it", "in_progress")],
    ]
    session.close()


def test_a_sub_agent_and_its_report(agents: Agents) -> None:
    call = ToolUse("Task", {**SUB, "run_in_background": False})
    agents.play(
        Scenario("sub", when="count them", replies=[Reply(bash("echo inner")), Reply("Seven.")]),
        Scenario("main", replies=[Reply(call), Reply("Seven files.")]),
    )
    result = run(agents.session("sub"), "how many files")
    outer, inner = result.tools
    assert (outer.parent, inner.parent) == (None, outer.tool_id)
    assert (outer.status, outer.output) == ("done", "Seven.")  # not the words for the model
    assert (inner.name, inner.output) == ("Bash", "inner")
    assert result.text == "Seven files."


def test_a_change_of_a_file(agents: Agents) -> None:
    path = agents.cwd / "text"
    path.write_text(FILE)
    agents.play(
        Scenario("edit", replies=[
            Reply(ToolUse("Read", {"file_path": str(path)})),
            Reply(ToolUse("Edit", {"file_path": str(path), "old_string": "two",
                                   "new_string": "2"})),
            Reply("ok"),
        ])
    )  # fmt: skip
    result = run(agents.session("edit"), "change it")
    assert result.tools[1].change.split("\n") == ["@@ -1,3 +1,3 @@", " one", "-two", "+2", " three"]


def test_what_a_command_prints_while_it_runs(agents: Agents) -> None:
    loop = bash("for i in $(seq 60); do echo line $i; sleep 0.5; done")
    agents.play(Scenario("loop", replies=[Reply(loop), Reply("ok")]))
    turn = agents.session("tail").start("count")
    first = heard(turn, ev.ToolOutput)
    assert first.tail.startswith("line 1\n")
    more = heard(turn, ev.ToolOutput, lambda e: len(e.tail) > len(first.tail))
    assert more.tail.startswith(first.tail)
    turn.stop()
    result = turn.result(GENEROUS, raise_error=False)
    assert result.outcome is Outcome.INTERRUPTED


def test_money_and_tokens_while_the_turn_goes_on(agents: Agents) -> None:
    first = Reply(bash("echo hi"), input_tokens=1000, output_tokens=500)
    agents.play(
        Scenario("costs", replies=[first, Reply(Text("ok"), input_tokens=10, output_tokens=5)])
    )
    result = run(agents.session("money"), "spend")
    reports = of(result, ev.UsageReported)
    assert [report.final for report in reports[:1] + reports[-1:]] == [False, True]
    assert reports[0].usage["output_tokens"] == 500
    assert result.cost_usd is not None
    assert 0 < reports[0].cost_usd < result.cost_usd
    assert result.usage == reports[-1].usage


def test_a_killed_turn_has_no_total(agents: Agents) -> None:
    first = Reply(bash("echo hi"), input_tokens=1000, output_tokens=500)
    agents.play(Scenario("costs", replies=[first, Reply(bash("tail -f /dev/null"))]))
    turn = agents.session("no-total").start("spend")
    heard(turn, ev.UsageReported)
    turn.stop(now=True)
    result = turn.result(GENEROUS, raise_error=False)
    assert (result.outcome, result.cost_usd) == (Outcome.KILLED, None)


def test_an_answer_does_not_overtake_a_stop(agents: Agents) -> None:
    agents.play(Scenario("w", replies=[Reply(bash("touch overtaken")), Reply("ok")]))
    session = agents.session("late", permission_mode="default")
    for n in range(3):
        turn = session.start(f"ask {n}", ask=True)
        question = heard(turn, ev.QuestionAsked)
        turn.stop()
        turn.answer(question.question_id)
        result = turn.result(GENEROUS, raise_error=False)
        assert result.outcome is Outcome.INTERRUPTED
        assert [e.answer for e in of(result, ev.QuestionSettled)] == ["cancelled"]
        assert [tool.status for tool in result.tools] == ["cancelled"]
    assert not (agents.cwd / "overtaken").exists()
    session.close()


def test_a_session_to_allow_holds_for_no_question_of_the_agents_own(agents: Agents) -> None:
    ask = ToolUse("AskUserQuestion", {"questions": [CHOICE]})
    agents.play(Scenario("q", replies=[Reply(ask), Reply("ok")]))
    session = agents.session("empty")
    for n in range(2):
        result = answered(session.start(f"ask {n}", ask=True), "allow for the session")
        assert [e.answer for e in of(result, ev.QuestionSettled)] == ["denied"]
    session.close()


def test_an_input_that_is_nested_without_an_end(agents: Agents) -> None:
    deep: Any = "x"
    for _ in range(300):
        deep = {"a": deep}
    odd = ToolUse("Bash", {"command": "echo hi", "deep": deep})
    agents.play(Scenario("deep", when="deep", replies=[Reply(odd), Reply("ok")]))
    session = agents.session("deep")
    result = session.start("deep").result(GENEROUS, raise_error=False)
    assert result.outcome is Outcome.COMPLETED, result.error
    assert "nested too deeply" in str(result.tools[0].input)
    agents.goes_on(session, result)


def test_a_sub_agent_in_the_background_is_known_and_can_be_stopped(agents: Agents) -> None:
    loop = Reply(bash("sleep 1; echo tick >> ticks"))
    agents.play(
        Scenario("sub", when="count them", replies=[loop]),
        Scenario("go", when="launch", replies=[
            Reply(ToolUse("Task", {**SUB, "run_in_background": True})), Reply("Launched."),
        ]),
    )  # fmt: skip
    session = agents.session("behind")
    result = run(session, "launch")
    agents.goes_on(session, result)
    wait_until(lambda: "behind" in book().own_work)  # also after a turn of another kind
    stopped, _ = book().end_unasked_work()
    assert stopped == 1
    assert "behind" not in book().own_work
    session.close()
