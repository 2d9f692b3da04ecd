"""`Session`: a name for a durable conversation.

A name is one session per kernel: the book keeps one `Conversation` a name, and a
`Session` is a thin handle on it that adds settings.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from turncell.book import LEAVE, Book, Nothing, book
from turncell.config import settings_from_environment
from turncell.conversation import Conversation, Order
from turncell.errors import UsageError
from turncell.finder import Finder
from turncell.handle import TurnHandle
from turncell.outcome import Reason, TurnResult
from turncell.painter import Drawable
from turncell.settings import Settings

__all__ = ["Book", "Session", "book"]


class Session:
    """A named conversation with an agent. Making one starts no process.

    Options are those of `%%agent`: model, effort, permission_mode, max_turns,
    max_budget (USD), cwd, tools, system, sources, timeout (s), expand, cli, in_use, tell,
    unattended, and ack, grace (s), strategy for its stops. `resume` goes on with an earlier
    session: an id, its first 6 or more characters, or a name. Raises UsageError for an unknown
    option or session and for a bad value; then the session in use stays as it was.
    """

    def __init__(self, name: str = "main", *, resume: str | None = None, **options: Any) -> None:
        self._settings = settings_from_environment().merged("Session()", options)
        found = Finder(book()).find(resume) if resume is not None else None
        self._name = book().conversation(name).name
        if found is not None:
            self._conversation.bind(found.session_id, found.entry)

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

    def start(
        self, prompt: str, *, view: Drawable | None = None, ask: bool = False, **options: Any
    ) -> TurnHandle:
        """Put a prompt in line and return its turn at once. With `ask`, a question of the
        agent waits for `turn.answer`; without, it gets what the setting `unattended` says.

        Raises UsageError for an empty prompt or a bad option, SessionBusy while an
        unstopped turn still runs.
        """
        if not prompt.strip():
            raise UsageError("The prompt is empty: nothing was run.")
        settings = self._settings.merged("start()", options)
        keep = self._book.keep_result
        order = Order(prompt, settings, view or Nothing(), asks=ask, on_over=keep)
        return self._book.start(self.name, order)

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
        if "ask" in options:
            raise UsageError("ask needs start(): run() gives nothing to answer a question with.")
        turn = self.start(prompt, view=view, **options)
        try:
            return await turn.join(raise_error=raise_error)
        except anyio.get_cancelled_exc_class():
            turn.stop("api")
            with anyio.CancelScope(shield=True), anyio.move_on_after(turn.bound + 2.0):
                await turn.join(raise_error=False)
            raise

    def fork(self, name: str) -> Session:
        """Branch this conversation, as it is written down by now, under a new name.

        Raises UsageError when the name is taken, or nothing is written down.
        """
        Finder(self._book).fork(self.name, name)
        branch = Session(name)
        branch._settings = self._settings
        return branch

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
