"""What a turn puts into a notebook: how much, in what form, and what stays."""

from __future__ import annotations

import importlib
import json
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from screen import (
    PARENT,
    Script,
    Socket,
    noop,
    on_screen,
    shell_of,
    shown,
    streamed,
    whole_turn,
    words_of,
)

from turncell import events as ev
from turncell.outcome import RECORD_TYPE, Outcome, Reason, Rung, StopReceipt, Survivor, TurnResult
from turncell.picture import Snapshot, StopView
from turncell.views import saved
from turncell.views.notebook import NotebookView
from turncell.views.words import final_line

VIEW = "application/vnd.jupyter.widget-view+json"
MARKDOWN = "Some **strong** words in a sentence of prose.\n\n- an item\n- one more\n\n"


@pytest.mark.parametrize("step", [20, 100])
@pytest.mark.parametrize("text", ["word and more words, ", MARKDOWN, "| a | b |\n", "- x y z\n"])
def test_bytes_grow_with_the_text(text: str, step: int) -> None:
    unit = 4000 // len(text)
    small, large = streamed(text * unit, step), streamed(text * unit * 4, step)
    assert large.size < 5 * small.size
    assert len(large.messages) < 5 * len(small.messages)


def test_bytes_of_a_background_turn_grow_with_the_text() -> None:
    small = streamed(MARKDOWN * 100, 20, background=True)
    large = streamed(MARKDOWN * 400, 20, background=True)
    assert large.size < 5 * small.size


def test_a_batch_gets_one_display_and_no_update() -> None:
    socket = shown(whole_turn(), live=False)
    assert [message["msg_type"] for message in socket.messages] == ["display_data"]


def test_everything_goes_to_its_own_cell() -> None:
    assert all(m["parent_header"] == PARENT for m in shown(whole_turn()).messages)


def test_the_button_comes_first_and_reads_well_without_a_widget() -> None:
    first = shown([]).messages[0]["content"]["data"]
    assert first[VIEW]["model_id"]
    assert first["text/plain"] == "turncell: a turn was running when this was saved"


def test_the_end_is_one_output_without_a_widget() -> None:
    socket = shown(whole_turn())
    for deaf in (False, True):
        (bundle,) = on_screen(socket.messages, deaf=deaf)
        assert set(bundle) == {"text/plain", "text/markdown", "text/html", RECORD_TYPE}


def test_a_background_turn_only_updates_what_open_made() -> None:
    kinds = [m["msg_type"] for m in shown(whole_turn(), background=True).messages]
    assert kinds[:2] == ["display_data"] * 2
    assert set(kinds[2:]) == {"update_display_data"}
    status, text = on_screen(shown(whole_turn(), background=True).messages)
    assert VIEW not in status
    assert RECORD_TYPE in text


def test_without_ipywidgets_the_status_says_how_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    socket = Socket()
    view = NotebookView(shell_of(socket), noop, live=True, hint="press I twice")
    view.open()
    assert view.comm_id is None
    assert on_screen(socket.messages)[0]["text/plain"] == "starting · press I twice"


def test_there_is_a_sign_of_life_before_the_button_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "ipywidgets")
    shown_first, *rest = [message["content"]["data"] for message in shown([]).messages]
    assert shown_first["text/plain"] == "starting"
    assert [VIEW in bundle for bundle in rest] == [True, False]
    assert rest[1]["text/plain"] == ""


def test_no_widget_is_left_in_the_kernel() -> None:
    widgets = importlib.import_module("ipywidgets.widgets.widget")
    before = set(widgets._instances)
    shown(whole_turn())
    assert set(widgets._instances) == before


def test_a_click_stops_until_the_end() -> None:
    widgets = importlib.import_module("ipywidgets.widgets.widget")
    clicks: list[int] = []
    view = NotebookView(shell_of(Socket()), lambda: clicks.append(1), live=True)
    button = widgets._instances[view.comm_id]
    button.click()
    script = Script()
    view.show(script.at("stopping", stop=StopView("interrupt", 103.0, 112.0)))
    assert button.description == "Stopping 12 s (Force)"
    button.click()
    view.show(script.end())
    button.click()
    assert len(clicks) == 2


def test_a_fault_in_the_rich_forms_keeps_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str, **_: bool) -> str:
        raise RuntimeError("broken")

    monkeypatch.setattr("turncell.views.frames.to_html", broken)
    socket = Socket()
    view = NotebookView(shell_of(socket), noop, live=True)
    view.open()
    with pytest.raises(RuntimeError):
        view.show(list(whole_turn())[-1])
    (bundle,) = on_screen(socket.messages)
    assert "And the *end*." in bundle["text/plain"]


def test_a_publisher_without_a_kernel_is_used_as_it_is() -> None:
    calls: list[dict[str, Any]] = []
    publisher = SimpleNamespace(publish=lambda **call: calls.append(call), clear_output=print)
    view = NotebookView(SimpleNamespace(display_pub=publisher), None, live=True)
    view.open()
    view.show(next(whole_turn()))
    assert [call["update"] for call in calls] == [False, True]


def test_a_result_and_its_last_picture_leave_the_same() -> None:
    last: Snapshot = list(whole_turn())[-1]
    result = saved._result(last)
    of_result, of_picture = saved.result_bundle(result), saved.ended_bundle(last)
    assert of_result[RECORD_TYPE] == of_picture[RECORD_TYPE]
    for part in ("First", " ls -l · done", "stopped by you", "text is partial"):
        for kind in ("text/plain", "text/html"):
            assert part in of_result[kind]
            assert part in of_picture[kind]


def test_the_record_holds_no_second_copy_of_the_text() -> None:
    (bundle,) = on_screen(streamed("one two three four " * 300, 40).messages)
    record = json.dumps(bundle[RECORD_TYPE])
    assert "one two" not in record
    assert bundle[RECORD_TYPE]["text_chars"] == 5700
    assert bundle[RECORD_TYPE]["outcome"] == "completed"


def test_survivors_are_listed_in_red() -> None:
    receipt = StopReceipt(Reason.USER, Rung.KILL, 0.0, survivors=[Survivor(4711, "sleep <9>")])
    result = TurnResult("", Outcome.KILLED, Reason.USER, "", "", receipt=receipt)
    bundle = result._repr_mimebundle_()
    assert "STILL RUNNING: pid 4711 sleep <9>" in bundle["text/plain"]
    assert re.search("background:#b00020;color:#fff[^>]*>STILL RUNNING", bundle["text/html"])
    assert "1 still running" in final_line(result)
    assert "nothing left" not in final_line(result)


def test_a_text_that_grows_above_a_tool_stays_above_it() -> None:
    socket, script = Socket(), Script()
    view = NotebookView(shell_of(socket), None, live=True)
    view.open()
    view.show(script.fold(ev.TextDelta(text="Begin. ", block="b")))
    view.show(script.fold(ev.ToolStarted(tool_id="x", name="Bash")))
    assert view.show(script.fold(ev.TextDelta(text="More words. " * 600, block="b")))  # too early
    assert not view.show(script.at(after=1.0))
    _, text, tool = on_screen(socket.messages)
    assert text["text/plain"] == "Begin. " + "More words. " * 600
    assert tool["text/plain"] == "Bash · running · 1 s"


def test_bytes_of_a_text_with_something_below_grow_with_it() -> None:
    def size(units: int) -> int:
        socket, script = Socket(), Script()
        view = NotebookView(shell_of(socket), None, live=True)
        view.open()
        view.show(script.fold(ev.TextDelta(text="Begin. ", block="b")))
        view.show(script.fold(ev.Notice(text="a notice")))
        for _ in range(units):
            view.show(script.fold(ev.TextDelta(text="More words of it. " * 4, block="b")))
        return socket.size

    assert size(800) < 5 * size(200)


def test_a_text_that_waits_for_the_rest_of_an_emoji_is_not_behind() -> None:
    script = Script()
    view = NotebookView(shell_of(Socket()), None, live=True)
    view.open()
    view.show(script.fold(ev.TextDelta(text="Done! ", block="b")))
    view.show(script.fold(ev.TextDelta(text="\U0001f389", block="b")))
    assert not view.show(script.at(after=5.0))


def test_many_cards_are_sent_few_times() -> None:
    def size(cards: int) -> int:
        socket, script = Socket(), Script()
        view = NotebookView(shell_of(socket), None, live=True)
        view.open()
        for n in range(cards):
            command = {"command": f"step {n} " * 40}
            script.fold(ev.ToolStarted(tool_id=f"t{n}", name="Bash", input=command))
            ended = ev.ToolEnded(tool_id=f"t{n}", status="done", output="a line\n" * 60)
            view.show(script.fold(ended))
        return socket.size

    assert size(1200) < 2.5 * size(600)


def test_a_picture_that_fails_costs_only_the_moving_one(monkeypatch: pytest.MonkeyPatch) -> None:
    socket, script = Socket(), Script()
    view = NotebookView(shell_of(socket), None, live=True)
    view.open()
    script.fold(ev.TextDelta(text="words " * 5000, block="b"))
    monkeypatch.setattr(view._flow, "draw", broken)
    with pytest.raises(RuntimeError):
        view.show(script.end())
    (bundle,) = on_screen(socket.messages)
    assert {"text/html", "text/markdown", "text/plain", RECORD_TYPE} == set(bundle)


def broken(*_: Any) -> None:
    raise RuntimeError("broken")


def test_text_that_was_shown_stays_shown() -> None:
    socket, script = Socket(), Script()
    view = NotebookView(shell_of(socket), None, live=True)
    view.open()
    seen = 0
    for picture in script.say("Some words of an answer. " * 800, step=90):
        view.show(picture)
        shown = sum(len(words_of(b).strip()) for b in on_screen(socket.messages)[1:])
        assert shown >= seen - 2
        seen = shown
