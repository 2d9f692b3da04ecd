"""A turn on disk: written before it is shown, and never in the way of the turn or its stop."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from turncell import Outcome, Session, Turn, TurnResult
from turncell import events as ev
from turncell.archive.archive import Archive
from turncell.archive.journal import Journal
from turncell.archive.journals import Logged
from turncell.archive.register import Entry
from turncell.finder import Finder
from turncell.picture import Snapshot
from turncell.session import book
from turncell.testing import Freeze, Play, Say, ScriptedBackend, scripted

PATIENCE = 30.0


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    made = Archive(tmp_path / "state")
    monkeypatch.setattr(book(), "archive", made)
    return made


@pytest.fixture
def agent(archive: Archive) -> Iterator[ScriptedBackend]:
    plays = (
        Play(Say("one two three ", pace=0.05), Freeze(), when="freeze"),
        Play(Say("word " * 30, pace=0.02), when="slowly"),
    )
    with scripted(*plays) as backend:
        yield backend


@pytest.fixture
def session(agent: ScriptedBackend) -> Session:
    """One that no other test has used: conversations outlive agents."""
    return Session(f"s-{uuid.uuid4().hex[:8]}")


def entry_of(archive: Archive, session_id: str) -> Entry:
    entry = archive.register.get(session_id)
    assert entry is not None
    return entry


def logged(archive: Archive, turn_id: str) -> Logged:
    (path,) = archive.journals.paths(turn_id=turn_id)
    return archive.journals.read(path)


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def said(turn: Turn) -> str:
    return "".join(event.text for event in turn.events if isinstance(event, ev.TextDelta))


def notices(result: TurnResult) -> list[str]:
    return [event.text for event in result.events if isinstance(event, ev.Notice)]


def test_the_journal_has_it_before_the_screen(archive: Archive, session: Session) -> None:
    class Watcher:
        """A view that compares what it is shown with what is on disk."""

        def __init__(self) -> None:
            self.seen: list[tuple[str, str]] = []

        def show(self, snapshot: Snapshot) -> None:
            on_disk = logged(archive, snapshot.turn_id).snapshot().text
            self.seen.append((snapshot.text, on_disk))

    view = Watcher()
    result = session.start("slowly", view=view).result(PATIENCE)
    assert len(view.seen) > 5
    assert all(disk.startswith(screen) for screen, disk in view.seen)
    assert view.seen[-1][0] == result.text


def test_the_entry_tells_how_it_was_left(archive: Archive, session: Session) -> None:
    turn = session.start("slowly then")
    until(lambda: (entry := archive.register.get(session.session_id)) and entry.opened)
    entry = entry_of(archive, session.session_id)
    assert (entry.left, entry.turns) == ("running", 1)
    turn.stop()
    turn.result(PATIENCE, raise_error=False)
    session.start("hello").result(PATIENCE)
    entry = entry_of(archive, session.session_id)
    assert (entry.left, entry.turns, entry.first_prompt) == ("completed", 2, "slowly then")
    assert (entry.name, entry.notebook) == (session.name, book().notebook)


def test_a_view_that_is_stuck_does_not_hold_up_the_journal(
    archive: Archive, session: Session
) -> None:
    class Stuck:
        let_go = threading.Event()

        def show(self, snapshot: Snapshot) -> None:
            if snapshot.text:
                self.let_go.wait(PATIENCE)

    turn = session.start("slowly", view=Stuck())
    whole = "word " * 30
    until(lambda: archive.journals.paths(turn_id=turn.turn_id))
    try:
        until(lambda: logged(archive, turn.turn_id).result().text == whole)
    finally:
        Stuck.let_go.set()
    assert turn.result(PATIENCE).text == whole


def test_a_disk_that_hangs_holds_up_neither_the_pictures_nor_the_stop(
    archive: Archive, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.start("hello").result(PATIENCE)
    let_go, pictures = threading.Event(), []
    monkeypatch.setattr(Journal, "write", lambda self: let_go.wait(PATIENCE))

    class View:
        def show(self, snapshot: Snapshot) -> None:
            pictures.append((time.monotonic(), snapshot))

    try:
        turn = session.start("freeze", view=View())
        until(lambda: any("three" in picture.text for _, picture in pictures))
        asked = time.monotonic()
        turn.stop(now=True)
        result = turn.result(PATIENCE, raise_error=False)
        assert time.monotonic() - asked < 6.0  # the rung, and what the last picture may take
    finally:
        let_go.set()
    assert (result.outcome, result.text) == (Outcome.KILLED, "one two three ")
    seen = next(at for at, picture in pictures if picture.phase in ("stopping", "ended"))
    assert seen - asked < 2.0
    assert any("the disk does not answer" in text for text in notices(result))


def test_a_place_that_cannot_be_written_costs_one_line(archive: Archive, session: Session) -> None:
    archive.directory.write_text("a file in the way")
    result = session.start("slowly").result(PATIENCE)
    assert (result.outcome, result.text) == (Outcome.COMPLETED, "word " * 30)
    (line,) = [text for text in notices(result) if "journal cannot be written" in text]
    assert str(archive.directory) in line
    archive.directory.unlink()
    assert session.start("again").result(PATIENCE).text == "echo: again"
    texts = [archive.journals.read(path).result().text for path in archive.journals.paths()]
    assert texts == ["echo: again", "word " * 30]  # there was room at last


def test_a_prompt_that_was_refused_leaves_the_others_session_alone(
    archive: Archive, session: Session
) -> None:
    session.start("hello").result(PATIENCE)
    working = session.start("freeze")
    until(lambda: "three" in said(working))
    before = entry_of(archive, session.session_id)
    second = Session(f"{session.name}-too", resume=session.session_id)
    refused = second.start("me, too").result(PATIENCE, raise_error=False)
    assert refused.outcome is Outcome.FAILED
    assert f"session {session.name} of this kernel" in (refused.error or "")
    assert entry_of(archive, session.session_id) == before
    shown = archive.journals.last(session.session_id)
    assert shown is not None
    assert shown.turn_id == working.turn_id
    working.stop(now=True)
    working.result(PATIENCE, raise_error=False)
    assert second.start("now me").result(PATIENCE).text == "echo: now me"


def test_who_waits_for_a_session_can_be_stopped(archive: Archive, session: Session) -> None:
    session.start("hello").result(PATIENCE)
    working = session.start("freeze")
    until(lambda: "three" in said(working))
    second = Session(f"{session.name}-too", resume=session.session_id)
    waiting = second.start("me, too", in_use="wait")
    until(lambda: any("Waiting for the session" in e.text for e in waiting.events
                      if isinstance(e, ev.Notice)))  # fmt: skip
    asked = time.monotonic()
    waiting.stop()
    result = waiting.result(PATIENCE, raise_error=False)
    assert time.monotonic() - asked < 2.0
    assert (result.outcome, result.text) == (Outcome.INTERRUPTED, "")
    again = second.start("me, too", in_use="wait")
    until(lambda: again.events)
    working.stop(now=True)
    assert working.result(PATIENCE, raise_error=False).text == "one two three "
    result = again.result(PATIENCE)
    assert result.text == "echo: me, too"
    assert "one two three" in (result.told or "")


def test_the_end_is_the_last_word_however_slow_the_last_picture(
    archive: Archive, session: Session
) -> None:
    class Slow:
        def show(self, snapshot: Snapshot) -> None:
            if snapshot.phase == "ended":
                time.sleep(0.8)

    turn = session.start("freeze", view=Slow())
    until(lambda: "three" in said(turn))
    turn.stop(now=True)
    turn.result(PATIENCE, raise_error=False)
    session.start("hello").result(PATIENCE)
    found = logged(archive, turn.turn_id)
    assert (found.outcome, found.closed, found.running) == ("killed", True, False)
    assert archive.journals.glance(found.path).outcome == "killed"


def test_a_stop_that_comes_before_the_prompt_left_keeps_it_here(
    agent: ScriptedBackend, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.start("hello").result(PATIENCE)
    link, go_on = session._conversation.link, threading.Event()
    work = link.work

    async def slowly(turn_id: str) -> None:
        await work(turn_id)
        while not go_on.is_set():
            await anyio.sleep(0.01)

    monkeypatch.setattr(link, "work", slowly)
    turn = session.start("slowly")
    turn.stop()
    time.sleep(0.2)  # the stop is on its way, and nothing can tell when it has begun
    go_on.set()
    result = turn.result(PATIENCE, raise_error=False)
    assert (result.outcome, result.text, result.told) == (Outcome.INTERRUPTED, "", None)
    assert "slowly" not in agent.prompts


def test_an_archive_that_hangs_costs_a_line_and_not_the_turn(
    archive: Archive, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.start("hello").result(PATIENCE)
    session.close()
    let_go = threading.Event()
    monkeypatch.setattr(archive, "last_turn", lambda *_: let_go.wait(PATIENCE) and None)
    monkeypatch.setattr("turncell.memory.BOUND", 0.2)
    try:
        result = session.start("hello again").result(PATIENCE)
    finally:
        let_go.set()
    assert result.text == "echo: hello again"
    assert any("the journal cannot be read" in text.lower() for text in notices(result))


def test_a_note_stays_due_until_a_prompt_with_it_was_heard(session: Session) -> None:
    turn = session.start("freeze")
    until(lambda: "three" in said(turn))
    turn.stop(now=True)
    turn.result(PATIENCE, raise_error=False)
    again = session.start("slowly")
    again.stop(now=True)  # before the agent was even started
    assert again.result(PATIENCE, raise_error=False).told is None
    told = session.start("and now").result(PATIENCE).told
    assert told is not None
    assert told.endswith("one two three ")


def test_a_new_session_goes_on_from_what_the_journal_has(
    archive: Archive, session: Session
) -> None:
    session.start("remember the heron").result(PATIENCE)
    branch = session.fork(f"{session.name}-branch")
    branch.start("and the egret").result(PATIENCE)
    session.start("a secret of the trunk").result(PATIENCE)
    text = archive.conversation(branch.session_id, 10_000)
    assert text.index("User: remember the heron") < text.index("You: echo: and the egret")
    assert "secret" not in text
    name = f"{session.name}-new"
    Finder(book()).carry(name, branch.session_id)
    result = Session(name).start("what was it?", tell=False).result(PATIENCE)
    assert text in (result.told or "")


def test_a_note_is_about_the_last_turn_whoever_ran_it(session: Session) -> None:
    turn = session.start("freeze")
    until(lambda: "three" in said(turn))
    turn.stop(now=True)
    turn.result(PATIENCE, raise_error=False)
    second = Session(f"{session.name}-too", resume=session.session_id)
    assert "three" in (second.start("and now").result(PATIENCE).told or "")
    assert session.start("and then").result(PATIENCE).told is None


def test_a_branch_and_a_resumed_session_know_of_the_stop(
    agent: ScriptedBackend, archive: Archive, session: Session
) -> None:
    turn = session.start("freeze")
    until(lambda: "three" in said(turn))
    turn.stop(now=True)
    turn.result(PATIENCE, raise_error=False)
    branch = session.fork(f"{session.name}-branch")
    for each in (branch, session):
        told = each.start("and now").result(PATIENCE).told
        assert told is not None
        assert told.endswith("you had said:\n\none two three ")
        assert each.start("and then").result(PATIENCE).told is None
    assert branch.session_id != session.session_id
    assert entry_of(archive, branch.session_id).parent == session.session_id
