"""Scripts for the loopback model server: which prompt gets which replies.

A `Script` holds `Scenario`s; a scenario is chosen by the prompt and holds one `Reply` for each
model call of the turn; a reply is a row of steps. Plain frozen values: no I/O but `load`.

    Script(Scenario("slow", when="count", replies=[Reply(Words(400, pace=0.05))]))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turncell.modelserver.steps import (
    Cut,
    Echo,
    HttpError,
    Pause,
    Ping,
    Recall,
    ScriptError,
    Silence,
    Stall,
    Step,
    Text,
    Thinking,
    ToolUse,
    Words,
    is_count,
    require,
)
from turncell.modelserver.steps_yaml import known_keys, read_reply

__all__ = [
    "Cut",
    "Echo",
    "HttpError",
    "Pause",
    "Ping",
    "Recall",
    "Reply",
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
    "default_script",
    "load",
    "loads",
]

_SCENARIO_KEYS = {"name", "when", "model", "replies"}


@dataclass(frozen=True, init=False)
class Reply:
    """The answer to one model call: `Reply("text")`, `Reply(Words(5), Stall())`, ...

    `output_tokens` None means one for each delta; `stop_reason` None means `tool_use` when there
    is a tool call and `end_turn` otherwise.
    """

    steps: tuple[Step, ...]
    input_tokens: int
    output_tokens: int | None
    stop_reason: str | None

    def __init__(
        self,
        *steps: Step | str,
        input_tokens: int = 100,
        output_tokens: int | None = None,
        stop_reason: str | None = None,
    ) -> None:
        """Take the steps in order; a plain string is a `Text`. Raises `ScriptError`."""
        counted = output_tokens is None or is_count(output_tokens)
        named = stop_reason is None or isinstance(stop_reason, str)
        require(is_count(input_tokens), "input_tokens", "a whole number", input_tokens)
        require(counted, "output_tokens", "a whole number", output_tokens)
        require(named, "stop_reason", "a string", stop_reason)
        made = tuple(Text(step) if isinstance(step, str) else step for step in steps)
        for step in made:
            require(isinstance(step, Step), "steps", "steps or strings", step)
        object.__setattr__(self, "steps", made)
        object.__setattr__(self, "input_tokens", input_tokens)
        object.__setattr__(self, "output_tokens", output_tokens)
        object.__setattr__(self, "stop_reason", stop_reason)

    @property
    def reason(self) -> str:
        """The stop reason that is sent."""
        if self.stop_reason is not None:
            return self.stop_reason
        return "tool_use" if any(isinstance(s, ToolUse) for s in self.steps) else "end_turn"


@dataclass(frozen=True)
class Scenario:
    """Replies for the prompts that contain `when` (letter case ignored; None takes any prompt).

    The nth reply answers the nth model call of the turn; the last one repeats. With `model`, only
    requests whose model name contains it.
    """

    name: str
    when: str | None = None
    replies: Sequence[Reply] = (Reply(Echo()),)
    model: str | None = None

    def __post_init__(self) -> None:
        """Freeze the replies and refuse wrong values with `ScriptError`."""
        named = isinstance(self.name, str) and bool(self.name)
        require(named, "name", "a string that is not empty", self.name)
        for key in ("when", "model"):
            value = getattr(self, key)
            plain = value is None or (isinstance(value, str) and bool(value))
            require(plain, key, "a string that is not empty", value)
        replies = tuple(self.replies)
        only_replies = bool(replies) and all(isinstance(reply, Reply) for reply in replies)
        require(only_replies, "replies", "one Reply or more", self.replies)
        object.__setattr__(self, "replies", replies)

    def fits(self, prompt: str, model: str) -> bool:
        """Whether this scenario may answer `prompt` from `model`."""
        if self.model is not None and self.model.casefold() not in model.casefold():
            return False
        return self.when is None or self.when.casefold() in prompt.casefold()

    def reply(self, round: int) -> Reply:
        """The reply to model call number `round` (from 0) of the turn."""
        return self.replies[min(round, len(self.replies) - 1)]


_ECHO = Scenario("echo")


@dataclass(frozen=True, init=False)
class Script:
    """Scenarios, in order: the first one whose `when` fits wins, then the first without `when`.

    When nothing fits, the prompt is echoed.
    """

    scenarios: tuple[Scenario, ...]

    def __init__(self, *scenarios: Scenario) -> None:
        """Take the scenarios in order. Raises `ScriptError` for a name that comes twice."""
        names: set[str] = set()
        for scenario in scenarios:
            require(isinstance(scenario, Scenario), "scenarios", "Scenario values", scenario)
            if scenario.name in names:
                raise ScriptError(f"name: there are two scenarios named {scenario.name!r}")
            names.add(scenario.name)
        object.__setattr__(self, "scenarios", scenarios)

    def find(self, prompt: str, model: str = "") -> Scenario:
        """The scenario that answers `prompt`."""
        fitting = [s for s in self.scenarios if s.fits(prompt, model)]
        chosen = [s for s in fitting if s.when is not None] or fitting
        return chosen[0] if chosen else _ECHO


def _scenario(node: object, place: int) -> Scenario:
    name = node.get("name") if isinstance(node, dict) else None
    where = f"scenario {name!r}" if name else f"scenarios[{place}]"
    if not isinstance(node, dict):
        raise ScriptError(f"{where}: must be a mapping, not {node!r}")
    known_keys(node, _SCENARIO_KEYS, where)
    replies = node.get("replies")
    if not isinstance(replies, list):
        raise ScriptError(f"{where}: replies: must be a list of replies, not {replies!r}")
    made = [_reply(reply, f"{where}: replies[{i}]") for i, reply in enumerate(replies)]
    try:
        return Scenario(name or "", node.get("when"), made, node.get("model"))
    except ScriptError as error:
        raise ScriptError(f"{where}: {error}") from None


def _reply(node: object, where: str) -> Reply:
    steps, options = read_reply(node, where)
    try:
        return Reply(*steps, **options)
    except ScriptError as error:
        raise ScriptError(f"{where}: {error}") from None


def loads(text: str, source: str = "<script>") -> Script:
    """The script in `text`, YAML. Raises `ScriptError` naming `source`, scenario and key."""
    import yaml  # here, so that scripts written in Python do without it

    try:
        node: Any = yaml.safe_load(text)
        if not isinstance(node, dict) or not isinstance(node.get("scenarios"), list):
            raise ScriptError("needs the key 'scenarios' with a list")
        known_keys(node, {"scenarios"}, "top level")
        return Script(*(_scenario(item, i) for i, item in enumerate(node["scenarios"])))
    except yaml.YAMLError as error:
        raise ScriptError(f"{source}: not YAML: {' '.join(str(error).split())}") from None
    except ScriptError as error:
        raise ScriptError(f"{source}: {error}") from None


def load(path: str | Path) -> Script:
    """The script in the YAML file `path`. Raises `ScriptError`, and `OSError` when unreadable."""
    return loads(Path(path).read_text(encoding="utf-8"), source=str(path))


def default_script() -> Script:
    """The script that is played when none is given: `default.yaml` beside this file."""
    return load(Path(__file__).with_name("default.yaml"))
