"""Finds a session by what a person says of it, and binds a name of this kernel to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from turncell.archive.archive import Archive
from turncell.archive.files import moment
from turncell.archive.notebook import here
from turncell.archive.register import Entry
from turncell.backends.base import Damage
from turncell.book import Book
from turncell.config import agent_home
from turncell.errors import SessionBusy, SettingError, UsageError

__all__ = ["Finder", "Found", "readable"]

#: Characters of an earlier conversation that a new one is told.
MOST_CARRIED = 60_000


@dataclass(frozen=True)
class Found:
    """A session that can be resumed; `entry` is None for one that only the agent knows."""

    session_id: str
    entry: Entry | None
    damaged: bool

    @property
    def warning(self) -> str:
        """What is wrong with it, if anything is."""
        if not self.damaged:
            return ""
        return (
            "\nThe agent's own record of it is damaged at its end: what is missing of the last "
            "turn, if anything, is told to it again with the next prompt. "
            f"%agent new NAME --carry {self.session_id} starts afresh with all the journal has."
        )


@contextmanager
def readable(archive: Archive) -> Iterator[None]:
    """What the disk refuses is said as what it is: a matter of the user's set-up."""
    try:
        yield
    except OSError as error:
        raise SettingError(
            f"The register of sessions cannot be used ({error.strerror or error}). Look at "
            f"{archive.directory}, or name another directory in TURNCELL_STATE."
        ) from error


class Finder:
    """Works for one book. Methods read files, and load the agent's SDK when they must."""

    def __init__(self, book: Book) -> None:
        self._book = book

    @property
    def _archive(self) -> Archive:
        return self._book.archive

    def find(self, which: str) -> Found:
        """The session that a name, an id or the first 6 or more characters of an id mean.

        Raises UsageError, which says what to do: it is unknown, or nothing of it is left.
        """
        with readable(self._archive):
            entry = self._archive.register.find(which, self._book.notebook)
        session_id = entry.id if entry is not None else which.lower()
        kept = self._book.load().kept(session_id)
        if kept is not None and kept.damage is not Damage.UNUSABLE:
            return Found(session_id, entry, kept.damage is Damage.TORN)
        if entry is None:
            nearest = self._archive.register.nearest(which)
            raise UsageError(f"There is no session {which}, nor does the agent know it. {nearest}")
        raise UsageError(_nothing_left(entry))

    def resume(self, which: str | None) -> str:
        """Go on with a session from the next prompt on; returns a line that says with which.

        Without `which`: the last one of this notebook. Raises UsageError and SessionBusy, and
        then the session in use stays as it was.
        """
        book = self._book
        if which is None:
            earlier = book.earlier()
            if earlier is None or earlier.id in book.sessions:
                return self._use(self._used_here())
            which = earlier.id
        if which in book.names and self._used(which):
            return self._use(which)
        found = self.find(which)
        if found.session_id in book.sessions:
            return self._use(book.sessions[found.session_id])
        name = found.entry.name if found.entry is not None else book.current
        self._bind(name, found)
        return f"Session {name} goes on as {found.session_id} with the next prompt." + (
            found.warning + self._in_use(found.session_id)
        )

    def _used(self, name: str) -> bool:
        known = self._book.conversation(name)
        return (
            known.opened or known.busy or not self._archive.register.has(name, self._book.notebook)
        )

    def _used_here(self) -> str:
        if not self._book.names:
            raise UsageError(
                "No session of this notebook is known: a %%agent cell begins one. "
                "%agent sessions --all lists those of other notebooks."
            )
        return self._book.current

    def _use(self, name: str) -> str:
        self._book.current = name
        return f"The current session is {name} ({self._book.conversation(name).session_id})."

    def _bind(self, name: str, found: Found) -> None:
        known = self._book.conversation(name)
        if known.busy:
            raise SessionBusy(f"Session {name} is running. Stop it first, or use another.")
        known.bind(found.session_id, found.entry)
        self._book.current = name

    def _in_use(self, session_id: str) -> str:
        other = self._archive.claims.get(session_id)
        if other is None:
            return ""
        return (
            f"\nIt is in use: {other}. Wait with %%agent --in-use wait, branch it with --fork "
            "NAME, or take it over with --in-use take, which ends that agent."
        )

    def fork(self, parent: str, name: str, found: Found | None = None) -> str:
        """Branch a session of this kernel, or one that was found, under a new name; returns the
        branch's id. The branch has what the agent has written down by now.

        Raises UsageError when the name is taken, or there is nothing to branch.
        """
        book, old = self._book, self._book.conversation(parent)
        if name in book.names and (book.conversation(name).opened or book.conversation(name).turns):
            raise UsageError(f"There is a session {name} already. Choose another name.")
        parent_id = old.session_id if found is None else found.session_id
        session_id = book.load().fork(parent_id)
        new = book.conversation(name)
        facts = {"name": name, "notebook": book.notebook, "cwd": here()}
        facts["agent_home"] = agent_home()
        with readable(self._archive):
            entry = self._archive.register.update(
                session_id, parent=parent_id, opened=True, last_used=moment(), **facts
            )
        new.memory.inherit(old.memory, parent_id, session_id)
        new.bind(session_id, entry)
        return session_id

    def carry(self, name: str, which: str) -> str:
        """Start a session that is told what the journal has of another one; returns its id.

        Raises UsageError when there is no journal of it.
        """
        book = self._book
        if which in book.names:
            source = book.conversation(which).session_id
        else:
            entry = self._archive.register.find(which, book.notebook)
            source = entry.id if entry is not None else which.lower()
        text = self._archive.conversation(source, MOST_CARRIED)
        if not text.strip():
            raise UsageError(f"There is no journal of {which}, so there is nothing to carry over.")
        known = book.conversation(name)
        known.renew()
        known.memory.carry(known.session_id, text)
        return known.session_id


def _nothing_left(entry: Entry) -> str:
    if entry.agent_home != agent_home():
        place = entry.agent_home or "the agent's usual directory"
        return (
            f"The agent has no record of {entry} here: it was kept in {place}. Set "
            "CLAUDE_CONFIG_DIR to it (unset it for the usual one) and run this again."
        )
    why = "gone" if entry.opened else "not there: it was ended before the agent wrote anything down"
    return (
        f"The agent's record of {entry} is {why}, so it cannot be resumed.\n"
        f"%agent new NAME --carry {entry.id} starts a session that knows what the journal has."
    )
