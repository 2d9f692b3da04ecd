"""The notebooks that people read, run for real."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter, MarkdownExporter, PythonExporter
from places import Place

from turncell.cli import main
from turncell.demo.run import NOTEBOOK, demo_script, find_notebook
from turncell.modelserver import default_script
from turncell.outcome import RECORD_TYPE

pytestmark = [pytest.mark.kernel, pytest.mark.cli]


NOTEBOOKS = sorted(path.name for path in find_notebook().parent.glob("*.ipynb"))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_passes_nbval(new_place: Callable[[], Place], name: str) -> None:
    place = new_place()
    place.server.script = demo_script() if name == NOTEBOOK else default_script()
    notebook = place.cwd / name
    shutil.copyfile(find_notebook().parent / name, notebook)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--nbval-lax"]
        + ["--nbval-current-env", "-q", str(notebook)],
        env=place.env, cwd=place.cwd, capture_output=True, text=True, timeout=170,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    stopped = [r.outcome for r in place.server.requests if r.scenario in ("story", "slow")]
    assert set(stopped) == {"client_disconnected"}  # nobody pressed: --timeout did


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The notebook that `turncell demo` wrote, and the account it printed."""
    out = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, "-m", "turncell.cli", "demo", "--out", str(out)],
        env={**os.environ, "COLUMNS": "200"}, capture_output=True, text=True, timeout=170,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return out / NOTEBOOK, done.stdout


def test_the_account_of_the_demo_is_true(demonstrated: tuple[Path, str]) -> None:
    path, account = demonstrated
    cells = {cell["id"]: cell for cell in json.loads(path.read_text())["cells"]}

    def record(cell: str) -> dict[str, object]:
        (found,) = [o["data"][RECORD_TYPE] for o in cells[cell]["outputs"] if "data" in o]
        return dict(found)

    story, after = record("story"), record("after")
    assert "NO" not in account.split()
    assert story["outcome"] == "interrupted"
    assert story["reason"] == "user"
    assert f"{story['receipt']['text_chars']} characters kept" in account  # type: ignore[index]
    assert after["session_id"] == story["session_id"]
    assert [tool["status"] for tool in record("count")["tools"]] == ["done"]  # type: ignore[attr-defined]
    assert cells["story"]["outputs"][-1]["ename"] == "TurnStopped"
    assert not (path.parent / ".agent").exists()


def test_the_executed_notebook_reads_well_anywhere(demonstrated: tuple[Path, str]) -> None:
    notebook = nbformat.read(demonstrated[0], as_version=4)
    nbformat.validate(notebook)
    assert "widget-view" not in json.dumps(notebook)
    html, _ = HTMLExporter().from_notebook_node(notebook)
    markdown, _ = MarkdownExporter().from_notebook_node(notebook)
    for page in (html, markdown):
        assert "step 10," in page
        assert "stopped by you" in page
        assert "(Force)" not in page
    script, _ = PythonExporter().from_notebook_node(notebook)
    compile(script, NOTEBOOK, "exec")
    assert "run_cell_magic('agent', '--out story" in script


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_committed_notebook_has_no_outputs(name: str) -> None:
    notebook = nbformat.read(find_notebook().parent / name, as_version=4)
    checked = [c for c in notebook.cells if "nbval-check-output" in c.metadata.get("tags", [])]
    others = [c for c in notebook.cells if c.cell_type == "code" and c not in checked]
    assert all(cell.outputs for cell in checked)  # nbval compares these
    assert not any(cell.outputs for cell in others)


def test_words_that_are_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["dance"])
    assert exit.value.code == 2
    assert main(["stop"]) == 1
    assert "not there yet" in capsys.readouterr().err
