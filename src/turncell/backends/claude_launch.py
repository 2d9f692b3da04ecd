"""What an agent is started with: its binary, its options, its environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast, get_args

import claude_agent_sdk
from claude_agent_sdk import ClaudeAgentOptions, CLINotFoundError
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport
from claude_agent_sdk.types import EffortLevel, PermissionMode, SettingSource

from turncell.backends.base import Launch, Prompt
from turncell.errors import SettingError
from turncell.procs import CHILD_MARK, TOKEN
from turncell.settings import Settings

__all__ = [
    "advice_for", "agent_environment", "agent_version", "check_directory", "config_directory",
    "content_of",    "find_cli", "launcher", "options_for",
]  # fmt: skip

# The oldest agent that takes a prompt as it is written.
_OLDEST = (2, 1, 248)
_CORRECT = "Correct TURNCELL_CLI or %config AgentMagics.cli, or unset it to use the bundled one."

# What an agent sets for its children (CLI 2.1.332, read from a tool's `env`). A
# kernel started inside another agent's session has them, and must not hand them
# on: the CLI refuses to start in one, and `CHILD_MARK` would lie.
_SESSION_MARKS = (
    "CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_CODE_MESSAGING_SOCKET", "CLAUDE_CODE_EXECPATH", "CLAUDE_PID", "CLAUDE_EFFORT",
    "AI_AGENT", CHILD_MARK[0], TOKEN,
)  # fmt: skip

# Where `setpriv` is missing: ask for SIGTERM when the parent ends (prctl option 1).
_DIE_WITH_PARENT = (
    "import ctypes,os,sys;ctypes.CDLL(None).prctl(1,15);os.execv(sys.argv[1],sys.argv[1:])"
)


def agent_environment(base: Mapping[str, str], token: str) -> dict[str, str]:
    """The environment an agent starts with: `base`, our token, no session marks."""
    env = {key: value for key, value in base.items() if key not in _SESSION_MARKS}
    env.update(
        CLAUDE_CODE_ENTRYPOINT="sdk-py",
        CLAUDE_AGENT_SDK_VERSION=claude_agent_sdk.__version__,
    )
    env[TOKEN] = token
    return env


def find_cli(setting: str | None, env: Mapping[str, str] | None = None) -> str:
    """The path of the agent binary: the setting, else the one the SDK bundles or finds.

    `env` is the environment to ask it in: with our token in it, a stop finds a binary
    that does not answer. Raises SettingError when there is none that can be run.
    """
    if setting is None:
        try:
            return SubprocessCLITransport(prompt="", options=ClaudeAgentOptions())._find_cli()
        except CLINotFoundError:
            raise SettingError(
                "No agent binary: this claude-agent-sdk bundles none for your platform. "
                "Install one and name it with TURNCELL_CLI or %config AgentMagics.cli."
            ) from None
    path = shutil.which(os.path.expanduser(setting))
    if path is None:
        raise SettingError(f"The agent binary {setting} cannot be run. {_CORRECT}")
    said = agent_version(path, env)
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", said)
    if numbers is None:
        raise SettingError(
            f"{path} is not the agent: asked for its version, it says {said[:60]!r}. {_CORRECT}"
        )
    if tuple(map(int, numbers.groups())) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise SettingError(
            f"The agent {path} is too old: it is {said[:60]}, and {oldest} or newer is needed. "
            + _CORRECT
        )
    return path


def agent_version(path: str, env: Mapping[str, str] | None = None) -> str:
    """What the binary says of its version. Raises SettingError when it does not run."""
    try:
        with tempfile.TemporaryFile() as said:  # a pipe would wait for its children, too
            subprocess.run(
                [path, "--version"], stdin=subprocess.DEVNULL, stdout=said,
                stderr=subprocess.DEVNULL, timeout=20, start_new_session=True, check=False,
                env=env,
            )  # fmt: skip
            said.seek(0)
            words = said.read(1000).decode("utf-8", "replace").split()
    except (OSError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or "it does not end"
        raise SettingError(f"The agent binary {path} does not run ({why}). {_CORRECT}") from None
    return " ".join(words) or "nothing"


def config_directory(environ: Mapping[str, str]) -> Path:
    """Where the agent keeps its settings and conversations."""
    return Path(environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")


def check_directory(directory: Path) -> None:
    """Raise SettingError unless it can be written to, or made; only trying tells."""
    try:
        nearest = next(p for p in (directory, *directory.absolute().parents) if p.exists())
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise SettingError(
            f"The agent cannot keep conversations in {directory} ({error.strerror}). "
            "Make it writable, or name another directory in CLAUDE_CONFIG_DIR."
        ) from None


def launcher() -> list[str]:
    """The words that go before the agent's command line."""
    if not sys.platform.startswith("linux"):
        return []  # no parent-death signal here
    setpriv = shutil.which("setpriv")
    if setpriv and Path(setpriv).resolve().name != "busybox":  # whose setpriv has no such option
        return [setpriv, "--pdeathsig", "TERM", "--"]
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT]


def advice_for(settings: Settings, environ: Mapping[str, str]) -> str:
    """What to do about an agent that ended before it was ready."""
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    if root and settings.permission_mode == "bypassPermissions" and not environ.get("IS_SANDBOX"):
        return (
            "As root the agent does not run in bypassPermissions, where nothing is asked. Use "
            "--permission-mode acceptEdits or --tools A,B, run the kernel as another user, or, in "
            "a container that may be lost, set IS_SANDBOX=1 yourself."
        )
    return "%agent doctor says which agent and which settings directory are used."


def content_of(prompt: Prompt) -> str | list[dict[str, str]]:
    """A prompt as the agent takes it."""
    # The prompt comes last: where the agent may interpret one, it looks at the last alone.
    if not prompt.note:
        return prompt.text
    return [{"type": "text", "text": text} for text in (prompt.note, prompt.text)]


def options_for(launch: Launch) -> ClaudeAgentOptions:
    """The SDK's options for this launch. Raises SettingError for a word it has not."""
    s = launch.settings
    _check("--effort", s.effort, EffortLevel)
    _check("--permission-mode", s.permission_mode, PermissionMode)
    for source in s.sources or ():
        _check("--settings", source, SettingSource)
    return ClaudeAgentOptions(
        model=s.model,
        effort=cast(Any, s.effort),
        permission_mode=cast(Any, s.permission_mode),
        max_turns=s.max_turns,
        max_budget_usd=s.max_budget,
        cwd=s.cwd,
        allowed_tools=list(s.tools),
        system_prompt=s.system,
        setting_sources=cast(Any, None if s.sources is None else list(s.sources)),
        verbatim_prompts=not s.expand,
        include_partial_messages=True,
        include_hook_events=True,
        resume=launch.session_id if launch.opened else None,
        session_id=None if launch.opened else launch.session_id,
    )


def _check(option: str, value: str | None, allowed: Any) -> None:
    choices: Iterable[str] = get_args(allowed)  # the SDK's own list grows with the SDK
    if value is not None and value not in choices:
        raise SettingError(f"{option} {value} is not one of {', '.join(choices)}. Choose one.")
