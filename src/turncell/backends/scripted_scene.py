"""One turn of a scripted agent: what it began and did not settle, so that a stop can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from turncell import events as ev
from turncell.backends.base import Prompt
from turncell.backends.scripted_steps import Ask, Finish, Play
from turncell.questions import Answer, settled_as

if TYPE_CHECKING:
    from turncell.backends.scripted import ScriptedConnection

__all__ = ["Scene"]


class Scene:
    """What the steps of a play act on."""

    def __init__(self, connection: ScriptedConnection, prompt: Prompt) -> None:
        self.connection = connection
        self.turn_id = prompt.turn_id
        self.refused = anyio.Event()
        self.over = False
        self._prompt = prompt.text
        self._scope = anyio.CancelScope()
        self._keys = 0
        self._said: list[str] = []
        self._partial: list[str] = []
        self._block = ""
        self._tools: list[str] = []
        self._question: str | None = None
        self._settled = anyio.Event()
        self._page: list[tuple[str, str]] | None = None

    async def act(self, play: Play) -> None:
        """Play it to its end, or until a stop."""
        if play.opens:
            self._open()
        leftovers, self.connection.leftovers = self.connection.leftovers, []
        for event in leftovers:
            self.deliver(event)
        with self._scope:
            for step in play.steps:
                await step.play(self)
            if not self.over:
                self.finish(Finish())
        if play.manners.repeats_later:
            again = ev.AgentFinished(turn_id=self.turn_id, at=anyio.current_time(), end="aborted")
            self.connection.leftovers.append(again)

    def _open(self) -> None:
        launch = self.connection.launch
        memory = self.connection.backend.memory
        self._page = memory.setdefault(launch.session_id, [])
        self._page.append((self._prompt, ""))
        self.tell(
            ev.SessionOpened,
            session_id=launch.session_id,
            model=launch.settings.model or "scripted",
            agent_version="scripted",
        )

    # What steps say.

    def tell(self, kind: type[ev.Event], **fields: Any) -> None:
        """Say something in the name of this turn."""
        self.deliver(kind(turn_id=self.turn_id, at=anyio.current_time(), **fields))

    def deliver(self, event: ev.Event) -> None:
        """Say something exactly as it is."""
        self.connection.deliver(event)

    def new_key(self, kind: str) -> str:
        """A name for a block or a question, unique in all turns."""
        self._keys += 1
        return f"{self.turn_id}:{kind}-{self._keys}"

    def open_block(self) -> None:
        """Begin a block of text; one that was not settled never will be."""
        self._partial.clear()
        self._block = self.new_key("text")

    def say(self, text: str) -> None:
        """A piece of the open block."""
        self._partial.append(text)
        self.tell(ev.TextDelta, text=text, block=self._block)

    def settle(self) -> None:
        """End the open block, if there is one with text in it."""
        if self._partial:
            text = "".join(self._partial)
            self._partial.clear()
            self._said.append(text)
            self.tell(ev.TextSettled, text=text, block=self._block)

    def start_tool(self, tool_id: str, name: str, given: dict[str, Any]) -> None:
        """Call a tool, unless the turn is refused."""
        self.tell(ev.ToolStarted, tool_id=tool_id, name=name, input=given)
        self._tools.append(tool_id)
        if self.refused.is_set():
            self.end_tool(tool_id, "denied")

    def end_tool(self, tool_id: str, status: str, output: str = "") -> None:
        """End a tool call that is open."""
        if tool_id in self._tools:
            self._tools.remove(tool_id)
            self.tell(ev.ToolEnded, tool_id=tool_id, status=status, output=output)

    async def ask(self, ask: Ask) -> None:
        """Ask a person; a refused turn cancels the question."""
        self._question = self.new_key("question")
        self._settled = anyio.Event()
        given = dict(ask.input)
        self.tell(ev.QuestionAsked, question_id=self._question, tool=ask.tool, input=given)
        with anyio.move_on_after(ask.seconds):
            await self._settled.wait()
        self._settle_question(ask.answer)

    def refuse(self) -> None:
        """Deny further tools; what is asked is cancelled."""
        self.refused.set()
        self._settle_question("cancelled")

    def be_answered(self, question_id: str, answer: Answer) -> None:
        """A person said something."""
        if question_id == self._question:
            self._settle_question(*settled_as(answer))

    def _settle_question(self, answer: str, note: str = "") -> None:
        question, self._question = self._question, None
        if question is not None:
            self.tell(ev.QuestionSettled, question_id=question, answer=answer, note=note)
            self._settled.set()

    def finish(self, how: Finish) -> None:
        """Say the terminal message and write the turn down."""
        self.over = True
        if self._page:
            self._page[-1] = (self._prompt, "\n\n".join(self._said))
        self.tell(ev.UsageReported, cost_usd=how.cost_usd)
        session_id = self.connection.launch.session_id
        self.tell(ev.AgentFinished, end=how.end, error=how.error, session_id=session_id)

    # A stop.

    async def stop_after(self, seconds: float) -> None:
        """The effect of a request to stop; nothing when the turn is over by then."""
        await anyio.sleep(seconds)
        self.wind_up()

    def wind_up(self) -> None:
        """Settle what is open and say the terminal message, as often as the manners want."""
        if self.over:
            return
        self.over = True
        self._scope.cancel()
        self.settle()
        for tool_id in tuple(self._tools):
            self.end_tool(tool_id, "cancelled")
        self._settle_question("cancelled")
        connection = self.connection
        connection.backend.processes.leave(connection, tools=True, agent=False)
        if not connection.manners.withdraws:
            for _ in range(connection.manners.says):
                self.finish(Finish("aborted"))
