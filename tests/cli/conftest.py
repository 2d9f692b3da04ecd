"""The real agent for every test of this folder, and its rogue twin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from agents import GENEROUS, Agents, running_agents

from turncell import Session
from turncell.backends.claude_launch import find_cli


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    with running_agents(tmp_path_factory.mktemp("agents")) as made:
        yield made


@pytest.fixture(scope="module")
def warm(agents: Agents) -> Session:
    """A session whose agent is up."""
    session = agents.session("warm")
    session.start("hello").result(GENEROUS)
    return session


@pytest.fixture(scope="module")
def rogue_cli() -> Iterator[str]:
    """The `cli=` of an agent that misbehaves when its prompt says so: see `rogue.py`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROGUE_CLI", find_cli(None))
        yield str(Path(__file__).with_name("rogue.py"))
