"""`%%agent` and `%agent`: read the words, choose a view, hand over. No decisions here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from traitlets import Bool, Enum, Float, Int, Unicode

from turncell.errors import UsageError
from turncell.hold import ClickTap, can_ask, kernel_interrupts, stop_routes
from turncell.names import names
from turncell.options import CELL_HELP, LINE_HELP, CellOptions, parse_cell
from turncell.waiting import Presses, await_end

if TYPE_CHECKING:
    from turncell.finder import Finder
    from turncell.handle import TurnHandle
    from turncell.outcome import TurnResult
    from turncell.session import Book
    from turncell.settings import Settings
    from turncell.views.base import CellView

__all__ = ["AgentMagics"]

#: Traits of `%config AgentMagics` that are settings under another name.
_RENAMED = {"ack_timeout": "ack", "grace_timeout": "grace", "settings_files": "sources"}


def _seconds(means: str) -> Any:
    return Float(None, allow_none=True, min=0.0, help=means).tag(config=True)


@magics_class
class AgentMagics(Magics):
    """The magics and their settings: `%config AgentMagics.ack_timeout = 5`."""

    ack_timeout = _seconds("seconds a stop waits for an ack")
    grace_timeout = _seconds("seconds it then waits for the end")
    strategy = Enum(
        ["", "interrupt_then_kill", "interrupt", "kill"], "", help="rungs a stop may use"
    ).tag(config=True)
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
    in_use = Enum(
        ["", "refuse", "wait", "take"], "", help="when another kernel has the session open"
    ).tag(config=True)
    unattended = Enum(
        ["", "deny", "allow"], "", help="what a question gets where nobody can answer it"
    ).tag(config=True)
    math = Bool(False, help="typeset what stands between dollars").tag(config=True)
    tell = Bool(True, help="tell the model that its last turn was stopped").tag(config=True)
    max_warm = Int(3, help="agent processes kept warm at most").tag(config=True)
    idle_limit = Float(1800.0, help="seconds an unused agent is kept warm").tag(config=True)

    @no_var_expand
    @cell_magic
    def agent(self, line: str, cell: str) -> None:
        """Run one turn of the agent and stream it into this cell."""
        # From the first moment: an interrupt that comes early stops the turn, too.
        with kernel_interrupts(self.shell):
            self._run(line, cell)

    agent.__doc__ = f"{agent.__doc__}\n\n{CELL_HELP}"

    @no_var_expand
    @line_magic("agent")
    def agent_line(self, line: str) -> Any:
        """Look after the agent's turns and sessions."""
        from turncell.commands import Commands

        return Commands(self).run(line)

    agent_line.__doc__ = f"{agent_line.__doc__}\n\n{LINE_HELP}"

    # A turn.

    def _run(self, line: str, cell: str) -> None:
        options = parse_cell(line)
        if options.help:
            self.say(CELL_HELP)
            return
        # IPython ends every cell with a newline of its own.
        prompt = cell[:-1] if cell.endswith("\n") else cell
        if not prompt.strip():
            raise UsageError("The prompt is empty: nothing was run. Write it below %%agent.")
        # Before anything is shown. (Without the module no session was used yet, so none is busy.)
        if "turncell.session" in sys.modules or options.resume or options.fork:
            options = self._chosen(options)
        run = self._run_in_background if options.bg else self._run_and_wait
        run(prompt, options, self.settings().merged("the cell", options.settings))

    def _chosen(self, options: CellOptions) -> CellOptions:
        """The options with the session that they mean, which can take a prompt."""
        book = self.book()
        name = options.session or book.current
        if options.resume or options.fork:
            self._say_starting()  # it can take a second to find it, the first time
        found = self.finder().find(options.resume) if options.resume is not None else None
        if options.fork is not None:
            self.finder().fork(name, options.fork, found)
            name, found = options.fork, None
        book.check(name)
        resume = found.session_id if found is not None else None
        return replace(options, session=name, resume=resume, found=found)

    def _say_starting(self) -> None:
        """A line that the turn's own output takes the place of."""
        if can_ask(self.shell):
            from IPython.display import clear_output

            self.say("starting: looking for the session")
            clear_output(wait=True)

    def _run_and_wait(self, prompt: str, options: CellOptions, settings: Settings) -> None:
        presses = Presses()
        with (
            kernel_interrupts(self.shell),
            ClickTap(self.shell, lambda _: presses.press("user")) as tap,
        ):
            view = self._view(presses, options, tap, math=settings.math)
            handle = self._begin(prompt, options, settings, presses, tap, view)
            await_end(handle, presses, tap, view.listen)
        handle.result(raise_error=options.raise_error)

    def _run_in_background(self, prompt: str, options: CellOptions, settings: Settings) -> None:
        presses = Presses()
        with kernel_interrupts(self.shell), ExitStack() as stack:
            tap = stack.enter_context(ClickTap(self.shell, lambda _: presses.press("user")))
            leaving, over = ExitStack(), Event()

            def leave() -> None:
                over.set()
                leaving.close()

            view = self._view(presses, options, tap, math=settings.math)
            handle = self._begin(prompt, options, settings, presses, tap, view, leave)
            handle.background = True
            # All went well: the tap stays as long as the turn, which may be over already.
            leaving.push(stack.pop_all())
            if over.is_set():
                leaving.close()

    def _begin(
        self,
        prompt: str,
        options: CellOptions,
        settings: Settings,
        presses: Presses,
        tap: ClickTap,
        view: CellView,
        on_over: Callable[[], None] = lambda: None,
    ) -> TurnHandle:
        """Tap the button that was made, show it, and only then start the turn."""
        if view.comm_id is not None:
            tap.watch(view.comm_id)
        view.open()
        handle = self._start(prompt, options, settings, view, on_over)
        presses.attach(handle)
        return handle

    def _start(
        self,
        prompt: str,
        options: CellOptions,
        settings: Settings,
        view: CellView,
        on_over: Callable[[], None],
    ) -> TurnHandle:
        from turncell.conversation import Order

        book = self.book()

        def over(result: TurnResult) -> None:
            book.keep_result(result)
            if options.out is not None:
                self.shell.user_ns[options.out] = result
            on_over()

        known = options.found.entry if options.found is not None else None
        order = Order(
            prompt, settings, view, options.new, options.resume, known,
            asks=view.asks, offers=can_ask(self.shell), on_over=over,
        )  # fmt: skip
        return book.start(options.session or book.current, order)

    def _view(
        self, presses: Presses, options: CellOptions, tap: ClickTap, *, math: bool
    ) -> CellView:
        from turncell import views
        from turncell.views.asking import Asking

        routes = stop_routes(self.shell)
        # A cell that holds the kernel must not wait for a click that comes after it.
        heard = options.bg or routes.front == "terminal" or routes.tap != "none"
        return views.choose(
            self.shell,
            (lambda: presses.press("user")) if routes.button else None,
            can_ask=can_ask(self.shell),
            quiet=options.quiet,
            background=options.bg,
            hint=None if routes.interrupt else routes.describe(),
            asking=Asking(presses.answer, tap) if heard else None,
            math=math,
        )

    # What the rest of the house asks for.

    def book(self) -> Book:
        """The kernel's sessions, with the bounds that are set here."""
        from turncell.archive.notebook import notebook_of
        from turncell.session import book

        the_book = book()
        the_book.max_warm, the_book.idle_limit = self.max_warm, self.idle_limit
        the_book.notebook = notebook_of(os.environ, self.shell.user_ns, the_book.home)
        return the_book

    def finder(self) -> Finder:
        """Finds and binds sessions."""
        from turncell.finder import Finder

        return Finder(self.book())

    def settings(self) -> Settings:
        """The settings of a cell without options: defaults, environment, `%config`."""
        from turncell.config import settings_from_environment

        values: dict[str, Any] = {}
        for name in self.class_own_traits(config=True):
            value = getattr(self, name)
            if value in (None, "") or name in ("max_warm", "idle_limit"):
                continue
            if value is self.trait_defaults(name):  # then the environment may say otherwise
                continue
            key = _RENAMED.get(name, name)
            values[key] = names(value) if key in ("tools", "sources") else value
        return settings_from_environment().merged("%config AgentMagics", values)

    def say(self, text: str) -> None:
        """Show lines of text in the cell."""
        from IPython.display import display

        display({"text/plain": text}, raw=True)
