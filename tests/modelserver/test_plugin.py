"""What shows only in a fresh process: the pytest fixtures, `serve`, and light imports."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import turncell.modelserver

SOURCE = Path(turncell.modelserver.__file__).parents[2]
USER_TEST = """
import os
import urllib.request
from turncell.modelserver import Reply, Scenario, Script

def test_mine(model_server, model_server_env):
    model_server.script = Script(Scenario("mine", replies=[Reply("hello")]))
    assert os.environ["ANTHROPIC_BASE_URL"] == model_server.url
    assert model_server.env() == model_server_env
    urllib.request.urlopen(model_server.url).read()
    assert len(model_server.requests) == 1

def test_fresh(model_server):
    assert model_server.requests == []
    assert "ANTHROPIC_BASE_URL" not in os.environ
"""

SERVE = """
from turncell.modelserver import serve
serve(on_ready=lambda server: print(server.url, flush=True))
print("ended")
"""


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes find the package also where it is not installed."""
    paths = [str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)


def run_pytest(folder: Path, test: str) -> str:
    """The output of a test run of its own over `test`."""
    fixtures = "from turncell.pytest_plugin import model_server, model_server_env\n"
    (folder / "conftest.py").write_text(fixtures, encoding="utf-8")
    (folder / "test_user.py").write_text(test, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    command += [f"--rootdir={folder}", "-c", os.devnull]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    return run.stdout + run.stderr


def test_the_fixtures(tmp_path: Path) -> None:
    assert "2 passed" in run_pytest(tmp_path, USER_TEST)


@pytest.mark.cli
def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "model-server.md"
    (example,) = re.findall(
        r"```python\n(import asyncio.*?)```", page.read_text(encoding="utf-8"), re.DOTALL
    )
    assert "1 passed" in run_pytest(tmp_path, example)


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to one process")
def test_serve_ends_at_a_keyboard_interrupt() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert urllib.request.urlopen(url, timeout=10).status == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (out.strip(), err, process.returncode) == ("ended", "", 0)


def test_scripts_load_no_web_server() -> None:
    code = (
        "import sys, turncell.modelserver.scenario\n"
        "heavy = {'uvicorn', 'starlette', 'anyio', 'yaml', 'asyncio'} & set(sys.modules)\n"
        "before = set(sys.argv[1].split(','))\n"
        "sys.exit(repr(heavy - before) if heavy - before else 0)"
    )
    probe = "import sys, turncell; print(','.join(sys.modules))"  # what the package itself needs
    base = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    subprocess.run([sys.executable, "-c", code, base.stdout.strip()], check=True)
