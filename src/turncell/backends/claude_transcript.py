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
import sys
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
    try:
        path = _find(session_id)
        return None if path is None else _kept(path)
    except FileNotFoundError:
        return None  # it went away just now, or is a link to nowhere
    except OSError as error:
        raise SettingError(
            f"The agent's record of {session_id} cannot be read ({error.strerror}): "
            f"{error.filename}. Make it readable, or begin another session with --new."
        ) from error


def _kept(path: Path) -> Kept:
    size, tail = path.stat().st_size, _TAIL
    while True:
        records = _last_records(path, tail)
        known = [record for record in records if record is not None]
        if any(_is_prompt(record) for record in known) or tail >= size:
            break
        tail *= 8  # a picture, say, can be longer: the last turn is to be in it
    if not any(record.get("type") in ("user", "assistant") for record in known):
        return Kept(damage=Damage.UNUSABLE)
    texts, asked = list[str](), dict[str, int]()
    for record in known:
        # A prompt has the id of its turn; in a branch its parent's has.
        origin = record.get("forkedFrom") or {}
        asked[str(origin.get("messageUuid") or record.get("uuid"))] = len(texts)
        texts += _texts(record)
    if any("forkedFrom" in record for record in known):
        asked[""] = 0  # a branch of a branch has lost the ids of its first turns
    damage = Damage.TORN if records[-1] is None else Damage.NONE
    return Kept(tuple(texts), damage, asked)


def _last_records(path: Path, tail: int) -> list[dict[str, Any] | None]:
    """The last records, of so many bytes at most; None for a line that is none."""
    with path.open("rb") as file:
        skipped = max(0, os.fstat(file.fileno()).st_size - tail)
        file.seek(skipped)
        lines = [line for line in file.read().split(b"\n") if line.strip()]
    return [_record(line) for line in lines[1 if skipped else 0 :]]


def _is_prompt(record: dict[str, Any]) -> bool:
    # What the agent is told of its own tasks has the source "system".
    return record.get("promptSource") not in (None, "system")


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
        return any(r.get("uuid") not in ours for r in records if r and _is_prompt(r))


def fork(session_id: str) -> str:
    """Copy a conversation as it is written down now; the id of the copy.

    Raises UsageError when nothing is written down.
    """
    try:
        return str(fork_session(session_id).session_id)
    except (FileNotFoundError, ValueError) as error:
        raise UsageError(
            f"Session {session_id} cannot be branched: the agent has no record of it yet. "
            "Send it a prompt first."
        ) from error
    except OSError as error:
        raise SettingError(
            f"Session {session_id} cannot be branched ({error.strerror}): the copy goes beside "
            f"{error.filename}. Make room there."
        ) from error


def users(session_id: str) -> list[Survivor]:
    """The agents that live, have this conversation open and do not carry our token."""
    paths = (config_directory(os.environ) / "sessions").glob("*.json")
    return [user for path in paths if (user := _user(path, session_id)) is not None]


def _user(path: Path, session_id: str) -> Survivor | None:
    """The agent that such a file is of, if it is one of these."""
    with suppress(OSError, psutil.Error):
        record = _record(path.read_bytes()) or {}
        if record.get("sessionId") != session_id or not path.stem.isdigit():
            return None
        process = psutil.Process(int(path.stem))
        ours = process.environ().get(procs.TOKEN)
        if not ours and _same(process.pid, record.get("procStart")):
            return Survivor(process.pid, " ".join(process.cmdline())[:60])
    return None


def _same(pid: int, since: Any) -> bool:
    # The agent's count of a start is known on Linux alone.
    return not sys.platform.startswith("linux") or bool(procs.start_of(pid) == since)


def _find(session_id: str) -> Path | None:
    directory = glob.escape(str(config_directory(os.environ) / "projects"))
    names = glob.glob(os.path.join(directory, "*", f"{glob.escape(session_id)}.jsonl"))
    return max(map(Path, names), key=lambda path: path.stat().st_mtime, default=None)


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
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
