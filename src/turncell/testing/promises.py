"""What a stop promises, as checks of what was seen of one stop from the outside.

`Evidence` is gathered by whoever drove the stop (a test on a jumped clock, a test of a
real agent, a campaign); `violations` says which promises it breaks. A check asks the
evidence alone: it knows nothing of how turncell stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from turncell import events as ev
from turncell.outcome import Outcome, Rung, StopReceipt, TurnResult
from turncell.testing.evidence import Evidence, Pictures
from turncell.told import was_heard

__all__ = ["PROMISES", "Evidence", "Pictures", "violations"]

_OVER = (Outcome.INTERRUPTED, Outcome.KILLED, Outcome.COMPLETED)


def seen(e: Evidence, result: TurnResult) -> Iterator[str]:
    """Every Stop gets a visible answer at once."""
    if e.pictures is None:
        return
    answers = (p.at for p in e.pictures if p.snapshot.phase in ("stopping", "ended"))
    first = next((at for at in answers if at >= e.asked_at), None)
    if first is None or first - e.asked_at > e.answer:
        yield "no picture said so in time"


def bounded(e: Evidence, result: TurnResult) -> Iterator[str]:
    """It takes no longer than was known and shown beforehand."""
    if e.over_at is None:
        yield "it was never over"
        return
    if e.over_at - e.asked_at > e.bound + e.slack:
        yield f"it took {e.over_at - e.asked_at:.2f} s, bound {e.bound:.2f} s"
    pictures = [picture.snapshot for picture in e.pictures or ()]
    stopping = [p.stop for p in pictures if p.phase == "stopping"]
    if None in stopping:
        yield "a picture says 'stopping' and not how long"
    late = [s.stop_ends for s in stopping if s is not None and e.over_at > s.stop_ends + e.slack]
    if late:
        yield f"the screen promised an end {e.over_at - min(late):.2f} s earlier"


def an_ack_is_no_end(e: Evidence, result: TurnResult) -> Iterator[str]:
    """`stopped` needs the turn's own terminal message, or no process."""
    terminal = any(
        isinstance(event, ev.AgentFinished) and event.turn_id == result.turn_id
        for event in result.events
    )
    needs = result.outcome in (Outcome.INTERRUPTED, Outcome.COMPLETED)
    if needs and e.sent != 0 and not terminal and not e.withdrawn:
        yield f"{result.outcome} without this turn's terminal message"
    if result.outcome is Outcome.KILLED and terminal:
        yield "killed, but the agent had ended the turn by itself"
    if result.outcome is Outcome.KILLED and result.receipt and result.receipt.connection == "warm":
        yield "killed, and its agent is kept"


def proved(e: Evidence, result: TurnResult) -> Iterator[str]:
    """No process of the turn is alive, or the receipt lists it."""
    receipt = result.receipt
    if receipt is None:
        yield "no receipt"
        return
    if result.outcome is Outcome.UNSTOPPED:
        return
    listed = {survivor.pid for survivor in receipt.survivors}
    alive = {survivor.pid for survivor in e.left}
    if alive - listed:
        yield f"alive and not listed: {[str(s) for s in e.left if s.pid not in listed]}"
    if listed - alive:
        yield f"listed and not alive: {[str(s) for s in receipt.survivors if s.pid not in alive]}"
    if receipt.reaped_after is None and not receipt.survivors:
        yield "the receipt proves nothing"
    yield from _of_earlier_turns(e, receipt)


def _of_earlier_turns(e: Evidence, receipt: StopReceipt) -> Iterator[str]:
    named = {s.pid for s in [*receipt.spared, *receipt.taken]}
    if missing := [str(s) for s in e.earlier if s.pid not in named]:
        yield f"work of earlier turns is not named: {missing}"
    if e.alive is None:
        return
    if wrong := [str(s) for s in receipt.spared if s.pid not in e.alive]:
        yield f"said to be spared, and dead: {wrong}"
    if wrong := [str(s) for s in receipt.taken if s.pid in e.alive]:
        yield f"said to be ended, and alive: {wrong}"
    may_go = {survivor.pid for survivor in e.children}
    if wrong := [str(s) for s in e.earlier if s.pid not in e.alive | may_go]:
        yield f"work of earlier turns was ended: {wrong}"


def nothing_shown_is_lost(e: Evidence, result: TurnResult) -> Iterator[str]:
    """Text that reached the screen stays, on screen, in the result and in the journal."""
    texts = [picture.snapshot.text for picture in e.pictures or ()]
    if lost := [text for text in texts if not result.text.startswith(text)]:
        yield f"shown {lost[-1][-40:]!r}, kept {result.text[-40:]!r}"
    if texts and texts[-1] != result.text:
        yield f"the last picture has {texts[-1][-40:]!r}, the result {result.text[-40:]!r}"
    if result.receipt is not None and result.receipt.text_chars != len(result.text):
        yield f"the receipt counts {result.receipt.text_chars} of {len(result.text)} characters"
    if e.journal is not None and e.journal != result.text:
        yield f"the journal has {e.journal[-40:]!r}, the result {result.text[-40:]!r}"


def resumable(e: Evidence, result: TurnResult) -> Iterator[str]:
    """The id is known before; the next turn continues the same conversation."""
    ids = {"the stopped turn": result.session_id}
    if e.after is None and e.after_text:
        yield "the next turn was never over"
    if e.after is not None:
        ids["the next turn"] = e.after.session_id
        if e.after.outcome is not Outcome.COMPLETED:
            yield f"the next turn ended {e.after.outcome}: {e.after.error}"
    for whose, session_id in ids.items():
        if session_id != e.session_id:
            yield f"{whose} has the id {session_id[:8]}, not {e.session_id[:8]}"
    if e.remembers is False:
        yield "the next turn does not know what was said before the stop"


def lowest_rung_first(e: Evidence, result: TurnResult) -> Iterator[str]:
    """It escalates only when a rung's time is up, and says which rung worked."""
    receipt = result.receipt
    if receipt is None:
        return
    # A prompt that the agent never had needs no rung but the first.
    if e.sent != 0 and e.least_rung is not None and receipt.rung is not e.least_rung:
        yield f"it took the rung {receipt.rung}, and {e.least_rung} would have done"
    if receipt.connection == "warm" and receipt.rung is not Rung.INTERRUPT:
        yield f"called warm after the rung {receipt.rung}"
    rungs = [event.rung for event in result.events if isinstance(event, ev.StopProgress)]
    order = [rung.value for rung in Rung]
    if [order.index(rung) for rung in rungs] != sorted(order.index(rung) for rung in rungs):
        yield f"it went down the ladder: {rungs}"


def contained(e: Evidence, result: TurnResult) -> Iterator[str]:
    """No other session is touched."""
    other = e.neighbour
    if other is not None and (other.outcome, other.text) != (Outcome.COMPLETED, e.neighbour_text):
        yield f"another session's turn ended {other.outcome} with {other.text[-40:]!r}"


def exact(e: Evidence, result: TurnResult) -> Iterator[str]:
    """Nothing of a stopped turn reaches a later one, and no stop hits the next."""
    for turn, whose in ((result, "the stopped turn"), (e.after, "the next turn")):
        foreign = turn is not None and {x.turn_id for x in turn.events} - {turn.turn_id, ""}
        if foreign:
            yield f"{whose} holds events of {sorted(foreign)}"
    if e.after is not None and e.after.text != e.after_text:
        yield f"the next turn says {e.after.text[:60]!r}, not {e.after_text[:60]!r}"
    if e.after is not None and e.after.receipt is not None:
        yield "the stop hit the next turn"


def deliberate(e: Evidence, result: TurnResult) -> Iterator[str]:
    """A stopped turn is not retried, not called an error, not called a success."""
    if e.sent is not None and e.sent > 1:
        yield f"the prompt was sent {e.sent} times"
    if result.outcome not in (*_OVER, Outcome.UNSTOPPED):
        yield f"the outcome is {result.outcome}: {result.error}"
    if result.error is not None:
        yield f"it is called an error: {result.error}"
    if result.reason is None:
        yield "it has no reason"
    finished = [event for event in result.events if isinstance(event, ev.AgentFinished)]
    whole = any(event.end == "completed" for event in finished)
    if (result.outcome is Outcome.COMPLETED) is not whole:
        yield f"called {result.outcome}, and the agent said {[f.end for f in finished]}"


def told(e: Evidence, result: TurnResult) -> Iterator[str]:
    """The next prompt lets the model know that it was stopped."""
    if e.after is None:
        return
    stopped = result.outcome in (Outcome.INTERRUPTED, Outcome.KILLED) and was_heard(result)
    if stopped and e.after.told is None:
        yield "the next prompt says nothing of it"
    if result.outcome is Outcome.COMPLETED and e.after.told is not None:
        yield f"the next prompt tells of a stop that had no effect: {e.after.told[-60:]!r}"


#: number -> (name, its check). The eleventh is that it holds everywhere: every case there is.
PROMISES: dict[int, tuple[str, Callable[[Evidence, TurnResult], Iterator[str]]]] = {
    1: ("seen", seen),
    2: ("bounded", bounded),
    3: ("an ack is not an end", an_ack_is_no_end),
    4: ("proved", proved),
    5: ("nothing shown is lost", nothing_shown_is_lost),
    6: ("resumable", resumable),
    7: ("lowest rung first", lowest_rung_first),
    8: ("contained", contained),
    9: ("exact", exact),
    10: ("deliberate", deliberate),
    12: ("told", told),
}


def violations(evidence: Evidence) -> list[str]:
    """What the stop broke: one line each, with the number and the name of the promise."""
    if evidence.result is None or evidence.over_at is None:
        return [f"2 bounded: {evidence.name} was never over"]
    found = []
    for number, (name, check) in PROMISES.items():
        found += [f"{number} {name}: {what}" for what in check(evidence, evidence.result)]
    return found
