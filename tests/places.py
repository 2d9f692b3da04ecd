"""Places where real kernels and the real agent run, and who is still alive there."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from driver import SOURCE, Kernel

from turncell.modelserver import Echo, ModelServer, Reply, Scenario, Script, Words

TOKEN = "TURNCELL_TEST_PLACE"
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
            "XDG_STATE_HOME": str(self.home / "state"),
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
        for _ in range(20):  # join what no test has joined
            if self.run("%agent wait").text == "Nothing to wait for.":
                break
        return self.run("%agent stop --all").text == "Nothing is running."
