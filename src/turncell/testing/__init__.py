"""For tests of notebooks and of code that runs agents: agents that play a script.

Two stand-ins, both without an account and a network:

- a **scripted agent** is no process at all and starts at once. `scripted` puts it
  in the place of the real one, for the Python API and for the magics:

      from turncell.testing import Freeze, Play, scripted

      with scripted(Play("Half an answer, ", Freeze(), when="freeze"), Play("Hello.")) as agent:
          result = await Session().run("hi")
      assert agent.prompts == ["hi"]

- a **model server** plays the model, and the real agent binary talks to it: see
  `ModelServer` and the pytest fixtures `model_server` and `model_server_env`.

And the stop contract, as checks of what was seen from the outside: `Evidence` of one stop
and the promises that it breaks (`violations`), and a test class for an agent or a backend
of your own: see `StopSuite`.

`Play` and its steps are in `turncell.backends.scripted_steps`, misbehaving agents made of
them in `turncell.testing.agents`, the scripts of the model server (`Script`, `Scenario`,
`Reply`, ...) in `turncell.modelserver`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from turncell.backends.scripted import ScriptedBackend
from turncell.backends.scripted_steps import (
    Ask,
    Die,
    EndTool,
    Finish,
    Freeze,
    Manners,
    Notify,
    Play,
    Rest,
    Retry,
    Say,
    Spawn,
    StartTool,
    Step,
    Tell,
    Think,
)
from turncell.testing.promises import PROMISES, Evidence, Pictures, violations
from turncell.testing.suite import StopCase, StopSuite, agents_from

if TYPE_CHECKING:
    from turncell.modelserver import ModelServer, Reply, Scenario, Script

__all__ = [
    "PROMISES",
    "Ask",
    "Die",
    "EndTool",
    "Evidence",
    "Finish",
    "Freeze",
    "Manners",
    "ModelServer",
    "Notify",
    "Pictures",
    "Play",
    "Reply",
    "Rest",
    "Retry",
    "Say",
    "Scenario",
    "Script",
    "ScriptedBackend",
    "Spawn",
    "StartTool",
    "Step",
    "StopCase",
    "StopSuite",
    "Tell",
    "Think",
    "agents_from",
    "scripted",
    "violations",
]

_OF_THE_SERVER = ("ModelServer", "Reply", "Scenario", "Script")


def __getattr__(name: str) -> Any:
    # The model server brings a web server along; few tests need both.
    if name in _OF_THE_SERVER:
        return getattr(importlib.import_module("turncell.modelserver"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@contextmanager
def scripted(
    *plays: Play, start: float = 0.0, refuses: str | None = None
) -> Iterator[ScriptedBackend]:
    """While open, every agent that this process starts is a scripted one.

    Opening and leaving it stops what runs and closes every agent, so that sessions
    meet the agent they are meant for; their names and conversations stay.
    """
    backend = ScriptedBackend(*plays, start=start, refuses=refuses)
    with agents_from(lambda: backend):
        yield backend
