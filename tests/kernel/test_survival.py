"""What outlives the end of an agent, of a kernel, of the power, and a disk that is full.

A conversation in one kernel is cut off; a new kernel resumes it, and the model must know all that
had been on screen. `benchmarks/survival.py` does each of these many times.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from driver import Cell
from places import AgentKernel, Place

from turncell import events as ev
from turncell.archive.archive import Archive
from turncell.archive.journal import Journal
from turncell.archive.journals import NO_ROOM, Journals, Logged
from turncell.modelserver import Echo, Reply, Request, Scenario, Script, ToolUse, Words
from turncell.outcome import Outcome, TurnResult

NewKernel = Callable[..., AgentKernel]

SCRIPT = Script(
    Scenario("stream", when="count the", replies=[Reply(Words(1000, pace=0.01))]),
    Scenario("tool", when="use", replies=[
        Reply("Now I look. ", ToolUse("Bash", {"command": "tail -f /dev/null"})),
    ]),
    Scenario("long", when="at length", replies=[Reply(Words(3000))]),
    Scenario("rest", replies=[Reply(Echo())]),
)  # fmt: skip
#: moment -> the prompt that is cut off then.
PROMPTS = {"stream": "count the words", "tool": "use your shell"}
NOTE = "[A note from turncell"
#: So that the turns of one conversation ask for the same agent.
SHELL = {"TURNCELL_TOOLS": "Bash"}


def archive_of(place: Place) -> Archive:
    """What the kernels of a place have written down."""
    return Archive(place.home / "state" / "turncell")


# The endings: each ends the turn that runs in a cell.


def press(kernel: AgentKernel, cell: Cell) -> None:
    kernel.click(kernel.button("Stop"))
    kernel.wait(cell, 40)


def interrupt(kernel: AgentKernel, cell: Cell) -> None:
    kernel.interrupt()
    kernel.wait(cell, 40)


def to_the_agent(number: signal.Signals) -> Callable[[AgentKernel, Cell], None]:
    def send(kernel: AgentKernel, cell: Cell) -> None:
        # The agent of an earlier conversation may be on its way out.
        kernel.wait_for(lambda: len(kernel.agents) == 1, 15, "the one agent")
        (agent,) = kernel.agents
        agent.send_signal(number)
        kernel.wait(cell, 40)

    return send


def kill_the_kernel(kernel: AgentKernel, cell: Cell) -> None:
    os.kill(kernel.pid, signal.SIGKILL)
    kernel.listen(0.2)  # what it had sent is on screen, too


ENDINGS: dict[str, Callable[[AgentKernel, Cell], None]] = {
    "stop button": press,
    "kernel interrupt": interrupt,
    "SIGINT": to_the_agent(signal.SIGINT),
    "SIGTERM": to_the_agent(signal.SIGTERM),
    "SIGKILL": to_the_agent(signal.SIGKILL),
    "kernel SIGKILL": kill_the_kernel,
    "power cut": kill_the_kernel,  # and the journal is torn
}
CASES = [(ending, moment) for ending in ENDINGS for moment in PROMPTS]


@dataclass(frozen=True)
class Cut:
    """A conversation whose last turn was cut off, and what a person had seen of that."""

    session_id: str
    prompt: str
    shown: str
    text: str | None = None  # of the result, where the kernel lived to have one
    outcome: str = "lost"


def cut_off(kernel: AgentKernel, ending: str, moment: str, dice: random.Random) -> Cut:
    """A new conversation: a whole turn, and one that is ended so; the kernel ends as well."""
    kernel.server.script = SCRIPT
    kernel.run("%agent new")
    whole = kernel.run("%%agent -o r\nremember alpha", 60)
    assert whole.status == "ok", whole.error
    cell = kernel.start(f"%%agent -o r\n{PROMPTS[moment]}")
    kernel.wait_for(lambda: cell.done or reached(kernel, cell, moment), 30, moment)
    assert not cell.done, cell.error or cell.text
    cut = Cut(str(archive_of(kernel.place).register.entries()[0].id), PROMPTS[moment], "")
    ENDINGS[ending](kernel, cell)
    text, outcome = kernel.value("[r.text, str(r.outcome)]") if cell.done else (None, "lost")
    shown = said_on_screen(cell, moment)
    kernel.__exit__()
    if ending == "power cut":
        shown = tear(archive_of(kernel.place).journals.paths(cut.session_id)[0], dice)
    return replace(cut, shown=shown, text=text, outcome=outcome)


def reached(kernel: AgentKernel, cell: Cell, moment: str) -> bool:
    if moment == "tool":
        return bool(kernel.place.named("tail")) and "Now I look." in cell.text
    return "w9 " in cell.text


def said_on_screen(cell: Cell, moment: str) -> str:
    """What the agent had said, as the cell shows it."""
    if moment == "tool":
        return "Now I look."
    words = cell.text[cell.text.index("w0 ") :].split()
    count = next((n for n, word in enumerate(words) if word != f"w{n}"), len(words))
    assert count >= 10, cell.text
    return " ".join(words[:count])


def tear(path: Path, dice: random.Random) -> str:
    """Cut a journal somewhere in its last record; the text that the others have."""
    data = path.read_bytes()
    whole, last = records(data)
    os.truncate(path, len(whole) + dice.randrange(len(last)))
    return "".join(deltas(whole)).strip()


def deltas(whole: bytes) -> list[str]:
    """What was said, as these records have it."""
    lines = [json.loads(line) for line in whole.splitlines()]
    return [line["text"] for line in lines if line.get("event") == "TextDelta"]


def records(data: bytes) -> tuple[bytes, bytes]:
    """All records of a journal but the last, and that one."""
    place = data.rindex(b"\n", 0, -1) + 1
    return data[:place], data[place:]


def resumed(new: AgentKernel, cut: Cut) -> None:
    """A new kernel goes on with all of it."""
    assert new.run("%agent resume").status == "ok"
    journaled = archive_of(new.place).journals.last(cut.session_id)
    assert journaled is not None
    assert journaled.result().text.startswith(cut.shown)
    assert journaled.outcome == cut.outcome
    assert cut.text is None or cut.text.startswith(cut.shown)
    assert new.run("%agent show").text.startswith(cut.shown)
    cell = new.run("%%agent -o r\nand on", 60)
    assert cell.status == "ok", cell.error
    assert new.value("[r.text, r.session_id]") == ["echo: and on", cut.session_id]
    knows(new.server.wait_for(lambda request: request.prompt == "and on"), cut)


def knows(request: Request, cut: Cut) -> None:
    """The model has the conversation, by its own record or by the note before the prompt."""
    user, assistant = said_by(request, "user"), said_by(request, "assistant")
    notes = [text for text in user if text.startswith(NOTE)]
    assert "remember alpha" in user
    assert "echo: remember alpha" in assistant
    assert cut.prompt in user or any(cut.prompt in note for note in notes)
    assert any(cut.shown in text for text in [*assistant, *notes]), (cut.shown, notes)
    last = [block["text"] for block in request.history[-1]["content"]]
    assert last[-1] == "and on"
    assert all(note in last[:-1] for note in notes)


def said_by(request: Request, role: str) -> list[str]:
    """The texts that the request has of one side."""
    contents = [message["content"] for message in request.history if message["role"] == role]
    whole = [content for content in contents if isinstance(content, str)]
    blocks = [block for content in contents if not isinstance(content, str) for block in content]
    return whole + [block["text"] for block in blocks if block["type"] == "text"]


def survive(kernel: AgentKernel, ending: str, moment: str, dice: random.Random) -> AgentKernel:
    """One whole case, begun in this kernel; returns the new one, where it goes on. `dice` say
    where a journal is torn."""
    kernel.server.reset()
    cut = cut_off(kernel, ending, moment, dice)
    new = AgentKernel(kernel.place, **SHELL)
    try:
        resumed(new, cut)
    except BaseException:
        new.__exit__()
        raise
    return new


@pytest.mark.kernel
@pytest.mark.cli
@pytest.mark.stops(2)
@pytest.mark.parametrize(("ending", "moment"), CASES, ids=[" in ".join(case) for case in CASES])
def test_a_new_kernel_goes_on_with_all_of_it(
    new_kernel: NewKernel, ending: str, moment: str
) -> None:
    dice = random.Random(f"{ending} in {moment}")
    survive(new_kernel(**SHELL), ending, moment, dice).__exit__()


# The power cut, at every byte.

TEXT = ["Zuerst ", "ein wenig: ", "\N{GRINNING FACE} und ", "\N{LATIN SMALL LETTER E WITH ACUTE}."]


def a_journal(directory: Path) -> Path:
    """The journal of a turn that is over; its kernel lives no more."""
    head = {"turn_id": "t1", "session_id": "s1", "session": "main", "pid": 0, "started": "",
            "prompt": "remember alpha", "at": 1.0}  # fmt: skip
    journal = Journal(Journals(directory).path("s1", "t1"), head)
    events: list[ev.Event] = [
        ev.SessionOpened(turn_id="t1", at=1.1, session_id="s1"),
        *(ev.TextDelta(turn_id="t1", at=2.0 + n, text=text, block=f"b{n // 2}")
          for n, text in enumerate(TEXT)),
        ev.ToolStarted(turn_id="t1", at=7.0, tool_id="b", name="Bash", input={"command": "ls"}),
    ]  # fmt: skip
    for event in events:
        journal.add(event)
        journal.write()
    journal.close(TurnResult("", Outcome.COMPLETED, None, "s1", "t1"))
    return journal.path


def test_a_journal_that_is_cut_at_any_byte_keeps_every_whole_record(tmp_path: Path) -> None:
    cut_everywhere(a_journal(tmp_path), tmp_path / "torn")


def cut_everywhere(path: Path, scratch: Path) -> int:
    """Cut a copy of this journal at each of its bytes; each time only the torn record may be
    missing, and the file is mended. Returns how many cuts that were."""
    data, journals = path.read_bytes(), Journals(scratch)
    torn = journals.path("s", "t")
    torn.parent.mkdir(parents=True)
    for length in range(len(data)):
        whole = data[: data.rfind(b"\n", 0, length) + 1]
        torn.unlink(missing_ok=True)  # the one that was mended is read-only
        torn.write_bytes(data[:length])
        first, glance = journals.read(torn), journals.glance(torn)
        assert torn.read_bytes() == whole
        assert first.torn == (len(whole) < length)
        again = journals.read(torn)
        assert (first.head, first.events, again.torn) == (again.head, again.events, False)
        assert (glance.head, glance.ending) == (first.head, None)
        same_as_lines(again, whole)
    return len(data)


def same_as_lines(logged: Logged, whole: bytes) -> None:
    """What was read is what these whole lines say."""
    lines = [json.loads(line) for line in whole.splitlines()]
    assert [ev.to_json(event)["event"] for event in logged.events] == [
        line["event"] for line in lines[1:]
    ]
    result = logged.result()
    assert result.text.replace("\n\n", "") == "".join(deltas(whole))
    assert result.outcome is Outcome.LOST
    assert logged.outcome == "lost"


# A full disk.

LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({}, resource.RLIM_INFINITY))"
LONG = "".join(f"w{n} " for n in range(3000))
WARNING = "The journal cannot be written"


@pytest.mark.kernel
@pytest.mark.cli
def test_a_full_disk_costs_the_journal_alone(new_kernel: NewKernel) -> None:
    kernel = new_kernel()
    # For the kernel alone, the agent has been started: small files fit, the journal does not.
    disk_full(
        kernel,
        archive_of(kernel.place),
        fill=lambda: kernel.run(LIMIT.format(4000)),
        make_room=lambda: kernel.run(LIMIT.format("resource.RLIM_INFINITY")),
    )


def disk_full(
    kernel: AgentKernel, archive: Archive, fill: Callable[[], Any], make_room: Callable[[], Any]
) -> None:
    """Turns while the disk is full and after that, when the journal is completed."""
    kernel.server.script = SCRIPT
    assert kernel.run("%%agent -o r\nremember alpha", 60).status == "ok"
    session_id = kernel.value("r.session_id")
    fill()
    cell = kernel.run("%%agent -o full\ncount at length", 60)
    assert cell.status == "ok", cell.error
    assert WARNING in cell.text
    assert cell.text.startswith(LONG.strip())
    assert kernel.value("full.text").strip() == LONG.strip()
    cut_short(archive, session_id)
    after = kernel.run("%%agent -o r\nstill full", 30)
    assert after.status == "ok", after.error
    assert kernel.value("r.text") == "echo: still full"
    make_room()
    last = kernel.run("%%agent -o r\nand on", 30)
    assert last.status == "ok"
    assert WARNING not in last.text
    said = ["echo: and on", "echo: still full", LONG, "echo: remember alpha"]
    logged = [archive.journals.read(path) for path in archive.journals.paths(session_id)]
    assert [turn.result().text for turn in logged] == said
    assert {turn.outcome for turn in logged} == {"completed"}
    assert "running" not in kernel.run("%agent log --all").text


def cut_short(archive: Archive, session_id: str) -> None:
    """What another kernel sees of the turn that the full disk did not take, while its own lives."""
    last = archive.last_turn(session_id)
    assert last is not None
    prompt, result = last
    assert (prompt, result.outcome, result.error) == ("count at length", Outcome.LOST, NO_ROOM)
    assert LONG.startswith(result.text)
    assert result.text != LONG
