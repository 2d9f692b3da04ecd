"""Where settings come from: defaults, the environment, `%config`, a cell's options.

Each later place wins over the earlier ones, and every value remembers its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from turncell.errors import UsageError
from turncell.names import names
from turncell.settings import Settings

__all__ = ["ENVIRONMENT", "agent_home", "launch_key", "settings_from_environment"]


def _yes(text: str) -> bool:
    return text.lower() not in ("0", "no", "off", "false")


#: Environment variable -> (setting, how to read it).
ENVIRONMENT: dict[str, tuple[str, Callable[[str], Any]]] = {
    "TURNCELL_MODEL": ("model", str),
    "TURNCELL_EFFORT": ("effort", str),
    "TURNCELL_PERMISSION_MODE": ("permission_mode", str),
    "TURNCELL_MAX_TURNS": ("max_turns", int),
    "TURNCELL_MAX_BUDGET": ("max_budget", float),
    "TURNCELL_CWD": ("cwd", str),
    "TURNCELL_TOOLS": ("tools", names),
    "TURNCELL_SETTINGS": ("sources", names),
    "TURNCELL_CLI": ("cli", str),
    "TURNCELL_TIMEOUT": ("timeout", float),
    "TURNCELL_ACK": ("ack", float),
    "TURNCELL_GRACE": ("grace", float),
    "TURNCELL_STRATEGY": ("strategy", str),
    "TURNCELL_IN_USE": ("in_use", str),
    "TURNCELL_UNATTENDED": ("unattended", str),
    "TURNCELL_MATH": ("math", _yes),
    "TURNCELL_TELL": ("tell", _yes),
}


def settings_from_environment(environ: Mapping[str, str] | None = None) -> Settings:
    """The defaults with what TURNCELL_… variables change.

    Raises UsageError naming the variable whose value cannot be used.
    """
    environ = os.environ if environ is None else environ
    settings = Settings()
    for variable, (name, read) in ENVIRONMENT.items():
        text = environ.get(variable, "").strip()
        if not text:
            continue
        try:
            settings = settings.merged(variable, {name: read(text)})
        except (ValueError, UsageError) as error:
            raise UsageError(f"{variable}={text}: {error}. Correct or unset it.") from None
    return settings


def agent_home() -> str:
    """The agent's own directory, in which its records of conversations lie, "" for the usual
    one. A session can be resumed with the directory alone in which it was begun."""
    chosen = os.environ.get("CLAUDE_CONFIG_DIR")
    return os.path.abspath(chosen) if chosen else ""


def launch_key(settings: Settings) -> tuple[Settings, int]:
    """What a running agent was started with: settings, and the variables it reads.
    A key that was set after a failure must reach the next turn."""
    ours = ("ANTHROPIC_", "CLAUDE_", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
    variables = sorted(item for item in os.environ.items() if item[0].startswith(ours))
    return settings.launch_key(), hash(tuple(variables))
