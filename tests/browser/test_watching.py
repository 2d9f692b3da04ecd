"""A turn while somebody watches: in every theme, through F5, a closed page, less motion."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest
from browser.axe import OURS, faults
from browser.lab import Lab, Tab
from playwright.sync_api import BrowserContext, expect

from turncell.modelserver import Reply, Scenario, Script, Thinking, ToolUse, Words

pytestmark = [pytest.mark.browser, pytest.mark.kernel, pytest.mark.cli]

WIDTHS = (1100, 480)
RICH = """
# The lighthouse

See [the chart](https://example.org) and *this* `lamp.log`.

| hour | wind |
|---|---:|
| 20:00 | nine |

```python
def lamp(hour: int) -> str:
    return "red" if hour < 21 else "white"  # as the book says
```

> The glass fell.

- the wind came from the north-west
- and a_very_long_name_that_no_place_is_wide_enough_for_and_that_has_no_place_to_break_it_at_all
"""
TOUR = Script(
    Scenario("tour", replies=[
        Reply(Thinking("What did the keeper write? " * 9), RICH,
              ToolUse("Bash", {"command": "echo the lamp is lit"}),
              ToolUse("Bash", {"command": "cat /no/such/book"})),
        Reply("The book is lost.\n\n", Words(2000, pace=0.05)),
    ]),
)  # fmt: skip
HUNDRED = Script(
    Scenario("hundred", when="count", replies=[Reply(Words(100, pace=0.05))]),
    Scenario("rest", replies=[Reply("short")]),
)


@pytest.fixture
def theme(lab: Lab, request: pytest.FixtureRequest) -> Iterator[str]:
    """The page comes in this theme."""
    lab.settings("apputils-extension/themes", {"theme": request.param})
    yield request.param
    lab.settings("apputils-extension/themes", {})


def looked_at(tab: Tab, name: str) -> dict[str, list[str]]:
    """What is hard to read, by width; a picture of each."""
    found = {}
    for width in WIDTHS:
        tab.page.set_viewport_size({"width": width, "height": 900})
        tab.shot(f"{name}-{width}")
        found[f"{name} {width}"] = faults(tab, 1)
        tab.shot(f"{name}-{width}-open")
        if not tab.output(1).evaluate("area => area.scrollWidth <= area.clientWidth"):
            found[f"{name} {width}"].append("wider than its place")
    return found


NAMES = ("JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast")


@pytest.mark.parametrize("theme", NAMES, indirect=True)
def test_it_is_readable_in_every_theme_and_state(tab: Tab, theme: str) -> None:
    tab.lab.place.server.script = TOUR
    tab.begin("%%agent --ack 30 --tools Bash -o r\ntour")
    tab.page.keyboard.press("Control+b")  # at 480 pixels the list of files would take them all
    assert tab.page.evaluate("document.body.dataset.jpThemeName") == theme
    short = theme.split(" ", 1)[1]
    tab.run(1)
    expect(tab.output(1)).to_contain_text("w3 ")
    found = looked_at(tab, f"{short}-running")
    expect(tab.button(1)).to_be_in_viewport(ratio=1)
    (agent,) = tab.lab.place.named("claude")
    agent.send_signal(signal.SIGSTOP)
    tab.button(1).click()
    expect(tab.button(1)).to_contain_text("Stopping")
    found |= looked_at(tab, f"{short}-stopping")
    expect(tab.prompt(1)).to_have_text("[*]:")  # it was looked at while it stopped
    agent.send_signal(signal.SIGCONT)
    tab.ended(1)
    found |= looked_at(tab, f"{short}-ended")
    assert not {where: what for where, what in found.items() if what}


def test_a_turn_of_many_steps_stays_in_sight(tab: Tab) -> None:
    """JupyterLab folds away what comes after a cell's fiftieth output."""
    steps = [Reply(ToolUse("Bash", {"command": f"true {i}"})) for i in range(60)]
    last = Reply("The last step is done.\n\n", Words(400, pace=0.05))
    tab.lab.place.server.script = Script(Scenario("steps", replies=[*steps, last]))
    tab.begin("%%agent --tools Bash -o r\ngo")
    tab.run(1)
    tab.lab.place.server.wait_for(lambda r: r.round == 60 and r.deltas > 20, 60)
    tab.shot("many-steps")
    expect(tab.output(1)).to_contain_text("The last step is done.", timeout=5000)
    expect(tab.output(1)).to_contain_text("w9 ", timeout=5000)
    expect(tab.prompt(1)).to_have_text("[*]:")
    tab.button(1).click()
    tab.ended(1)


def test_after_f5_the_toolbar_stops_the_turn(tab: Tab) -> None:
    tab.begin("%%agent -o r\ncount", "%agent show", "str(r.outcome)")
    tab.run(1)
    expect(tab.output(1)).to_contain_text("w9 ")
    tab.save()
    tab.reload()
    expect(tab.output(1)).to_contain_text("w9 ")  # what was saved
    expect(tab.prompt(1)).to_have_text("[ ]:")  # nobody waits for what cannot come
    (turn,) = [r for r in tab.lab.place.server.requests if r.scenario == "count"]
    assert turn.outcome is None  # it goes on
    tab.interrupt()
    tab.lab.place.server.wait_for(lambda r: r.outcome == "client_disconnected", 20)
    tab.idle()
    tab.finish(2)
    expect(tab.output(2)).to_contain_text("w9 ")
    expect(tab.output(2)).to_contain_text("stopped by a kernel interrupt")
    tab.shot("f5-shown")
    tab.finish(3)
    expect(tab.output(3)).to_contain_text("interrupted")
    tab.lab.place.server.script = HUNDRED
    tab.finish(1)  # the cell itself runs again
    expect(tab.output(1)).to_contain_text("w99")
    expect(tab.button(1)).to_have_count(0)


def test_after_f5_a_background_turn_is_shown_so_far(tab: Tab) -> None:
    tab.begin("%%agent --bg -o r\ncount", "%agent show", "%agent stop", "%agent wait")
    tab.finish(1)
    expect(tab.output(1)).to_contain_text("w9 ")
    tab.save()
    tab.reload()
    tab.idle()
    tab.finish(2)
    expect(tab.output(2)).to_contain_text("w9 ")
    expect(tab.output(2)).not_to_contain_text("stopped by")
    tab.shot("f5-background")
    tab.finish(3)
    tab.finish(4)
    tab.finish(2)
    expect(tab.output(2)).to_contain_text("w9 ")
    expect(tab.output(2)).to_contain_text("stopped by")


def test_a_closed_page_does_not_end_the_turn(tab: Tab, chrome: BrowserContext) -> None:
    server = tab.lab.place.server
    tab.begin("%%agent -o r\ncount", "%agent show")
    server.script = HUNDRED
    tab.run(1)
    expect(tab.output(1)).to_contain_text("w9 ")
    tab.page.close()
    (turn,) = [r for r in server.requests if r.scenario == "hundred"]
    assert turn.outcome is None  # in mid turn
    server.wait_for(lambda r: r.scenario == "hundred" and r.outcome == "completed", 30)
    again = Tab(chrome.new_page(), tab.lab, tab.path).open()
    try:
        again.finish(2)
        expect(again.output(2)).to_contain_text("w99")
        expect(again.output(2)).to_contain_text("completed")
        again.shot("closed-and-back")
    finally:
        again.page.close()


#: Notes what of ours moves, at every frame.
MOTION = f"""() => {{
  window.moved = new Set(); window.looked = 0;
  const look = () => {{
    window.looked += document.querySelectorAll('{OURS}').length ? 1 : 0;
    for (const one of document.getAnimations())
      if (one.playState === 'running' && one.effect.target.closest('{OURS}'))
        window.moved.add(`${{one.constructor.name}} of ${{one.effect.target.className}}`);
    requestAnimationFrame(look);
  }};
  look();
}}"""
SPIN = f"""() => {{
  const one = document.querySelector('{OURS}');
  one.animate([{{opacity: 0.9}}, {{opacity: 1}}], 200);
}}"""


def test_nothing_moves_where_less_motion_is_wanted(tab: Tab) -> None:
    tab.page.emulate_media(reduced_motion="reduce")
    tab.lab.place.server.script = TOUR
    tab.begin("%%agent --tools Bash -o r\ntour")
    tab.page.evaluate(MOTION)
    tab.run(1)
    expect(tab.output(1)).to_contain_text("w9 ")
    tab.button(1).hover()
    expect(tab.output(1)).to_contain_text("w30 ")
    tab.button(1).click()
    tab.ended(1)
    tab.output(1).locator("summary").first.click()
    expect(tab.output(1).locator("details").first).to_have_attribute("open", "")
    assert tab.page.evaluate("window.looked") > 30
    assert tab.page.evaluate("[...window.moved]") == []
    tab.page.evaluate(SPIN)
    tab.page.wait_for_function("window.moved.size > 0")  # so it would be seen


def test_without_ipywidgets_the_status_says_how_to_stop(tab: Tab) -> None:
    tab.begin("%%agent -o r\ncount", load="import sys\nsys.modules['ipywidgets'] = None\n")
    tab.run(1)
    expect(tab.output(1)).to_contain_text("w3 ")
    expect(tab.output(1)).to_contain_text(re.compile("to stop: .*interrupt the kernel"))
    expect(tab.button(1)).to_have_count(0)
    tab.shot("no-ipywidgets")
    tab.interrupt()
    tab.ended(1)
    expect(tab.output(1)).to_contain_text("stopped by a kernel interrupt")
    expect(tab.output(1)).to_contain_text("w3 ")
