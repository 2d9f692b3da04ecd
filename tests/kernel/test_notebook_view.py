"""The notebook view in real kernels: in its own cell, from a worker, while others run.

`TURNCELL_KERNELS` names further interpreters (separated like a path) to run against.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from driver import VIEW, Kernel

pytestmark = pytest.mark.kernel
PYTHONS = [sys.executable, *filter(None, os.environ.get("TURNCELL_KERNELS", "").split(os.pathsep))]

SETUP = """
import threading, time
from dataclasses import replace
from turncell import events as ev
from turncell.picture import Snapshot, StopView
from turncell.transcript import Transcript
from turncell.views import choose
from turncell.views.notebook import NotebookView

clicks, faults, views = [], [], {}

class Turn:
    'A turn that is played from a worker thread, as the product draws.'
    def __init__(self, name, **how):
        self.name, self.go = name, threading.Event()
        self.view = NotebookView(get_ipython(), lambda: clicks.append(name), **how)
        self.transcript = Transcript()
        self.began = time.monotonic()
        self.view.open()
        self.opened = time.monotonic() - self.began
        self.worker = threading.Thread(target=self.play)
        self.worker.start()
        views[name] = self
    def draw(self, phase, **facts):
        now = time.monotonic()
        picture = Snapshot('t', self.name, phase, now, self.began, **facts)
        self.view.show(self.transcript.paint(picture))
    def play(self):
        try:
            self.stream()
        except BaseException as error:
            faults.append(repr(error))
    def stream(self):
        self.draw('starting')
        for i in range(400):
            self.transcript.fold(ev.TextDelta(text=f'{self.name}{i} ' * 5, block='b'))
            self.draw('running')
            if i == 200:
                stop = StopView('interrupt', time.monotonic() + 5, time.monotonic() + 12)
                while not self.go.is_set() and time.monotonic() < self.began + 20:
                    self.draw('stopping', stop=stop)
                    self.go.wait(0.2)
            time.sleep(0.001)
        self.transcript.close(time.monotonic())
        self.draw('ended', outcome='completed', duration=1.0)
"""


@pytest.fixture(scope="module", params=PYTHONS)
def kernel(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    with Kernel(request.param) as running:
        cell = running.run(SETUP)
        assert cell.status == "ok", cell.error
        yield running
        assert running.value("faults") == []


def test_each_of_two_turns_stays_in_its_own_cell(kernel: Kernel) -> None:
    first = kernel.run("Turn('a', live=True, background=True)")
    second = kernel.run("Turn('b', live=True, background=True)")
    busy = kernel.start("time.sleep(1.5); print('busy')")
    kernel.wait_for(lambda: "a150" in first.text and "b150" in second.text)
    assert busy.status == "running"
    kernel.wait(busy)
    kernel.run("for name in 'ab': views[name].go.set()")
    kernel.wait_for(lambda: "completed" in first.text and "completed" in second.text)
    for cell, own, other in ((first, "a", "b"), (second, "b", "a")):
        assert f"{own}0 " in cell.text
        assert f"{own}399 " in cell.text
        assert f"{other}1 " not in cell.text
    assert busy.text == "busy\n"


def test_a_blocking_cell_streams_and_ends_with_one_output(kernel: Kernel) -> None:
    cell = kernel.start("turn = Turn('c', live=True); turn.worker.join()")
    button = kernel.wait_for(lambda: kernel.button("Stopping 12 s (Force)"))
    kernel.wait_for(lambda: "c150 " in cell.text)
    assert VIEW in cell.outputs[0]["data"]
    kernel.interrupt()  # ends the join, not the turn
    kernel.wait(cell)
    kernel.run("turn.go.set()")
    kernel.wait_for(lambda: "completed" in cell.text)
    bundles = [out["data"] for out in cell.outputs if "data" in out]
    assert [VIEW in bundle for bundle in bundles] == [False]
    assert "c399 " in bundles[0]["text/plain"]
    kernel.wait_for(lambda: button not in kernel.widgets)


def test_the_button_of_a_background_turn_hears_a_click(kernel: Kernel) -> None:
    cell = kernel.run("turn = Turn('d', live=True, background=True)")
    button = kernel.wait_for(lambda: kernel.button("Stop"))
    assert kernel.value("turn.view.comm_id") == button
    kernel.click(button)
    assert kernel.value("clicks") == ["d"]
    kernel.run("turn.go.set(); turn.worker.join()")
    kernel.wait_for(lambda: "completed" in cell.text)
    assert kernel.button("Stop") is None
    kernel.click(button)
    assert kernel.value("clicks") == ["d"]


def test_every_widget_is_closed(kernel: Kernel) -> None:
    kernel.run("turn = Turn('e', live=True); turn.go.set(); turn.worker.join()")
    assert kernel.widgets == {}


def test_it_opens_fast(kernel: Kernel) -> None:
    cell = kernel.run("turn = Turn('f', live=True); turn.go.set(); turn.worker.join()")
    assert cell.status == "ok", cell.error
    assert kernel.value("turn.opened") < 0.1


def test_a_capturing_cell_gets_it_too(kernel: Kernel) -> None:
    kernel.run("%%capture kept\nturn = Turn('g', live=True); turn.go.set(); turn.worker.join()")
    texts = kernel.value("[out.data['text/plain'] for out in kept.outputs]")
    assert any("g399 " in text and "completed" in text for text in texts)


def test_a_kernel_is_given_a_notebook_view(kernel: Kernel) -> None:
    kind = "type(choose(get_ipython(), None, can_ask=True, quiet=False)).__name__"
    assert kernel.value(kind) == "NotebookView"
