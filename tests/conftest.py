"""What the slow tests stand on: a place of their own, a real kernel, and who is still alive.

In CI (environment variable `CI`) a skipped kernel, cli or browser test makes the run fail, and
so does a full run without any of them.
"""

from __future__ import annotations

import datetime
import os
import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import psutil
import pytest
from places import SCRIPT, AgentKernel, Place

from turncell.modelserver import ModelServer

REAL = frozenset({"kernel", "cli", "browser"})  # markers of tests that nothing else can replace


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the sessions of this process leave is not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNCELL_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def new_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Place]]:
    """Makes places, each with its own server; at the end nobody from them may be alive."""
    with ExitStack() as stack:

        def make() -> Place:
            home = tmp_path_factory.mktemp("place")
            (home / "work").mkdir()
            server = stack.enter_context(ModelServer(SCRIPT, home=home))
            place = Place(home, server, secrets.token_hex(8))
            stack.callback(place.wait_gone)
            return place

        yield make


@pytest.fixture
def place(new_place: Callable[[], Place]) -> Iterator[Place]:
    """A place for one test; nobody from it may outlive the test."""
    made = new_place()
    yield made
    made.wait_gone()


@pytest.fixture
def processes(place: Place) -> Callable[..., list[psutil.Process]]:
    """Who is alive and came from `place`, except for the given pids."""
    return place.processes


@pytest.fixture(scope="module")
def _shared_kernels(new_place: Callable[[], Place]) -> Iterator[list[AgentKernel]]:
    kernels: list[AgentKernel] = []
    yield kernels
    for kernel in kernels:
        kernel.__exit__()


@pytest.fixture
def agent_kernel(new_place: Callable[[], Place], _shared_kernels: list[AgentKernel]) -> AgentKernel:
    """A kernel that the tests of a file share; one left in disorder is replaced."""
    kernels = _shared_kernels
    if kernels:
        with suppress(TimeoutError, RuntimeError):
            if kernels[-1].clean():
                return kernels[-1]
        kernels.pop().__exit__()
    kernels.append(AgentKernel(new_place()))
    return kernels[-1]


@pytest.fixture
def new_kernel(place: Place) -> Iterator[Callable[..., AgentKernel]]:
    """Starts kernels of this test's own in `place`; keyword arguments are their environment."""
    with ExitStack() as stack:
        yield lambda **variables: stack.enter_context(AgentKernel(place, **variables))


class Attendance:
    """Refuses a green run in which the real tests did not take part."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._ran: set[str] = set()
        self._skipped: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._skipped.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        marks = REAL & set(report.keywords)
        if report.when == "call" and (report.passed or report.failed):
            self._ran |= marks
        elif report.skipped and marks and not hasattr(report, "wasxfail"):
            self._skipped.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._faults() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for fault in self._faults():
            terminalreporter.write_line(f"CI refuses this run: {fault}", red=True)

    def _faults(self) -> list[str]:
        faults = [f"skipped {nodeid}" for nodeid in self._skipped]
        option = self._config.option
        chosen = option.keyword or option.markexpr or option.deselect or getattr(option, "lf", 0)
        source = self._config.args_source
        if source is pytest.Config.ArgsSource.TESTPATHS and not (chosen or option.collectonly):
            faults += [f"no {mark} test was run" for mark in sorted(REAL - self._ran)]
        return faults


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("stops")
    group.addoption("--stops", choices=["some", "all"], default="some", help="how many to try")
    group.addoption("--stops-seed", type=int, help="which ones: a seed that an earlier run said")


def pytest_report_header(config: pytest.Config) -> str | None:
    some = config.getoption("--stops") == "some"
    return f"a sample of the stops: --stops-seed {stops_seed(config)}" if some else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it once more: `-q` has no header."""
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(pytest_report_header(terminalreporter.config) or "")


def stops_seed(config: pytest.Config) -> int:
    """The seed of the sample: another one every day, and said at the head of the run."""
    chosen: int | None = config.getoption("--stops-seed")
    return chosen if chosen is not None else datetime.date.today().toordinal()


def sample_of_stops(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out all but so many of each test with the marker `stops(N)`, unless all are wanted."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("stops"):
            groups.setdefault(item.nodeid.partition("[")[0], []).append(item)
    dice, left_out = random.Random(stops_seed(config)), set()
    for stops in groups.values():
        marker = stops[0].get_closest_marker("stops")
        dice.shuffle(stops)
        left_out |= set(stops[marker.args[0] :] if marker else ())
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The cheapest first, so that what is plainly wrong is said soon."""
    if config.getoption("--stops") == "some" and not any("[" in arg for arg in config.args):
        sample_of_stops(config, items)
    folders = ("modelserver", "contract", "runtime", "cli", "kernel", "notebooks", "browser")
    rank = {name: place for place, name in enumerate(folders, 1)}

    def place(item: pytest.Item) -> int:
        parts = item.path.relative_to(config.rootpath).parts
        return max(rank.get(part, 0) for part in parts)

    items.sort(key=place)


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("CI"):
        config.pluginmanager.register(Attendance(config))
