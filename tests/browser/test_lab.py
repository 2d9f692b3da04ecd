"""The main job in JupyterLab: run a cell, watch it, stop it while it runs, go on, come back."""

from __future__ import annotations

import json
import re
import signal

import pytest
from browser.lab import Tab
from driver import VIEW
from playwright.sync_api import expect

from turncell.modelserver import Reply, Scenario, Script, ToolUse, Words

pytestmark = [pytest.mark.browser, pytest.mark.kernel, pytest.mark.cli]

STOPPING = re.compile(r"Stopping \d+ s \(Force\)")
LOOK = """one => {
  const {fontSize, fontWeight, lineHeight, color, marginTop, marginBottom} = getComputedStyle(one);
  return [fontSize, fontWeight, lineHeight, color, marginTop, marginBottom];
}"""
STORY = Script(
    Scenario("story", when="story", replies=[
        Reply("# The lighthouse\n\nEvery evening the *keeper* climbed the stairs.\n\n",
              Words(400, pace=0.05, word="step {i}, ")),
    ]),
    Scenario("rest", replies=[Reply("We stopped on the stairs, and **go on** from there.")]),
)  # fmt: skip


def test_the_main_job(tab: Tab) -> None:
    tab.lab.place.server.script = STORY
    tab.begin("%%agent -o r\nTell me a story.", "%%agent -o next\nGo on.", "print(r.text)")
    tab.run(1)
    expect(tab.button(1)).to_have_text("Stop")
    tab.shot("1-starting")
    expect(tab.output(1)).to_contain_text("step 9,")
    expect(tab.prompt(1)).to_have_text("[*]:")
    tab.shot("2-streaming")
    heading = tab.output(1).get_by_role("heading", name="The lighthouse", level=1)
    live = heading.evaluate(LOOK)
    tab.button(1).click()
    tab.ended(1)
    assert heading.evaluate(LOOK) == live  # nothing moves when the end takes its place
    answers = [prompt for label, prompt in tab.seen() if STOPPING.fullmatch(label)]
    assert "[*]:" in answers  # the answer was there while the cell still ran
    expect(tab.button(1)).to_have_count(0)
    expect(tab.output(1)).to_contain_text("step 9,")
    expect(tab.output(1)).to_contain_text("stopped by you")
    expect(tab.output(1)).to_contain_text("TurnStopped")
    tab.picture("stopped")
    tab.finish(2)
    expect(tab.output(2)).to_contain_text("go on from there")
    assert "step 9," in json.dumps(tab.lab.place.server.requests[-1].history)
    tab.finish(3)
    expect(tab.output(3)).to_contain_text("step 9,")
    tab.shot("5-resumed")
    reopened(tab)


def reopened(tab: Tab) -> None:
    """Save, and come back without a kernel: the partial text is there, and no dead widget."""
    notebook = tab.save()
    assert VIEW not in json.dumps(notebook)
    tab.lab.stop_kernels()
    gone = {"name": "gone", "display_name": "gone", "language": "gone"}
    notebook.metadata = {"kernelspec": gone, "language_info": {"name": "gone"}}
    tab.path.write_text(json.dumps(notebook))
    tab.open(kernel=False)
    expect(tab.output(1).locator("h1")).to_have_text("The lighthouse")
    expect(tab.output(1)).to_contain_text("step 9,")
    expect(tab.output(1)).to_contain_text("stopped by you")
    expect(tab.page.locator(".jp-OutputArea button, .jupyter-widgets")).to_have_count(0)
    tab.shot("6-reopened")


def test_a_stop_that_takes_its_time(tab: Tab) -> None:
    tab.begin("%%agent -o r\ncount", "1 + 1", "%agent timeline")
    tab.page.keyboard.press("Control+b")  # no list of files
    tab.page.set_viewport_size({"width": 960, "height": 900})
    tab.run(1)
    expect(tab.output(1)).to_contain_text("w3 ")
    (agent,) = tab.lab.place.named("claude")
    agent.send_signal(signal.SIGSTOP)
    tab.button(1).click()
    expect(tab.button(1)).to_have_text(STOPPING, timeout=2000)
    expect(tab.output(1)).to_contain_text("stopping: interrupt")
    expect(tab.prompt(1)).to_have_text("[*]:")
    tab.picture("stopping")
    agent.send_signal(signal.SIGCONT)
    tab.ended(1)
    expect(tab.output(1)).to_contain_text("agent kept warm")
    tab.finish(2)
    expect(tab.output(2)).to_contain_text("2")
    tab.finish(3)
    drawn = tab.output(3).locator("img, svg").first
    expect(drawn).to_be_visible()
    expect(drawn).to_have_attribute("src", re.compile("interrupt"))
    tab.picture("stop-timeline", 3)


def test_the_kernel_interrupt_of_the_page(tab: Tab) -> None:
    tab.begin("%%agent -o r\ncount", "%%agent\nand on")
    tab.run(1)
    expect(tab.output(1)).to_contain_text("w3 ")
    tab.page.keyboard.press("Escape")
    tab.page.keyboard.press("i")
    tab.page.keyboard.press("i")
    tab.ended(1)
    expect(tab.output(1)).to_contain_text("stopped by a kernel interrupt")
    expect(tab.output(1)).to_contain_text("TurnStopped")
    expect(tab.output(1)).to_contain_text("w3 ")
    tab.finish(2)
    expect(tab.output(2)).to_contain_text("echo: and on")


def test_a_background_turn(tab: Tab) -> None:
    tab.lab.place.server.script = Script(
        Scenario("forty", when="count", replies=[Reply(Words(60, pace=0.05))]),
        Scenario("rest", replies=[Reply("short")]),
    )
    tab.begin("%%agent --bg -o r\ncount", "print('meanwhile')", "%agent wait", "r.outcome")
    tab.finish(1)
    expect(tab.output(1)).to_contain_text("w3 ")
    tab.finish(2)
    expect(tab.output(2)).to_have_text("meanwhile")
    expect(tab.button(1)).to_be_visible()
    tab.shot("7-background")
    tab.finish(3)
    expect(tab.output(1)).to_contain_text("w59")
    expect(tab.output(1)).to_contain_text("completed")
    expect(tab.button(1)).to_have_count(0)
    tab.shot("8-background-over")
    tab.finish(4)
    assert VIEW not in json.dumps(tab.save())


def test_a_background_turn_is_stopped_by_its_button(tab: Tab) -> None:
    tab.begin("%%agent --bg -o r\ncount", "import time\nfor i in range(60): time.sleep(0.1)")
    tab.finish(1)
    expect(tab.output(1)).to_contain_text("w3 ")
    tab.run(2)
    expect(tab.prompt(2)).to_have_text("[*]:")
    tab.button(1).click()
    expect(tab.output(1)).to_contain_text("stopped by you")
    expect(tab.prompt(2)).to_have_text("[*]:")  # while the other cell still runs


def test_a_reload_in_mid_turn(tab: Tab) -> None:
    """The page forgets the running cell; the kernel does not forget the turn."""
    tab.lab.place.server.script = Script(Scenario("s", replies=[Reply(Words(100, pace=0.05))]))
    tab.begin("%%agent -o r\ncount", "%agent last", "str(r.outcome), len(r.text.split())")
    tab.run(1)
    expect(tab.output(1)).to_contain_text("w9 ")
    tab.save()
    tab.page.reload(wait_until="domcontentloaded")
    tab.page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
    expect(tab.output(1)).to_contain_text("w9")  # what was saved
    tab.shot("9-reloaded")
    tab.idle()  # the turn went on to its end
    tab.finish(2)
    expect(tab.output(2)).to_contain_text("w99")
    tab.finish(3)
    expect(tab.output(3)).to_contain_text("('completed', 100)")
    tab.shot("10-last-after-reload")


def test_a_restarted_kernel_goes_on_with_the_last_session_of_its_notebook(tab: Tab) -> None:
    tab.begin(
        "%%agent\nremember the heron", "%%agent\ncount", "%%agent\na new beginning",
        "%agent resume", "%%agent -o r\nwhat was it?", "print(r.told)", "%agent sessions",
    )  # fmt: skip
    tab.finish(1)
    tab.run(2)
    expect(tab.output(2)).to_contain_text("w9 ")
    (kernel,) = tab.lab.ask("api/kernels")
    tab.lab.ask(f"api/kernels/{kernel['id']}/restart", "POST")  # in mid turn
    tab.idle()
    tab.finish(0)
    tab.finish(3)
    expect(tab.output(3)).to_contain_text("%agent resume goes on with main")
    tab.finish(4)
    tab.finish(5)
    expect(tab.output(5)).to_contain_text("echo: what was it?")
    history = json.dumps(tab.lab.place.server.requests[-1].history)
    assert "remember the heron" in history
    assert "w9 " in history
    assert "a new beginning" not in history
    tab.finish(6)
    # Jupyter interrupts a kernel before it ends it, and may not wait for what that does.
    expect(tab.output(6)).to_contain_text(re.compile("Your last turn was (stopped|cut off)"))
    tab.finish(7)
    expect(tab.output(7)).to_contain_text("completed")
    tab.cell(5).scroll_into_view_if_needed()
    tab.shot("14-resumed-after-restart")


def test_it_is_readable_in_the_dark_and_when_narrow(tab: Tab) -> None:
    use = ToolUse("Bash", {"command": "ls -l /usr; tail -f /dev/null", "description": "x"})
    tab.lab.place.server.script = Script(Scenario("t", replies=[Reply("I look first. ", use)]))
    tab.begin("%%agent --tools Bash\nWhat is in this folder?", "%%agent --frobnicate\nhi")
    tab.page.set_viewport_size({"width": 520, "height": 900})
    tab.run(1)
    expect(tab.output(1)).to_contain_text("Bash ls -l")
    expect(tab.button(1)).to_be_in_viewport(ratio=1)
    assert tab.output(1).evaluate("area => area.scrollWidth <= area.clientWidth")
    tab.shot("11-narrow-light")
    tab.page.get_by_role("menuitem", name="Settings").click()
    tab.page.get_by_text("Theme", exact=True).first.hover()
    tab.page.get_by_text("JupyterLab Dark", exact=True).click()
    expect(tab.page.locator("body[data-jp-theme-light=false]")).to_have_count(1)
    tab.page.set_viewport_size({"width": 1100, "height": 900})
    tab.shot("12-dark-streaming")
    tab.button(1).click()
    tab.ended(1)
    tab.finish(2)
    tab.shot("13-dark-stopped")
