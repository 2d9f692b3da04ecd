"""The book of sessions: every conversation of this kernel, and what they share.

The book, its portal and its runtime thread come into being with the first turn.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from turncell.archive.archive import DAYS, SIZE, Archive
from turncell.archive.notebook import here, notebook_of
from turncell.archive.register import Entry
from turncell.backends.base import Backend
from turncell.config import agent_home
from turncell.conversation import Conversation, Order, new_turn_id
from turncell.errors import RuntimeGone, SessionBusy, UsageError
from turncell.guard import Guard
from turncell.handle import TurnHandle
from turncell.link import Link
from turncell.names import SESSION_NAME
from turncell.outcome import Outcome, TurnResult
from turncell.painter import off_loop
from turncell.portal import Portal

__all__ = ["LEAVE", "Book", "Nothing", "book"]

#: Seconds that the end of a kernel leaves for everything (Jupyter kills after 5).
LEAVE = 2.0


def load_claude(guard: Guard) -> Backend:
    """The default backend; its import is slow, so it happens off the loop."""
    from turncell.backends.claude import ClaudeBackend

    return ClaudeBackend(guard)


class Nothing:
    """A view that draws nothing."""

    def show(self, snapshot: Any) -> None:
        """Draw nothing."""


class Book:
    """Every conversation of this kernel, the current name, and the last results."""

    def __init__(self) -> None:
        self.portal = Portal()
        self.guard = Guard()
        self.load: Callable[[], Backend] = lambda: load_claude(self.guard)
        self.current = "main"
        self.max_warm = 3
        self.idle_limit = 1800.0
        self.archive = Archive()
        self.home = here()  # where the kernel began: relative names start there
        self.notebook = notebook_of(os.environ, {}, self.home)
        self.results: list[TurnResult] = []
        self.turns: list[TurnHandle] = []
        self._pruned = False
        # The turn that `%agent stop` meant last, what it was said with (a name or none, the
        # current session, the newest turn), and when (monotonic seconds).
        self.aimed: tuple[TurnHandle, tuple[Any, ...], float] | None = None
        self._conversations: dict[str, Conversation] = {}
        self._earlier: list[Entry | None] = []  # once it was looked for
        self._offered = False
        self._pid = os.getpid()
        self._waits_for_exit = False
        self._closing = False

    @property
    def names(self) -> list[str]:
        """The names that were used, in order of their first use."""
        return list(self._conversations)

    @property
    def sessions(self) -> dict[str, str]:
        """The session ids that this kernel uses, and under which names."""
        return {c.session_id: c.name for c in tuple(self._conversations.values())}

    def earlier(self) -> Entry | None:
        """The session that this notebook used last before this kernel did, if any."""
        if not self._earlier:
            found = self.archive.last_of(self.notebook, agent_home(), self.sessions)
            self._earlier.append(found)
        return self._earlier[0]

    def offer(self) -> str | None:
        """A line that offers to resume that session; once, and None where there is none."""
        entry = None if self._offered else self.earlier()
        self._offered = True
        if entry is None or not entry.opened or entry.id in self.sessions:
            return None
        return f"This is a new conversation. %agent resume goes on with {entry}."

    def conversation(self, name: str) -> Conversation:
        """The conversation of this name, made on first use.

        Raises UsageError for a name that would not be easy to type again.
        """
        if not SESSION_NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} is no session name: use letters, digits, dot, dash or underscore."
            )
        known = self._conversations.get(name)
        # `setdefault`, for two threads may name it at once.
        return known or self._conversations.setdefault(
            name, Conversation(name, lambda: self.load(), home=self)
        )

    def check(self, name: str) -> Conversation:
        """The conversation of this name. Raises SessionBusy when it can take no prompt."""
        conversation = self.conversation(name)
        if conversation.unstopped:
            raise SessionBusy(
                f"The last turn of session {name} could not be stopped and still runs. "
                "End it with %agent stop --now, or use another session with -s NAME."
            )
        return conversation

    def start(self, name: str, order: Order) -> TurnHandle:
        """Put a turn in line; returns at once. Raises SessionBusy, RuntimeGone while all
        is closed."""
        if self._closing:
            raise RuntimeGone("turncell is just being closed. Run it again when that is done.")
        conversation = self.check(name)
        self._watch_exit()
        portal = self.portal
        turn_id = new_turn_id()
        handle = TurnHandle(
            turn_id,
            name,
            lambda reason, force: portal.soon(conversation.stop, turn_id, reason, force),
            order.settings.stop.total,
            partial(portal.soon, conversation.answer),
        )
        old = self.turns[:-20]  # a few that are over stay, for `%agent wait`
        self.turns = [t for t in old if t.running] + self.turns[-20:] + [handle]
        conducting = portal.spawn(self._conduct, conversation, order, handle)
        conducting.add_done_callback(lambda _: _never_left_waiting(handle, conversation))
        return handle

    async def _conduct(self, conversation: Conversation, order: Order, handle: TurnHandle) -> None:
        await conversation.conduct(order, handle)
        await self._trim()
        await self._prune()
        await conversation.close_if_idle(self.idle_limit)

    async def _trim(self) -> None:
        """Close the agents that were not used for longest, down to `max_warm`."""
        known = tuple(self._conversations.values())
        warm = [c for c in known if c.link.connection and not c.busy]
        warm.sort(key=lambda c: c.last_used or 0.0)
        for conversation in warm[: max(0, len(warm) - self.max_warm)]:
            await conversation.link.close_unused()

    async def _prune(self) -> None:
        """Remove old journals, once a kernel."""
        if not self._pruned:
            self._pruned = True
            await off_loop(self.archive.journals.prune, DAYS, SIZE)

    def keep_result(self, result: TurnResult) -> None:
        """Remember a result for `%agent last`; the last 50 are kept."""
        self.results = [r for r in self.results if r.turn_id != result.turn_id] + [result]
        del self.results[:-50]

    def end_unasked_work(self) -> tuple[int, int]:
        """Stop agents that work on their own account and end what finished turns left
        running, in every session; returns how many of each."""
        stopped: list[bool] = []
        ended: list[int] = []

        async def work(link: Link) -> None:
            stopped.append(await link.stop_own_work(5.0))
            ended.append(await link.family.end_left_running())

        links = [conversation.link for conversation in tuple(self._conversations.values())]
        self.portal.finish(*[partial(work, link) for link in links], seconds=15.0)
        return sum(stopped), sum(ended)

    @property
    def own_work(self) -> list[str]:
        """The sessions whose agent works on its own account, between prompts."""
        known = tuple(self._conversations.values())
        return [c.name for c in known if c.link.own_work and not c.busy]

    def close(self, seconds: float = LEAVE) -> None:
        """Stop what runs, close every agent and the runtime thread; about `seconds` in all."""
        if self._pid != os.getpid() or not self.portal.running:
            return
        self._closing = True  # or what other threads begin meanwhile would be left running
        try:
            known = tuple(self._conversations.values())
            leaving = [partial(c.leave, seconds, spare_earlier=False) for c in known]
            # When the runtime does not answer, all stays as it is: it can be tried again, and
            # at the latest the guard ends the agents, once this process is gone.
            self.portal.finish(*leaving, seconds=seconds + 2.5)
        finally:
            self._closing = False
        self.portal.close()
        self.guard.close()
        atexit.unregister(self.close)
        self._waits_for_exit = False

    def _watch_exit(self) -> None:
        if not self._waits_for_exit:
            self._waits_for_exit = True
            atexit.register(self.close)


def _never_left_waiting(handle: TurnHandle, conversation: Conversation) -> None:
    """Finish a turn that never ran, because the runtime ended or failed under it."""
    if not handle.done():
        error = "turncell was closed before the turn began"
        handle.finish(
            TurnResult(
                "", Outcome.FAILED, None, conversation.session_id, handle.turn_id,
                handle.session, error=error,
            )
        )  # fmt: skip
        handle.leave()


_books: dict[int, Book] = {}


def book() -> Book:
    """The book of this kernel, made on first use; a forked child gets one of its own."""
    pid = os.getpid()
    return _books.get(pid) or _books.setdefault(pid, Book())
