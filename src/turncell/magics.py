"""`%%agent` and `%agent`: read the words, choose a view, hand over. No decisions here."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from traitlets import Float, Int, Unicode

from turncell.errors import RuntimeGone, UsageError
from turncell.hold import ClickTap, can_ask, hold, kernel_interrupts, stop_routes
from turncell.options import CELL_HELP, LINE_HELP, CellOptions, parse_cell

if TYPE_CHECKING:
    from turncell.handle import TurnHandle
    from turncell.outcome import TurnResult
    from turncell.session import Book
    from turncell.settings import Settings

__all__ = ["AgentMagics"]

#: Traits of `%config AgentMagics` that are settings under another name.
_RENAMED = {"ack_timeout": "ack", "grace_timeout": "grace", "settings_files": "sources"}


class _Presses:
    """Stop presses on their way to a turn that may not have begun yet."""

    def __init__(self) -> None:
        self._handle: TurnHandle | None = None
        self._early: list[str] = []
        self.since: float | None = None

    def press(self, reason: str) -> None:
        """From any thread: stop the turn, now or as soon as there is one."""
        self.since = self.since or time.monotonic()
        if self._handle is None:
            self._early.append(reason)
        else:
            self._handle.stop(reason)

    def attach(self, handle: TurnHandle) -> None:
        self._handle = handle
        for reason in self._early[:1]:
            handle.stop(reason)

    def hopeless(self) -> bool:
        """Whether a stop took longer than it ever may, so that the runtime must be broken."""
        bound = self._handle.bound if self._handle is not None else 0.0
        return self.since is not None and time.monotonic() > self.since + bound + 5.0


def _seconds(means: str) -> Any:
    return Float(None, allow_none=True, help=means).tag(config=True)


@magics_class
class AgentMagics(Magics):
    """The magics and their settings: `%config AgentMagics.ack_timeout = 5`."""

    ack_timeout = _seconds("seconds a stop waits for an ack")
    grace_timeout = _seconds("seconds it then waits for the end")
    strategy = Unicode("", help="interrupt_then_kill, interrupt or kill").tag(config=True)
    timeout = _seconds("seconds after which a turn is stopped")
    model = Unicode("", help="the model").tag(config=True)
    effort = Unicode("", help="how hard the model thinks").tag(config=True)
    permission_mode = Unicode("", help="the agent's permission mode").tag(config=True)
    max_turns = Int(None, allow_none=True, help="model turns a prompt may take").tag(config=True)
    max_budget = Float(None, allow_none=True, help="USD a prompt may cost").tag(config=True)
    cwd = Unicode("", help="where the agent works").tag(config=True)
    tools = Unicode("", help="tools the agent may use without asking: A,B").tag(config=True)
    system = Unicode("", help="the system prompt").tag(config=True)
    settings_files = Unicode("", help="the agent's files: user,project,local").tag(config=True)
    cli = Unicode("", help="the agent binary to run").tag(config=True)
    max_warm = Int(3, help="agent processes kept warm at most").tag(config=True)
    idle_limit = Float(1800.0, help="seconds an unused agent is kept warm").tag(config=True)

    @no_var_expand
    @cell_magic
    def agent(self, line: str, cell: str) -> None:
        """Run one turn of the agent and stream it into this cell."""
        options = parse_cell(line)
        if options.help:
            self.say(CELL_HELP)
            return
        # IPython ends every cell with a newline of its own.
        prompt = cell[:-1] if cell.endswith("\n") else cell
        if not prompt.strip():
            raise UsageError("The prompt is empty: nothing was run. Write it below %%agent.")
        if "turncell.session" in sys.modules:  # else no session was used yet, so none is busy
            book = self.book()
            book.check(options.session or book.current)  # before anything is shown
        run = self._run_in_background if options.bg else self._run_and_wait
        run(prompt, options, self.settings().merged("the cell", options.settings))

    agent.__doc__ = f"{agent.__doc__}\n\n{CELL_HELP}"

    @no_var_expand
    @line_magic("agent")
    def agent_line(self, line: str) -> Any:
        """Look after the agent's turns and sessions."""
        from turncell.commands import Commands

        return Commands(self).run(line)

    agent_line.__doc__ = f"{agent_line.__doc__}\n\n{LINE_HELP}"

    # A turn.

    def _run_and_wait(self, prompt: str, options: CellOptions, settings: Settings) -> None:
        presses = _Presses()
        with (
            kernel_interrupts(self.shell),
            ClickTap(self.shell, lambda _: presses.press("user")) as tap,
        ):
            view = self._view(presses, options)
            if view.comm_id is not None:
                tap.watch(view.comm_id)
            view.open()
            handle = self._start(prompt, options, settings, view)
            presses.attach(handle)
            hold(handle, lambda: presses.press("kernel_interrupt"), pump=tap.pump,
                 give_up=presses.hopeless)  # fmt: skip
        self._settle(handle, options)

    def _run_in_background(self, prompt: str, options: CellOptions, settings: Settings) -> None:
        presses, stack = _Presses(), ExitStack()
        tap = stack.enter_context(ClickTap(self.shell, lambda _: presses.press("user")))
        view = self._view(presses, options)
        if view.comm_id is not None:
            tap.watch(view.comm_id)
        view.open()
        handle = self._start(prompt, options, settings, view, on_over=stack.close)
        presses.attach(handle)

    def _start(
        self,
        prompt: str,
        options: CellOptions,
        settings: Settings,
        view: Any,
        on_over: Callable[[], None] = lambda: None,
    ) -> TurnHandle:
        from turncell.conversation import Order

        book = self.book()

        def over(result: TurnResult) -> None:
            book.keep_result(result)
            if options.out is not None:
                self.shell.user_ns[options.out] = result
            on_over()

        order = Order(prompt, settings, view, options.new, options.resume, over)
        return book.start(options.session or book.current, order)

    def _settle(self, handle: TurnHandle, options: CellOptions) -> None:
        if not handle.done():
            raise RuntimeGone(
                "The stop took longer than it may: turncell's runtime does not answer. "
                "Restart the kernel; the conversation stays resumable."
            )
        handle.result(raise_error=options.raise_error)

    def _view(self, presses: _Presses, options: CellOptions) -> Any:
        from turncell import views

        routes = stop_routes(self.shell)
        return views.choose(
            self.shell,
            (lambda: presses.press("user")) if routes.button else None,
            can_ask=can_ask(self.shell),
            quiet=options.quiet,
            background=options.bg,
            hint=None if routes.interrupt else routes.describe(),
        )

    # What the rest of the house asks for.

    def book(self) -> Book:
        """The kernel's sessions, with the bounds that are set here."""
        from turncell.session import book

        the_book = book()
        the_book.max_warm, the_book.idle_limit = self.max_warm, self.idle_limit
        return the_book

    def settings(self) -> Settings:
        """The settings of a cell without options: defaults, environment, `%config`."""
        from turncell.config import settings_from_environment

        values: dict[str, Any] = {}
        for name in self.class_own_traits(config=True):
            value = getattr(self, name)
            if value in (None, "") or name in ("max_warm", "idle_limit"):
                continue
            key = _RENAMED.get(name, name)
            values[key] = tuple(value.split(",")) if key in ("tools", "sources") else value
        return settings_from_environment().merged("%config AgentMagics", values)

    def say(self, text: str) -> None:
        """Show lines of text in the cell."""
        from IPython.display import display

        display({"text/plain": text}, raw=True)
