"""The Messages API as text: events of a stream, a whole message, errors. Pure."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from turncell.modelserver.plan import Begin, BlockKind
from turncell.modelserver.scenario import Reply

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
_DELTAS: Mapping[BlockKind, tuple[str, str]] = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}


def new_id(prefix: str) -> str:
    """A fresh id such as `msg_...`."""
    return f"{prefix}_{uuid.uuid4().hex[:24]}"


def error_body(status: int, message: str, request_id: str) -> dict[str, Any]:
    """The body of an error answer."""
    fallback = "api_error" if status >= 500 else "invalid_request_error"
    kind = _ERROR_TYPES.get(status, fallback)
    error = {"type": kind, "message": message}
    return {"type": "error", "error": error, "request_id": request_id}


def event(kind: str, **fields: Any) -> str:
    """One server-sent event."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


@dataclass(frozen=True)
class Heading:
    """What is the same in every part of one answer."""

    reply: Reply
    model: str
    id: str

    def message(self, content: list[Any], stop_reason: str | None, output: int) -> dict[str, Any]:
        """The message object, with `output` output tokens."""
        usage = {
            "input_tokens": self.reply.input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": output,
        }
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": usage,
        }

    def tokens(self, deltas: int) -> int:
        """Output tokens to report after `deltas` deltas."""
        fixed = self.reply.output_tokens
        return max(deltas, 1) if fixed is None else fixed

    def start(self) -> str:
        """The `message_start` event."""
        return event("message_start", message=self.message([], None, 1))

    def stop(self, deltas: int) -> str:
        """The events that end a stream."""
        change = {"stop_reason": self.reply.reason, "stop_sequence": None}
        usage = {"output_tokens": self.tokens(deltas)}
        return event("message_delta", delta=change, usage=usage) + event("message_stop")


def whole_block(block: Begin, content: str) -> dict[str, Any]:
    """A content block with all its content."""
    if block.kind == "text":
        return {"type": "text", "text": content}
    if block.kind == "thinking":
        return {"type": "thinking", "thinking": content, "signature": block.name}
    tool_id = new_id("toolu")
    given = json.loads(content) if content else {}
    return {"type": "tool_use", "id": tool_id, "name": block.name, "input": given}


def block_start(block: Begin) -> str:
    """The event that opens `block`, still empty."""
    empty = whole_block(block, "")
    if block.kind == "thinking":
        empty["signature"] = ""
    return event("content_block_start", index=block.index, content_block=empty)


def block_stop(block: Begin) -> str:
    """The events that close `block`."""
    stop = event("content_block_stop", index=block.index)
    if block.kind != "thinking":
        return stop
    signature = {"type": "signature_delta", "signature": block.name}
    return event("content_block_delta", index=block.index, delta=signature) + stop


def block_deltas(block: Begin, pieces: Iterable[str]) -> str:
    """One delta event for each of `pieces`; fast, for floods."""
    kind, key = _DELTAS[block.kind]
    head = (
        'event: content_block_delta\ndata: {"type": "content_block_delta", '
        f'"index": {block.index}, "delta": {{"type": "{kind}", "{key}": '
    )
    return "".join([f"{head}{quoted(piece)}}}}}\n\n" for piece in pieces])
