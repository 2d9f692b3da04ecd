"""Fixtures for tests of notebooks and agents: the real agent CLI with no account and no network.

Registered as the pytest plugin `turncell`; also `pytest_plugins = ["turncell.pytest_plugin"]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from turncell.modelserver import ModelServer


@pytest.fixture
def model_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    """A running model server with the default script and a fresh home for the agent.

    Set `model_server.script` to play your own; give `model_server.env()` to the agent.
    """
    from turncell.modelserver import ModelServer  # here: most test runs never need it

    with ModelServer(home=tmp_path_factory.mktemp("agent-home")) as server:
        yield server


@pytest.fixture
def model_server_env(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """`model_server.env()`, set in `os.environ` too while the test runs: for kernels it starts."""
    env = model_server.env()
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return env
