"""A view that fails, is stuck or is slow: neither a turn nor a stop takes notice."""

from __future__ import annotations

import threading
import time

import anyio
import pytest
from jumped import BrokenView, Pictures, Room, StuckView, jumped

from turncell import events as ev
from turncell.backends.scripted_steps import Ask, Freeze, Play, Rest, Say
from turncell.outcome import Outcome, Rung
from turncell.painter import LAST_PICTURE

SLOW = Say("word " * 20, pace=0.1)
ERRORS = [ValueError("broken"), RuntimeError("dictionary changed size"), OSError(32, "pipe")]


@pytest.mark.parametrize("after", [1, 3])
@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
@jumped
async def test_a_view_that_raises_is_called_no_more_but_for_the_last_picture(
    room: Room, error: Exception, after: int
) -> None:
    room.plays(Play(SLOW))
    view = BrokenView(error, after)
    result = await room.send("go", view=view).gone(within=2.2)
    assert (result.outcome, result.text) == (Outcome.COMPLETED, SLOW.text)
    assert len(view.seen) == after + 1 and view.seen[-1].text == result.text
    assert threading.current_thread().name not in view.threads  # never on the loop


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
@jumped
async def test_a_view_that_raises_does_not_keep_a_turn_from_being_stopped(
    room: Room, error: Exception
) -> None:
    room.plays(Play("half ", Freeze()))
    cell = room.send("go", view=BrokenView(error))
    await cell.said("half")
    cell.stop()
    result = await cell.gone()
    assert result.receipt is not None and result.receipt.rung is Rung.KILL
    assert cell.stop_took == pytest.approx(9.0, abs=0.02)


@jumped
async def test_a_question_that_a_broken_view_cannot_show_is_denied(room: Room) -> None:
    room.plays(Play("May I? ", Ask("Bash"), "As you wish."))
    cell = room.send("go", view=BrokenView(ERRORS[0], 1))
    result = await cell.gone(within=5.0)
    assert (result.outcome, result.text) == (Outcome.COMPLETED, "May I? \n\nAs you wish.")
    settled = [e for e in result.events if isinstance(e, ev.QuestionSettled)]
    assert [e.answer for e in settled] == ["denied"]


@pytest.mark.parametrize("after", [1, 2, 5])
@jumped
async def test_a_view_that_is_stuck_costs_the_last_picture_at_most(room: Room, after: int) -> None:
    room.plays(Play(SLOW))
    view = StuckView(after)
    cell = room.send("go", view=view)
    result = await cell.gone()
    assert (result.outcome, result.text) == (Outcome.COMPLETED, SLOW.text)
    assert cell.over_after == pytest.approx(2.0 + LAST_PICTURE, abs=0.1)
    assert len(view.seen) == after


@jumped
async def test_a_stop_under_a_stuck_view_takes_as_long_as_ever(room: Room) -> None:
    room.plays(Play("half ", Freeze(), when="freeze"), Play("half ", Rest(), when="rest"))
    for prompt, ladder in (("rest", 0.0), ("freeze", 9.0)):
        view = StuckView()
        cell = room.send(prompt, view=view)
        await cell.said("half")
        cell.stop()
        result = await cell.gone()
        assert result.receipt is not None and result.receipt.reaped_after is not None
        assert result.receipt.reaped_after == pytest.approx(ladder, abs=0.02)
        assert cell.stop_took == pytest.approx(ladder + LAST_PICTURE, abs=0.05)


@jumped
async def test_fifty_stuck_views_hold_nobody_up(room: Room) -> None:
    room.plays(Play("half ", Rest(), when="rest"), Play("done"))
    views = [StuckView() for _ in range(50)]
    for view in views:
        await room.send("go", view=view).gone(within=4)
    cell = room.send("rest")
    await cell.said("half")
    cell.stop()
    assert (await cell.gone(within=0.1)).outcome is Outcome.INTERRUPTED


@jumped
async def test_pictures_are_paced_and_every_phase_is_shown(room: Room) -> None:
    room.plays(Play(Say("word " * 1000, pace=0.01)), start=1.0)
    view = Pictures()
    cell = room.send("go", view=view)
    await anyio.sleep(6)
    cell.stop()
    result = await cell.gone()
    phases = list(dict.fromkeys(picture.phase for picture in view.seen))
    assert phases == ["queued", "starting", "running", "stopping", "ended"] or phases == [
        "starting", "running", "stopping", "ended",
    ]  # fmt: skip
    assert len(view.seen) <= 20 * 6 + 5
    assert view.seen[-1].text == result.text and view.seen[-1].receipt == result.receipt
    assert view.seen[-1].outcome == str(result.outcome)


@jumped
async def test_a_silent_agent_is_drawn_once_a_second(room: Room) -> None:
    room.plays(Play("half ", Rest(30.0)))
    view = Pictures()
    await room.send("go", view=view).gone()
    assert 28 <= len(view.seen) <= 36
    assert max(picture.silent_for for picture in view.seen) >= 28


class SlowView(Pictures):
    """Draws 20 ms, in real time, and never two at a time."""

    drawing = False
    overlapped = False

    def show(self, snapshot: object) -> None:
        self.overlapped = self.overlapped or self.drawing
        self.drawing = True
        time.sleep(0.02)
        super().show(snapshot)  # type: ignore[arg-type]
        self.drawing = False


@jumped
async def test_pictures_never_overlap_and_the_last_is_whole(room: Room) -> None:
    room.plays(Play(Say("word " * 500, pace=0.01)))
    view = SlowView()
    result = await room.send("go", view=view).gone()
    assert not view.overlapped
    assert view.seen[-1].phase == "ended" and view.seen[-1].text == result.text
