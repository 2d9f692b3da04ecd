"""The environment that makes the real agent CLI talk to a model server, and to nothing else."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

_OTHER_ACCOUNTS = (
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_GATEWAY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_VERTEX",
)


def cli_env(url: str, home: Path) -> dict[str, str]:
    """The variables for the agent CLI, to lay over the environment it would have.

    - `ANTHROPIC_BASE_URL`: the model server is the API.
    - `ANTHROPIC_API_KEY`: a dummy; without a key the CLI asks for a login.
    - `ANTHROPIC_AUTH_TOKEN`, `CLAUDE_CODE_OAUTH_TOKEN`: empty, so that the user's own never
      reach the model server.
    - `CLAUDE_CODE_USE_BEDROCK` and its kin: empty, for one that the user has set wins over the
      above, and the turn would go to a paid service.
    - `CLAUDE_CONFIG_DIR`: under `home`, so that neither the user's settings and sessions reach
      the test nor the test's reach the user.
    - `CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC`, `DISABLE_TELEMETRY`, `DISABLE_ERROR_REPORTING`,
      `DISABLE_AUTOUPDATER`: no other host is called; tests work offline and say nothing of
      themselves, and the binary under test stays the one that was installed.
    - `NO_PROXY` and `no_proxy`: a proxy cannot reach this machine's loopback.
    - `IS_SANDBOX`: lets `bypassPermissions` work as root, as containers of CI run.
    """
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "sk-scripted-model-server",
        **dict.fromkeys(_OTHER_ACCOUNTS, ""),
        "CLAUDE_CONFIG_DIR": str(home / "claude-config"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "IS_SANDBOX": "1",
    }


def shell_lines(env: Mapping[str, str]) -> list[str]:
    """`env` as lines for a POSIX shell: `export NAME=value`, quoted where needed."""
    return [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
