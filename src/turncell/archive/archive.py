"""The archive of this user: one directory, and what a kernel asks of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from turncell.archive.claims import Claims
from turncell.archive.files import state_directory
from turncell.archive.journal import Journal
from turncell.archive.journals import Journals, Logged
from turncell.archive.register import Entry, Register
from turncell.outcome import TurnResult

#: A prompt, and what came of it.
Turn = tuple[str, TurnResult]

__all__ = ["DAYS", "SIZE", "Archive"]

#: Journals are kept for so many days, and all of them within so many bytes.
DAYS = 60.0
SIZE = 500_000_000


class Archive:
    """The register, the journals and the claims. Methods read files, and may block."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = state_directory() if directory is None else directory
        self.register = Register(self.directory / "sessions")
        self.journals = Journals(self.directory / "journal")
        self.claims = Claims(self.directory / "claims")
        self._owed: list[Journal] = []  # that could not be written to their end

    def owe(self, journal: Journal) -> None:
        """The disk was full when this journal was closed; it is tried again, if it is one of
        the last few."""
        self._owed = [*self._owed, journal][-4:]

    def catch_up(self) -> None:
        """Write what could not be written, if there is room by now."""
        owed, self._owed = self._owed, []
        for journal in owed:
            journal.settle()
            if journal.trouble is not None:
                self.owe(journal)

    def last_turn(self, session_id: str, known: str | None = None) -> Turn | None:
        """The last turn of a session that its agent took up, its prompt and its result; of a
        branch without any, its parent's at that time. None where no journal of one is kept, or
        none that is later than the turn with the id `known`."""
        for logged in self._journals_of(session_id):
            if logged.turn_id == known:
                return None
            if logged.heard:  # who asks has the session: nobody else can be at work in it
                return str(logged.head.get("prompt", "")), logged.result()
        return None

    def conversation(self, session_id: str, most: int) -> str:
        """What was said in a session, prompts and answers, from its journals: the last `most`
        characters."""
        turns: list[str] = []
        length = 0
        for logged in self._journals_of(session_id):
            turns.append(f"User: {logged.head.get('prompt', '')}\n\nYou: {logged.result().text}")
            length += len(turns[-1])
            if length > most:
                break
        text = "\n\n".join(reversed(turns))
        return text if len(text) <= most else f"[…]{text[-most:]}"

    def _journals_of(self, session_id: str) -> Iterator[Logged]:
        """Those of a session, then those of the session it was branched from as they were
        then, and so on; the newest first."""
        before, seen = "", set[str]()
        while session_id and session_id not in seen:
            seen.add(session_id)
            for path in self.journals.paths(session_id):
                logged = self.journals.read(path)
                if not before or str(logged.head.get("began", "")) < before:
                    yield logged
            entry = self.register.get(session_id)
            session_id = (entry.parent or "") if entry is not None else ""
            before = entry.created if entry is not None else ""

    def last_of(self, notebook: str, agent_home: str, but: Collection[str]) -> Entry | None:
        """The session that this notebook used last and that the agent which keeps its records
        there can resume, except for the ids in `but`."""
        for entry in self.register.entries():
            place = entry.notebook, entry.agent_home
            if entry.opened and place == (notebook, agent_home) and entry.id not in but:
                return entry
        return None
