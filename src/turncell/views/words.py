"""The words every view uses: what a turn does, and how it ended."""

from __future__ import annotations

import math
import os

from turncell.archive.notebook import here
from turncell.outcome import StopReceipt, ToolCall, TurnResult, main_input
from turncell.picture import ASKED, Segment, Snapshot
from turncell.plain import revealed
from turncell.questions import Question, choices_in
from turncell.views.cleaning import boundary, clean

__all__ = [
    "error_text",
    "final_line",
    "earlier_lines",
    "near",
    "question_call",
    "question_line",
    "status_line",
    "stop_label",
    "survivor_lines",
    "tool_line",
]

_SILENT_AFTER = 10.0  # seconds without a word from the agent before the status says so
_WHY = {0: "no answer from the API", 401: "401: is the key right?"}  # why it is tried again
_SUMMARY = 80  # characters of a tool's input on its line
_ERROR_LINE = 300
_SHORT = 40  # the same, in the status
_BY = {
    "user": "by you",
    "kernel_interrupt": "by a kernel interrupt",
    "timeout": "by its time limit",
    "shutdown": "as turncell was closed",
    "api": "from code",
}
_TAKEN = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_LIMITS = {"budget": "the budget is used up", "max_turns": "the limit of model turns is reached"}
_PARTIAL = ("interrupted", "killed", "failed", "lost", "unstopped")

End = Snapshot | TurnResult  #: what a finished turn is described from


def status_line(snapshot: Snapshot) -> str:
    """One line about a turn under way: state, time, session, and what is unusual."""
    parts = [_state(snapshot), snapshot.session, snapshot.model or "", *_trouble(snapshot)]
    if snapshot.phase == "running":
        parts += [_hooks(snapshot), _doing(snapshot), _progress(snapshot)]
    parts += _spent(snapshot)
    return clean(" · ".join(filter(None, parts)))


def _trouble(snapshot: Snapshot) -> list[str]:
    retry, parts = snapshot.retry, []
    if retry is not None and snapshot.phase != "stopping":
        why = _WHY.get(retry.status or 0, str(retry.status))
        parts.append(f"retrying {retry.attempt}/{retry.limit} in {retry.delay:.1f} s ({why})")
    elif snapshot.silent_for >= _SILENT_AFTER:
        parts.append(f"silent for {int(snapshot.silent_for)} s")
    return parts


def _running(snapshot: Snapshot) -> list[Segment]:
    open_ones = [s for s in snapshot.segments if s.tool is not None and s.tool.status is None]
    return [segment for segment in open_ones if segment.text != ASKED]


def _doing(snapshot: Snapshot) -> str:
    """The tool that runs, for how long, and how many more do."""
    running = _running(snapshot)
    if not running:
        return ""
    newest = running[-1]
    assert newest.tool is not None, "only tools run"
    words = f"{newest.tool.name} {_summary(newest.tool, _SHORT)}".strip()
    seconds = max(0, int(snapshot.now - newest.began))
    more = f" and {len(running) - 1} more" if len(running) > 1 else ""
    return f"{words} {seconds} s{more}"


def _hooks(snapshot: Snapshot) -> str:
    """The user's hook that holds the agent up; most are over before anybody could read it."""
    slow = [(name, snapshot.now - at) for name, at in snapshot.hooks if snapshot.now - at >= 1]
    return f"your hook {slow[0][0]} runs {int(slow[0][1])} s" if slow else ""


def _progress(snapshot: Snapshot) -> str:
    """How far the agent is on its own list."""
    todos = snapshot.todos
    done = sum(todo.status == "completed" for todo in todos)
    now = next((todo.text for todo in todos if todo.status == "in_progress"), "")
    if not todos:
        return ""
    return f"{done} of {len(todos)} done" + (f": {_cut(now, _SHORT)}" if now else "")


def _spent(end: End) -> list[str]:
    parts = [_tokens(end.usage)] if end.usage else []
    return parts + ([f"{end.cost_usd:.4f} USD"] if end.cost_usd is not None else [])


def _state(snapshot: Snapshot) -> str:
    if snapshot.phase == "queued" and snapshot.queued_behind:
        turns = "1 turn" if snapshot.queued_behind == 1 else f"{snapshot.queued_behind} turns"
        return f"queued behind {turns}"
    if snapshot.phase == "stopping" and snapshot.stop is not None:
        stop = snapshot.stop
        rung_left = _whole(stop.rung_ends - snapshot.now)
        all_left = _whole(stop.stop_ends - snapshot.now)
        return f"stopping: {stop.rung}, {rung_left} s left (at most {all_left} s in all)"
    word = "waiting for an answer" if snapshot.phase == "waiting" else snapshot.phase
    elapsed = int(snapshot.elapsed)
    return word if snapshot.phase == "starting" and not elapsed else f"{word} {elapsed} s"


def stop_label(snapshot: Snapshot) -> str:
    """The words on the Stop button."""
    if snapshot.phase != "stopping" or snapshot.stop is None:
        return "Stop"
    return f"Stopping {_whole(snapshot.stop.stop_ends - snapshot.now)} s (Force)"


def _whole(seconds: float) -> int:
    return max(0, math.ceil(seconds))


def tool_line(tool: ToolCall, running: int | None = None, *, asked: bool = False) -> str:
    """One line about a tool call: name, its main input, status word, seconds; `running` says
    how many it has been running, `asked` that a person is asked about it."""
    word = "waiting for an answer" if asked else "running"
    parts = [f"{tool.name} {_summary(tool)}".strip(), tool.status or word]
    if tool.seconds is not None:
        parts.append(_seconds(tool.seconds))
    elif running:
        parts.append(f"{running} s")
    return clean(" · ".join(parts))


def question_line(question: Question) -> str:
    """One line about a question and, once it is settled, what became of it."""
    if question.choices:
        words = f"asked: {_summary(ToolCall('', question.tool, question.input))}"
    else:
        words = f"asked: may it use {question_call(question)}"
    parts = [words, question.answer or "waiting for an answer"]
    if question.note:
        parts[-1] += f" ({_cut(question.note, _ERROR_LINE)})"
    return clean(" · ".join(parts))


def question_call(question: Question) -> str:
    """The call that a permission is asked for, in a few words."""
    call = ToolCall("", question.tool, revealed(question.input))
    return clean(f"{question.tool} {_summary(call)}".strip())


def _summary(tool: ToolCall, limit: int = _SUMMARY) -> str:
    if not tool.input:
        return ""
    asked = [choice.text for choice in choices_in(tool.name, tool.input)]
    if asked:
        return _cut(" / ".join(asked), limit)
    return _cut(near(main_input(tool.input)), limit)


def near(path: str) -> str:
    """A path as seen from here; other words stay as they are."""
    return path.removeprefix(os.path.join(here(), ""))


def _cut(text: str, limit: int) -> str:
    # Only the head is looked at: an input can hold a whole file.
    line = " ".join(clean(text[: 8 * limit]).split())
    return line if len(line) <= limit else line[: boundary(line, limit - 1)] + "…"


def _seconds(value: float) -> str:
    if value < 59.5:
        digits = 2 if value < 1 else 1 if value < 10 else 0
        return f"{value:.{digits}f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s"


def final_line(end: End) -> str:
    """One line with the facts of a finished turn."""
    parts = [_outcome(end)]
    if end.text and str(end.outcome) in _PARTIAL:
        parts.append("text is partial")
    if end.receipt is not None:
        parts += _after_stop(end.receipt)
    parts += _figures(end)
    parts.append(f"{end.session} {end.session_id[:8]}".strip())
    return clean(" · ".join(filter(None, parts)))


def _outcome(end: End) -> str:
    outcome, receipt = str(end.outcome), end.receipt
    by = _BY.get(str(end.reason), "on request")
    if outcome == "interrupted":
        return f"stopped {by} ({_how(receipt)})"
    if outcome == "killed":
        return f"stopped {by}, by force ({_how(receipt)})"
    if outcome == "unstopped":
        return f"NOT stopped: asked {by}, still running (%agent stop --now forces it)"
    if outcome == "lost":
        return "lost: the agent is gone"
    if outcome == "failed":
        limit = _LIMITS.get(str(end.reason))
        return f"failed: {limit}" if limit else "failed"
    return f"completed before the stop {by} took hold" if receipt else "completed"


def _how(receipt: StopReceipt | None) -> str:
    if receipt is None:
        return "no receipt"
    over = receipt.reaped_after if receipt.reaped_after is not None else receipt.ended_after
    return str(receipt.rung) + (f", {_seconds(over)}" if over is not None else "")


def _after_stop(receipt: StopReceipt) -> list[str]:
    count = len(receipt.survivors)
    seen = "nothing left running"
    if receipt.reaped_after is None:
        seen = "nobody could look what is left running"
    left = f"{count} still running" if count else seen
    return ["agent kept warm" if receipt.connection == "warm" else "agent closed", left]


def _figures(end: End) -> list[str]:
    duration = end.elapsed if isinstance(end, Snapshot) else end.duration
    return [_seconds(duration), *_spent(end)]


def _tokens(usage: dict[str, int]) -> str:
    taken = [usage[name] for name in _TAKEN if usage.get(name) is not None]
    made = usage.get("output_tokens")
    parts = [f"{_count(sum(taken))} in"] if taken else []
    return ", ".join(parts + ([f"{_count(made)} out"] if made is not None else []))


def _count(tokens: int) -> str:
    return "1 token" if tokens == 1 else f"{tokens:,} tokens"


def error_text(end: End) -> str:
    """The error of a turn in at most two lines, "" when there is none."""
    lines = [line for line in clean(end.error or "").splitlines() if line.strip()]
    return "\n".join(_cut(line, _ERROR_LINE) for line in lines[:2])


def survivor_lines(end: End) -> list[str]:
    """A line for each process that could not be ended."""
    survivors = end.receipt.survivors if end.receipt is not None else ()
    return [clean(f"STILL RUNNING: pid {s.pid} {s.command}") for s in survivors]


def earlier_lines(end: End) -> list[str]:
    """A line for each process that an earlier turn had left running on purpose."""
    if end.receipt is None:
        return []
    spared, taken = end.receipt.spared, end.receipt.taken
    lines = [f"left running by an earlier turn: pid {s.pid} {s.command}" for s in spared]
    lines += [f"of an earlier turn, ended too: pid {s.pid} {s.command}" for s in taken]
    return [clean(line) for line in lines]
