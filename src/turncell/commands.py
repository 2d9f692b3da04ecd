"""The line forms of `%agent` about turns and about this place."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from turncell.errors import UsageError
from turncell.finder import readable
from turncell.hold import stop_routes
from turncell.options import CELL_HELP, LINE_FORMS, LINE_HELP, parse_words
from turncell.rows import Rows
from turncell.session_commands import Flags, SessionCommands
from turncell.waiting import join

if TYPE_CHECKING:
    from turncell.handle import TurnHandle

__all__ = ["Commands"]

#: Characters of a note that the status shows.
_SHOWN = 600
#: Seconds in which the same `%agent stop` is a press more for the same turn.
_SERIES = 10.0


class Commands(SessionCommands):
    """Carries out one `%agent` line for the magics."""

    def run(self, line: str) -> Any:
        """Do what the line says. Raises UsageError for words it does not know."""
        command, names, flags = parse_words(line)
        if command in ("help", "--help", "-h"):
            return self._magics.say(f"{LINE_HELP}\n\n{CELL_HELP}")
        known = {form.split()[0] for form in LINE_FORMS}
        if command not in known:
            raise UsageError(
                f"%agent {command} is unknown: a prompt goes into a %%agent cell, "
                f"and the commands are {', '.join(sorted(known))}."
            )
        with readable(self._archive):
            return getattr(self, "_" + command)(flags, names[0] if names else None)

    def _status(self, flags: Flags, _: None) -> None:
        running = [t for t in self._book.turns if t.running]
        lines = [f"session: {self._book.current}"]
        lines += [f"running: turn {t.turn_id[:8]} of session {t.session}" for t in running]
        lines += [
            f"running: the agent of session {name} works on its own account, after a background"
            " task of an earlier turn; %agent stop --all ends it"
            for name in self._book.own_work
        ]
        if len(lines) == 1:
            lines.append("running: nothing")
        for result in self._book.results[-5:]:
            lines.append(
                f"recent: {result.session} · {result.outcome} · {result.duration:.1f} s"
                f" · {len(result.text):,} characters"
            )
        for session_id, name in self._book.sessions.items():
            lines.append(f"known session: {name} {session_id}")
            if any(turn.session == name for turn in running):
                continue  # how its turn ends is not known yet
            note = self._book.conversation(name).memory.pending(session_id)
            if note is not None and self._magics.settings().tell:
                lines += [f"the next prompt of session {name} tells the model:", *_indented(note)]
        earlier = self._book.earlier()
        if earlier is not None and earlier.id not in self._book.sessions:
            lines.append(f"%agent resume goes on with {earlier}")
        lines.append(f"stop: {stop_routes(self._magics.shell).describe()}")
        lines += self._settings_files()
        self._magics.say("\n".join(lines))

    def _settings_files(self) -> list[str]:
        """Which of the agent's settings files the next agent reads, and which others those
        read that there are."""
        files = _files(self._magics.settings().sources)
        lines = [f"agent settings files: {files}"]
        for name in self._book.names:
            started = self._book.conversation(name).link.started_with
            if started is not None and _files(started.sources) != files:
                lines.append(f"agent settings files of session {name}: {_files(started.sources)}")
        return lines

    def _stop(self, flags: Flags, name: str | None) -> None:
        if name is not None:
            self._known(name)
        turns = [t for t in self._book.turns if t.running and name in (None, t.session)]
        told = self._end_unasked_work() if "--all" in flags and name is None else ""
        if "--all" not in flags:
            turns = self._aim(turns, name)
        if not turns:
            return self._magics.say(told or self._nothing_to_stop(name))
        for turn in turns:
            turn.stop("user", now="--now" in flags)
        names = ", ".join(dict.fromkeys(t.session for t in turns))
        count = "1 turn" if len(turns) == 1 else f"{len(turns)} turns"
        line = f"Stopping {count} of {names}. %agent wait joins it, for its result."
        return self._magics.say(f"{line} {told}".strip())

    def _aim(self, running: list[TurnHandle], name: str | None) -> list[TurnHandle]:
        """The one turn that is meant. The same words soon after are a press more for it:
        when it is over, they may not hit another."""
        book, now = self._book, time.monotonic()
        words = name, book.current, book.turns[-1:]
        if book.aimed is not None and book.aimed[1] == words and now < book.aimed[2] + _SERIES:
            return [turn for turn in running if turn is book.aimed[0]]
        current = [turn for turn in running if turn.session == book.current]
        chosen = (current or running)[:1]  # those behind it stay in line
        book.aimed = (chosen[0], words, now) if chosen else None
        return chosen

    def _nothing_to_stop(self, name: str | None) -> str:
        others = dict.fromkeys(turn.session for turn in self._book.turns if turn.running)
        if not others:
            return "Nothing is running."
        aimed = self._book.aimed is not None
        idle = "That turn is over already." if aimed else f"Session {name} is idle."
        return (
            f"{idle} Still running: {', '.join(others)}. Stop one with %agent stop NAME, or all "
            f"with --all; the same words as before mean that turn for {_SERIES:.0f} s."
        )

    def _end_unasked_work(self) -> str:
        agents, processes = self._book.end_unasked_work()
        lines = [f"Stopped {agents} agent(s) that worked on their own account."] * bool(agents)
        lines += [f"Ended {processes} background process(es) of earlier turns."] * bool(processes)
        return " ".join(lines)

    def _wait(self, flags: Flags, name: str | None) -> None:
        if name is not None:
            self._known(name)
        waiting = [t for t in self._book.turns if t.background and not t.joined]
        turn = next((t for t in waiting if name in (None, t.session)), None)
        if turn is None:
            return self._magics.say("Nothing to wait for.")
        join(self._magics.shell, turn)
        turn.joined = True
        turn.result()
        return None

    def _config(self, flags: Flags, _: None) -> Rows:
        settings = self._magics.settings()
        rows = Rows()
        plain = [f.name for f in dataclasses.fields(settings) if f.name not in ("stop", "origins")]
        values = {name: getattr(settings, name) for name in plain}
        stop = {f.name: getattr(settings.stop, f.name) for f in dataclasses.fields(settings.stop)}
        for name, value in {**values, **stop}.items():
            origin = settings.origins.get(name, "default")
            rows.append({"setting": name, "value": value, "origin": origin})
        for name in ("max_warm", "idle_limit"):
            value = getattr(self._magics, name)
            default = self._magics.trait_defaults(name)
            origin = "default" if value == default else "%config AgentMagics"
            rows.append({"setting": name, "value": value, "origin": origin})
        return rows

    def _doctor(self, flags: Flags, _: None) -> None:
        from turncell.doctor import examine

        found = examine(self._magics.settings().cli)
        found.append(("front end", stop_routes(self._magics.shell).describe()))
        width = max(len(what) for what, _ in found)
        self._magics.say("\n".join(f"{what:<{width}}  {text}" for what, text in found))


def _files(sources: tuple[str, ...] | None) -> str:
    # Without a choice the agent reads all of them.
    return "user, project, local" if sources is None else ", ".join(sources) or "none"


def _indented(text: str) -> list[str]:
    short = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}[…]"
    return [f"    {line}" for line in short.splitlines()]
