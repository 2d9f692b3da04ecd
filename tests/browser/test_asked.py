"""Questions, cards and a picture of the turn in JupyterLab; the pictures of the docs.

`TURNCELL_PICTURES=docs/pictures pytest --basetemp=/tmp/lighthouse tests/browser/test_asked.py
tests/browser/test_lab.py` makes them anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from browser.axe import faults
from browser.lab import Tab
from playwright.sync_api import expect

from turncell.modelserver import Reply, Scenario, Script, Text, Thinking, ToolUse

pytestmark = [pytest.mark.browser, pytest.mark.kernel, pytest.mark.cli]

CLOSE = "area => area.querySelectorAll('.turncell details').forEach(one => { one.open = false; })"
COLOURS = "line => new Set([line, line.parentNode].map(one => getComputedStyle(one).color)).size"
BEFORE = "def lamp(hour):\n    return hour > 20\n"
CODE = '''
The rule has a gap: before the wind was measured, the lamp stayed dark at eight.

```python
def lamp(hour: int, wind: float) -> bool:
    """Whether the lamp must be lit."""  # as the book says
    return hour >= 20 or wind > 9
```

| hour | wind | lamp |
|---:|---:|---|
| 20 | 4 | lit |
| 14 | 11 | lit |
'''
COLOUR = {
    "question": "Which colour should the lamp have?",
    "header": "Colour",
    "multiSelect": False,
    "options": [
        {"label": "White", "description": "seen from farthest, as it was before"},
        {"label": "Red", "description": "tells the rocks apart from the harbour"},
    ],
}


def task(subject: str) -> ToolUse:
    return ToolUse("TaskCreate", {"subject": subject, "description": subject})


def script(path: Path) -> Script:
    edit = {"file_path": str(path), "old_string": "hour > 20", "new_string": "hour >= 20"}
    status = {"taskId": "1", "status": "completed"}
    running, done = ({"taskId": "2", "status": s} for s in ("in_progress", "completed"))
    watch = "for i in 1 2 3 4 5 6 7 8 9; do echo check $i of 9; sleep 1; done"
    return Script(
        Scenario("repair", when="Repair", replies=[
            Reply(Thinking("The book says twenty. " * 9), "I read the rule first.",
                  ToolUse("Read", {"file_path": str(path)})),
            Reply(task("Correct the rule"), task("Check it")),
            Reply(ToolUse("Edit", edit)),
            Reply(ToolUse("TaskUpdate", status), ToolUse("TaskUpdate", running)),
            Reply("Now I check it.", ToolUse("Bash", {"command": watch, "description": "check"})),
            Reply(ToolUse("TaskUpdate", done), ToolUse("Bash", {"command": "rm no-such-log"})),
            Reply(Text(CODE)),
        ]),
        Scenario("colour", when="colour", replies=[
            Reply(ToolUse("AskUserQuestion", {"questions": [COLOUR]})), Reply("White it is."),
        ]),
        Scenario("rest", replies=[Reply("short")]),
    )  # fmt: skip


def looked_at(tab: Tab, name: str, cell: int = 1) -> None:
    """Keep a picture, and see that nothing in it is hard to read."""
    tab.picture(name, cell)
    assert faults(tab, cell) == []
    tab.output(cell).evaluate(CLOSE)


def test_a_turn_that_asks_and_works(tab: Tab) -> None:
    path = tab.lab.root / "lamp.py"
    path.write_text(BEFORE)
    tab.lab.place.server.script = script(path)
    options = "--permission-mode default --tools TaskCreate,TaskUpdate -o r"
    tab.begin(f"%%agent {options}\nRepair the lamp.", "%agent timeline", "%%agent\nA colour?")
    tab.page.keyboard.press("Control+b")  # no list of files
    tab.page.set_viewport_size({"width": 960, "height": 1200})
    tab.run(1)
    allow = tab.output(1).get_by_role("button", name="Allow once")
    expect(allow).to_be_visible()
    expect(tab.output(1)).to_contain_text("May the agent use this?")
    expect(tab.output(1)).to_contain_text("+hour >= 20")
    expect(tab.output(1)).to_contain_text("waiting for an answer")
    changed = tab.output(1).get_by_text("+hour >= 20").last
    assert changed.evaluate(COLOURS) == 1  # the sheet for live code is for code alone
    looked_at(tab, "question")
    # With the keyboard alone.
    allow.focus()
    tab.page.keyboard.press("Tab")
    expect(tab.output(1).get_by_role("button", name="Allow for the session")).to_be_focused()
    tab.page.keyboard.press("Shift+Tab")
    tab.page.keyboard.press("Enter")
    expect(tab.output(1)).to_contain_text("· allowed")
    expect(allow).to_be_visible()  # the next question: the shell
    assert path.read_text() == BEFORE.replace("> 20", ">= 20")
    allow.click()
    expect(tab.output(1)).to_contain_text("1 of 2 done")
    expect(tab.output(1).get_by_role("listitem").last).to_have_text("[>] Check it")
    expect(tab.output(1)).to_contain_text("check 4 of 9", timeout=20_000)  # while it runs
    looked_at(tab, "working")
    expect(allow).to_be_visible(timeout=20_000)  # once is once
    tab.output(1).get_by_role("button", name="Deny").click()
    tab.ended(1)
    expect(tab.output(1)).to_contain_text("completed")
    expect(tab.output(1).get_by_role("button")).to_have_count(0)
    tab.output(1).locator("summary", has_text="Edit").click()
    expect(tab.output(1)).to_contain_text("+    return hour >= 20")
    looked_at(tab, "completed")
    tab.finish(2)
    drawn = tab.output(2).locator("img, svg").first
    expect(drawn).to_be_visible()
    tab.picture("timeline", 2)
    own_question(tab)


def own_question(tab: Tab) -> None:
    """The agent asks which of two it should be."""
    tab.run(3)
    white = tab.output(3).get_by_role("button", name="White")
    expect(white).to_be_visible()
    expect(tab.output(3)).to_contain_text("tells the rocks apart from the harbour")
    looked_at(tab, "choice", 3)
    white.click()
    tab.ended(3)
    expect(tab.output(3)).to_contain_text("answered (White)")
    expect(tab.output(3)).to_contain_text("White it is.")
