"""A running server without scenarios, and a client for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from modelserver.api_client import Client

from turncell.modelserver import ModelServer, Script


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(Script()) as running:
        yield running


@pytest.fixture
def client(server: ModelServer) -> Iterator[Client]:
    made = Client(server)
    yield made
    made.hang_up()
