"""The real agent for every test of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from agents import Agents, running_agents


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    with running_agents(tmp_path_factory.mktemp("agents")) as made:
        yield made
