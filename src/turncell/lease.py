"""One link's right to its session: taken before an agent opens it, kept while one has it open."""

from __future__ import annotations

import dataclasses
import logging
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
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

#: Looks for processes that have the session open and are not ours.
Users = Callable[[], Iterable[Survivor]]


class Lease:
    """Lives on the runtime loop. `directory` holds the claims of all kernels; None: nobody
    else is looked for. `idle` tells after how many seconds an unused agent is closed."""

    def __init__(
        self,
        directory: Path | None,
        name: str = "",
        notebook: str = "",
        idle: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._claims = None if directory is None else Claims(directory)
        self._name = name
        self._notebook = notebook
        self._idle = idle
        self._owner = uuid.uuid4().hex
        self._claim: Claim | None = None

    async def take(
        self, session_id: str, in_use: InUse, say: Callable[[str], None], users: Users
    ) -> None:
        """Have the session, for a turn. `users` looks who else has it open, in a worker thread.

        Raises SessionBusy when somebody has and `in_use` does not say what to do then.
        """
        if self._claims is None:
            return
        claim = Claim.mine(session_id, self._owner, self._name, self._notebook)
        if self._claim is not None and self._claim.session_id == session_id:
            claim = dataclasses.replace(self._claim, until=None)
        over, waits = None, False
        while (other := await self._try(claim, over, say, users)) is not None:
            if isinstance(other, Claim) and other.of_this_process and not other.working:
                over = other.owner  # another name for it in this kernel: whose turn it is, has it
                continue
            mine_to_take = isinstance(other, Claim) and in_use is not InUse.REFUSE
            if in_use is InUse.REFUSE or (in_use is InUse.TAKE and not mine_to_take):
                raise SessionBusy(_choices(session_id, other))
            if isinstance(other, Claim) and (in_use is InUse.TAKE or not other.working):
                over = other.owner
                say(f"The session was taken over: {other}.")
                continue
            if not waits:
                waits = True
                say(f"Waiting for the session: {other}.")
            await anyio.sleep(LAP)

    async def _try(
        self, claim: Claim, over: str | None, say: Callable[[str], None], users: Users
    ) -> Claim | Survivor | None:
        claims = self._claims
        assert claims is not None

        def work() -> Claim | Survivor | None:
            other = claims.take(claim, over=over)
            stranger = None if other is not None else next(iter(users()), None)
            if stranger is not None:
                claims.release(claim)
            return other or stranger

        try:
            other = await off_loop(work)
        except OSError as error:
            say(
                f"It cannot be written down that this session is in use "
                f"({error.strerror or error}): see that no other kernel uses it."
            )
            return None
        if not isinstance(other, Claim):
            self._claim = claim
        return other

    async def has_agent(self, pid: int | None, token: str) -> None:
        """An agent has the session open now."""
        if self._claim is not None:
            await self._keep(await off_loop(self._claim.with_agent, pid, token))

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
            raise SessionBusy(
                "The session was just taken over by another. Nothing was sent: run it again."
            )

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


def _choices(session_id: str, other: Claim | Survivor) -> str:
    if isinstance(other, Claim):
        who, take = str(other), "or take it over with --in-use take, which ends that agent"
    else:
        who, take = f"process {other} has it open", "or end that process yourself"
    return (
        f"Session {session_id[:8]} is in use: {who}. Nothing was sent.\n"
        f"Wait for it with --in-use wait, branch it with --fork NAME, {take}."
    )
