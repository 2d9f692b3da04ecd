"""The line forms of `%agent` about sessions, and about turns that are over."""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NoReturn

from turncell.archive.files import local
from turncell.archive.journals import Logged
from turncell.archive.register import RUNNING, Entry
from turncell.config import agent_home
from turncell.errors import UsageError
from turncell.rows import Rows
from turncell.timeline import Timeline, of_result, under_way

if TYPE_CHECKING:
    from turncell.conversation import Conversation
    from turncell.magics import AgentMagics
    from turncell.outcome import TurnResult

__all__ = ["Flags", "SessionCommands"]

#: The options of a line form, with what they take.
Flags = dict[str, str]

#: Turns that `%agent log` lists, and journals that it looks at for them.
_LISTED, _LOOKED_AT = 100, 500
#: The shortest beginning of a turn's id that may stand for it.
_SHORTEST = 6


class SessionCommands:
    """Carries out such a line for the magics."""

    def __init__(self, magics: AgentMagics) -> None:
        self._magics = magics
        self._book = magics.book()
        self._archive = self._book.archive

    def _known(self, name: str) -> str:
        if name not in self._book.names:
            names = ", ".join(self._book.names) or "none yet"
            raise UsageError(f"There is no session {name}. Sessions of this kernel: {names}.")
        return name

    # Sessions.

    def _sessions(self, flags: Flags, _: None) -> Rows:
        rows, everywhere = Rows(), "--all" in flags
        entries = self._archive.register.entries()
        by_id = {entry.id: entry for entry in entries}
        mine = [self._book.conversation(each) for each in self._book.names]
        for known in mine:
            row = self._row(by_id.get(known.session_id) or _entry_of(known))
            row.update(name=known.name, resumable=known.opened)
            if known.busy:
                row["left"] = RUNNING
            row["current"] = "*" if known.name == self._book.current else ""
            rows.append(row)
        ids = {known.session_id for known in mine}
        others = [entry for entry in entries if entry.id not in ids]
        here = [entry for entry in others if everywhere or entry.notebook == self._book.notebook]
        rows += [self._row(entry) for entry in here]
        for row in rows if everywhere else ():
            notebook = by_id[row["id"]].notebook if row["id"] in by_id else self._book.notebook
            row["notebook"] = os.path.basename(notebook)
        for message in self._archive.register.take_messages():
            self._magics.say(message)
        if len(here) < len(others):
            more = f"{len(others) - len(here):,} more in other notebooks"
            self._magics.say(
                f"{more}: %agent sessions --all lists them, %agent resume NAME opens one."
            )
        return rows

    def _row(self, entry: Entry) -> dict[str, Any]:
        return {
            "name": entry.name,
            "id": entry.id,
            "turns": entry.turns,
            "last used": local(entry.last_used),
            "left": self._left(entry),
            "resumable": entry.opened and entry.agent_home == agent_home(),
            "current": "",
            "begins": entry.first_prompt[:30],
        }

    def _left(self, entry: Entry) -> str:
        if entry.left != RUNNING:
            return entry.left
        claim = self._archive.claims.get(entry.id)
        return "cut off" if claim is None else f"running in kernel {claim.pid}"

    def _use(self, flags: Flags, name: str | None) -> None:
        if name is None:
            raise UsageError("%agent use NAME: which session?")
        if name != self._book.current:  # which need not have had a turn yet
            return self._resume(flags, name)
        return self._magics.say(f"The current session is {name}.")

    def _new(self, flags: Flags, name: str | None) -> None:
        name = name or self._book.current
        if "--carry" in flags:
            self._magics.finder().carry(name, flags["--carry"])
        else:
            self._book.conversation(name).renew()
        known = self._book.conversation(name)
        self._book.current = name
        told = " It is told what the journal has." if "--carry" in flags else ""
        self._magics.say(f"Session {name} starts afresh as {known.session_id}.{told}")

    def _resume(self, flags: Flags, which: str | None) -> None:
        self._magics.say(self._magics.finder().resume(which))

    def _fork(self, flags: Flags, name: str | None) -> None:
        if name is None:
            raise UsageError("Give the branch a name: %agent fork NAME.")
        parent = self._book.current
        session_id = self._magics.finder().fork(parent, name)
        self._book.current = name
        self._magics.say(f"Session {name} ({session_id}) branches from {parent}, and is current.")

    # Turns that are over.

    def _last(self, flags: Flags, _: None) -> TurnResult:
        if self._book.results:
            return self._book.results[-1]
        earlier = self._book.earlier()
        logged = None if earlier is None else self._archive.journals.last(earlier.id)
        if logged is None:
            raise UsageError("No turn was run in this notebook yet, as far as the journal knows.")
        return logged.result()

    def _show(self, flags: Flags, which: str | None) -> None:
        from IPython.display import display

        from turncell.views.saved import running_bundle

        if which is None and not any(turn.running for turn in self._book.turns):
            display(self._last(flags, None))
            return
        logged = self._logged(which)
        if not logged.running:
            display(logged.result())
            if logged.left_out:
                self._magics.say(f"{logged.left_out:,} events were too many for the journal.")
            return
        self._magics.say(
            f"Turn {logged.turn_id[:8]} is still running; this is what it said so far."
        )
        display(running_bundle(logged.snapshot()), raw=True)

    def _timeline(self, flags: Flags, which: str | None) -> Timeline:
        if which is None and not any(turn.running for turn in self._book.turns):
            return of_result(self._last(flags, None))
        logged = self._logged(which)
        if not logged.running:
            return of_result(logged.result())
        picture = logged.snapshot()
        # Processes of one machine have one monotonic clock; of another's turn only this is known.
        now = time.monotonic() if logged.here else picture.now
        return under_way(logged.events, picture.began, now, picture.turn_id, picture.session)

    def _logged(self, which: str | None) -> Logged:
        journals, running = self._archive.journals, [t for t in self._book.turns if t.running]
        if which is None:  # those that wait in line have nothing to show
            begun = [path for t in running for path in journals.paths(turn_id=t.turn_id)]
            return journals.read(begun[-1]) if begun else self._nothing_to_show("this kernel yet")
        turn_id = which
        paths = journals.paths(turn_id=turn_id) if _could_be_an_id(turn_id) else []
        if paths:
            return journals.read(paths[0])
        found = journals.last(self._session_id(turn_id))
        return found or self._nothing_to_show(which)

    def _nothing_to_show(self, what: str) -> NoReturn:
        raise UsageError(f"The journal has no turn of {what}. %agent log lists what it has.")

    def _session_id(self, which: str) -> str:
        if which in self._book.names:
            return self._book.conversation(which).session_id
        entry = self._archive.register.find(which, self._book.notebook)
        return which.lower() if entry is None else entry.id

    def _log(self, flags: Flags, _: None) -> Rows:
        rows = Rows()
        for path in self._archive.journals.paths()[:_LOOKED_AT]:
            logged = self._archive.journals.glance(path)
            if "--all" not in flags and logged.head.get("notebook") != self._book.notebook:
                continue
            rows.append(
                {
                    "turn": logged.turn_id[:8],
                    "began": local(str(logged.head.get("began", ""))),
                    "session": logged.head.get("session"),
                    "outcome": logged.outcome,
                    "kB": round(path.stat().st_size / 1000, 1),
                    "prompt": " ".join(str(logged.head.get("prompt", "")).split())[:50],
                }
            )
            if len(rows) == _LISTED:
                break
        return rows


def _entry_of(known: Conversation) -> Entry:
    """The entry of a session that is not in the register: it is new, or the disk was full."""
    at = known.last_used
    used = "" if at is None else datetime.fromtimestamp(at, timezone.utc).isoformat()
    return Entry(known.session_id, known.name, turns=known.turns, last_used=used, left=known.left)


def _could_be_an_id(text: str) -> bool:
    return len(text) >= _SHORTEST and not set(text.lower()) - set("0123456789abcdef-")
