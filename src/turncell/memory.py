"""What a conversation remembers of its last turn, for the note that the next prompt carries."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from turncell.archive.archive import Archive
from turncell.link import Link
from turncell.outcome import TurnResult
from turncell.painter import off_loop
from turncell.told import carried, note_for, said_in_blocks, was_heard

__all__ = ["Memory"]


_UNREAD = (
    "The journal cannot be read ({}): if another kernel's turn of this session was stopped, the "
    "model is not told."
)
#: Seconds that the archive may take to tell what the last turn was.
BOUND = 3.0


class Memory:
    """The last turn of each session that this conversation was bound to; what it does not
    know, because another kernel ran it, is looked up in the archive."""

    def __init__(self, archive: Archive | None) -> None:
        self._archive = archive
        self._last: dict[str, tuple[str, TurnResult]] = {}  # session id -> prompt, its result
        self._carried: dict[str, str] = {}  # session id -> what was said in an earlier one
        self._due: dict[str, str] = {}  # session id -> a note that no turn was heard with yet

    def learn(self, prompt: str, result: TurnResult) -> None:
        """A turn is over. One that the agent never took up changes nothing."""
        if was_heard(result):
            self._last[result.session_id] = prompt, result
            self._carried.pop(result.session_id, None)
            self._due.pop(result.session_id, None)

    def inherit(self, other: Memory, parent: str, branch: str) -> None:
        """A session was branched: the branch has the same last turn."""
        if parent in other._last:
            self._last[branch] = other._last[parent]

    def carry(self, session_id: str, conversation: str) -> None:
        """A new session goes on from what was said in an earlier one."""
        self._carried[session_id] = conversation

    def pending(self, session_id: str) -> str | None:
        """The note as far as it is known before there is an agent; may block."""
        if session_id in self._carried:
            return carried(self._carried[session_id])
        known = self._last.get(session_id)
        if self._archive is not None:  # another kernel may have gone on with it
            last = self._archive.last_turn(session_id, known[1].turn_id if known else None)
            known = last or known
        return None if known is None else note_for(known[1])

    async def look_up(self, link: Link, say: Callable[[str], None]) -> None:
        """Learn what the last turn of this link's session was: after an agent was started on
        it, for meanwhile another kernel may have gone on with it. `say` warns the user."""
        archive, session_id = self._archive, link.session_id
        if archive is None or link.kept is None:
            return
        known = self._last[session_id][1].turn_id if session_id in self._last else None
        with anyio.move_on_after(BOUND) as scope:
            try:
                found = await off_loop(archive.last_turn, session_id, known)
                if found is not None:
                    self._last[session_id] = found
                    self._due.pop(session_id, None)
            except OSError as error:  # the turn is worth more than the note
                say(_UNREAD.format(error.strerror or error))
        if scope.cancelled_caught:
            say(_UNREAD.format("the disk does not answer"))

    def note(self, link: Link, *, tell: bool = True) -> str | None:
        """What the agent of this link is to be told with the next prompt; without `tell` only
        what a session is to go on from."""
        session_id = link.session_id
        if session_id in self._carried:
            return carried(self._carried[session_id])
        if session_id not in self._last or not tell:
            return None
        note = self._due.get(session_id) or self._compute(link)
        if note is not None:
            self._due[session_id] = note
        return note

    def _compute(self, link: Link) -> str | None:
        (prompt, last), kept = self._last[link.session_id], link.kept
        if kept is None:  # a warm agent knows what was said
            return note_for(last)
        lacks = [text for text in said_in_blocks(last.events) if not kept.has(text, last.turn_id)]
        if kept.has(prompt, last.turn_id):
            return note_for(last, lacks)
        return note_for(last, lacks, prompt, last.told)
