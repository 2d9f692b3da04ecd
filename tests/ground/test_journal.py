"""The journal of a turn: what was said comes back, whatever happened to the file."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from turncell import events as ev
from turncell.archive.claims import started
from turncell.archive.journal import Journal
from turncell.archive.journals import Journals, Logged
from turncell.outcome import Outcome, Reason, Rung, StopReceipt, Survivor, TurnResult
from turncell.transcript import OUTPUT_LIMIT, Transcript

TURN, SESSION = "11111111-aaaa", "22222222-bbbb"
HEAD = {"turn_id": TURN, "session_id": SESSION, "session": "main", "prompt": "Say it.", "at": 10.0}
EVENTS = (
    ev.ModelTold(turn_id=TURN, at=10.0, text="note"),
    ev.SessionOpened(turn_id=TURN, at=10.1, session_id=SESSION, model="m"),
    ev.ThinkingDelta(turn_id=TURN, at=10.2, text="hm", block="t"),
    *(ev.TextDelta(turn_id=TURN, at=10.3, text=word, block="b") for word in ("Hé", "llo\n", "🙂")),
    ev.ToolStarted(turn_id=TURN, at=10.5, tool_id="x", name="Bash", input={"command": "ls"}),
    ev.TextDelta(turn_id=TURN, at=10.6, text="more", block="c"),
)
RESULT = TurnResult(
    "Hé​llo", Outcome.KILLED, Reason.USER, SESSION, TURN, "main",
    cost_usd=0.5, usage={"input_tokens": 1}, duration=2.5, model_turns=1, model="m", told="note",
    receipt=StopReceipt(Reason.USER, Rung.KILL, 1.0, survivors=[Survivor(3, "x")], text_chars=4),
)  # fmt: skip


def a_journal(tmp_path: Path, events: tuple[ev.Event, ...] = EVENTS, **how: int) -> Journal:
    path = Journals(tmp_path).path(SESSION, TURN)
    journal = Journal(path, HEAD, **how)
    for event in events:
        journal.add(event)
    return journal


def read(tmp_path: Path) -> Logged:
    (path,) = Journals(tmp_path).paths()
    return Journals(tmp_path).read(path)


def text_of(events: tuple[ev.Event, ...]) -> str:
    transcript = Transcript()
    for event in events:
        transcript.fold(event)
    transcript.close(0.0)
    return transcript.text()


def events_in(data: bytes) -> tuple[ev.Event, ...]:
    """The events in the whole lines of a file."""
    lines = data[: data.rfind(b"\n") + 1].decode("utf-8", "surrogatepass").split("\n")
    return tuple(ev.from_json(json.loads(line)) for line in lines if '{"event":' in line[:9])


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    journal.close(RESULT)
    logged = read(tmp_path)
    result = logged.result()
    assert result.text == "Hé" + "llo\n🙂\n\nmore"
    assert [(tool.name, tool.status) for tool in result.tools] == [("Bash", "cancelled")]
    for name in ("outcome", "reason", "receipt", "cost_usd", "usage", "duration", "told", "model"):
        assert getattr(result, name) == getattr(RESULT, name), name
    assert (logged.turn_id, logged.outcome, logged.torn) == (TURN, "killed", False)
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o400  # nobody writes it any more


def test_deltas_that_come_together_make_one_line(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    journal.write()
    kinds = [json.loads(line).get("event") for line in journal.path.read_text().splitlines()]
    assert kinds[:3] == [None, "ModelTold", "SessionOpened"]
    assert kinds[3:] == ["ThinkingDelta", "TextDelta", "ToolStarted", "TextDelta"]


def test_a_turn_whose_kernel_is_gone_is_lost(tmp_path: Path) -> None:
    a_journal(tmp_path).write()
    result = read(tmp_path).result()
    assert (result.outcome, result.text) == (Outcome.LOST, text_of(EVENTS))
    assert result.error is not None
    assert "the kernel ended" in result.error
    assert result.duration == pytest.approx(0.6)


def test_a_turn_whose_kernel_lives_is_running(tmp_path: Path) -> None:
    me = {"pid": os.getpid(), "started": started(os.getpid())}
    Journal(Journals(tmp_path).path(SESSION, TURN), {**HEAD, **me}).write()
    logged = read(tmp_path)
    assert (logged.running, logged.outcome) == (True, "running")
    other = {**me, "started": "another boot 1"}
    assert not Logged(tmp_path, {**HEAD, **other}).running


@settings(max_examples=60, deadline=None)
@example(words=["\ud800"], seed=199)  # half a character, whose other half never came
@given(
    words=some.lists(some.text(some.characters(), max_size=30), min_size=1, max_size=8),
    seed=some.integers(0, 10**9),
)
def test_a_file_cut_anywhere_gives_a_beginning_of_the_text(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], seed: int
) -> None:
    tmp_path = tmp_path_factory.mktemp("cut")
    events = tuple(
        ev.TextDelta(turn_id=TURN, text=word, block=f"b{number % 2}")
        for number, word in enumerate(words)
    )
    journal = a_journal(tmp_path, events)
    journal.close(RESULT)
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[: seed % (len(whole) + 1)])
    logged = read(tmp_path)
    whole_lines = journal.path.read_bytes().count(b"\n")
    kept = events_in(whole[: seed % (len(whole) + 1)])
    assert logged.result().text == text_of(kept)
    assert whole_lines >= len(kept)
    assert not read(tmp_path).torn  # it was repaired
    assert journal.path.read_bytes() == whole[: len(journal.path.read_bytes())]


def test_half_a_character_does_no_harm(tmp_path: Path) -> None:
    events = (ev.TextDelta(turn_id=TURN, text="x\ud83d", block="b"),)
    a_journal(tmp_path, events).write()
    assert read(tmp_path).result().text == "x\ufffd"  # which can be printed


def test_a_damaged_line_in_the_middle_costs_that_line_alone(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    journal.close(RESULT)
    lines = journal.path.read_bytes().splitlines(keepends=True)
    lines[2] = b"\x00\xff not json\n"
    journal.path.write_bytes(b"".join(lines))
    assert read(tmp_path).result().text == text_of(EVENTS)


def test_an_event_of_a_newer_version_is_left_out(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    journal.write()
    with journal.path.open("a") as file:
        file.write('{"event": "Dance", "turn_id": ""}\n')
    assert read(tmp_path).result().text == text_of(EVENTS)


def test_what_is_over_the_limit_is_counted(tmp_path: Path) -> None:
    words = tuple(ev.TextDelta(turn_id=TURN, text="x" * 1000, block=str(n)) for n in range(50))
    journal = a_journal(tmp_path, words, limit=20_000)
    journal.close(RESULT)
    assert 30 < journal.left_out < 40
    assert journal.path.stat().st_size < 22_000
    logged = read(tmp_path)
    assert logged.left_out == journal.left_out
    assert logged.result().outcome is Outcome.KILLED


def test_a_tools_output_is_cut_and_says_so(tmp_path: Path) -> None:
    tools = (
        ev.ToolStarted(turn_id=TURN, tool_id="x", name="Bash"),
        ev.ToolEnded(turn_id=TURN, tool_id="x", status="done", output="y" * 1_000_000),
    )
    journal = a_journal(tmp_path, tools)
    journal.close(RESULT)
    assert journal.path.stat().st_size < OUTPUT_LIMIT + 5000
    assert "[cut: 1,000,000 characters in all]" in read(tmp_path).result().tools[0].output


def test_a_full_disk_is_said_and_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, room = os.write, [300]

    def full(file: int, data: bytes) -> int:
        part = bytes(data)[: room[0]]
        if not part:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room[0] -= len(part)
        return write(file, part)

    monkeypatch.setattr(os, "write", full)
    me = {"pid": os.getpid(), "started": started(os.getpid())}
    journal = Journal(Journals(tmp_path).path(SESSION, TURN), {**HEAD, **me})
    for event in EVENTS:
        journal.add(event)
    journal.write()
    assert journal.trouble == os.strerror(errno.ENOSPC)
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    assert (read(tmp_path).running, read(tmp_path).torn) == (True, False)
    journal.close(RESULT)
    logged = read(tmp_path)
    assert (logged.running, logged.outcome) == (False, "lost")  # though its kernel lives: we do
    assert "the disk was full" in (logged.result().error or "")
    room[0] = 10**6
    journal.settle()
    assert journal.trouble is None
    assert read(tmp_path).ending is not None
    assert read(tmp_path).result().text == text_of(EVENTS)


def test_a_directory_that_cannot_be_made_is_trouble_and_no_error(tmp_path: Path) -> None:
    (tmp_path / SESSION).write_text("a file in the way")
    journal = a_journal(tmp_path)
    journal.close(RESULT)
    assert journal.trouble is not None


def test_a_glance_knows_how_it_ended(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    journal.close(RESULT)
    logged = Journals(tmp_path).glance(journal.path)
    assert (logged.turn_id, logged.outcome, logged.events) == (TURN, "killed", ())


class TestPrune:
    def written(self, tmp_path: Path, count: int) -> list[Path]:
        paths = []
        for number in range(count):
            path = tmp_path / f"s{number % 2}" / f"2026010{number}T000000-turn{number}.jsonl"
            Journal(path, {**HEAD, "turn_id": f"turn{number}"}).close(RESULT)
            paths.append(path)
        return paths

    def test_what_is_old_goes(self, tmp_path: Path) -> None:
        old, new = self.written(tmp_path, 2)
        os.utime(old, (0, 0))
        assert Journals(tmp_path).prune(days=1, size=10**9) == 1
        assert (old.exists(), new.exists()) == (False, True)
        assert not old.parent.exists()

    def test_the_oldest_go_when_there_is_too_much(self, tmp_path: Path) -> None:
        paths = self.written(tmp_path, 5)
        two = sum(path.stat().st_size for path in paths[-2:])
        assert Journals(tmp_path).prune(days=1e6, size=two + 10) == 3
        assert [path.exists() for path in paths] == [False] * 3 + [True] * 2

    def test_never_one_that_is_being_written(self, tmp_path: Path) -> None:
        me = {"pid": os.getpid(), "started": started(os.getpid())}
        path = Journals(tmp_path).path(SESSION, TURN)
        Journal(path, {**HEAD, **me}).write()
        os.utime(path, (0, 0))
        assert Journals(tmp_path).prune(days=1, size=0) == 0
        assert path.exists()
