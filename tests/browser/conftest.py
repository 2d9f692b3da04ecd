"""One server and one browser for all tests of this directory.

They go with it: Playwright keeps an event loop running in the main thread, where other
tests want loops of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from browser.lab import Lab, Tab, browser
from places import SCRIPT, Place
from playwright.sync_api import BrowserContext


@pytest.fixture(scope="package")
def lab(new_place: Callable[[], Place]) -> Iterator[Lab]:
    with Lab(new_place()).running() as running:
        yield running


@pytest.fixture(scope="package")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    with browser(tmp_path_factory.mktemp("profile")) as context:
        yield context


@pytest.fixture
def tab(lab: Lab, chrome: BrowserContext, request: pytest.FixtureRequest) -> Iterator[Tab]:
    """A tab that a test opens; closed, and its kernels shut down, at the end."""
    lab.place.server.script = SCRIPT
    lab.place.server.reset()
    lab.settings("apputils-extension/themes", {})  # what another test chose
    page = chrome.new_page()
    yield Tab(page, lab, lab.root / f"{request.node.name}.ipynb")
    page.close()
    lab.stop_kernels()
