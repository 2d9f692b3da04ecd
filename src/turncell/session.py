"""`Session`: a name for a durable conversation; and the book that knows them all.

A name is one session per kernel: the book keeps one `Conversation` a name, and a
`Session` is a thin handle on it that adds settings. The book, its portal and its
runtime thread come into being with the first turn.
"""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio

from turncell.backends.base import Backend
from turncell.config import settings_from_environment
from turncell.conversation import Conversation, Order, new_turn_id
from turncell.errors import SessionBusy, UsageError
from turncell.guard import Guard
from turncell.handle import TurnHandle
from turncell.outcome import Reason, TurnResult
from turncell.painter import Drawable
from turncell.portal import Portal
from turncell.settings import Settings

__all__ = ["Book", "Session", "book"]

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
        self.results: list[TurnResult] = []
        self.turns: list[TurnHandle] = []
        self._conversations: dict[str, Conversation] = {}
        self._pid = os.getpid()
        self._waits_for_exit = False

    @property
    def names(self) -> list[str]:
        """The names that were used, in order of their first use."""
        return list(self._conversations)

    def conversation(self, name: str) -> Conversation:
        """The conversation of this name, made on first use.

        Raises UsageError for a name that would not be easy to type again.
        """
        if not re.fullmatch(r"[\w.-]{1,80}", name):
            raise UsageError(
                f"{name!r} is no session name: use letters, digits, dot, dash or underscore."
            )
        known = self._conversations.get(name)
        # `setdefault`, for two threads may name it at once.
        return known or self._conversations.setdefault(
            name, Conversation(name, lambda: self.load())
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
        """Put a turn in line; returns at once. Raises SessionBusy."""
        conversation = self.check(name)
        self._watch_exit()
        portal = self.portal
        turn_id = new_turn_id()
        handle = TurnHandle(
            turn_id,
            name,
            lambda reason, force: portal.soon(conversation.stop, turn_id, reason, force),
            order.settings.stop.total,
        )
        old = self.turns[:-20]  # a few that are over stay, for `%agent wait`
        self.turns = [t for t in old if t.running] + self.turns[-20:] + [handle]
        portal.spawn(self._conduct, conversation, order, handle)
        return handle

    async def _conduct(self, conversation: Conversation, order: Order, handle: TurnHandle) -> None:
        await conversation.conduct(order, handle)
        await self._trim()
        await conversation.close_if_idle(self.idle_limit)

    async def _trim(self) -> None:
        """Close the agents that were not used for longest, down to `max_warm`."""
        known = tuple(self._conversations.values())
        warm = [c for c in known if c.link.connection and not c.busy]
        warm.sort(key=lambda c: c.last_used or 0.0)
        for conversation in warm[: max(0, len(warm) - self.max_warm)]:
            await conversation.link.close_unused()

    def keep_result(self, result: TurnResult) -> None:
        """Remember a result for `%agent last`; the last 50 are kept."""
        self.results.append(result)
        del self.results[:-50]

    def close(self, seconds: float = LEAVE) -> None:
        """Stop what runs, close every agent and the runtime thread; about `seconds` in all."""
        if self._pid != os.getpid() or not self.portal.running:
            return
        known = tuple(self._conversations.values())
        leaving = [partial(conversation.leave, seconds) for conversation in known]
        self.portal.finish(*leaving, seconds=seconds + 3.0)
        self.portal.close()
        self.guard.close()
        atexit.unregister(self.close)
        self._waits_for_exit = False

    def _watch_exit(self) -> None:
        if not self._waits_for_exit:
            self._waits_for_exit = True
            atexit.register(self.close)


_books: dict[int, Book] = {}


def book() -> Book:
    """The book of this kernel, made on first use; a forked child gets one of its own."""
    pid = os.getpid()
    return _books.get(pid) or _books.setdefault(pid, Book())


class Session:
    """A named conversation with an agent. Making one starts no process.

    Options are those of `%%agent`: model, effort, permission_mode, max_turns,
    max_budget (USD), cwd, tools, system, sources, timeout (s), expand, cli, and
    ack, grace (s), strategy for its stops. `resume` binds an agent session id.
    Raises UsageError for an unknown option or a bad value.
    """

    def __init__(self, name: str = "main", *, resume: str | None = None, **options: Any) -> None:
        self._name = book().conversation(name).name
        self._settings = settings_from_environment().merged("Session()", options)
        if resume is not None:
            self._conversation.bind(resume)

    def __repr__(self) -> str:
        return f"<Session {self.name!r} {self.session_id[:8]}>"

    # Looked up each time: in a forked child it is a conversation of the child's own.

    @property
    def _book(self) -> Book:
        return book()

    @property
    def _conversation(self) -> Conversation:
        return self._book.conversation(self._name)

    @property
    def name(self) -> str:
        """The name."""
        return self._name

    @property
    def session_id(self) -> str:
        """The agent's id of this conversation, known before any agent starts."""
        return self._conversation.session_id

    @property
    def settings(self) -> Settings:
        """What its turns run with."""
        return self._settings

    def start(self, prompt: str, *, view: Drawable | None = None, **options: Any) -> TurnHandle:
        """Put a prompt in line and return its turn at once.

        Raises UsageError for an empty prompt or a bad option, SessionBusy while an
        unstopped turn still runs.
        """
        if not prompt.strip():
            raise UsageError("The prompt is empty: nothing was run.")
        settings = self._settings.merged("start()", options)
        keep = self._book.keep_result
        return self._book.start(self.name, Order(prompt, settings, view or Nothing(), on_over=keep))

    async def run(
        self,
        prompt: str,
        *,
        view: Drawable | None = None,
        raise_error: bool = True,
        **options: Any,
    ) -> TurnResult:
        """Run a prompt to its end, on any event loop.

        Raises TurnStopped or TurnFailed (not with raise_error=False). Cancelling it
        stops the turn (reason `api`), waits for that within the stop's bound, and
        lets the cancellation go on.
        """
        turn = self.start(prompt, view=view, **options)
        try:
            return await turn.join(raise_error=raise_error)
        except anyio.get_cancelled_exc_class():
            turn.stop("api")
            with anyio.CancelScope(shield=True), anyio.move_on_after(turn.bound + 2.0):
                await turn.join(raise_error=False)
            raise

    def stop(self, reason: str = "user", *, now: bool = False) -> None:
        """Stop the running turn; nothing on an idle session. Returns at once."""
        self._book.portal.soon(self._conversation.stop, None, Reason(reason), now)

    def close(self) -> None:
        """End the agent process politely; the conversation stays resumable."""
        leave = partial(self._conversation.leave, LEAVE)
        self._book.portal.finish(leave, seconds=LEAVE + 3.0)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.close)
