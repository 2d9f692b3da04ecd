"""The register of sessions: one small file a session, that a person can read.

Every kernel of the user writes into it. An entry is replaced as a whole, under a lock that
they share; one that cannot be read is set aside and takes no other along.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turncell.archive.files import local, locked, moment, private, write_whole
from turncell.errors import UsageError
from turncell.names import SESSION_ID

__all__ = ["RUNNING", "Entry", "Register"]

#: How a session is left while a turn of it runs; one that says so and has no kernel was cut off.
RUNNING = "running"
#: No entry is longer (bytes).
_LONGEST = 65_536
#: The shortest beginning of an id that may stand for the whole.
SHORTEST = 6


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one session. Times are ISO 8601 in UTC.

    `left` is the outcome of its last turn, or `running`; `opened` says whether the agent has
    written the conversation down; `parent` is the session it was branched from; `agent_home`
    is the agent's settings directory, where its transcript lies ("": the usual one).
    """

    id: str
    name: str
    notebook: str = ""
    cwd: str = ""
    turns: int = 0
    created: str = ""
    last_used: str = ""
    left: str = "new"
    opened: bool = False
    parent: str | None = None
    first_prompt: str = ""
    agent_home: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.id[:8]}, {local(self.last_used) or 'never used'})"


_TYPES: dict[str, tuple[type, ...]] = {
    **{f.name: (type(f.default),) for f in dataclasses.fields(Entry)},
    "id": (str,),
    "name": (str,),
    "parent": (str, type(None)),
}


class Register:
    """The entries in one directory. Every method reads or writes files, and may block."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._messages: list[str] = []

    def take_messages(self) -> list[str]:
        """What a person should know of entries that were set aside; each is said once."""
        messages, self._messages = self._messages, []
        return messages

    def get(self, session_id: str) -> Entry | None:
        """The entry of a session, None where there is none (or none that can be read)."""
        return self._read(self._path(session_id))

    def entries(self) -> list[Entry]:
        """All of them, the one that was used last first."""
        try:
            paths = [item.path for item in os.scandir(self._directory)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = [self._read(path) for path in paths if path.endswith(".json")]
        return sorted(filter(None, found), key=lambda entry: entry.last_used, reverse=True)

    def update(self, session_id: str, **changes: Any) -> Entry:
        """Change an entry, or make one (`name` is then needed). Raises OSError."""
        with locked(self._directory):
            now = self.get(session_id) or Entry(session_id, changes["name"], created=moment())
            entry = dataclasses.replace(now, **changes)
            write_whole(
                Path(self._path(session_id)),
                json.dumps(dataclasses.asdict(entry), indent=1, ensure_ascii=False) + "\n",
            )
            return entry

    def find(self, which: str, notebook: str) -> Entry | None:
        """The session that a name, an id or the beginning of an id means.

        A name is looked for in this notebook first. None for a whole id that is not here:
        the agent may know it all the same. Raises UsageError, which names the nearest.
        """
        entries = self.entries()
        if SESSION_ID.fullmatch(which):
            return next((entry for entry in entries if entry.id == which.lower()), None)
        named = [entry for entry in entries if entry.name == which]
        here = [entry for entry in named if entry.notebook == notebook]
        if here:
            return here[0]
        begins = len(which) >= SHORTEST and not named
        found = [e for e in entries if e.id.startswith(which.lower())] if begins else named
        places = {entry.notebook for entry in found}
        if found and (len(found) == 1 or (named and len(places) == 1)):
            return found[0]
        if found:
            listed = ", ".join(f"{e} of {os.path.basename(e.notebook)}" for e in found[:5])
            more = f" and {len(found) - 5} more" if len(found) > 5 else ""
            raise UsageError(
                f"{which} means {len(found)} sessions: {listed}{more}. Give the first characters "
                "of an id."
            )
        raise UsageError(_not_found(which, entries))

    def has(self, name: str, notebook: str) -> bool:
        """Whether this notebook had a session of that name that can be resumed."""
        place = name, notebook, True
        return any((e.name, e.notebook, e.opened) == place for e in self.entries())

    def nearest(self, which: str) -> str:
        """A sentence that names the sessions most like `which`, or the newest."""
        return _nearest(which, self.entries())

    def _path(self, session_id: str) -> str:
        return os.path.join(self._directory, f"{session_id}.json")

    def _read(self, path: str) -> Entry | None:
        try:
            file = os.open(path, os.O_RDONLY)  # half the time of `open`, and there can be many
            try:
                data = os.read(file, _LONGEST)
            finally:
                os.close(file)
            return _entry(json.loads(data.decode("utf-8", "surrogatepass")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, RecursionError) as error:
            self._set_aside(Path(path), error)
            return None

    def _set_aside(self, path: Path, error: Exception) -> None:
        """Move an entry that cannot be read out of the way, if it can be moved."""
        aside = self._directory / "set-aside" / path.name
        try:
            private(aside.parent)
            os.replace(path, aside)
            where = f"was set aside as {aside}"
        except OSError as stays:
            where = f"cannot be set aside ({stays.strerror}): {path}"
        message = (
            f"An entry of the register of sessions cannot be read ({error}) and {where}. Its "
            f"conversation is not touched: %agent resume {path.stem} finds it."
        )
        if message not in self._messages:
            self._messages.append(message)


def _entry(data: Any) -> Entry:
    if not isinstance(data, dict):
        raise ValueError("it is no JSON object")
    known: dict[str, Any] = {}
    for name, value in data.items():
        allowed = _TYPES.get(name)
        if allowed is None:
            continue
        if not isinstance(value, allowed):
            raise ValueError(f"its {name} is odd")
        known[name] = value
    if "id" not in known or "name" not in known:
        raise ValueError("it has no id or no name")
    return Entry(**known)


def _not_found(which: str, entries: list[Entry]) -> str:
    if which.startswith("agent-"):
        return f"{which} is the id of a sub-agent: only whole conversations can be resumed."
    return f"There is no session {which}. {_nearest(which, entries)}"


def _nearest(which: str, entries: list[Entry]) -> str:
    words = {word: entry for entry in reversed(entries) for word in (entry.name, entry.id)}
    close = difflib.get_close_matches(which, words, n=3, cutoff=0.5)
    start = [entry for entry in entries if entry.id[:4] == which[:4]]
    best = list(
        {entry.id: entry for entry in [*start, *(words[w] for w in close), *entries]}.values()
    )
    if not best:
        return "No session was used yet: a %%agent cell begins one."
    listed = ", ".join(map(str, best[:3]))
    return f"The nearest: {listed}. %agent sessions --all lists every one."
