"""What the agent has written down, and who has it open: files in its own directory.

Known of CLI 2.1.332: a session is one file of JSON lines, `projects/<directory>/<id>.jsonl`; an
agent that is killed as it writes leaves half a line, which the next one leaves alone and does
not mention; each agent that lives has a file `sessions/<pid>.json`, which stays when it is killed.
A prompt is written about 0.1 s after the model was asked: who kills it earlier finds no trace.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from claude_agent_sdk import fork_session

from turncell import procs
from turncell.backends.base import Damage, Kept
from turncell.backends.claude_launch import config_directory
from turncell.errors import SettingError, UsageError
from turncell.outcome import Survivor

__all__ = ["fork", "kept", "users"]

#: How much of a transcript is read, from its end (bytes): enough for the last turn.
_TAIL = 4_000_000


def kept(session_id: str) -> Kept | None:
    """What the agent has of a conversation, wherever it was begun; None when it has no file.

    Raises SettingError when the file cannot be read.
    """
    path = _find(session_id)
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            skipped = max(0, os.fstat(file.fileno()).st_size - _TAIL)
            file.seek(skipped)
            lines = [line for line in file.read().split(b"\n") if line.strip()]
    except OSError as error:
        raise SettingError(
            f"The agent's record of {session_id} cannot be read ({error.strerror}): {path}. Make "
            "it readable, or begin another session with --new."
        ) from error
    records = [_record(line) for line in lines[1 if skipped else 0 :]]
    known = [record for record in records if record is not None]
    if not any(record.get("type") in ("user", "assistant") for record in known):
        return Kept(damage=Damage.UNUSABLE)
    damage = Damage.TORN if records[-1] is None else Damage.NONE
    texts, asked = list[str](), dict[str, int]()
    for record in known:
        # A prompt has the id of its turn; in a branch its parent's has.
        origin = record.get("forkedFrom") or {}
        asked[str(origin.get("messageUuid") or record.get("uuid"))] = len(texts)
        texts += _texts(record)
    if any("forkedFrom" in record for record in known):
        asked[""] = 0  # a branch of a branch has lost the ids of its first turns
    return Kept(tuple(texts), damage, asked)


def length(session_id: str) -> int:
    """How long the record is (bytes), 0 where there is none."""
    path = _find(session_id)
    return 0 if path is None else path.stat().st_size


def prompted_since(session_id: str, length: int, ours: Collection[str]) -> bool:
    """Whether a prompt that is not `ours` was written down behind this length of the record."""
    path = _find(session_id)
    if path is None:
        return False
    with path.open("rb") as file:
        file.seek(length)
        records = map(_record, file.read().split(b"\n"))
        # What the agent is told of its own tasks has the source "system".
        prompts = [r for r in records if r and r.get("promptSource") not in (None, "system")]
        return any(r.get("uuid") not in ours for r in prompts)


def fork(session_id: str) -> str:
    """Copy a conversation as it is written down now; the id of the copy.

    Raises UsageError when nothing is written down.
    """
    try:
        return str(fork_session(session_id).session_id)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"Session {session_id} cannot be branched: the agent has written nothing down of it "
            "yet. Send it a prompt first."
        ) from error


def users(session_id: str) -> list[Survivor]:
    """The agents that live, have this conversation open and do not carry our token."""
    found = []
    for path in (config_directory(os.environ) / "sessions").glob("*.json"):
        with suppress(OSError, psutil.Error):
            record = _record(path.read_bytes()) or {}
            if record.get("sessionId") == session_id and path.stem.isdigit():
                process = psutil.Process(int(path.stem))
                ours = process.environ().get(procs.TOKEN)
                if not ours and procs.start_of(process.pid) == record.get("procStart"):
                    found.append(Survivor(process.pid, " ".join(process.cmdline())[:60]))
    return found


def _find(session_id: str) -> Path | None:
    directory = glob.escape(str(config_directory(os.environ) / "projects"))
    found = map(Path, glob.glob(os.path.join(directory, "*", f"{glob.escape(session_id)}.jsonl")))
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(line)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def _texts(record: dict[str, Any]) -> Iterator[str]:
    """The texts of one record, of the user or of the assistant."""
    message = record.get("message")
    if record.get("type") in ("user", "assistant") and isinstance(message, dict):
        content = message.get("content") or ()
        if isinstance(content, str):
            yield content
            return
        for block in content:
            if isinstance(block, dict) and block.get("type") == "text":
                yield str(block.get("text", ""))
