"""One link's right to its session: taken before an agent opens it, kept while one has it open."""

from __future__ import annotations

import dataclasses
import logging
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TypeVar

import anyio

from turncell.archive.claims import Claim, Claims
from turncell.errors import SessionBusy
from turncell.outcome import Survivor
from turncell.painter import off_loop
from turncell.settings import InUse

__all__ = ["Lease"]

T = TypeVar("T")

#: Seconds between two looks at a session that is waited for.
LAP = 0.25
#: Seconds that files may take: a turn is worth more than its claim.
BOUND = 3.0
#: Seconds that it takes at most to end the agent of somebody else.
ENDING = 5.0

_UNWRITTEN = (
    "It cannot be written down that this session is in use ({}): see that no other kernel uses it."
)

#: Looks for processes that have the session open and are not ours.
Users = Callable[[], Iterable[Survivor]]


class Lease:
    """Lives on the runtime loop. `claims` are those of all kernels; None: nobody else is
    looked for. `idle` tells after how many seconds an unused agent is closed."""

    def __init__(
        self,
        claims: Claims | None,
        name: str = "",
        notebook: str = "",
        idle: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._claims = claims
        self._name = name
        self._notebook = notebook
        self._idle = idle
        self._owner = uuid.uuid4().hex
        self._claim: Claim | None = None

    async def take(
        self, session_id: str, in_use: InUse, say: Callable[..., None], users: Users
    ) -> None:
        """Have the session, for a turn. `users` looks who else has it open, in a worker thread.

        Raises SessionBusy when somebody has and `in_use` does not say what to do then.
        """
        if self._claims is None:
            return
        self._claim = claim = Claim.mine(session_id, self._owner, self._name, self._notebook)
        with ExitStack() as undo:
            undo.callback(self._forget)
            over = await self._win(claim, in_use, say, users)
            undo.pop_all()  # it is ours
        if over is not None and in_use is InUse.TAKE:
            say(f"The session was taken over: {over}.")

    def _forget(self) -> None:
        self._claim = None  # a worker that was not waited for sees that it is not wanted

    async def _win(
        self, claim: Claim, in_use: InUse, say: Callable[..., None], users: Users
    ) -> Claim | None:
        """Until the session is ours; the claim that had to give way, if any."""
        over: Claim | None = None
        waits = False
        while (other := await self._try(claim, over, in_use, say, users)) is not None:
            over = self._may_take(other, in_use)
            if over is not None:
                continue
            if in_use is not InUse.WAIT:
                raise SessionBusy(_choices(claim.session_id, other))
            if not waits:
                say(f"Waiting for the session: {other}.", "info")
            waits = True
            await anyio.sleep(LAP)
        return over

    def _may_take(self, other: Claim | Survivor, in_use: InUse) -> Claim | None:
        """The claim that need not count, if this one need not."""
        if not isinstance(other, Claim):
            return None
        # Of two names of one kernel, whose turn it is has the session.
        gives_way = not other.working and (other.of_this_process or in_use is InUse.WAIT)
        return other if gives_way or in_use is InUse.TAKE else None

    async def _try(
        self,
        claim: Claim,
        over: Claim | None,
        in_use: InUse,
        say: Callable[..., None],
        users: Users,
    ) -> Claim | Survivor | None:
        claims, by_force = self._claims, in_use is InUse.TAKE
        assert claims is not None

        def work() -> Claim | Survivor | None:
            other = claims.take(claim, over=over, by_force=by_force)
            stranger = None if other is not None else next(iter(users()), None)
            if stranger is not None or (other is None and self._claim is not claim):
                claims.release(claim)
            return other or stranger

        with anyio.move_on_after(BOUND if over is None else BOUND + ENDING) as scope:
            try:
                return await off_loop(work)
            except OSError as error:
                say(_UNWRITTEN.format(error.strerror or error))
        if scope.cancelled_caught:
            say(_UNWRITTEN.format("the disk does not answer"))
        return None

    async def has_agent(self, pid: int | None, token: str) -> None:
        """The token of an agent that is about to be started, then its process. Raises
        SessionBusy when the session was taken over: that agent may not go on."""
        if self._claim is not None:
            claim = await off_loop(self._claim.with_agent, pid, token)
            if not await self._keep(claim):
                raise _taken()

    async def lost_to(self) -> Claim | None:
        """Who took the session over, None where nobody did."""
        if self._claim is None or self._claims is None:
            return None
        claims = self._claims
        now = await self._bounded(lambda mine: claims.get(mine.session_id), self._claim)
        return now if now is not None and now.owner != self._owner else None

    async def check(self, users: Iterable[Survivor]) -> None:
        """Raises SessionBusy when there is one of these."""
        other = next(iter(users), None)
        if other is not None and self._claim is not None:
            raise SessionBusy(_choices(self._claim.session_id, other))

    async def move(self, session_id: str) -> None:
        """The agent goes on with the conversation under another id."""
        claim, claims = self._claim, self._claims
        if claim is None or claims is None:
            return
        self._claim = moved = dataclasses.replace(claim, session_id=session_id)

        def work(_: Claim) -> None:
            claims.take(moved)
            claims.release(claim)

        await self._bounded(work, claim)

    async def work(self) -> None:
        """A turn begins on an agent that was idle. Raises SessionBusy when the session was
        taken over: that agent is about to end."""
        if self._claim is None or self._claim.working:
            return
        if not await self._keep(dataclasses.replace(self._claim, until=None)):
            raise _taken()

    async def rest(self) -> None:
        """The turn is over; the agent may stay."""
        if self._claim is not None:
            until = time.time() + self._idle() + 60.0
            await self._keep(dataclasses.replace(self._claim, until=until))

    async def release(self) -> None:
        """No agent has it open any more."""
        claim, self._claim = self._claim, None
        if claim is not None and self._claims is not None:
            await self._bounded(self._claims.release, claim)

    async def _keep(self, claim: Claim) -> bool:
        self._claim = claim
        return await self._bounded(self._write_newest, claim) is not False

    def _write_newest(self, claim: Claim) -> bool:
        # The end of one turn and the beginning of the next write at once, in two threads.
        return self._claims is None or self._claims.keep(self._claim or claim)

    async def _bounded(self, work: Callable[[Claim], T], claim: Claim) -> T | None:
        """What the work returned, None where the disk did not let it."""
        with anyio.move_on_after(BOUND):
            try:
                return await off_loop(work, claim)
            except OSError as error:
                # A claim whose processes are gone does not count; one that could not be
                # written again says at worst that an idle session is at work.
                logging.getLogger("turncell").debug("a claim was not written: %s", error)
        return None


def _taken() -> SessionBusy:
    return SessionBusy(
        "The session was just taken over by another. Nothing was sent: run it again."
    )


def _choices(session_id: str, other: Claim | Survivor) -> str:
    if isinstance(other, Claim):
        who, take = str(other), f"or take it over with --in-use take, {_how(other)}"
    else:
        who, take = f"process {other} has it open", "or end that process yourself"
    return (
        f"Session {session_id[:8]} is in use: {who}. Nothing was sent.\n"
        f"Wait for it with --in-use wait, branch it with --fork NAME, {take}."
    )


def _how(other: Claim) -> str:
    return "which ends that agent" if other.here else "once you have ended its agent there"
