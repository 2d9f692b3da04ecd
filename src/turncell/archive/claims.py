"""One writer a session: who has it open, and how it changes hands.

The agent lets two processes continue one conversation, and keeps what the last of them
wrote: the other's turns are lost without a word. So whoever opens a session writes a claim
first, for as long as an agent process has it open. A claim counts only while its kernel and
its agent live; locks of the system would be kept by every forked child of a dead kernel.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from turncell import procs
from turncell.archive.files import locked, write_whole

__all__ = ["Claim", "Claims", "host", "lives", "started"]

#: Seconds that an agent at work gets to end its turn when its session is taken over.
POLITE = 3.0


@dataclass(frozen=True, slots=True)
class Claim:
    """Who has a session open: a kernel (`pid`), and its agent once there is one.

    `owner` names one link of one kernel; `started` and `agent_started` make the pids
    unmistakable, on one `host` and among the processes that can be seen there; `until`
    (seconds since the epoch) is when an idle agent will have been closed at the latest, None
    while a turn runs.
    """

    session_id: str
    owner: str
    name: str
    notebook: str
    pid: int
    started: str
    host: str
    agent: int | None = None
    agent_started: str = ""
    token: str = ""
    until: float | None = None

    @classmethod
    def mine(cls, session_id: str, owner: str, name: str, notebook: str) -> Claim:
        """A claim of this process."""
        pid = os.getpid()
        return cls(session_id, owner, name, notebook, pid, started(pid) or "", host())

    @property
    def here(self) -> bool:
        """Whether its processes can be seen from here."""
        return self.host == host()

    @property
    def of_this_process(self) -> bool:
        """Whether it is a claim of the kernel that asks."""
        return self.here and self.pid == os.getpid()

    @property
    def working(self) -> bool:
        """Whether a turn runs, as far as it is known."""
        return self.until is None

    @property
    def kernel_lives(self) -> bool:
        """Whether its kernel still runs; only one that is `here` can be asked."""
        return lives(self.pid, self.started)

    @property
    def agent_lives(self) -> bool:
        """The same of its agent."""
        return self.agent is not None and lives(self.agent, self.agent_started)

    def counts(self) -> bool:
        """Whether somebody still has the session open by it."""
        if not self.here:  # it can only be told by the time
            return self.until is None or time.time() < self.until
        return self.kernel_lives and (self.agent is None or self.agent_lives)

    def with_agent(self, pid: int | None, token: str) -> Claim:
        """The same claim, with its agent process, if it is one that can be looked at."""
        began = started(pid) if pid is not None else None
        agent = pid if began is not None else None
        return dataclasses.replace(self, agent=agent, agent_started=began or "", token=token)

    def __str__(self) -> str:
        what = "works in it" if self.working else "has it open"
        where = "" if self.here else f" on {self.host.split()[0]}"
        mine = f"session {self.name} of this kernel"
        who = mine if self.of_this_process else f"kernel {self.pid}{where}"
        return f"{who} ({os.path.basename(self.notebook) or self.notebook}) {what}"


class Claims:
    """The claims in one directory. Every method may block, and raises OSError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def take(
        self, claim: Claim, *, over: Claim | None = None, by_force: bool = False
    ) -> Claim | None:
        """Write the claim, and return None; or whose claim is in the way.

        `over`: a claim that need not count, as it was seen; with `by_force` also if its owner
        began to work since. The agent of whoever loses the session is ended.
        """
        try:
            with locked(self._directory):
                other = self._read(claim.session_id)
                if self._in_the_way(other, claim, over, by_force):
                    return other
                self._write(claim)
        except OSError:
            other = self._read(claim.session_id)
            if self._in_the_way(other, claim, over, by_force):
                return other  # that much can be seen without writing
            raise
        if other is None or other.owner == claim.owner or not other.here:
            return None
        dead = not other.kernel_lives
        if over is not None or dead:
            _end(other, with_all=by_force or dead)
        return None

    def _in_the_way(
        self, other: Claim | None, claim: Claim, over: Claim | None, by_force: bool
    ) -> bool:
        if other is None or other.owner == claim.owner or not other.counts():
            return False
        return over is None or not (other == over or (by_force and other.owner == over.owner))

    def keep(self, claim: Claim) -> bool:
        """Write a claim anew, unless the session is another's by now; whether it is not."""
        with locked(self._directory):
            now = self._read(claim.session_id)
            mine = now is None or now.owner == claim.owner
            if mine:
                self._write(claim)
            return mine

    def release(self, claim: Claim) -> None:
        """Take the claim back; nothing when it is another's by now."""
        with locked(self._directory):
            now = self._read(claim.session_id)
            if now is not None and now.owner == claim.owner:
                self._path(claim.session_id).unlink()

    def get(self, session_id: str) -> Claim | None:
        """The claim that counts, None where the session is free."""
        claim = self._read(session_id)
        return claim if claim is not None and claim.counts() else None

    def _path(self, session_id: str) -> Path:
        return self._directory / f"{session_id}.json"

    def _read(self, session_id: str) -> Claim | None:
        try:
            data = json.loads(self._path(session_id).read_text(encoding="utf-8"))
            fields = {f.name for f in dataclasses.fields(Claim)}  # a newer version may have more
            return Claim(**{name: value for name, value in data.items() if name in fields})
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, TypeError, AttributeError):
            return None  # damaged: whoever wrote it writes it again

    def _write(self, claim: Claim) -> None:
        text = json.dumps(dataclasses.asdict(claim), indent=1)
        # Who comes after a power cut finds no process of it.
        write_whole(self._path(claim.session_id), text, lasting=False)


def _end(claim: Claim, *, with_all: bool) -> None:
    """End the agent of a claim: politely, so that it can write down what it said, then by
    force. `with_all`: and all that it left running."""
    known = procs.tree(claim.agent) if claim.agent_lives else set()
    if claim.agent_lives:
        (procs.interrupt if claim.working else procs.terminate)(claim.agent)
        deadline = time.monotonic() + POLITE
        while claim.agent_lives and time.monotonic() < deadline:
            time.sleep(0.02)
    if with_all and claim.token:
        procs.clear(claim.token, known, patience=0.15)
    elif claim.agent_lives:
        procs.clear("", known, patience=0.15)


def host() -> str:
    """This machine, and on Linux which of its process numberings this is: containers can share
    a name and a directory, and not see each other."""
    with suppress(OSError):
        return f"{platform.node()} {os.readlink('/proc/self/ns/pid')}"
    return platform.node()


def lives(pid: int, since: str) -> bool:
    """Whether this very process still runs; `since` is what `started` said of it."""
    return started(pid) == since


def started(pid: int) -> str | None:
    """When this process was started, in words that are the same for all who ask; None when
    it is gone."""
    with suppress(OSError):
        start = procs.start_of(pid)
        if start is not None and sys.platform.startswith("linux"):
            return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {start}"
        return start
    return None
