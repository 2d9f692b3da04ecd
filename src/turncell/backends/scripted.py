"""An agent that plays a script, bad manners included: for tests and demonstrations.

It needs no process, no network and no real time: it runs on any loop that anyio
knows, on a jumped clock too. What it does for a prompt is a `Play`, how it takes a
stop are the play's `Manners`; its processes are make-believe and can be signalled,
killed, left behind and spared like real ones.

    backend = ScriptedBackend(Play("Half an answer, ", Freeze(), when="freeze"), Play("Hello."))

The agents live in a task group of the backend: `run` must be running on the loop of
those who connect. `turncell.testing.scripted` does that for the runtime's loop.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Collection

import anyio
from anyio.abc import TaskGroup, TaskStatus

from turncell import events as ev
from turncell.backends.base import Ack, Deliver, Hangup, Kept, Launch, Prompt
from turncell.backends.scripted_processes import Stage
from turncell.backends.scripted_scene import Scene
from turncell.backends.scripted_steps import Manners, Play, Spawn
from turncell.errors import AgentStartError, UsageError
from turncell.outcome import Survivor
from turncell.questions import Answer

__all__ = ["ScriptedBackend", "ScriptedConnection"]


class ScriptedBackend:
    """Makes scripted agents. The first play whose `when` is in the prompt is played; the
    prompt is echoed when there is none.

    A start takes `start` seconds, and fails with `refuses` as its last words. `memory`
    holds what each session wrote down: pairs of a prompt and the text said for it;
    `prompts` every prompt that arrived; `connections` every agent that was started.
    """

    def __init__(self, *plays: Play, start: float = 0.0, refuses: str | None = None) -> None:
        self.plays = plays
        self.start = start
        self.refuses = refuses
        self.processes = Stage()
        self.memory: dict[str, list[tuple[str, str]]] = {}
        self.prompts: list[str] = []
        self.connections: list[ScriptedConnection] = []
        self.tasks: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep the agents alive until cancelled."""
        try:
            async with anyio.create_task_group() as self.tasks:
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self.tasks = None

    async def connect(self, launch: Launch, deliver: Deliver) -> ScriptedConnection:
        """Start an agent. Raises AgentStartError when told to, or asked to resume exactly
        a session that was never written down."""
        assert self.tasks is not None, "`run` keeps the agents alive and is not running"
        known = launch.session_id in self.memory
        connection = ScriptedConnection(self, launch, deliver)
        try:
            await anyio.sleep(self.start)
            if self.refuses is not None:
                raise AgentStartError(f"The agent could not start (exit code 1): {self.refuses}")
            if launch.opened and launch.exact and not known:
                raise AgentStartError(f"No conversation found with id {launch.session_id}")
        except BaseException:
            self.processes.leave(connection, tools=True)
            raise
        connection.history_missing = launch.opened and not known
        self.connections.append(connection)
        self.tasks.start_soon(connection.live)
        return connection

    def kept(self, session_id: str) -> Kept | None:
        """What a session wrote down."""
        known = self.memory.get(session_id)
        return None if known is None else Kept(tuple(text for pair in known for text in pair))

    def length(self, session_id: str) -> int:
        """How much a session wrote down."""
        return len(self.memory.get(session_id, ()))

    def prompted_since(self, session_id: str, length: int, ours: Collection[str]) -> bool:
        """Nobody else writes there."""
        return False

    def users(self, session_id: str) -> tuple[Survivor, ...]:
        """Nobody else."""
        return ()

    def fork(self, session_id: str) -> str:
        """Copy what a session wrote down. Raises UsageError when it wrote nothing."""
        if session_id not in self.memory:
            raise UsageError(f"Session {session_id} has nothing to branch from yet.")
        fork = str(uuid.uuid4())
        self.memory[fork] = list(self.memory[session_id])
        return fork

    def play_for(self, prompt: str) -> Play:
        """The play that this prompt gets."""
        echo = Play(f"echo: {prompt}")
        return next((play for play in self.plays if play.when in prompt), echo)


class ScriptedConnection:
    """One scripted agent."""

    def __init__(self, backend: ScriptedBackend, launch: Launch, deliver: Deliver) -> None:
        self.backend = backend
        self.launch = launch
        self.history_missing = self.works_behind = False
        self.frozen = False
        self.interrupts = 0
        self.leftovers: list[ev.Event] = []
        self.manners = Manners()
        self.scene: Scene | None = None
        self._deliver = deliver
        self._proc = backend.processes.enter(self)
        self._line: deque[Prompt] = deque()
        self._mail = anyio.Event()
        self._life = anyio.CancelScope()
        self._asked_at = 0.0
        self._hung_up = self._going = self._dead = False

    @property
    def pid(self) -> int | None:
        """Its make-believe pid."""
        return self._proc.pid

    @property
    def alive(self) -> bool:
        """Whether it can take a prompt."""
        return not self._dead and not self._hung_up

    async def live(self) -> None:
        """Take prompts, one after the other, until it is told to go."""
        with self._life:
            while not self._going:
                if self._line:
                    await self._take(self._line.popleft())
                else:
                    self._mail = anyio.Event()
                    await self._mail.wait()
            await anyio.sleep(self.manners.leaving)
            self.die("the agent process ended (exit code 0)", tools_too=True)

    async def _take(self, prompt: Prompt) -> None:
        play = self.backend.play_for(prompt.text)
        self.manners, self.interrupts = play.manners, 0
        self.scene = Scene(self, prompt)
        await self.scene.act(play)
        self.scene = None

    # What the runtime asks of it.

    async def send(self, prompt: Prompt) -> None:
        """Take a prompt; it waits in line while a turn runs."""
        if not self.alive:
            raise BrokenPipeError("the agent process has ended")
        self.backend.prompts.append(prompt.text)
        self._line.append(prompt)
        self._mail.set()

    async def interrupt(self) -> Ack:
        """Be asked to stop."""
        scene, manners, tasks = self.scene, self.manners, self.backend.tasks
        if self._dead or manners.refuses or tasks is None:
            raise BrokenPipeError("the agent cannot be asked")
        self.interrupts += 1
        if self.interrupts == 1:
            self._asked_at = anyio.current_time()
        if self.frozen:
            await anyio.sleep_forever()
        heard = scene is not None and self.interrupts > manners.deaf
        if heard and scene is not None and manners.ends is not None:
            tasks.start_soon(scene.stop_after, manners.ends)
        if manners.ack is None:
            await anyio.sleep_forever()
        else:
            await anyio.sleep_until(self._asked_at + manners.ack)
        if manners.dies:
            self.die("the agent process ended (signal 11)")
            raise BrokenPipeError("the agent process has ended")
        dropped = heard and scene is not None and manners.withdraws
        return Ack((scene.turn_id,) if dropped and scene is not None else ())

    def refuse(self, turn_id: str) -> None:
        """Deny further tools and settle open questions, of this turn."""
        if self.scene is not None and self.scene.turn_id == turn_id:
            self.scene.refuse()

    def answer(self, question_id: str, answer: Answer) -> None:
        """Be told what a person says."""
        if self.scene is not None:
            self.scene.be_answered(question_id, answer)

    def hang_up(self) -> None:
        """Its input is closed: it goes when its turn is over, as the agent CLI does."""
        self._hung_up = True
        if not self.frozen and "hang_up" not in self.manners.ignores:
            self._going = True
            self._mail.set()

    async def aclose(self) -> None:
        """Nothing is held."""
        self._life.cancel()

    # What happens to its process.

    def spawn(self, spawned: Spawn) -> None:
        """One of its tools starts a process."""
        self.backend.processes.enter(self, spawned)

    def take_sigint(self) -> None:
        """SIGINT: it ends its turn cleanly and leaves."""
        if not self.frozen and "sigint" not in self.manners.ignores:
            if self.scene is not None:
                self.scene.wind_up()
            self._leave("exit code 0")

    def take_sigterm(self) -> None:
        """SIGTERM: it leaves and takes its tools along; its text is lost."""
        if not self.frozen and "sigterm" not in self.manners.ignores:
            self._leave("exit code 143")

    def take_sigkill(self) -> None:
        """SIGKILL: its tools live on."""
        if "sigkill" not in self.manners.ignores:
            self.die("the agent process ended (signal 9)")

    def _leave(self, how: str) -> None:
        async def leave() -> None:
            await anyio.sleep(self.manners.leaving)
            self.die(f"the agent process ended ({how})", tools_too=True)

        if self.backend.tasks is not None:
            self.backend.tasks.start_soon(leave)

    def die(self, detail: str, *, tools_too: bool = False) -> None:
        """The process ends; the last thing it does is to hang up."""
        if not self._dead:
            self._dead = True
            self.backend.processes.leave(self, tools=tools_too)
            self._life.cancel()
            self._deliver(Hangup(detail))

    def deliver(self, event: ev.Event) -> None:
        """Say something, while it lives."""
        if not self._dead:
            self._deliver(event)
