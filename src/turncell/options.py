"""The words of `%%agent` and `%agent`: one table, from which the parser and the help come."""

from __future__ import annotations

import argparse
import keyword
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from turncell.errors import UsageError
from turncell.names import SESSION_NAME, names

if TYPE_CHECKING:
    from turncell.finder import Found

__all__ = [
    "CELL_HELP", "LINE_HELP", "CellOptions", "parse_cell", "parse_words", "words_of",
]  # fmt: skip


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
    Option("--resume", "ID", "go on with this session (an id, its first 6 characters, or a name)"),
    Option("--fork", "NAME", "branch the session under a new name, then run the prompt there"),
    Option("--in-use", "HOW", "when another kernel has the session: refuse, wait or take",
           setting="in_use"),
    Option("--unattended", "HOW", "what a question gets where nobody can answer: deny or allow",
           setting="unattended"),
    Option("--math", None, "typeset what stands between dollars", setting="math"),
    Option("--no-tell", None, "do not tell the model that its last turn was stopped"),
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
    Option("--timeout", "S", "stop the turn S seconds after the agent got the prompt", _number,
           "timeout"),
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
    "sessions [--all]": "name, id, turns, last used, how it was left; of this notebook, or all",
    "use NAME": "make NAME the current session",
    "new [NAME] [--carry ID]": "start a session afresh; told what the journal has of another",
    "resume [ID or NAME]": "go on with a session: the last of this notebook, also after a restart",
    "fork NAME": "branch the current session under a new name, and use it",
    "wait [NAME]": "join a --bg turn",
    "last": "the last TurnResult, also after a restart",
    "show [ID]": "show a turn again, by its id or its session's; a running one so far",
    "timeline [ID]": "a picture of a turn: who worked when; of a running one so far",
    "log [--all]": "the turns in the journal",
    "config": "every setting with its value and where it came from",
    "doctor": "versions, agent binary, credentials source, front end and Stop routes",
}


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
    fork: str | None = None
    found: Found | None = None  # the session that `resume` means, once it was looked for
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
    if values.pop("no_tell", False):
        settings["tell"] = False
    _check(values)
    return CellOptions(settings, **values)


def _check(values: dict[str, Any]) -> None:
    out, chosen = values.get("out"), [n for n in ("new", "resume", "fork") if values.get(n)]
    if out is not None and (not out.isidentifier() or keyword.iskeyword(out)):
        raise UsageError(f"%%agent: --out {out} is no variable name. Nothing was run.")
    if len(chosen) > 1 and chosen != ["resume", "fork"]:  # these branch what was found
        both = " and ".join(f"--{name}" for name in chosen)
        raise UsageError(f"%%agent: {both} exclude each other. Nothing was run.")
    for name in filter(None, (values.get("session"), values.get("fork"))):
        if not SESSION_NAME.fullmatch(name):
            raise UsageError(
                f"%%agent: {name!r} is no session name. Nothing was run; use letters, digits, "
                "dot, dash or underscore."
            )


#: Line forms that take options, and which.
_FLAGS = {"stop": {"--all", "--now"}, "sessions": {"--all"}, "log": {"--all"}, "new": {"--carry"}}


def parse_words(line: str) -> tuple[str, list[str], dict[str, str]]:
    """Read a `%agent` line: (command, names, flags with what they take). Raises UsageError."""
    words = words_of(line)
    command, *rest = words or ["status"]
    names, flags = list[str](), dict[str, str]()
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            names.append(word)
        elif word == "--carry" and rest:
            flags[word] = rest.pop(0)
        else:
            flags[word] = ""
    wrong = set(flags) - _FLAGS.get(command, set())
    if wrong and command in _COMMANDS:
        raise UsageError(f"%agent {command}: unknown option {sorted(wrong)[0]}.")
    if flags.get("--carry") == "":
        raise UsageError("%agent new NAME --carry ID: which session?")
    if len(names) > 1 and command in _COMMANDS:
        raise UsageError(f"%agent {command}: one name at most, not {' '.join(names)}.")
    return command, names, flags


_COMMANDS = {form.split()[0] for form in LINE_FORMS}
