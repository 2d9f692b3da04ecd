"""Each promise fails when what keeps it is taken out, and is kept while it is there."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import scenes
from jumped import Room, jumped

from turncell import ladder, link, turn
from turncell import stimuli as st
from turncell.backends.scripted_processes import Stage
from turncell.conversation import Conversation, Order, new_turn_id
from turncell.driver import TurnRun
from turncell.handle import TurnHandle
from turncell.ladder import StopLadder, StopState, StopStimulus
from turncell.outcome import Outcome
from turncell.painter import Painter
from turncell.procs import Verdict
from turncell.record import Record
from turncell.testing import StopCase
from turncell.testing.promises import PROMISES, violations
from turncell.transcript import Transcript
from turncell.turn import Turn

Patch = pytest.MonkeyPatch


def no_picture_of_a_stop(patch: Patch) -> None:
    patch.setattr(Turn, "phase", property(lambda turn: "running"))


def no_rung_ever_ends(patch: Patch) -> None:
    patch.setattr(StopLadder, "_rung_ends", lambda self: None)


def no_end_is_shown(patch: Patch) -> None:
    patch.setattr(Record, "_stop", lambda self: None)


def an_ack_ends_the_stop(patch: Patch) -> None:
    patch.setitem(ladder.TABLE[StopState.ASK], StopStimulus.ACK, StopState.SETTLE)


def nobody_looks_at_the_processes(patch: Patch) -> None:
    patch.setattr(Stage, "clear", lambda self, *_, **__: Verdict())


def earlier_work_is_swept_too(patch: Patch) -> None:
    clear = Stage.clear

    def sweep(self: Stage, token: str, known: Any = (), **options: Any) -> Verdict:
        return clear(self, token, known, **{**options, "spare": ()})

    patch.setattr(Stage, "clear", sweep)


def partial_text_is_dropped(patch: Patch) -> None:
    close = Transcript.close

    def whole_messages_only(self: Transcript, at: float) -> None:
        whole = {k: g for k, g in self._segments.items() if g.segment.settled}
        self._segments = whole
        close(self, at)

    patch.setattr(Transcript, "close", whole_messages_only)


def the_screen_stops_with_the_press(patch: Patch) -> None:
    draw = Painter._draw

    async def not_while_stopping(self: Painter) -> None:
        if self._look().phase == "stopping":
            return
        await draw(self)

    patch.setattr(Painter, "_draw", not_while_stopping)


def a_forced_stop_forgets_the_session(patch: Patch) -> None:
    drop = link.Link.drop

    async def forget(self: link.Link) -> None:
        await drop(self)
        self.session_id, self.opened = str(uuid.uuid4()), False

    patch.setattr(link.Link, "drop", forget)


def it_begins_with_force(patch: Patch) -> None:
    patch.setattr(StopLadder, "_resolve", lambda self, goto: StopState.TERMINATE)


def everybody_is_swept(patch: Patch) -> None:
    clear = Stage.clear

    def sweep(self: Stage, token: str, known: Any = (), **options: Any) -> Verdict:
        return clear(self, token, set(self._actors), **options)

    patch.setattr(Stage, "clear", sweep)


def messages_are_not_matched(patch: Patch) -> None:
    heard = Turn._heard

    def take_all(self: Turn, stimulus: st.Heard, now: float) -> Any:
        return heard(self, st.Heard(replace(stimulus.event, turn_id=self.turn_id)), now)

    patch.setitem(turn._HANDLERS, st.Heard, take_all)


def the_model_is_not_told(patch: Patch) -> None:
    patch.setattr(TurnRun, "_brief", lambda self: None)


def a_stop_is_an_error(patch: Patch) -> None:
    patch.setattr(Turn, "_stopped_outcome", lambda self: Outcome.FAILED)


def a_stop_is_a_success(patch: Patch) -> None:
    patch.setattr(Turn, "_stopped_outcome", lambda self: Outcome.COMPLETED)


def a_killed_turn_is_tried_again(patch: Patch) -> None:
    conduct = Conversation.conduct

    async def again(self: Conversation, order: Order, handle: TurnHandle) -> None:
        await conduct(self, order, handle)
        if handle.result(0, raise_error=False).outcome is Outcome.KILLED:
            stopper = partial(self.stop, handle.turn_id)
            await conduct(self, order, TurnHandle(new_turn_id(), self.name, stopper, 1.0))

    patch.setattr(Conversation, "conduct", again)


@dataclass(frozen=True)
class Removal:
    """A promise, what takes it out, and the agent with whom that shows."""

    promise: int
    take_out: Callable[[Patch], None]
    agent: str
    moment: str = "mid stream"
    route: str = "button"

    def __str__(self) -> str:
        return f"{self.promise} {PROMISES[self.promise][0]}: {self.take_out.__name__}"


REMOVALS = [
    Removal(1, no_picture_of_a_stop, "acks and runs on"),
    Removal(1, the_screen_stops_with_the_press, "acks and runs on"),
    Removal(2, no_rung_ever_ends, "frozen"),
    Removal(2, no_end_is_shown, "frozen"),
    Removal(3, an_ack_ends_the_stop, "acks and runs on"),
    Removal(4, nobody_looks_at_the_processes, "child in its own session"),
    Removal(4, earlier_work_is_swept_too, "ignores signals"),
    Removal(5, partial_text_is_dropped, "ignores signals", "API stalled"),
    Removal(6, a_forced_stop_forgets_the_session, "ignores signals"),
    Removal(7, it_begins_with_force, "polite"),
    Removal(8, everybody_is_swept, "ignores signals"),
    Removal(9, messages_are_not_matched, "terminal message again in the next turn"),
    Removal(10, a_stop_is_an_error, "polite"),
    Removal(10, a_stop_is_a_success, "polite"),
    Removal(10, a_killed_turn_is_tried_again, "ignores signals"),
    Removal(12, the_model_is_not_told, "polite"),
    Removal(12, the_model_is_not_told, "ignores signals"),
]


@pytest.mark.parametrize("removal", REMOVALS, ids=str)
def test_without_what_keeps_it_the_promise_is_seen_to_break(
    removal: Removal, monkeypatch: Patch
) -> None:
    removal.take_out(monkeypatch)
    assert f"{removal.promise} {PROMISES[removal.promise][0]}" in broken(removal)


@pytest.mark.parametrize("removal", REMOVALS, ids=str)
def test_with_it_the_promise_is_kept(removal: Removal) -> None:
    assert broken(removal) == set()


def test_a_removal_for_each() -> None:
    assert {removal.promise for removal in REMOVALS} == set(PROMISES)


#: The misbehaviour that the contract names; what only a real wire can show (broken lines,
#: bytes that are no text) is tried with the real agent.
MISBEHAVIOUR = {
    "never acks", "acks and runs on", "acks late", "no terminal message",
    "terminal message twice", "terminal message again in the next turn", "dies before init",
    "dies mid ack", "frozen", "ignores signals", "child in its own session",
    "double-forked grandchild, deaf", "floods", "blocks its event loop", "background task",
}  # fmt: skip
PLACES = {
    "before init", "first delta", "mid stream", "tool running", "question pending",
    "API stalled", "API retrying", "before the result",
}  # fmt: skip
WAYS = {
    "button", "kernel interrupt", "%agent stop", "timeout", "API", "unload", "kernel shutdown",
}  # fmt: skip


def test_the_eleventh_promise_everywhere() -> None:
    tried = {(case.agent, case.moment, case.route) for case in scenes.CASES}
    cannot_be_had = {
        (agent, moment, route)
        for agent, moment, route in product(MISBEHAVIOUR, PLACES, WAYS)
        # It waits for a person, dies before it says anything, or floods and does nothing else.
        if (route == "timeout" and moment == "question pending")
        or agent == "dies before init"
        or (
            agent == "floods"
            and moment in ("before init", "question pending", "API stalled", "API retrying")
        )
    }
    assert set(product(MISBEHAVIOUR, PLACES, WAYS)) - tried == cannot_be_had
    assert {route for agent, _, route in tried if agent == "dies before init"} >= WAYS - {"timeout"}


def broken(removal: Removal) -> set[str]:
    """The promises that the stop of this case breaks."""
    found: list[str] = []

    @jumped
    async def stopped(room: Room) -> None:
        case = StopCase(removal.agent, removal.moment, removal.route)
        found.extend(violations(await scenes.stop(room, case)))

    stopped()
    return {line.split(":")[0] for line in found}
