"""What is saved in a notebook: one static output a turn, and what other tools make of it."""

from __future__ import annotations

import copy
import html
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from driver import VIEW, Cell
from markdown_it import MarkdownIt
from nbclient import NotebookClient
from nbconvert import HTMLExporter, MarkdownExporter
from nbdime import diff_notebooks, patch
from nbformat import NotebookNode
from pages import Page
from places import AgentKernel, Place

from turncell.modelserver import Reply, Scenario, Script, ToolUse, Words
from turncell.outcome import RECORD_TYPE

pytestmark = [pytest.mark.kernel, pytest.mark.cli]

PIXEL = "http://127.0.0.1:9/pixel.png"
CHART = "https://example.org/chart"
BUNDLE = {"text/plain", "text/html", "text/markdown", RECORD_TYPE}
ANSWER = f"""
# The tour

It cost $5 and $6; see [the chart]({CHART}), not ![a picture]({PIXEL}) and <img src="{PIXEL}">.

| hour | wind |
|---|---:|
| 20:00 | nine |

```sh
$ echo lamp
$ echo sea
```

The *last* words.
"""
SCRIPT = Script(
    Scenario("tour", when="tour", replies=[
        Reply("I look first.\n\n", ToolUse("Bash", {"command": "echo tool-$((40 + 2))"})),
        Reply(ANSWER),
    ]),
    Scenario("count", when="count", replies=[Reply(Words(400, pace=0.05))]),
)  # fmt: skip
TOUR, STOPPED, CHECK = 1, 2, 3
CLICKED = "%%agent -o s\ncount"
TIMED = "%%agent --timeout 1 -o s\ncount"
#: Words that every form of the tour must show, tags and line breaks left aside.
WORDS = (
    "I look first.", "The tour", "It cost $5 and $6; see the chart", "nine", "$ echo lamp",
    "$ echo sea", "The last words.", "Bash echo tool-$((40 + 2))", "done", "completed",
)  # fmt: skip


def draft(stopped: str) -> NotebookNode:
    """The notebook before it is run."""
    new = nbformat.v4.new_code_cell
    cells = [new("%load_ext turncell"), new("%%agent -o r --tools Bash\ntour"), new(stopped)]
    cells.append(new("# NBVAL_CHECK_OUTPUT\nprint(r.text[-17:], r.outcome, s.outcome)"))
    cells[STOPPED].metadata["tags"] = ["raises-exception"]
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec})


def as_saved(content: dict[str, Any]) -> NotebookNode:
    """An output message as a front end writes it down."""
    kinds = {"ename": "error", "name": "stream", "execution_count": "execute_result"}
    kind = next((kind for key, kind in kinds.items() if key in content), "display_data")
    kept = {key: value for key, value in content.items() if key != "transient"}
    return nbformat.v4.new_output(kind, **kept)


def run_live(place: Place) -> NotebookNode:
    """Run it in a front end: with updates, a button, and somebody who presses it."""
    notebook = draft(CLICKED)
    with AgentKernel(place, load=False) as kernel:
        for index, cell in enumerate(notebook.cells):
            running = kernel.start(cell.source)
            if index == STOPPED:
                kernel.wait_for(lambda running=running: "w3 " in running.text, 30)
                assert any(VIEW in out.get("data", {}) for out in running.outputs)  # it was live
                kernel.click(kernel.button("Stop"))
            ended: Cell = kernel.wait(running, 60)
            cell.outputs = [as_saved(content) for content in ended.outputs]
            cell.execution_count = ended.reply["execution_count"]
        kernel.wait_for(lambda: not kernel.widgets, 10, "widgets to close")
    return notebook


def run_alone(place: Place) -> NotebookNode:
    """Run it where nobody sits."""
    notebook = draft(TIMED)
    resources = {"metadata": {"path": str(place.cwd)}}
    NotebookClient(notebook, timeout=60, resources=resources).execute(env=place.env)
    return notebook


@pytest.fixture(scope="module")
def seat(new_place: Callable[[], Place]) -> Place:
    place = new_place()
    place.server.script = SCRIPT
    return place


@pytest.fixture(scope="module")
def runs(seat: Place) -> dict[str, NotebookNode]:
    """The notebook as both ways of running it leave it."""
    return {"live": run_live(seat), "alone": run_alone(seat)}


@pytest.fixture(params=["live", "alone"])
def saved(runs: dict[str, NotebookNode], request: pytest.FixtureRequest) -> NotebookNode:
    return copy.deepcopy(runs[request.param])


@pytest.fixture
def path(saved: NotebookNode, tmp_path: Path) -> Path:
    """It as a file."""
    place = tmp_path / "saved.ipynb"
    nbformat.write(saved, place)
    return place


def test_a_turn_leaves_one_static_output(saved: NotebookNode) -> None:
    nbformat.validate(saved)
    assert saved.cells[0].outputs == []
    (tour,) = saved.cells[TOUR].outputs
    stopped, error = saved.cells[STOPPED].outputs
    assert set(tour.data) == set(stopped.data) == BUNDLE
    assert tour.data[RECORD_TYPE]["outcome"] == "completed"
    assert [tool["status"] for tool in tour.data[RECORD_TYPE]["tools"]] == ["done"]
    assert stopped.data[RECORD_TYPE]["outcome"] == "interrupted"
    assert error.ename == "TurnStopped"
    assert "w3 " in stopped.data["text/plain"]
    whole = json.dumps(saved)
    assert "widget" not in whole  # neither a view of one nor its state
    rich = tour.data["text/html"] + stopped.data["text/html"]
    assert not re.search(r"<(button|script|iframe|img|input)\b", rich)


@pytest.mark.parametrize("form", sorted(BUNDLE - {RECORD_TYPE}))
def test_every_form_of_a_cell_has_every_word(saved: NotebookNode, form: str) -> None:
    shown = saved.cells[TOUR].outputs[0].data[form]
    if form == "text/markdown":
        shown = MarkdownIt("commonmark").enable("table").render(shown)
    page = Page(html.escape(shown) if form == "text/plain" else shown)
    for word in ("$5 and $6", "nine", "$ echo lamp", "Bash echo tool-", "completed"):
        assert word in page.text
    assert page.loads == set()


@pytest.mark.parametrize("template", ["lab", "basic", "webpdf"])
def test_as_html(saved: NotebookNode, template: str) -> None:
    exporter = HTMLExporter(template_name=template)
    page = Page(exporter.from_notebook_node(saved)[0])
    for word in WORDS:
        assert word in page.text
    assert "w3 " in page.text
    assert "stopped by" in page.text
    assert CHART in page.links
    for cell in saved.cells:
        cell.outputs = []
    bare = Page(exporter.from_notebook_node(saved)[0])
    assert page.loads == bare.loads  # the template's own, and nothing of ours
    assert "nine" not in bare.text


def test_as_markdown(saved: NotebookNode) -> None:
    careless = MarkdownIt("commonmark", {"html": True}).render(ANSWER)
    assert Page(careless).loads == {PIXEL}  # so it would be seen
    markdown, _ = MarkdownExporter().from_notebook_node(saved)
    page = Page(MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown))
    for word in WORDS:
        assert word in page.text
    assert "w3 " in page.text
    assert "stopped by" in page.text
    assert CHART in page.links
    assert page.loads == set()


def test_nbstripout_takes_it_out(path: Path) -> None:
    before = nbformat.read(path, as_version=4)
    subprocess.run([sys.executable, "-m", "nbstripout", str(path)], check=True, timeout=60)
    after = nbformat.read(path, as_version=4)
    nbformat.validate(after)
    assert [cell.source for cell in after.cells] == [cell.source for cell in before.cells]
    assert not any(cell.outputs for cell in after.cells)
    assert all(cell.outputs for cell in before.cells[TOUR:])


def test_nbdime_tells_two_runs_apart(runs: dict[str, NotebookNode], tmp_path: Path) -> None:
    one, other = runs["live"], runs["alone"]
    changes = diff_notebooks(one, other)
    assert patch(one, changes) == other
    assert diff_notebooks(one, one) == []
    for name, notebook in runs.items():
        nbformat.write(notebook, tmp_path / f"{name}.ipynb")
    done = subprocess.run(
        [sys.executable, "-m", "nbdime", "diff", "--no-color", "live.ipynb", "alone.ipynb"],
        cwd=tmp_path, timeout=60, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not done.stderr
    assert "stopped by you" in done.stdout
    assert "stopped by its time limit" in done.stdout


def test_nbval_passes_on_what_was_saved(
    runs: dict[str, NotebookNode], seat: Place, tmp_path: Path
) -> None:
    path = tmp_path / "again.ipynb"
    nbformat.write(runs["alone"], path)

    def nbval() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--nbval-lax"]
            + ["--nbval-current-env", "-q", "-c", "/dev/null", str(path)],
            env=seat.env, cwd=tmp_path, capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    done = nbval()
    assert done.returncode == 0, done.stdout[-3000:]
    assert "4 passed" in done.stdout
    wrong = copy.deepcopy(runs["alone"])
    wrong.cells[CHECK].outputs[0].text = "something else"
    nbformat.write(wrong, path)
    assert nbval().returncode == 1  # it does compare
