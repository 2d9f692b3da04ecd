"""What this place is like: versions, the agent, where its credentials come from.

Never the secret itself, only its source.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from importlib import metadata

from turncell.errors import TurncellError
from turncell.procs import leftovers

__all__ = ["credentials_source", "examine"]

_PACKAGES = ("turncell", "claude-agent-sdk", "ipython", "ipykernel", "ipywidgets", "jupyterlab")

#: Environment variables the agent takes its credentials from, in the order it prefers them.
_CREDENTIALS = {
    "CLAUDE_CODE_USE_BEDROCK": "Amazon Bedrock",
    "CLAUDE_CODE_USE_VERTEX": "Google Vertex AI",
    "ANTHROPIC_AUTH_TOKEN": "a token in ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_API_KEY": "an API key in ANTHROPIC_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN": "a login token in CLAUDE_CODE_OAUTH_TOKEN",
}


def examine(cli: str | None = None) -> list[tuple[str, str]]:
    """Rows of (what, finding). Runs the agent binary once for its version."""
    rows = [("python", f"{platform.python_version()} on {platform.system()}")]
    rows += [(package, _version(package)) for package in _PACKAGES]
    rows += _agent_rows(cli)
    rows.append(("credentials", credentials_source(os.environ)))
    if base := os.environ.get("ANTHROPIC_BASE_URL"):
        rows.append(("model server", base))
    rows.append(("leftovers", _leftovers()))
    rows.append(("settings directory", _config_dir_state(os.environ)))
    return rows


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _agent_rows(cli: str | None) -> list[tuple[str, str]]:
    from turncell.backends.claude_launch import agent_version, find_cli

    try:
        path = find_cli(cli)
        return [("agent", f"{agent_version(path)} at {path}")]
    except TurncellError as error:
        return [("agent", str(error))]


def _leftovers() -> str:
    found = [proc for procs_left in leftovers().values() for proc in procs_left]
    if not found:
        return "nothing of dead kernels is running"
    pids = ", ".join(str(proc.pid) for proc in found)
    return f"{len(found)} process(es) of dead kernels: {pids}. End them with turncell clean --yes"


def credentials_source(environ: Mapping[str, str]) -> str:
    """Where the agent will take its credentials from, never the secret."""
    from turncell.backends.claude_launch import config_directory

    for variable, meaning in _CREDENTIALS.items():
        if environ.get(variable):
            return meaning
    if (config_directory(environ) / ".credentials.json").exists():
        return "the agent's own login"
    if sys.platform == "darwin":
        return "none in the environment; perhaps the agent's own login in the keychain"
    return "none found: set ANTHROPIC_API_KEY, or start the agent binary and type /login"


def _config_dir_state(environ: Mapping[str, str]) -> str:
    from turncell.backends.claude_launch import check_directory, config_directory

    directory = config_directory(environ)
    try:
        check_directory(directory)
    except TurncellError as error:
        return str(error)
    return str(directory)
