"""What the slow tests stand on: a place of their own, a real kernel, and who is still alive.

In CI (environment variable `CI`) a skipped kernel, cli or browser test makes the run fail, and
so does a full run without any of them.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from driver import SOURCE, Kernel

from turncell.modelserver import Echo, ModelServer, Reply, Scenario, Script, Words

TOKEN = "TURNCELL_TEST_PLACE"
REAL = frozenset({"kernel", "cli", "browser"})  # markers of tests that nothing else can replace
#: "count" streams slowly for 20 s, everything else is echoed at once.
SCRIPT = Script(
    Scenario("count", when="count", replies=[Reply(Words(400, pace=0.05))]),
    Scenario("rest", replies=[Reply(Echo())]),
)
CLOSE_OTHERS = """
import turncell
others = [row["name"] for row in get_ipython().run_line_magic("agent", "sessions")]
for name in others:
    if name != "main":
        turncell.Session(name).close()
"""


@dataclass
class Place:
    """A home, a working directory and a model server, and a mark on every process from here."""

    home: Path
    server: ModelServer
    token: str

    @property
    def cwd(self) -> Path:
        """Where kernels and commands run."""
        return self.home / "work"

    @property
    def env(self) -> dict[str, str]:
        """The whole environment of a process in this place."""
        path = os.pathsep.join(filter(None, [SOURCE, os.environ.get("PYTHONPATH")]))
        settings = [name for name in os.environ if name.startswith("TURNCELL_")]
        jupyter = {f"JUPYTER_{kind}_DIR": str(self.home / kind) for kind in ("CONFIG", "RUNTIME")}
        return {
            **os.environ,
            **dict.fromkeys(settings, ""),
            **self.server.env(),
            **jupyter,
            "HOME": str(self.home),
            "IPYTHONDIR": str(self.home / "ipython"),
            "JUPYTER_DATA_DIR": str(self.home / "data"),
            "PYTHONPATH": path,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            TOKEN: self.token,
        }

    def processes(self, *but: int) -> list[psutil.Process]:
        """Who is alive and came from here, except for these pids; `info` has the name."""
        everybody = psutil.process_iter(["name", "ppid", "status", "environ"])
        mine = [p for p in everybody if (p.info["environ"] or {}).get(TOKEN) == self.token]
        return [p for p in mine if p.pid not in but and p.info["status"] != psutil.STATUS_ZOMBIE]

    def named(self, name: str) -> list[psutil.Process]:
        """Those of them with this name."""
        return [p for p in self.processes() if p.info["name"] == name]

    def wait_gone(self, *but: int, seconds: float = 15) -> None:
        """Fail unless all of them, except for these pids, end within so many seconds."""
        end = time.monotonic() + seconds
        while left := self.processes(*but):
            if time.monotonic() > end:
                for process in left:
                    with suppress(psutil.Error):
                        process.kill()
                pytest.fail(f"still alive after {seconds} s: {left}")
            time.sleep(0.05)


class AgentKernel(Kernel):
    """A kernel in a place, with the extension loaded."""

    def __init__(self, place: Place, *, load: bool = True, **variables: str) -> None:
        """Start it; `variables` are added to its environment."""
        super().__init__(env={**place.env, **variables})
        self.place = place
        self.server = place.server
        cell = self.run(f"%cd -q {place.cwd}" + "\n%load_ext turncell" * load)
        assert cell.status == "ok", cell.error

    @property
    def agents(self) -> list[psutil.Process]:
        """The agent processes that live now."""
        return [p for p in self.place.named("claude") if p.info["ppid"] == self.pid]

    def clean(self) -> bool:
        """Make it ready for the next test; False when something still runs in it."""
        if not all(cell.done for cell in self.cells.values()):
            return False
        self.cells.clear()
        self.asked.clear()
        self.server.script = SCRIPT
        self.server.reset()
        if len(self.agents) > 1:
            self.run(CLOSE_OTHERS)
        return self.run("%agent stop --all").text == "Nothing is running."


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


@pytest.fixture(scope="session")
def _shared_kernels(new_place: Callable[[], Place]) -> Iterator[list[AgentKernel]]:
    kernels: list[AgentKernel] = []
    yield kernels
    for kernel in kernels:
        kernel.__exit__()


@pytest.fixture
def agent_kernel(new_place: Callable[[], Place], _shared_kernels: list[AgentKernel]) -> AgentKernel:
    """A kernel that tests share; one that a test left in disorder is replaced."""
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


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("CI"):
        config.pluginmanager.register(Attendance(config))
