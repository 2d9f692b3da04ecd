"""Real process trees, and what is left of them."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from turncell import procs
from turncell.procs import CHILD_MARK, TOKEN, Proc

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX process trees")

GENEROUS = 20.0

PLAIN = "import time\nprint(flush=True)\ntime.sleep(60)"
DEAF = """
import signal, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print(flush=True)
time.sleep(60)
"""
#: Starts {child} with Popen({options}) and waits for it.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", {child!r}], stdout=subprocess.PIPE,
                         {options})
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""
DOUBLE_FORK = """
import os, time
if os.fork() == 0:
    os.setsid()
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        os._exit(0)
    time.sleep(60)
os.wait()
time.sleep(60)
"""
#: Whenever its child is killed it starts another one.
PHOENIX = """
import subprocess, sys
print(flush=True)
while True:
    subprocess.run([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
"""
ZOMBIE = """
import os, time
pid = os.fork()
if pid == 0:
    os._exit(0)
while open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z":
    time.sleep(0.01)
print(pid, flush=True)
time.sleep(60)
"""


def parent(child: str = PLAIN, options: str = "") -> str:
    return PARENT.format(child=child, options=options)


class Family:
    """Processes that carry one token; none of them outlives the test."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(12)
        self._started: list[subprocess.Popen[str]] = []

    def start(
        self, code: str, *, tool: bool = False, token: str | None = None, clean: bool = False
    ) -> tuple[int, int | None]:
        """Run Python code; its pid, and the pid that it printed."""
        env = {} if clean else {**os.environ, TOKEN: token or self.token}
        env.pop(CHILD_MARK[0], None)
        if tool:
            env[CHILD_MARK[0]] = CHILD_MARK[1]
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code], env=env, stdout=subprocess.PIPE, text=True
        )
        self._started.append(process)
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        return process.pid, int(said) if said else None

    def reap(self, pid: int) -> int:
        """Wait for one that was killed; its exit code."""
        process = next(p for p in self._started if p.pid == pid)
        return process.wait(GENEROUS)

    def end(self) -> None:
        for process in self._started:
            for proc in procs.tree(process.pid) | procs.marked(self.token):
                procs._send(proc, signal.SIGKILL)
            process.kill()
            process.wait(GENEROUS)
            assert process.stdout is not None
            process.stdout.close()
        wait_until(lambda: procs.marked(self.token) == set())


@pytest.fixture
def family() -> Iterator[Family]:
    made = Family()
    yield made
    made.end()


def pids(found: set[Proc]) -> set[int]:
    return {proc.pid for proc in found}


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GENEROUS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Finding.


def test_a_tree_is_the_process_and_all_below_it(family: Family) -> None:
    root, child = family.start(parent(parent(options="stderr=None")))
    grandchild = psutil.Process(child).children()[0].pid
    assert pids(procs.tree(root)) == {root, child, grandchild}
    assert {p.command.split()[0] for p in procs.tree(root)} == {sys.executable}
    assert all(len(p.command) <= 120 for p in procs.tree(root))
    assert procs.tree(None) == set()


def test_a_tree_of_nobody_is_empty(family: Family) -> None:
    root, _ = family.start(PLAIN)
    os.kill(root, signal.SIGKILL)
    family.reap(root)
    assert procs.tree(root) == set()


def test_marked_finds_its_own_token_wherever_the_process_went(family: Family) -> None:
    plain, _ = family.start(PLAIN)
    _, own_session = family.start(parent(options="start_new_session=True"))
    _, orphan = family.start(DOUBLE_FORK)
    other, _ = family.start(PLAIN, token=family.token + "0")
    assert {plain, own_session, orphan} <= pids(procs.marked(family.token))
    assert other not in pids(procs.marked(family.token))
    assert psutil.Process(orphan).ppid() != plain
    assert other in pids(procs.marked(family.token + "0"))
    assert procs.marked("") == set()


def test_tools_only_spares_the_agent_and_its_servers(family: Family) -> None:
    agent, _ = family.start(PLAIN)
    tool, _ = family.start(PLAIN, tool=True)
    assert pids(procs.marked(family.token, tools_only=True)) == {tool}
    verdict = procs.clear(family.token, tools_only=True, seconds=5)
    assert verdict == procs.Verdict()
    assert family.reap(tool) == -signal.SIGKILL
    assert pids(procs.marked(family.token)) == {agent}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_zombie_is_not_alive(family: Family) -> None:
    root, zombie = family.start(ZOMBIE)
    assert psutil.Process(zombie).status() == psutil.STATUS_ZOMBIE
    made = Proc(zombie or 0, psutil.Process(zombie).create_time())
    assert procs.alive([made]) == set()
    assert zombie not in pids(procs.tree(root))
    assert procs.clear("no such token", [made], seconds=5) == procs.Verdict()


def test_processes_that_come_and_go_meanwhile_do_no_harm(family: Family) -> None:
    mine, _ = family.start(PLAIN)
    over = threading.Event()

    def rush() -> None:
        while not over.is_set():
            subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)

    threads = [threading.Thread(target=rush) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            assert pids(procs.marked(family.token)) == {mine}
            assert mine in pids(procs.tree(os.getpid()))
    finally:
        over.set()
        for thread in threads:
            thread.join()


# Killing.


@pytest.mark.parametrize(
    "code",
    [
        PLAIN,
        DEAF,
        parent(),
        parent(DEAF, "start_new_session=True"),
        parent(parent(DEAF, "start_new_session=True"), "start_new_session=True"),
        DOUBLE_FORK,
        PHOENIX,
        ZOMBIE,
    ],
    ids=[
        "plain",
        "deaf",
        "child",
        "deaf in its session",
        "two deep",
        "double",
        "phoenix",
        "zombie",
    ],
)
@pytest.mark.parametrize("root_died_first", [False, True])
def test_clear_leaves_nothing(family: Family, code: str, root_died_first: bool) -> None:
    root, _ = family.start(code)
    if root_died_first:  # what is left of it belongs to init now
        os.kill(root, signal.SIGKILL)
        family.reap(root)
    began = time.monotonic()
    assert procs.clear(family.token, seconds=5) == procs.Verdict()
    assert time.monotonic() - began < 4
    assert procs.marked(family.token) == set()


def test_clear_ends_what_hides_its_token_when_it_was_seen_before(family: Family) -> None:
    clean = "env={{}}, start_new_session=True".format()
    root, hidden = family.start(parent(DEAF, clean))
    assert hidden not in pids(procs.marked(family.token))
    known = procs.tree(root)
    os.kill(root, signal.SIGKILL)
    family.reap(root)
    assert procs.clear(family.token, known, seconds=5) == procs.Verdict()
    assert procs.alive(known) == set()


def test_clear_of_a_stopped_process(family: Family) -> None:
    root, _ = family.start(PLAIN)
    os.kill(root, signal.SIGSTOP)
    assert procs.clear(family.token, seconds=5) == procs.Verdict()
    assert family.reap(root) == -signal.SIGKILL


def test_clear_of_many_is_quick(family: Family) -> None:
    for _ in range(25):
        family.start(PLAIN)
    assert procs.clear(family.token, seconds=8) == procs.Verdict()


def test_clear_of_nothing_is_one_look(family: Family) -> None:
    began = time.monotonic()
    assert procs.clear(family.token, seconds=60) == procs.Verdict()
    assert time.monotonic() - began < 5


def test_what_is_given_time_is_told_first_and_killed_then(family: Family) -> None:
    heeds, _ = family.start(PLAIN)
    assert procs.clear(family.token, seconds=20, patience=10) == procs.Verdict()
    assert family.reap(heeds) == -signal.SIGTERM
    deaf, _ = family.start("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + PLAIN)
    assert procs.clear(family.token, seconds=20, patience=0.15) == procs.Verdict()
    assert family.reap(deaf) == -signal.SIGKILL


def test_however_few_seconds_there_are_it_is_killed(family: Family) -> None:
    root, _ = family.start(PLAIN)
    procs.clear(family.token, seconds=0.0)
    assert family.reap(root) == -signal.SIGKILL


def test_all_below_in_one_look(family: Family) -> None:
    root, child = family.start(parent())
    (known,) = (proc for proc in procs.marked(family.token) if proc.pid == root)
    assert pids(procs.below([known])) == {root, child}
    assert procs.below([]) == procs.below([Proc(root, 0.0)]) == set()


def test_a_pid_that_was_used_again_is_nobodys_business(family: Family) -> None:
    stranger, _ = family.start(PLAIN, token="of somebody else")
    created = psutil.Process(stranger).create_time()
    former = Proc(stranger, created - 100.0)
    assert procs.alive([former]) == set()
    procs._send(former, signal.SIGKILL)
    assert procs.clear(family.token, [former], spare=[former], seconds=5) == procs.Verdict()
    assert pids(procs.tree(stranger)) == {stranger}


def test_what_is_spared_lives_on_with_all_below_it(family: Family) -> None:
    spared, below = family.start(parent(), tool=True)
    tool, _ = family.start(PLAIN, tool=True)
    spare = {proc for proc in procs.marked(family.token) if proc.pid == spared}
    verdict = procs.clear(family.token, procs.tree(spared), spare=spare, seconds=5)
    assert verdict.survivors == ()
    assert {s.pid for s in verdict.spared} == {spared, below}
    assert all(sys.executable in s.command for s in verdict.spared)
    assert family.reap(tool) == -signal.SIGKILL
    assert pids(procs.marked(family.token)) == {spared, below}


def test_what_was_spared_and_ended_is_not_listed(family: Family) -> None:
    spared, _ = family.start(PLAIN)
    spare = procs.marked(family.token)
    os.kill(spared, signal.SIGKILL)
    family.reap(spared)
    assert procs.clear(family.token, spare=spare, seconds=5) == procs.Verdict()


def test_what_cannot_be_killed_is_named_within_the_bound(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _ = family.start(PLAIN)
    monkeypatch.setattr(procs, "_send", lambda proc, number: None)
    began = time.monotonic()
    verdict = procs.clear(family.token, seconds=0.5)
    assert 0.5 <= time.monotonic() - began < 3
    assert [(s.pid, sys.executable in s.command) for s in verdict.survivors] == [(root, True)]


def test_what_may_not_be_signalled_is_named(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _ = family.start(PLAIN)

    def refused(self: psutil.Process, number: int) -> None:
        raise psutil.AccessDenied(self.pid)

    with monkeypatch.context() as patch:
        patch.setattr(psutil.Process, "send_signal", refused)
        verdict = procs.clear(family.token, seconds=0.2)
    assert [s.pid for s in verdict.survivors] == [root]


# The two signals.


def test_signals_reach_one_process_alone(family: Family) -> None:
    root, child = family.start(parent())
    procs.interrupt(root)
    assert family.reap(root) in (1, -signal.SIGINT)
    assert child in pids(procs.marked(family.token))
    root, child = family.start(parent())
    procs.terminate(root)
    assert family.reap(root) == -signal.SIGTERM
    assert child in pids(procs.marked(family.token))


def test_signals_to_nobody_do_nothing(family: Family) -> None:
    root, _ = family.start(PLAIN)
    os.kill(root, signal.SIGKILL)
    family.reap(root)
    for pid in (None, root):
        procs.interrupt(pid)
        procs.terminate(pid)


def test_a_zombie_can_be_signalled(family: Family) -> None:
    root, _ = family.start(PLAIN)
    os.kill(root, signal.SIGKILL)
    wait_until(lambda: psutil.Process(root).status() == psutil.STATUS_ZOMBIE)
    procs.interrupt(root)
    procs.terminate(root)
    assert procs.clear(family.token, seconds=5) == procs.Verdict()
