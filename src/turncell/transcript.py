"""Folds the events of one turn into what a picture of it is made of.

The message is the authority, deltas are a preview: a block's `TextSettled`
replaces its deltas. When the agent's stream broke and it asks again, the
preview of the broken try stays on screen until the next try is settled, so that
a stop in between loses nothing that was shown.
"""

from __future__ import annotations

from dataclasses import replace

from turncell import events as ev
from turncell.outcome import ToolCall
from turncell.picture import ASKED, Segment, Snapshot, Todo, join_text
from turncell.questions import Question

__all__ = ["OUTPUT_LIMIT", "Transcript", "cut_output"]

#: Characters of a tool's output that are kept; the rest is cut and counted.
OUTPUT_LIMIT = 100_000
_SAYS_SO = 100  # the most that the words about the cut take


def cut_output(text: str) -> str:
    """A tool's output as it is kept; what was cut before stays as it is."""
    if len(text) <= OUTPUT_LIMIT + _SAYS_SO:
        return text
    return f"{text[:OUTPUT_LIMIT]}\n[cut: {len(text):,} characters in all]"


def _whole(text: str) -> str:
    """The text without half a character that a stop cut off: nothing could print it."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class _Growing:
    """A text under construction; joining is linear in its length."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.parts: list[str] = []

    def add(self, text: str) -> None:
        self.parts.append(text)

    def cut(self) -> Segment:
        if self.parts:
            self.segment = replace(self.segment, text=self.segment.text + "".join(self.parts))
            self.parts.clear()
        return self.segment


class Transcript:
    """Accumulates the events of one turn. Feed `fold`, read `segments` and `tools`."""

    def __init__(self) -> None:
        self._segments: dict[str, _Growing] = {}
        self._model: str | None = None
        self._session_id: str | None = None
        self._retry: ev.ApiRetry | None = None
        self._heard_at: float | None = None
        self._usage = ev.UsageReported()
        self._so_far = ev.UsageReported()
        self._todos: tuple[Todo, ...] = ()
        self._hooks: dict[str, tuple[str, float]] = {}
        self._count = 0
        self.told: str | None = None  # what the model was told beside the prompt

    def fold(self, event: ev.Event) -> None:
        """Take one event in. Unknown kinds change nothing."""
        self._heard_at = event.at or self._heard_at
        fold = getattr(self, "_fold_" + type(event).__name__, None)
        if fold is not None:
            fold(event)

    def segments(self) -> tuple[Segment, ...]:
        """Everything so far, in the order it began."""
        return tuple(growing.cut() for growing in self._segments.values())

    def tools(self) -> tuple[ToolCall, ...]:
        """Every tool call so far, in order."""
        return tuple(s.tool for s in self.segments() if s.tool is not None)

    def text(self) -> str:
        """All assistant text so far."""
        return join_text(self.segments())

    def paint(self, picture: Snapshot) -> Snapshot:
        """Return `picture` with everything this transcript knows filled in."""
        # A total that nobody said the last word on is no total.
        usage = self._usage if picture.phase == "ended" or self._usage.usage else self._so_far
        return replace(
            picture,
            segments=self.segments(),
            model=self._model or picture.model,
            session_id=picture.session_id or self._session_id or "",
            retry=self._retry,
            heard_at=self._heard_at,
            cost_usd=usage.cost_usd,
            usage=usage.usage,
            todos=self._todos,
            hooks=tuple(self._hooks.values()),
        )

    @property
    def usage(self) -> ev.UsageReported:
        """Cost and tokens of this turn, as far as they are known."""
        return self._usage

    @property
    def model(self) -> str | None:
        """The model that answered, once the agent has said so."""
        return self._model

    def close(self, at: float) -> None:
        """End what is still open: a tool that never ended, a question, was cancelled."""
        for growing in self._segments.values():
            tool = growing.segment.tool
            if tool is not None and tool.status is None:
                self._end_tool(growing, tool, "cancelled", tool.output, at)
            question = growing.segment.question
            if question is not None and question.answer is None:
                self._settle(growing, question, "cancelled", "")
            segment = growing.cut()
            growing.segment = replace(segment, text=_whole(segment.text), settled=True)

    def _new(self, kind: str, key: str | None = None) -> _Growing:
        self._count += 1
        key = key or f"{kind}-{self._count}"
        return self._segments.setdefault(key, _Growing(Segment(kind, key)))

    def _fold_SessionOpened(self, event: ev.SessionOpened) -> None:
        self._model = event.model or self._model
        self._session_id = event.session_id or self._session_id

    def _fold_TextDelta(self, event: ev.TextDelta) -> None:
        self._retry = None
        growing = self._segments.get(event.block) or self._new("text", event.block)
        if not growing.segment.settled:
            growing.add(event.text)

    def _fold_TextSettled(self, event: ev.TextSettled) -> None:
        self._retry = None
        self._drop_broken_tries(event.block)
        growing = self._segments.get(event.block) or self._new("text", event.block)
        growing.parts.clear()
        growing.segment = replace(growing.segment, text=event.text, settled=True)

    def _drop_broken_tries(self, block: str) -> None:
        # Only what stands before the settled block can be an older try of it.
        for key, growing in list(self._segments.items()):
            if key == block:
                break
            if growing.segment.kind == "text" and not growing.segment.settled:
                del self._segments[key]

    def _fold_ThinkingDelta(self, event: ev.ThinkingDelta) -> None:
        self._retry = None
        growing = self._segments.get(event.block)
        (growing or self._new("thinking", event.block)).add(event.text)

    def _fold_ToolStarted(self, event: ev.ToolStarted) -> None:
        self._retry = None
        if event.tool_id in self._segments:
            return
        growing = self._new("tool", event.tool_id)
        call = ToolCall(event.tool_id, event.name, event.input, parent=event.parent)
        # The agent may ask about a call before it says that there is one.
        asked = self._segments.get(f"question {event.tool_id}")
        state = ASKED if asked is not None and not asked.segment.settled else ""
        growing.segment = replace(growing.segment, tool=call, began=event.at, text=state)

    def _fold_ToolOutput(self, event: ev.ToolOutput) -> None:
        growing = self._segments.get(event.tool_id)
        tool = growing.segment.tool if growing is not None else None
        if growing is not None and tool is not None and tool.status is None:
            tool = replace(tool, output=event.tail)
            growing.segment = replace(growing.segment, tool=tool)

    def _fold_ToolEnded(self, event: ev.ToolEnded) -> None:
        growing = self._segments.get(event.tool_id)
        if growing is None or growing.segment.tool is None or growing.segment.tool.status:
            return
        tool = replace(growing.segment.tool, change=event.change)
        self._end_tool(growing, tool, event.status, event.output, event.at)

    def _end_tool(
        self, growing: _Growing, tool: ToolCall, status: str, out: str, at: float
    ) -> None:
        seconds = max(0.0, at - growing.segment.began)
        tool = replace(tool, status=status, seconds=seconds, output=cut_output(out))
        growing.segment = replace(growing.segment, tool=tool, settled=True, text="")

    def _fold_QuestionAsked(self, event: ev.QuestionAsked) -> None:
        self._retry = None
        growing = self._new("question", f"question {event.question_id}")
        asked = Question(event.question_id, event.tool, event.input, event.scope)
        growing.segment = replace(growing.segment, question=asked)
        self._mark(event.question_id, ASKED, event.at)

    def _fold_QuestionSettled(self, event: ev.QuestionSettled) -> None:
        growing = self._segments.get(f"question {event.question_id}")
        question = growing.segment.question if growing is not None else None
        if growing is not None and question is not None and question.answer is None:
            self._settle(growing, question, event.answer, event.note)
            self._mark(event.question_id, "", event.at)

    def _mark(self, tool_id: str, state: str, at: float) -> None:
        """A call that is asked about does not run; its time begins when it may."""
        growing = self._segments.get(tool_id)
        if growing is not None and growing.segment.tool is not None:
            growing.segment = replace(growing.segment, text=state, began=at)

    def _settle(self, growing: _Growing, question: Question, answer: str, note: str) -> None:
        question = replace(question, answer=answer, note=note)
        growing.segment = replace(growing.segment, question=question, settled=True)

    def _fold_ApiRetry(self, event: ev.ApiRetry) -> None:
        self._retry = event

    def _fold_ModelTold(self, event: ev.ModelTold) -> None:
        self.told = event.text

    def _fold_Notice(self, event: ev.Notice) -> None:
        growing = self._new("notice")
        growing.segment = replace(growing.segment, text=event.text, level=event.level, settled=True)

    def _fold_UsageReported(self, event: ev.UsageReported) -> None:
        if event.final:
            self._usage = event
        else:
            self._so_far = event

    def _fold_TodosChanged(self, event: ev.TodosChanged) -> None:
        self._todos = tuple(Todo(each["text"], each["status"]) for each in event.todos)
        growing = self._segments.get("todos") or self._new("todos", "todos")
        growing.segment = replace(growing.segment, text="\n".join(map(str, self._todos)))

    def _fold_HookReported(self, event: ev.HookReported) -> None:
        if event.status == "running":
            self._hooks[event.hook_id] = (event.name, event.at)
        else:
            self._hooks.pop(event.hook_id, None)
