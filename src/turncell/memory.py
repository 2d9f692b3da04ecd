"""What a conversation remembers of its last turn, for the note that the next prompt carries."""

from __future__ import annotations

import logging

from turncell.archive.archive import Archive
from turncell.link import Link
from turncell.outcome import TurnResult
from turncell.painter import off_loop
from turncell.told import carried, note_for, said_in_blocks, was_heard

__all__ = ["Memory"]


class Memory:
    """The last turn of each session that this conversation was bound to; what it does not
    know, because another kernel ran it, is looked up in the archive."""

    def __init__(self, archive: Archive | None) -> None:
        self._archive = archive
        self._last: dict[str, tuple[str, TurnResult]] = {}  # session id -> prompt, its result
        self._carried: dict[str, str] = {}  # session id -> what was said in an earlier one

    def learn(self, prompt: str, result: TurnResult) -> None:
        """A turn is over. One that the agent never took up changes nothing."""
        if was_heard(result):
            self._last[result.session_id] = prompt, result
            self._carried.pop(result.session_id, None)

    def inherit(self, other: Memory, parent: str, branch: str) -> None:
        """A session was branched: the branch has the same last turn."""
        if parent in other._last:
            self._last[branch] = other._last[parent]

    def carry(self, session_id: str, conversation: str) -> None:
        """A new session goes on from what was said in an earlier one."""
        self._carried[session_id] = conversation

    def pending(self, session_id: str) -> str | None:
        """The note as far as it is known before there is an agent."""
        if session_id in self._carried:
            return carried(self._carried[session_id])
        return note_for(self._last[session_id][1]) if session_id in self._last else None

    async def look_up(self, link: Link) -> None:
        """Learn what the last turn of this link's session was: after an agent was started on
        it, for meanwhile another kernel may have gone on with it."""
        archive, session_id = self._archive, link.session_id
        if archive is None or link.kept is None:
            return
        known = self._last.get(session_id)

        def work() -> tuple[str, TurnResult] | None:
            if known is not None and not archive.journals.paths(session_id, known[1].turn_id):
                return None  # that one could not be written down, and is the last all the same
            return archive.last_turn(session_id)

        try:
            found = await off_loop(work)
        except OSError as error:  # the turn is worth more than the note
            logging.getLogger("turncell").warning("the archive cannot be read: %s", error)
            return
        if found is not None:
            self._last[session_id] = found

    def note(self, link: Link) -> str | None:
        """What the agent of this link is to be told with the next prompt."""
        if link.session_id in self._carried:
            return carried(self._carried[link.session_id])
        if link.session_id not in self._last:
            return None
        (prompt, last), kept = self._last[link.session_id], link.kept
        if kept is None:  # a warm agent knows what was said
            return note_for(last)
        turn, said = last.turn_id, said_in_blocks(last.events)
        lacks = [text for text in said if not kept.has(text, turn)]
        if kept.has(prompt, turn):
            return note_for(last, lacks)
        return note_for(last, lacks, prompt, last.told)
