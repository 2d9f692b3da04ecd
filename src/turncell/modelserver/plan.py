"""From the steps of a reply to moves: content blocks opened and closed in the right places.

Pure. Steps of the same kind that follow each other share a block, with pauses in between or not,
and a block is closed only when another kind of content or the end comes: so a reply that stalls
or is cut leaves its last block half written, as a broken stream does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from turncell.modelserver.steps import (
    Cut,
    Echo,
    HttpError,
    Pause,
    Ping,
    Recall,
    Silence,
    Stall,
    Step,
    Text,
    Thinking,
    ToolUse,
    Words,
)

BlockKind: TypeAlias = Literal["text", "thinking", "tool_use"]


@dataclass(frozen=True)
class Begin:
    """A content block opens; `name` is a tool's name or a thinking block's signature."""

    index: int
    kind: BlockKind
    name: str = ""


@dataclass(frozen=True)
class Deltas:
    """Pieces for the open block, `pace` seconds after each."""

    block: Begin
    pieces: Iterable[str]
    pace: float


@dataclass(frozen=True)
class End:
    """The open block closes."""

    block: Begin


Move: TypeAlias = Begin | Deltas | End | Pause | Ping | Stall | Silence | Cut | HttpError


def _block_for(step: Text | Words | Thinking | ToolUse, index: int) -> Begin:
    if isinstance(step, Thinking):
        return Begin(index, "thinking", step.signature)
    if isinstance(step, ToolUse):
        return Begin(index, "tool_use", step.name)
    return Begin(index, "text")


def _joins(block: Begin, fresh: Begin) -> bool:
    return block.kind == fresh.kind and block.kind != "tool_use"


def _recalled(remembered: str) -> str:
    if not remembered:
        return "This is the first thing I hear in this conversation."
    return f"My last words to you were “…{' '.join(remembered.split()[-8:])}”."


def plan(steps: Iterable[Step], prompt: str, remembered: str = "") -> Iterator[Move]:
    """The moves that play `steps` as the answer to `prompt`; `remembered` is the answer before."""
    block: Begin | None = None
    index = 0
    for step in steps:
        if isinstance(step, Echo):
            step = Text(f"echo: {prompt}", step.chunk, step.pace)
        elif isinstance(step, Recall):
            step = Text(_recalled(remembered), step.chunk, step.pace)
        if not isinstance(step, (Text, Words, Thinking, ToolUse)):
            yield step
            continue
        fresh = _block_for(step, index)
        if block is None or not _joins(block, fresh):
            if block is not None:
                yield End(block)
            block, index = fresh, index + 1
            yield block
        yield Deltas(block, step.pieces(), step.pace)
    if block is not None:
        yield End(block)
