"""One writer a session: claims of processes that live, died, are frozen, or cannot be seen."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from filelock import FileLock

from turncell import procs
from turncell.archive.claims import Claim, Claims, lives, started
from turncell.errors import SessionBusy
from turncell.lease import Lease
from turncell.outcome import Survivor
from turncell.settings import InUse

SESSION = "0a1b2c3d-0000-4000-8000-000000000001"
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def claims(tmp_path: Path) -> Claims:
    return Claims(tmp_path)


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """Some other process of the user."""
    with subprocess.Popen(SLEEP) as process:
        yield process
        process.kill()


def claim_of(process: subprocess.Popen[bytes], **fields: object) -> Claim:
    mine = Claim.mine(SESSION, "theirs", "main", "/n/nb.ipynb")
    known = {"pid": process.pid, "started": started(process.pid), **fields}
    return dataclasses.replace(mine, **known)  # type: ignore[arg-type]


def mine(owner: str = "mine") -> Claim:
    return Claim.mine(SESSION, owner, "main", "/n/nb.ipynb")


def test_the_first_has_it_and_the_second_is_told_who(
    claims: Claims, other: subprocess.Popen[bytes]
) -> None:
    theirs = claim_of(other)
    assert claims.take(theirs) is None
    assert claims.take(mine()) == theirs
    assert str(theirs) == f"kernel {other.pid} (nb.ipynb) works in it"
    claims.release(theirs)
    assert claims.take(mine()) is None


def test_one_of_two_that_come_at_once(claims: Claims) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: claims.take(mine(f"owner {n}")), range(8)))
    assert answers.count(None) == 1


def test_a_claim_of_a_dead_kernel_is_nobodys(claims: Claims, tmp_path: Path) -> None:
    with subprocess.Popen(SLEEP) as process:
        theirs = claim_of(process)
        claims.take(theirs)
        process.kill()
    assert claims.get(SESSION) is None
    assert claims.take(mine()) is None


def test_a_pid_that_was_used_again_is_not_that_kernel(
    claims: Claims, other: subprocess.Popen[bytes]
) -> None:
    claims.take(claim_of(other, started="another time"))
    assert claims.take(mine()) is None


def test_a_claim_whose_agent_is_gone_is_nobodys(
    claims: Claims, other: subprocess.Popen[bytes]
) -> None:
    claims.take(claim_of(other, agent=2**22 + 1, agent_started="x"))
    assert claims.take(mine()) is None


def test_the_agent_of_a_dead_kernel_is_ended_before_another_goes_on(claims: Claims) -> None:
    token = procs.new_token()
    with subprocess.Popen(SLEEP, env={procs.TOKEN: token}) as agent:
        with subprocess.Popen(SLEEP) as kernel:
            theirs = claim_of(kernel).with_agent(agent.pid, token)
            claims.take(theirs)
            kernel.kill()
        assert claims.take(mine()) is None
        assert not lives(theirs.agent or 0, theirs.agent_started)


def test_to_take_over_ends_the_agent_and_not_the_kernel(
    claims: Claims, other: subprocess.Popen[bytes]
) -> None:
    token = procs.new_token()
    with subprocess.Popen(SLEEP, env={procs.TOKEN: token}) as agent:
        theirs = claim_of(other).with_agent(agent.pid, token)
        claims.take(theirs)
        assert claims.take(mine(), over=theirs, by_force=True) is None
        assert not lives(theirs.agent or 0, theirs.agent_started)
    assert other.poll() is None
    assert not claims.keep(theirs)  # it is not theirs any more
    claims.release(theirs)
    assert claims.get(SESSION) == mine()


def test_one_that_began_to_work_meanwhile_is_not_taken_over(
    claims: Claims, other: subprocess.Popen[bytes]
) -> None:
    idle = claim_of(other, until=time.time() + 100)
    claims.take(idle)
    working = dataclasses.replace(idle, until=None)
    assert claims.keep(working)
    assert claims.take(mine(), over=idle) == working
    assert claims.take(mine(), over=idle, by_force=True) is None


def test_a_claim_is_seen_also_where_nothing_can_be_written(
    claims: Claims, other: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    theirs = claim_of(other)
    claims.take(theirs)
    with FileLock(tmp_path / ".lock"):
        assert claims.take(mine()) == theirs
        other.kill()
        other.wait()
        with pytest.raises(OSError, match="lock"):
            claims.take(mine())


def test_on_another_machine_only_the_time_tells(
    claims: Claims, other: subprocess.Popen[bytes]
) -> None:
    afar = claim_of(other, host="elsewhere pid:[1]", pid=1)
    claims.take(afar)
    assert claims.take(mine()) == afar
    assert "on elsewhere" in str(afar)
    claims.keep(dataclasses.replace(afar, until=time.time() - 1))
    assert claims.take(mine()) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_damaged_claim_is_nobodys(claims: Claims, tmp_path: Path, text: str) -> None:
    (tmp_path / f"{SESSION}.json").write_text(text)
    assert claims.take(mine()) is None


def test_a_process_is_known_by_its_start() -> None:
    me = psutil.Process()
    since = started(me.pid)
    assert since is not None
    assert lives(me.pid, since)
    assert not lives(me.pid, "")
    assert started(2**22 + 1) is None


class TestLease:
    """What a turn makes of a claim that is in the way."""

    def lease(self, tmp_path: Path, name: str = "main") -> Lease:
        return Lease(Claims(tmp_path), name, "/n/nb.ipynb", lambda: 1000.0)

    async def take(
        self, lease: Lease, in_use: InUse, users: tuple[Survivor, ...] = ()
    ) -> list[str]:
        said: list[str] = []
        with anyio.fail_after(20):
            await lease.take(SESSION, in_use, lambda text, *_: said.append(text), lambda: users)
        return said

    def test_two_names_of_one_kernel_are_two_writers(self, tmp_path: Path) -> None:
        async def main() -> None:
            one, two = self.lease(tmp_path, "one"), self.lease(tmp_path, "two")
            assert await self.take(one, InUse.REFUSE) == []
            assert await self.take(one, InUse.REFUSE) == []
            with pytest.raises(SessionBusy) as error:
                await self.take(two, InUse.REFUSE)
            for words in ("session one of this kernel", "--in-use wait", "--fork", "--in-use take"):
                assert words in str(error.value)
            await one.rest()  # an idle one gives way: it reads what was said when it goes on
            assert await self.take(two, InUse.REFUSE) == []
            await two.rest()
            assert await self.take(one, InUse.REFUSE) == []

        anyio.run(main)

    def test_wait_is_over_when_the_turn_there_is(self, tmp_path: Path) -> None:
        async def main() -> None:
            one, two = self.lease(tmp_path, "one"), self.lease(tmp_path, "two")
            await self.take(one, InUse.REFUSE)
            async with anyio.create_task_group() as tasks:

                async def rest() -> None:
                    await anyio.sleep(0.4)
                    await one.rest()

                tasks.start_soon(rest)
                said = await self.take(two, InUse.WAIT)
            assert len(said) == 1
            assert said[0].startswith("Waiting for the session: session one of this kernel")

        anyio.run(main)

    def test_who_was_taken_over_while_it_started_is_told(self, tmp_path: Path) -> None:
        async def main() -> None:
            one, two = self.lease(tmp_path, "one"), self.lease(tmp_path, "two")
            await self.take(one, InUse.REFUSE)
            await one.has_agent(None, "token")
            await self.take(two, InUse.TAKE)
            with pytest.raises(SessionBusy, match="just taken over"):
                await one.has_agent(None, "token")
            await one.release()
            assert Claims(tmp_path).get(SESSION) is not None  # that of the other

        anyio.run(main)

    def test_a_stop_while_it_is_taken_leaves_no_claim(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        take, begun, go_on = Claims.take, threading.Event(), threading.Event()

        def slowly(self: Claims, claim: Claim, **how: Any) -> Claim | None:
            begun.set()
            go_on.wait(20)
            return take(self, claim, **how)

        async def main() -> None:
            lease = self.lease(tmp_path)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.take, lease, InUse.REFUSE)
                while not begun.is_set():
                    await anyio.sleep(0.01)
                tasks.cancel_scope.cancel()
            go_on.set()
            await lease.release()
            deadline = time.monotonic() + 20
            while not go_on.is_set() or Claims(tmp_path).get(SESSION) is not None:
                assert time.monotonic() < deadline
                await anyio.sleep(0.01)

        monkeypatch.setattr(Claims, "take", slowly)
        anyio.run(main)
        monkeypatch.undo()
        assert Claims(tmp_path).get(SESSION) is None

    def test_a_disk_that_hangs_costs_a_warning(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        go_on = threading.Event()
        monkeypatch.setattr(Claims, "take", lambda *_, **__: go_on.wait(20) and None)
        monkeypatch.setattr("turncell.lease.BOUND", 0.2)

        async def main() -> None:
            said = await self.take(self.lease(tmp_path), InUse.REFUSE)
            assert "the disk does not answer" in said[0]
            go_on.set()

        anyio.run(main)

    def test_a_stranger_is_waited_for_and_not_ended(self, tmp_path: Path) -> None:
        async def main() -> None:
            stranger = Survivor(4711, "claude --resume")
            for in_use in (InUse.REFUSE, InUse.TAKE):
                with pytest.raises(SessionBusy, match=r"process 4711 claude --resume has it open"):
                    await self.take(self.lease(tmp_path), in_use, (stranger,))
            there = [stranger]

            async def leave() -> None:
                await anyio.sleep(0.3)
                there.clear()

            said: list[str] = []
            lease = self.lease(tmp_path)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(leave)
                say = lambda text, *_: said.append(text)  # noqa: E731
                await lease.take(SESSION, InUse.WAIT, say, lambda: tuple(there))
            assert len(said) == 1

        anyio.run(main)

    def test_a_directory_that_cannot_be_written_costs_a_warning(self, tmp_path: Path) -> None:
        async def main() -> None:
            (tmp_path / "file").write_text("in the way")
            said = await self.take(self.lease(tmp_path / "file"), InUse.REFUSE)
            assert "cannot be written down" in said[0]

        anyio.run(main)
