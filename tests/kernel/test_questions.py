"""Questions in the cell: the real agent asks, a person clicks while the cell blocks the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from driver import VIEW, Cell
from places import AgentKernel

from turncell.modelserver import Echo, Reply, Scenario, Script, ToolUse

pytestmark = [pytest.mark.kernel, pytest.mark.cli]

BUTTONS = ("Allow once", "Allow for the session", "Deny")


def bash(command: str) -> ToolUse:
    return ToolUse("Bash", {"command": command, "description": "touch"})


ASKED = {
    "questions": [
        {
            "question": "Which colour?",
            "header": "Colour",
            "multiSelect": False,
            "options": [
                {"label": "Red", "description": "warm"},
                {"label": "Green", "description": "calm"},
            ],
        },
        {
            "question": "Which fruits?",
            "header": "Fruits",
            "multiSelect": True,
            "options": [
                {"label": "Apple", "description": "crisp"},
                {"label": "Pear", "description": "soft"},
                {"label": "Plum", "description": "small"},
            ],
        },
    ]
}
SCRIPT = Script(
    Scenario("one", when="one file", replies=[Reply("I make it.", bash("touch one")),
                                              Reply("one made")]),
    Scenario("two", when="two files", replies=[Reply(bash("touch two")), Reply("two made")]),
    Scenario("both", when="both at once",
             replies=[Reply(bash("touch a"), bash("touch b")), Reply("both made")]),
    Scenario("ask", when="ask me", replies=[Reply(ToolUse("AskUserQuestion", ASKED)),
                                            Reply("thank you")]),
    Scenario("rest", replies=[Reply(Echo())]),
)  # fmt: skip


@pytest.fixture
def asking(agent_kernel: AgentKernel) -> Iterator[AgentKernel]:
    agent_kernel.server.script = SCRIPT
    yield agent_kernel
    for name in ("one", "two", "a", "b"):
        Path(agent_kernel.place.cwd, name).unlink(missing_ok=True)


def exists(kernel: AgentKernel, name: str) -> bool:
    return Path(kernel.place.cwd, name).exists()


def asked(kernel: AgentKernel, prompt: str, options: str = "", button: str = "Deny") -> Cell:
    """A turn that waits for a person."""
    cell = kernel.start(f"%%agent -o r --permission-mode default {options}\n{prompt}")
    kernel.wait_for(lambda: cell.done or kernel.button(button), 30, "a question")
    assert not cell.done, cell.error or cell.text
    return cell


def press(kernel: AgentKernel, label: str) -> None:
    button = kernel.wait_for(lambda: kernel.button(label), 10, label)
    kernel.click(button)


def settled(kernel: AgentKernel) -> list[list[str]]:
    return kernel.value(
        "[[e.answer, e.note] for e in r.events if type(e).__name__ == 'QuestionSettled']"
    )


def test_allow_once_runs_the_tool_and_asks_again(asking: AgentKernel) -> None:
    cell = asked(asking, "one file --new")
    assert [bool(asking.button(label)) for label in BUTTONS] == [True] * 3
    shown = str(asking.widgets)
    assert "May the agent use this?" in shown
    assert "touch one" in shown
    assert not exists(asking, "one")
    press(asking, "Allow once")
    assert asking.wait(cell).status == "ok", cell.error
    assert exists(asking, "one")
    assert settled(asking) == [["allowed", ""]]
    assert "may it use Bash touch one · allowed" in cell.text
    assert VIEW not in str(cell.outputs)
    cell = asked(asking, "two files")  # once is once
    press(asking, "Deny")
    assert asking.wait(cell).status == "ok", cell.error
    assert not exists(asking, "two")
    assert asking.value("[[t.name, t.status] for t in r.tools]") == [["Bash", "denied"]]


def test_allow_for_the_session_holds_for_the_session(asking: AgentKernel) -> None:
    cell = asked(asking, "one file", "-s lasting")
    press(asking, "Allow for the session")
    asking.wait(cell)
    assert settled(asking) == [["allowed", "for the session"]]
    # In the same agent, and in the one that goes on with the session.
    asking.run("%%agent -o r -s lasting --permission-mode default\none file")
    assert settled(asking) == []
    asking.run("import turncell; turncell.Session('lasting').close()")
    cell = asking.run("%%agent -o r -s lasting --permission-mode default\none file")
    assert cell.status == "ok", cell.error
    assert settled(asking) == []
    # Nothing of it was written into the user's files.
    assert not list(Path(asking.place.cwd).glob("**/settings*.json"))
    cell = asked(asking, "one file", "-s another")
    press(asking, "Deny")
    asking.wait(cell)


def test_two_questions_at_once_have_an_answer_each(asking: AgentKernel) -> None:
    cell = asked(asking, "both at once", "-s pair")
    press(asking, "Allow once")
    asking.wait_for(lambda: exists(asking, "a") or exists(asking, "b"), 20, "a file")
    press(asking, "Deny")
    asking.wait(cell)
    assert sorted(answer for answer, _ in settled(asking)) == ["allowed", "denied"]
    assert exists(asking, "a") != exists(asking, "b")


def test_the_agents_own_questions(asking: AgentKernel) -> None:
    cell = asked(asking, "ask me", "-s own", "Green")
    assert "Which colour?" in str(asking.widgets)
    press(asking, "Green")
    asking.wait_for(lambda: asking.button("Plum"), 10, "the next question")
    press(asking, "Apple")
    asking.wait_for(lambda: asking.button("[x] Apple"), 10, "a mark")
    press(asking, "Pear")
    press(asking, "Plum")
    asking.wait_for(lambda: asking.button("[x] Plum"), 10, "a mark")
    press(asking, "[x] Pear")
    press(asking, "Done")
    assert asking.wait(cell).status == "ok", cell.error
    assert settled(asking) == [["answered", "Green; Apple, Plum"]]
    told = str(asking.server.requests[-1].history)
    assert "Green" in told and "Apple, Plum" in told


def test_a_stop_settles_an_open_question(asking: AgentKernel) -> None:
    cell = asked(asking, "one file", "-s stopped")
    press(asking, "Stop")
    asking.wait(cell)
    assert cell.error and "TurnStopped" in cell.error
    assert settled(asking) == [["cancelled", ""]]
    assert asking.value("[str(r.outcome), r.receipt.rung]") == ["interrupted", "interrupt"]
    assert not exists(asking, "one")
    assert asking.button("Allow once") is None
    assert asking.run("%%agent -s stopped\nand on").status == "ok"


def test_a_person_may_take_longer_than_the_timeout(asking: AgentKernel) -> None:
    cell = asked(asking, "one file", "-s patient --timeout 6")
    asking.listen(8.0)  # a person thinks
    assert not cell.done
    press(asking, "Allow once")
    assert asking.wait(cell).status == "ok", cell.error
    assert exists(asking, "one")


def test_where_nobody_can_be_asked_the_setting_answers(asking: AgentKernel) -> None:
    line = "%%agent -o r --new --permission-mode default"
    cell = asking.run(f"{line}\none file", allow_stdin=False)
    assert cell.status == "ok", cell.error
    assert "nobody can be asked here" in cell.text
    assert not exists(asking, "one")
    cell = asking.run(f"{line} --unattended allow\none file", allow_stdin=False)
    assert cell.status == "ok", cell.error
    assert "unattended is allow" in cell.text
    assert exists(asking, "one")


def test_a_background_turn_asks_too(asking: AgentKernel) -> None:
    cell = asking.run("%%agent -o r -s behind --bg --permission-mode default\none file")
    press(asking, "Allow once")
    assert asking.run("%agent wait").status == "ok"
    assert exists(asking, "one")
    assert "allowed" in cell.text
