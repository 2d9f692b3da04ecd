"""A scripted stand-in for the Messages API on the loopback, for tests and demonstrations.

Importing this package or `turncell.modelserver.scenario` loads no web server; that happens when
`ModelServer` or `serve` is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turncell.modelserver.environment import cli_env, shell_lines
from turncell.modelserver.scenario import (
    Cut,
    Echo,
    HttpError,
    Pause,
    Ping,
    Recall,
    Reply,
    Scenario,
    Script,
    ScriptError,
    Silence,
    Stall,
    Step,
    Text,
    Thinking,
    ToolUse,
    Words,
    default_script,
    load,
    loads,
)

if TYPE_CHECKING:
    from turncell.modelserver.ledger import Request
    from turncell.modelserver.server import ModelServer, serve

__all__ = [
    "Cut",
    "Echo",
    "HttpError",
    "ModelServer",
    "Pause",
    "Ping",
    "Recall",
    "Reply",
    "Request",
    "Scenario",
    "Script",
    "ScriptError",
    "Silence",
    "Stall",
    "Step",
    "Text",
    "Thinking",
    "ToolUse",
    "Words",
    "cli_env",
    "default_script",
    "load",
    "loads",
    "serve",
    "shell_lines",
]


def __getattr__(name: str) -> Any:
    """Load what needs the web server when it is first asked for."""
    if name == "Request":
        from turncell.modelserver import ledger

        return ledger.Request
    if name in ("ModelServer", "serve"):
        from turncell.modelserver import server

        return getattr(server, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
