"""The error tree. The type says whose turn it is to act.

    TurncellError
    ├── UsageError            the user's words: an option, an empty prompt, a name
    ├── SettingError          the user's set-up: agent missing, no credentials, bad directory
    │   └── AgentStartError   the agent started and gave up; its own last words are kept
    ├── SessionBusy           the session cannot take a prompt now
    ├── RuntimeGone           our fault: the runtime thread did not answer
    ├── TurnStopped           somebody asked this turn to stop, and it did (or could not be)
    └── TurnFailed            the turn ended by an error that nobody asked for

`TurnStopped` and `TurnFailed` carry the turn's `result`, partial text included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turncell.plain import clean

if TYPE_CHECKING:
    from turncell.outcome import TurnResult

__all__ = [
    "AgentStartError",
    "RuntimeGone",
    "SessionBusy",
    "SettingError",
    "TurnFailed",
    "TurnStopped",
    "TurncellError",
    "UsageError",
]


class TurncellError(Exception):
    """Anything turncell raises for a person to read, in one or two lines."""

    def __str__(self) -> str:
        # It can quote what an agent wrote, and is kept in a notebook.
        return clean(super().__str__())

    def _render_traceback_(self) -> list[str]:
        # IPython asks for this instead of a traceback: our own frames tell a
        # user nothing, the message says what happened and what to do next.
        return [f"{type(self).__name__}: {self}"]


class UsageError(TurncellError):
    """The words of a call are off: unknown option, empty prompt, bad number."""


class SettingError(TurncellError):
    """The set-up is off: the agent is missing, or has no credentials."""


class AgentStartError(SettingError):
    """The agent process started and gave up before it could take a prompt."""


class SessionBusy(TurncellError):
    """The session cannot take a prompt now."""


class RuntimeGone(TurncellError):
    """The runtime thread did not answer in time: a fault of turncell itself."""


class _TurnError(TurncellError):
    def __init__(self, message: str, result: TurnResult) -> None:
        super().__init__(message)
        self.result = result


class TurnStopped(_TurnError):
    """The turn was stopped on purpose; `.result` holds everything it said."""


class TurnFailed(_TurnError):
    """The turn failed or was lost; `.result` holds everything it said."""
