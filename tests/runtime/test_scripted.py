"""The scripted agents themselves, and the door to them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from turncell import Session, testing
from turncell import events as ev
from turncell.backends import scripted_steps
from turncell.backends.base import Ack, Backend, Connection, Hangup, Launch, Processes, Prompt
from turncell.backends.scripted import ScriptedBackend
from turncell.errors import AgentStartError
from turncell.session import book
from turncell.settings import Settings
from turncell.testing import Ask, Finish, Manners, Play, Rest, Say, Spawn, Step, Tell

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Ear:
    """What an agent delivers."""

    def __init__(self) -> None:
        self.heard: list[ev.Event | Hangup] = []

    def __call__(self, event: ev.Event | Hangup) -> None:
        self.heard.append(event)

    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.heard]

    async def until(self, true: Callable[[Ear], Any]) -> None:
        with anyio.fail_after(10):
            while not true(self):
                await anyio.sleep(0.001)

    async def finished(self, times: int = 1) -> None:
        await self.until(lambda ear: ear.names().count("AgentFinished") == times)


@asynccontextmanager
async def running(backend: ScriptedBackend) -> AsyncIterator[Backend]:
    async with anyio.create_task_group() as group:
        await group.start(backend.run)
        yield backend
        group.cancel_scope.cancel()


def launch(**fields: Any) -> Launch:
    return Launch(Settings(), "s-1", token="token", **fields)


async def test_it_fulfils_the_seam() -> None:
    backend = ScriptedBackend(Play("Hello you.", when="hi"))
    processes: Processes = backend.processes
    async with running(backend) as seam:
        ear = Ear()
        connection: Connection = await seam.connect(launch(), ear)
        assert connection.alive and not connection.history_missing
        await connection.send(Prompt("hi there", "t-1"))
        await ear.finished()
        assert ear.names() == [
            "SessionOpened", "TextDelta", "TextDelta", "TextSettled", "UsageReported",
            "AgentFinished",
        ]  # fmt: skip
        assert {event.turn_id for event in ear.heard} == {"t-1"}  # type: ignore[union-attr]
        assert await connection.interrupt() == Ack()  # nothing runs: nothing happens
        await connection.send(Prompt("another one", "t-2"))
        await ear.finished(2)
        assert ear.heard[-3] == ev.TextSettled(
            turn_id="t-2", at=ear.heard[-3].at,  # type: ignore[union-attr]
            text="echo: another one", block="t-2:text-1",
        )  # fmt: skip
        assert {p.pid for p in processes.tree(connection.pid)} == {connection.pid}
        connection.hang_up()
        await ear.until(lambda ear: isinstance(ear.heard[-1], Hangup))
        assert not connection.alive and processes.marked("token") == set()
        with pytest.raises(OSError, match="ended"):
            await connection.send(Prompt("hi", "t-3"))
        with pytest.raises(OSError, match="asked"):
            await connection.interrupt()
        await connection.aclose()
    assert backend.memory["s-1"] == [
        ("hi there", "Hello you."), ("another one", "echo: another one"),
    ]  # fmt: skip


async def test_an_interrupt_settles_what_is_open() -> None:
    backend = ScriptedBackend(Play("half ", Spawn("a tool"), Ask(), Rest()))
    async with running(backend) as seam:
        ear = Ear()
        connection = await seam.connect(launch(), ear)
        await connection.send(Prompt("go", "t-1"))
        await ear.until(lambda ear: "QuestionAsked" in ear.names())
        assert len(backend.processes.marked("token", tools_only=True)) == 1
        await connection.interrupt()
        await ear.finished()
        settled = next(e for e in ear.heard if isinstance(e, ev.QuestionSettled))
        assert settled.answer == "cancelled"
        assert ear.heard[-1].end == "aborted"  # type: ignore[union-attr]
        assert backend.processes.marked("token", tools_only=True) == set()


async def test_prompts_sent_at_once_are_played_one_after_the_other() -> None:
    backend = ScriptedBackend(Play(Say("a b", pace=0.01)))
    async with running(backend) as seam:
        ear = Ear()
        connection = await seam.connect(launch(), ear)
        for n in range(3):
            await connection.send(Prompt("go", f"t-{n}"))
        await ear.finished(3)
        order = [event.turn_id for event in ear.heard]  # type: ignore[union-attr]
        assert order == sorted(order)


async def test_a_step_of_ones_own() -> None:
    class Twice(Step):
        async def play(self, scene: Any) -> None:
            for _ in range(2):
                await Say("again ").play(scene)

    notice = ev.Notice(text="as it is")
    backend = ScriptedBackend(Play(Twice(), Tell(notice), Finish("error", "no")))
    async with running(backend) as seam:
        ear = Ear()
        connection = await seam.connect(launch(), ear)
        await connection.send(Prompt("go", "t-1"))
        await ear.finished()
        assert ear.names().count("TextSettled") == 2
        assert notice in ear.heard


async def test_starts_and_resumes() -> None:
    backend = ScriptedBackend(start=0.01)
    backend.memory["s-1"] = [("before", "")]
    async with running(backend) as seam:
        assert not (await seam.connect(launch(opened=True), Ear())).history_missing
        backend.memory.clear()
        assert (await seam.connect(launch(opened=True), Ear())).history_missing
        with pytest.raises(AgentStartError, match="s-1"):
            await seam.connect(launch(opened=True, exact=True), Ear())
        backend.refuses = "no login"
        with pytest.raises(AgentStartError, match="no login"):
            await seam.connect(launch(), Ear())
        backend.start = 60.0
        with anyio.move_on_after(0.02):
            await seam.connect(launch(), Ear())
        assert len(backend.processes.marked("token")) == 2  # the two that did start


def test_the_manners_say_what_they_are() -> None:
    assert Manners() == Manners(ack=0.0, ends=0.0)
    assert Play("a", Finish()) == Play(Say("a"), Finish())


def test_the_door_has_every_step_and_loads_no_web_server() -> None:
    assert {"Play", "Step", *scripted_steps.__all__} <= set(testing.__all__)
    code = (
        "import sys, turncell.testing as t\n"
        "heavy = {'uvicorn', 'starlette', 'claude_agent_sdk', 'IPython', 'trio'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "names = {name: getattr(t, name) for name in t.__all__}\n"
        "assert names['ModelServer'].__module__ == 'turncell.modelserver.server'\n"
    )
    env = {"PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)
    with pytest.raises(AttributeError):
        _ = testing.no_such_name  # type: ignore[attr-defined]


def test_the_real_agent_is_back_afterwards() -> None:
    real = book().load
    with testing.scripted(Play("one")) as outer:
        assert Session("door").start("x").result(10).text == "one"
        with testing.scripted(Play("two")) as inner:
            assert Session("door").start("x").result(10).text == "two"
        assert Session("door").start("x").result(10).text == "one"
    assert book().load is real
    assert (outer.prompts, inner.prompts) == (["x", "x"], ["x"])
    assert not book().portal.running
