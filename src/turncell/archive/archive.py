"""The archive of this user: one directory, and what a kernel asks of it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from turncell.archive.files import state_directory
from turncell.archive.journal import Journal
from turncell.archive.journals import Journals
from turncell.archive.register import Entry, Register
from turncell.outcome import TurnResult

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
        self.claims = self.directory / "claims"
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

    def last_turn(self, session_id: str) -> tuple[str, TurnResult] | None:
        """The last turn of a session that its agent took up, its prompt and its result; of a
        branch without any, its parent's. None where no journal of one is kept."""
        entry = self.register.get(session_id)
        parent = entry.parent if entry is not None else None
        for known in [session_id, parent] if parent else [session_id]:
            for path in self.journals.paths(known):
                logged = self.journals.read(path)
                if logged.heard and not logged.running:
                    return str(logged.head.get("prompt", "")), logged.result()
        return None

    def conversation(self, session_id: str, most: int) -> str:
        """What was said in a session, prompts and answers, from its journals: the last `most`
        characters."""
        lines: list[str] = []
        for path in reversed(self.journals.paths(session_id)):
            logged = self.journals.read(path)
            lines.append(f"User: {logged.head.get('prompt', '')}\n\nYou: {logged.result().text}")
        text = "\n\n".join(lines)
        return text if len(text) <= most else f"[…]{text[-most:]}"

    def last_of(self, notebook: str, agent_home: str, but: Collection[str]) -> Entry | None:
        """The session that this notebook used last, with the agent that keeps its records
        there, except for the ids in `but`."""
        for entry in self.register.entries():
            place = entry.notebook, entry.agent_home
            if place == (notebook, agent_home) and entry.id not in but:
                return entry
        return None
