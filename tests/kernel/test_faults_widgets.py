"""Buttons, what is left of them, and what a status says: reported faults, see docs/faults.md."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from driver import VIEW, Cell
from nbconvert import HTMLExporter
from pages import Page
from places import AgentKernel

from turncell.modelserver import Echo, Reply, Scenario, Script, ToolUse, Words

pytestmark = [pytest.mark.kernel, pytest.mark.cli]

COUNT = "%%agent -o r\ncount"
SCRIPT = Script(
    Scenario("count", when="count", replies=[Reply(Words(400, pace=0.05))]),
    Scenario("short", when="short", replies=[Reply(Words(60, pace=0.03), "The end of it.")]),
    Scenario("tool", when="hooked tool", replies=[
        Reply("Now. ", ToolUse("Bash", {"command": "touch hooked"})), Reply("Done."),
    ]),
    Scenario("rest", replies=[Reply(Echo())]),
)  # fmt: skip


@pytest.fixture
def kernel(agent_kernel: AgentKernel) -> AgentKernel:
    agent_kernel.server.script = SCRIPT
    return agent_kernel


def streaming(kernel: AgentKernel, code: str = COUNT) -> tuple[Cell, str]:
    """A turn in mid stream, and its Stop button."""
    cell = kernel.start(code)
    kernel.wait_for(lambda: "w3 " in cell.text or cell.done, 30, "the stream")
    assert not cell.done, cell.error or cell.text
    button = kernel.button("Stop")
    assert button is not None
    return cell, button


# WID-G2: an editor that knows no subshells, and one that keeps clicks until the cell is over.


def test_wid_g2_a_click_on_the_main_shell_is_heard_while_the_cell_blocks(
    kernel: AgentKernel,
) -> None:
    kernel.run("%%agent\nwarm up")
    for _ in range(3):
        cell, button = streaming(kernel)
        state = kernel.widgets[button]
        _, began = kernel.click(button)  # as the driver does it, without a subshell
        answered = lambda c=cell, s=state: c.done or s["description"] != "Stop"  # noqa: E731
        kernel.wait_for(answered, 10, "an answer")
        assert time.time() - began < 0.5
        assert kernel.wait(cell).reply["ename"] == "TurnStopped"
        assert kernel.value("[str(r.outcome), str(r.reason)]") == ["interrupted", "user"]


def test_wid_g2_where_clicks_come_late_the_interrupt_is_named_and_works(
    kernel: AgentKernel,
) -> None:
    cell, button = streaming(kernel)
    assert "kernel interrupt" in kernel.widgets[button]["tooltip"]
    kernel.interrupt()
    assert kernel.wait(cell).reply["ename"] == "TurnStopped"
    assert kernel.value("str(r.reason)") == "kernel_interrupt"
    # What the editor kept back comes now, and must not hit another turn.
    following = kernel.start("%%agent -o r\nshort")
    kernel.click(button)
    kernel.wait_for(lambda: "w3 " in following.text, 30, "the stream")
    kernel.click(button)
    assert kernel.wait(following).status == "ok", following.error
    assert kernel.value("[str(r.outcome), r.text[-14:]]") == ["completed", "The end of it."]


# WID-G3: a notebook that is opened again.


def as_saved(cell: Cell) -> nbformat.NotebookNode:
    """The notebook with this cell, as it would be saved now."""
    kinds = {"ename": "error", "name": "stream", "execution_count": "execute_result"}
    outputs = []
    for content in json.loads(json.dumps(cell.outputs)):
        kind = next((kind for key, kind in kinds.items() if key in content), "display_data")
        content.pop("transient", None)
        outputs.append(nbformat.v4.new_output(kind, **content))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(COUNT, outputs=outputs)])
    nbformat.validate(notebook)
    return notebook


def read_without_widgets(notebook: nbformat.NotebookNode) -> str:
    return Page(HTMLExporter().from_notebook_node(notebook)[0]).text


@pytest.mark.parametrize("background", [False, True], ids=["blocking", "background"])
def test_wid_g3_a_saved_turn_is_read_without_its_widgets(
    kernel: AgentKernel, background: bool
) -> None:
    code = f"%%agent -o r{' --bg' * background}\nshort"
    cell = kernel.start(code)
    kernel.wait_for(lambda: "w9 " in cell.text or cell.done and not background, 30, "the stream")
    middle = as_saved(cell)
    assert VIEW in json.dumps(middle)
    models = {out.data[VIEW]["model_id"] for out in middle.cells[0].outputs if VIEW in out.data}
    kernel.wait_for(lambda: "The end of it." in cell.text, 30, "the end")
    assert kernel.run("%agent wait").status == "ok"
    kernel.wait_for(lambda: not kernel.widgets, 10, "widgets to close")
    end = as_saved(cell)

    # Where there are no widgets, or no such kernel any more.
    page = read_without_widgets(middle)
    assert "a turn was running when this was saved" in page and "w9" in page
    for words in ("Button(", "HBox(", "model_id", "rror", "The end"):
        assert words not in page
    page = read_without_widgets(end)
    assert "w9" in page and "The end of it." in page and "completed" in page
    assert "when this was saved" not in page
    # The kernel that ran it knows nothing of them; a click on a dead one does nothing.
    assert VIEW not in json.dumps(end) and "widget" not in json.dumps(end)
    request = kernel.send("comm_info_request", {"target_name": "jupyter.widget"})
    kernel.wait_for(lambda: request in kernel.replies, 10, "what is open")
    assert not models & set(kernel.replies[request]["comms"])
    for model in models:
        kernel.click(model)
    assert kernel.run("1 + 1").text == "2"


# WID-G4: the same cell again and again.


def test_wid_g4_each_run_of_a_cell_has_its_own_button(kernel: AgentKernel) -> None:
    buttons = []
    for _ in range(2):
        cell, button = streaming(kernel)
        buttons.append(button)
        kernel.click(button)
        assert kernel.wait(cell).reply["ename"] == "TurnStopped"
        assert kernel.button("Stop") is None and button not in kernel.widgets  # it is gone
    cell, third = streaming(kernel)
    assert len({*buttons, third}) == 3
    for old in buttons:
        kernel.click(old)
    seen = cell.text
    kernel.wait_for(lambda: len(cell.text) > len(seen) + 20, 10, "more of it")
    assert not cell.done and kernel.widgets[third]["description"] == "Stop"
    kernel.click(third)
    assert kernel.wait(cell).reply["ename"] == "TurnStopped"
    assert kernel.value("[str(r.outcome), r.receipt.rung]") == ["interrupted", "interrupt"]
    assert kernel.run("%%agent\nand on").status == "ok"


# PERM-G4: hooks of the user.


@pytest.fixture
def hooks(kernel: AgentKernel) -> Iterator[Callable[..., Any]]:
    """Puts hooks into the settings files: `hooks("project", Stop="sleep 31")`."""
    places = {
        "user": kernel.place.home / "claude-config" / "settings.json",
        "project": kernel.place.cwd / ".claude" / "settings.json",
        "local": kernel.place.cwd / ".claude" / "settings.local.json",
    }

    def put(source: str, **commands: str) -> None:
        hooks = {e: [{"hooks": [{"type": "command", "command": c}]}] for e, c in commands.items()}
        places[source].parent.mkdir(parents=True, exist_ok=True)
        places[source].write_text(json.dumps({"hooks": hooks}))

    yield put
    for place in places.values():
        place.unlink(missing_ok=True)


def status(kernel: AgentKernel, words: str) -> Callable[[], bool]:
    return lambda: any(words in str(state.get("value")) for state in kernel.widgets.values())


def test_perm_g4_the_status_names_the_hook_and_stop_does_not_wait_for_it(
    kernel: AgentKernel, hooks: Callable[..., Any]
) -> None:
    hooks("project", Stop="[ -e go ] || sleep 31", PreToolUse="sleep 2.2")
    cell = kernel.start("%%agent -o r -s hooked --tools Bash --settings project\nhooked tool")
    kernel.wait_for(status(kernel, "your hook PreToolUse:Bash runs 1 s"), 30, "a word of the hook")
    kernel.wait_for(status(kernel, "your hook Stop runs 2 s"), 30, "a word of the hook")
    assert "Done." in cell.text
    _, began = kernel.click(kernel.button("Stop"))
    kernel.wait(cell)
    assert time.time() - began < 4.0  # the first bound is 5 s
    assert cell.reply["ename"] == "TurnStopped" and "stopped by you" in cell.text
    assert kernel.value("[str(r.outcome), r.receipt.rung]") == ["interrupted", "interrupt"]
    assert kernel.value("r.receipt.survivors") == [] and kernel.place.named("sleep") == []
    Path(kernel.place.cwd, "go").touch()
    assert kernel.run("%%agent -s hooked --settings project\nand on").text.startswith("echo")
    assert "settings files of session hooked: project" in kernel.run("%agent status").text


@pytest.mark.parametrize("setting", ["", "project,local"])
def test_perm_g4_what_the_status_says_of_settings_files_is_true(
    kernel: AgentKernel, hooks: Callable[..., Any], setting: str
) -> None:
    sources = ("user", "project", "local")
    for source in sources:
        hooks(source, UserPromptSubmit=f"touch {kernel.place.cwd}/read-{source}")
    kernel.run(f"%config AgentMagics.settings_files = {setting!r}")
    assert kernel.run("%%agent --new\nhello").status == "ok"
    said = kernel.run("%agent status").text
    kernel.run("%config AgentMagics.settings_files = ''")
    read = [source for source in sources if (kernel.place.cwd / f"read-{source}").exists()]
    for source in read:
        (kernel.place.cwd / f"read-{source}").unlink()
    assert f"agent settings files: {', '.join(read) or 'none'}\n" in said + "\n"
    assert read == [source for source in sources if not setting or source in setting]
