"""The words of `%%agent` and `%agent`: one table, from which the parser and the help come."""

from __future__ import annotations

import argparse
import keyword
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from turncell.errors import UsageError
from turncell.names import SESSION_NAME, names

__all__ = [
    "CELL_HELP", "LINE_HELP", "SESSION_ID",
    "CellOptions", "parse_cell", "parse_words", "words_of",
]  # fmt: skip

#: What a session may be called: words that are easy to type again.
#: What an agent's session id looks like.
SESSION_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


@dataclass(frozen=True)
class Option:
    """One option: its flags, what it takes (None: nothing) and what it means.

    `setting` names the setting it changes; `later` says that it is not there yet.
    """

    flags: str
    takes: str | None
    means: str
    kind: Callable[[str], Any] = str
    setting: str | None = None
    later: bool = False


OPTIONS = (
    Option("-s --session", "NAME", "the conversation to use (default: the current one)"),
    Option("--new", None, "start the named session afresh"),
    Option("--resume", "ID", "bind the session to this agent session id, then run the prompt"),
    Option("--fork", "NAME", "branch the session under a new name", later=True),
    Option("-m --model", "NAME", "the model", setting="model"),
    Option("--effort", "LEVEL", "how hard the model thinks", setting="effort"),
    Option(
        "--permission-mode", "MODE", "default, acceptEdits, plan, dontAsk, bypassPermissions",
        setting="permission_mode",
    ),
    Option("--max-turns", "N", "model turns the agent may take", _whole, "max_turns"),
    Option("--max-budget", "USD", "money the agent may spend", _number, "max_budget"),
    Option("--cwd", "DIR", "where the agent works", setting="cwd"),
    Option("--tools", "A,B", "tools the agent may use without asking", setting="tools"),
    Option("--system", "TEXT", "the system prompt", setting="system"),
    Option("--settings", "A,B", "the agent's settings files: user, project, local",
           setting="sources"),
    Option("--expand", None, "let the agent interpret slash commands and @files",
           setting="expand"),
    Option("--timeout", "S", "stop the turn after S seconds", _number, "timeout"),
    Option("--ack", "S", "seconds a stop waits for an ack (default 5)", _number, "ack"),
    Option("--grace", "S", "seconds it then waits for the end (default 5)", _number, "grace"),
    Option("--strategy", "NAME", "interrupt_then_kill, interrupt (never kill) or kill",
           setting="strategy"),
    Option("--var", "NAME", "attach a kernel variable", later=True),
    Option("--attach", "PATH", "attach a file or an image", later=True),
    Option("--schema", "NAME", "the answer as a validated value", later=True),
    Option("--no-kernel", None, "without the kernel tools", later=True),
    Option("--allow-python", None, "let the agent run code in the kernel", later=True),
    Option("-o --out", "NAME", "put the TurnResult in this variable"),
    Option("--bg", None, "return at once; `%agent wait` joins"),
    Option("--no-raise-error", None, "do not raise when the turn was stopped or failed"),
    Option("-q --quiet", None, "no live output, only the final one"),
    Option("--help", None, "print this table, run nothing"),
)  # fmt: skip

#: Line form -> what it means; a dash marks what is not there yet.
LINE_FORMS = {
    "status": "running and recent turns, sessions, which Stop routes are live here",
    "stop [NAME] [--all] [--now]": "stop a turn; --now jumps to kill; --all: every turn",
    "sessions": "name, id, turns, last used, how it was left",
    "use NAME": "make NAME the current session",
    "new [NAME]": "start a session afresh and make it the current one",
    "resume ID or NAME": "bind the current session to an agent session id, or use NAME",
    "wait [NAME]": "join a --bg turn",
    "last": "the last TurnResult",
    "config": "every setting with its value and where it came from",
    "doctor": "versions, agent binary, credentials source, front end and Stop routes",
}
#: Line forms of the contract that are not there yet.
LATER_FORMS = ("fork", "show", "timeline", "log")


def _table(rows: list[tuple[str, str]]) -> str:
    width = max(len(left) for left, _ in rows) + 2
    return "\n".join(f"  {left:<{width}}{right}" for left, right in rows)


def _option_row(option: Option) -> tuple[str, str]:
    flags = ", ".join(option.flags.split())
    left = f"{flags} {option.takes}" if option.takes else flags
    return left, option.means + (" (not there yet)" if option.later else "")


CELL_HELP = (
    "%%agent [options]   the cell body is the prompt, sent to the agent as it is\n\n"
    + _table([_option_row(option) for option in OPTIONS])
)
LINE_HELP = "%agent [command]   (a prompt goes into a %%agent cell)\n\n" + _table(
    list(LINE_FORMS.items())
)


@dataclass(frozen=True)
class CellOptions:
    """What a `%%agent` line asks for; `settings` holds the settings it changes."""

    settings: dict[str, Any]
    session: str | None = None
    new: bool = False
    resume: str | None = None
    out: str | None = None
    bg: bool = False
    raise_error: bool = True
    quiet: bool = False
    help: bool = False


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%%agent: {message}. Nothing was run; %%agent --help lists the options.")


def _parser() -> _Parser:
    parser = _Parser(prog="%%agent", add_help=False, allow_abbrev=False)
    for option in OPTIONS:
        flags = option.flags.split()
        name = flags[-1].lstrip("-").replace("-", "_")
        if option.takes is None:
            parser.add_argument(*flags, dest=name, action="store_true", default=None)
        else:
            parser.add_argument(*flags, dest=name, type=option.kind, default=None)
    return parser


def words_of(line: str) -> list[str]:
    """Split a magic line like a shell does. Raises UsageError for an open quote."""
    for curly, straight in zip("“”‘’", "\"\"''", strict=True):
        line = line.replace(curly, straight)  # editors put these in by themselves
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"The line cannot be read ({error}): {line}. Correct the line.") from None


def parse_cell(line: str) -> CellOptions:
    """Read the line of a `%%agent` cell. Raises UsageError; never exits."""
    words = words_of(line)
    known, rest = _parser().parse_known_args(words)
    if rest:
        what = "unknown option" if rest[0].startswith("-") else "unexpected word"
        hint = "%%agent --help lists the options"
        if not rest[0].startswith("-"):
            hint = "the prompt goes into the lines below"
        raise UsageError(f"%%agent: {what} {rest[0]}. Nothing was run; {hint}.")
    values = {name: value for name, value in vars(known).items() if value is not None}
    settings: dict[str, Any] = {}
    for option in OPTIONS:
        name = option.flags.split()[-1].lstrip("-").replace("-", "_")
        if name not in values:
            continue
        if option.later:
            raise UsageError(f"%%agent: --{name.replace('_', '-')} is not there yet. "
                             "Run the cell without it.")  # fmt: skip
        if option.setting is not None:
            value = values.pop(name)
            settings[option.setting] = names(value) if option.takes == "A,B" else value
    values["raise_error"] = not values.pop("no_raise_error", False)
    _check(values)
    return CellOptions(settings, **values)


def _check(values: dict[str, Any]) -> None:
    out, resume, name = (values.get(key) for key in ("out", "resume", "session"))
    if out is not None and (not out.isidentifier() or keyword.iskeyword(out)):
        raise UsageError(f"%%agent: --out {out} is no variable name. Nothing was run.")
    if values.get("new") and resume:
        raise UsageError("%%agent: --new and --resume exclude each other. Nothing was run.")
    if resume is not None and not SESSION_ID.fullmatch(resume):
        raise UsageError(
            f"%%agent: --resume {resume} is no session id. Nothing was run; %agent sessions "
            "lists the ids of this kernel."
        )
    if name is not None and not SESSION_NAME.fullmatch(name):
        raise UsageError(
            f"%%agent: {name!r} is no session name. Nothing was run; use letters, digits, dot, "
            "dash or underscore."
        )


def parse_words(line: str) -> tuple[str, list[str], set[str]]:
    """Read a `%agent` line: (command, names, flags). Raises UsageError."""
    words = words_of(line)
    command = words[0] if words else "status"
    flags = {word for word in words[1:] if word.startswith("-")}
    return command, [word for word in words[1:] if not word.startswith("-")], flags
