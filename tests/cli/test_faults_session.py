"""Sessions, resumes and transcripts that were reported to go wrong elsewhere: docs/faults.md."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agents import GENEROUS, Agents, bash, gone, heard, said, stopped, wait_until

from turncell import Outcome, Session, Turn, TurnResult
from turncell import events as ev
from turncell.backends.claude_launch import agent_environment, find_cli
from turncell.errors import UsageError
from turncell.finder import Finder
from turncell.modelserver import HttpError, Reply, Scenario, ToolUse, Words
from turncell.procs import TOKEN
from turncell.session import book
from turncell.told import was_heard

pytestmark = [pytest.mark.cli, pytest.mark.timeout(120)]

SCRIPT = (
    Scenario("count", when="count", replies=[Reply(Words(400, pace=0.05))]),
    Scenario("priced", when="priced", replies=[
        Reply("x", input_tokens=1000, output_tokens=100)
    ]),
    Scenario("tool", when="a tool", replies=[
        Reply("I wait. ", bash("tail -f /dev/null")), Reply("Done."),
    ]),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _script(agents: Agents) -> None:
    agents.play(*SCRIPT)


_count = iter(range(10_000))


def run(session: Session, prompt: str, **options: object) -> TurnResult:
    return session.start(prompt, **options).result(GENEROUS, raise_error=False)


def new(agents: Agents, **options: Any) -> Session:
    return agents.session(f"s{next(_count)}", **options)


def found_again(agents: Agents, session: Session, **options: Any) -> Session:
    """The same conversation as another kernel would find it: by its id, knowing nothing else."""
    session.close()
    return new(agents, resume=session.session_id, **options)


def connection_of(session: Session) -> Any:
    return session._conversation.link.connection


def pid_of(session: Session) -> int:
    pid = connection_of(session).pid
    assert isinstance(pid, int)
    return pid


def transcript(agents: Agents, session_id: str) -> Path:
    (path,) = agents.home.rglob(f"{session_id}.jsonl")
    return path


def notices(result: TurnResult) -> str:
    return "\n".join(e.text for e in result.events if isinstance(e, ev.Notice))


def told(agents: Agents, prompt: str) -> tuple[str, str]:
    """What the model heard with a prompt: the note before it, and all that came before them."""
    history = agents.calls(prompt)[0].history
    last = next(m for m in reversed(history) if m["role"] == "user")
    blocks = last["content"] if isinstance(last["content"], list) else []
    texts = [b["text"] for b in blocks if b["type"] == "text"] or [last["content"]]
    assert texts[-1] == prompt  # the note is a text of its own, and the prompt is as it was
    note = texts[-2] if len(texts) > 1 and texts[-2].startswith("[A note") else ""
    return note, json.dumps(history).replace(json.dumps(note)[1:-1] or "\0", "")


# SES-G1: the agent says another id.


@pytest.mark.stops(1)
@pytest.mark.parametrize("frames", ["init", "result", "both"])
def test_ses_g1_an_id_without_a_conversation_is_not_kept(
    agents: Agents, rogue_cli: str, frames: str
) -> None:
    session = new(agents, cli=rogue_cli)
    name, ours = session.name, session.session_id
    run(session, f"{name} one")
    session.close()  # so that the next one is a resume
    assert run(session, f"{name} two [rogue {frames}-other-id]").session_id == ours
    assert session.session_id == ours
    run(session, f"{name} three")
    later = found_again(agents, session)
    assert run(later, f"{name} four").session_id == ours
    history = agents.history(f"{name} four")
    assert all(f"echo: {name} {word}" in history for word in ("one", "two", "three"))
    later.close()


def test_ses_g1_an_id_that_was_said_by_a_killed_turn_is_not_kept(
    agents: Agents, rogue_cli: str
) -> None:
    session = new(agents, cli=rogue_cli)
    before = run(session, "remember g1")
    turn = said(session.start("count [rogue init-other-id]"), "w3 ")
    os.kill(pid_of(session), signal.SIGKILL)
    assert turn.result(GENEROUS, raise_error=False).session_id == before.session_id
    assert "remember g1" in agents.goes_on(session, before)
    session.close()


def test_ses_g1_an_id_with_its_conversation_is_followed(
    agents: Agents, rogue_cli: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = new(agents, cli=rogue_cli)
    ours = session.session_id
    run(session, "first g1")
    session.close()
    monkeypatch.setenv("ROGUE_START", "forks")
    result = run(session, "second g1")
    theirs = session.session_id
    assert result.session_id == theirs != ours
    assert ours in notices(result) and theirs in notices(result)
    run(session, "third g1")
    monkeypatch.delenv("ROGUE_START")
    later = found_again(agents, session)
    assert run(later, "fourth g1").session_id == theirs
    history = agents.history("fourth g1")
    assert all(f"echo: {word} g1" in history for word in ("first", "second", "third"))
    later.close()


def test_ses_g1_a_new_id_is_claimed_and_the_old_one_is_free(agents: Agents) -> None:
    session = new(agents, expand=True)
    ours = session.session_id
    run(session, "before g1")
    run(session, "/clear")
    theirs = session.session_id
    assert theirs != ours
    turn = said(session.start("count cleared"), "w3 ")
    refused = run(new(agents, resume=theirs), "me too g1")
    assert refused.outcome is Outcome.FAILED and "is in use" in (refused.error or "")
    first = new(agents, resume=ours)
    assert run(first, "and the old g1").text == "echo: and the old g1"
    assert "echo: before g1" in agents.history("and the old g1")
    assert stopped(turn).session_id == theirs
    first.close()
    session.close()


# SES-G2: a tool call without its result.


def paired(agents: Agents, prompt: str) -> bool:
    """Whether each tool call that the model heard of is answered in the next message."""
    blocks = [
        {b["type"]: b.get("id") or b.get("tool_use_id") for b in message["content"]}
        if isinstance(message["content"], list)
        else {}
        for message in agents.calls(prompt)[0].history
        if message["role"] != "system"
    ]
    calls = [(i, found["tool_use"]) for i, found in enumerate(blocks) if "tool_use" in found]
    return bool(calls) and all(blocks[i + 1].get("tool_result") == used for i, used in calls)


def in_a_tool(agents: Agents, session: Session) -> Turn:
    turn = session.start("a tool")
    heard(turn, ev.ToolStarted)
    wait_until(lambda: agents.commands("tail -f /dev/null"))
    return turn


@pytest.mark.stops(1)
@pytest.mark.parametrize("how", ["stop", "force", "SIGTERM", "SIGKILL"])
def test_ses_g2_a_tool_call_that_was_cut_off_is_answered(agents: Agents, how: str) -> None:
    session = new(agents)
    run(session, f"hello {how}")
    turn = in_a_tool(agents, session)
    if how in ("stop", "force"):
        result = stopped(turn, now=how == "force")
    else:
        os.kill(pid_of(session), getattr(signal, how))
        result = turn.result(GENEROUS, raise_error=False)
    assert run(session, f"go on {how}").session_id == result.session_id
    later = found_again(agents, session)
    assert run(later, f"and on {how}").session_id == result.session_id
    later.close()
    assert paired(agents, f"go on {how}") and paired(agents, f"and on {how}")
    assert agents.commands("tail -f /dev/null") == []


def test_ses_g2_a_history_that_the_model_refuses_is_said_with_a_way_out(agents: Agents) -> None:
    said = "messages.2: `tool_use` ids were found without `tool_result` blocks: toolu_1"
    agents.play(Scenario("400", when="unpaired", replies=[Reply(HttpError(400, said))]), *SCRIPT)
    session = new(agents)
    run(session, "the word is quince")
    result = run(session, "unpaired")
    assert result.outcome is Outcome.FAILED
    assert "damaged" in (result.error or "") and "--carry" in (result.error or "")
    session.close()


# SES-G3: the agent's record is damaged.


def cut_line(path: Path, kind: str | None) -> None:
    """Cut it in the middle of its last line of this type, or of its last line."""
    lines = path.read_bytes().splitlines(keepends=True)
    types = [json.loads(line)["type"] for line in lines]
    last = max(i for i, each in enumerate(types) if kind in (None, each))
    path.write_bytes(b"".join(lines[:last]) + lines[last][: len(lines[last]) // 2])


def cut_newline(path: Path) -> None:
    """Cut it after its last answer, which stays whole but for the end of its line."""
    lines = path.read_bytes().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if json.loads(line)["type"] == "assistant")
    path.write_bytes(b"".join(lines[: last + 1])[:-1])


#: What is done to the file, and whether it is damage that the user is told of.
TORN: dict[str, tuple[Callable[[Path], object], bool]] = {
    "answer": (lambda path: cut_line(path, "assistant"), True),
    "prompt": (lambda path: cut_line(path, "user"), True),
    "housekeeping": (lambda path: cut_line(path, None), True),
    "newline": (cut_newline, False),
}
GONE: dict[str, Callable[[Path], object]] = {
    "garbage": lambda path: path.write_bytes(b"\xff\x00 no JSON " * 200),
    "garbage lines": lambda path: path.write_bytes(b"{broken\n[1]\n" * 200),
    "0 bytes": lambda path: path.write_bytes(b""),
    "a newline": lambda path: path.write_bytes(b"\n"),
    "deleted": lambda path: path.unlink(),
}


@pytest.mark.stops(2)
@pytest.mark.parametrize("kernel", ["the same kernel", "another kernel"])
@pytest.mark.parametrize("what", TORN)
def test_ses_g3_a_torn_record_loses_nothing(agents: Agents, what: str, kernel: str) -> None:
    damage, is_told = TORN[what]
    session = new(agents)
    name, ours = session.name, session.session_id
    run(session, f"{name} one")
    run(session, f"{name} two")
    session.close()
    damage(transcript(agents, ours))
    later = session if kernel == "the same kernel" else new(agents, resume=ours)
    result = run(later, f"{name} three")
    assert (result.text, result.session_id) == (f"echo: {name} three", ours)
    assert ("damaged" in notices(result)) is is_told
    note, history = told(agents, f"{name} three")
    lost = {"answer": {"echo"}, "prompt": {"echo", "asked"}}.get(what, set())
    assert (f"echo: {name} two" in note) is ("echo" in lost)
    assert (f"asked:\n\n{name} two" in note) is ("asked" in lost)
    assert bool(note) is bool(lost)
    assert (f"echo: {name} two" in history) is not ("echo" in lost)
    assert f"echo: {name} one" in history
    again = found_again(agents, later)
    result = run(again, f"{name} four")
    assert (result.text, result.session_id) == (f"echo: {name} four", ours)
    assert "damaged" not in notices(result)
    second, history = told(agents, f"{name} four")
    assert second == "" and all(f"{name} {word}" in history for word in ("one", "two", "three"))
    again.close()


@pytest.mark.stops(1)
@pytest.mark.parametrize("what", GONE)
def test_ses_g3_a_record_that_is_gone_is_said_and_can_be_carried_over(
    agents: Agents, what: str
) -> None:
    session = new(agents)
    name, ours = session.name, session.session_id
    run(session, f"{name} one")
    run(session, f"{name} two")
    session.close()
    GONE[what](transcript(agents, ours))
    with pytest.raises(UsageError, match=f"--carry {ours}"):
        new(agents, resume=ours)
    result = run(session, f"{name} three")
    assert result.text == f"echo: {name} three"
    assert "does not remember" in notices(result) and f"--carry {ours}" in notices(result)
    assert (session.session_id == ours) is (what == "deleted")
    assert result.session_id == session.session_id
    again = found_again(agents, session)
    result = run(again, f"{name} four")
    assert result.session_id == session.session_id and notices(result) == ""
    assert f"echo: {name} three" in told(agents, f"{name} four")[1]
    again.close()
    carried = new(agents)
    Finder(book()).carry(carried.name, ours)
    run(carried, f"{name} five")
    note, _ = told(agents, f"{name} five")
    assert all(f"{name} {word}" in note for word in ("one", "two"))
    carried.close()


def test_ses_g3_what_was_lost_twice_is_told(agents: Agents) -> None:
    """The turn whose prompt told of a lost one is killed, too, before that was written down."""
    session = new(agents)
    run(session, "hello")
    turn = said(session.start("count double"), "w3 ")
    os.kill(pid_of(session), signal.SIGKILL)
    lost = turn.result(GENEROUS, raise_error=False).text
    turn = session.start("count again")
    heard(turn, ev.SessionOpened)
    os.kill(pid_of(session), signal.SIGKILL)
    turn.result(GENEROUS, raise_error=False)
    run(session, "what was that")
    note, history = told(agents, "what was that")
    session.close()
    assert lost in note + history
    assert "count again" in note + history


def test_ses_g3_a_prompt_that_was_sent_before_is_missed_all_the_same(agents: Agents) -> None:
    session = new(agents)
    name = session.name
    for _ in range(2):
        run(session, f"{name} the same")
    session.close()
    cut_line(transcript(agents, session.session_id), "user")
    run(session, f"{name} after")
    note, _ = told(agents, f"{name} after")
    session.close()
    assert f"asked:\n\n{name} the same" in note and f"echo: {name} the same" in note


# SES-G5: two users of one session.


def test_ses_g5_two_names_of_one_session_take_turns(agents: Agents) -> None:
    first = new(agents)
    name, ours = first.name, first.session_id
    run(first, f"{name} one")
    second, pid = new(agents, resume=ours), pid_of(first)
    assert run(second, f"{name} two").text == f"echo: {name} two"  # idle, it changes hands
    assert gone(pid)
    assert run(first, f"{name} three").text == f"echo: {name} three"
    turn = said(first.start("count g5"), "w5 ")
    refused = run(second, f"{name} four")
    assert refused.outcome is Outcome.FAILED and agents.calls(f"{name} four") == []
    for words in (f"session {name} of this kernel", "--in-use wait", "--fork", "--in-use take"):
        assert words in (refused.error or "")
    waiting = second.start(f"{name} five", in_use="wait")
    heard(waiting, ev.Notice, lambda notice: "Waiting" in notice.text)
    stopped(turn)
    assert waiting.result(GENEROUS).text == f"echo: {name} five"
    _, history = told(agents, f"{name} five")
    assert all(f"echo: {name} {word}" in history for word in ("one", "two", "three"))
    assert "w5 " in history and f"{name} four" not in history
    first.close()
    second.close()


def test_ses_g5_taking_over_ends_the_other_turn_honestly(agents: Agents) -> None:
    first = new(agents)
    name, ours = first.name, first.session_id
    run(first, f"{name} one")
    turn, pid = said(first.start("count taken"), "w5 "), pid_of(first)
    second = new(agents, resume=ours)
    result = run(second, f"{name} two", in_use="take")
    assert result.text == f"echo: {name} two" and "taken over" in notices(result)
    assert gone(pid)
    ended = turn.result(GENEROUS, raise_error=False)
    assert ended.outcome in (Outcome.FAILED, Outcome.LOST) and "w5 " in ended.text
    assert f"The session was taken over: session {second.name}" in (ended.error or "")
    note, history = told(agents, f"{name} two")
    assert "interrupted from outside" in note or "cut off" in note
    assert f"echo: {name} one" in history and "w5 " in note + history
    assert run(first, f"{name} three").text == f"echo: {name} three"
    assert f"echo: {name} two" in told(agents, f"{name} three")[1]
    first.close()
    second.close()


@contextmanager
def terminal_agent(agents: Agents, session_id: str) -> Iterator[subprocess.Popen[bytes]]:
    """An agent that somebody started by hand and that has the session open."""
    words = ["--output-format", "stream-json", "--input-format", "stream-json", "--verbose"]
    env = {**agent_environment(os.environ, ""), "CLAUDE_CODE_ENTRYPOINT": "cli"}
    del env[TOKEN]
    process = subprocess.Popen(
        [find_cli(None), *words, "--resume", session_id],
        cwd=agents.cwd, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env=env,
    )  # fmt: skip
    entry = Path(os.environ["CLAUDE_CONFIG_DIR"]) / "sessions" / f"{process.pid}.json"
    try:
        wait_until(lambda: entry.exists() and session_id in entry.read_text())
        yield process
    finally:
        process.terminate()
        process.communicate()


def test_ses_g5_an_agent_in_a_terminal(agents: Agents) -> None:
    session = new(agents)
    name, ours = session.name, session.session_id
    run(session, f"{name} one")
    session.close()
    with terminal_agent(agents, ours) as other:
        for choice in ("refuse", "take"):
            refused = run(session, f"{name} two", in_use=choice)
            assert refused.outcome is Outcome.FAILED and agents.calls(f"{name} two") == []
            for words in (f"process {other.pid}", "--in-use wait", "--fork", "end that process"):
                assert words in (refused.error or "")
        branch = session.fork(f"{name}-branch")
        assert run(branch, f"{name} three").text == f"echo: {name} three"
        branch.close()
        later = new(agents, resume=ours)  # who was refused holds nothing against it
        waiting = later.start(f"{name} four", in_use="wait")
        heard(waiting, ev.Notice, lambda notice: "Waiting" in notice.text)
        assert agents.calls(f"{name} four") == []
    assert waiting.result(GENEROUS).text == f"echo: {name} four"
    assert "taken over" not in notices(waiting.result(0))
    later.close()


@pytest.mark.parametrize("left", [False, True], ids=["still open", "closed again"])
def test_ses_g5_a_turn_in_a_terminal_beside_a_warm_agent_is_not_lost(
    agents: Agents, left: bool
) -> None:
    session = new(agents)
    name, ours = session.name, session.session_id
    run(session, f"{name} one")
    with terminal_agent(agents, ours) as other:
        content = {"role": "user", "content": f"{name} two"}
        line = {"type": "user", "message": content, "parent_tool_use_id": None}
        assert other.stdin is not None
        other.stdin.write(json.dumps(line).encode() + b"\n")
        other.stdin.flush()
        wait_until(lambda: f"echo: {name} two" in transcript(agents, ours).read_text())
        if not left:
            refused = run(session, f"{name} three")
            assert f"process {other.pid}" in (refused.error or "")
            assert agents.calls(f"{name} three") == []
    run(session, f"{name} four")  # may say that somebody else went on with it
    run(session, f"{name} five")
    assert f"echo: {name} two" in told(agents, f"{name} five")[1]
    session.close()


# SES-G6: the agent is killed at any moment.

#: How often; docs/faults.md says how it went with more.
KILLS = int(os.environ.get("KILLS", "6"))


@pytest.mark.timeout(60 + 10 * KILLS)
def test_ses_g6_killed_at_any_moment_it_goes_on_and_nothing_is_lost(agents: Agents) -> None:
    long = "p{n}w{i} "
    agents.play(*SCRIPT, *(
        Scenario(f"p{n}", when=f"paragraph {n}.", replies=[
            Reply(Words(400, pace=0.02, word=long.replace("{n}", str(n)))),
        ])
        for n in range(KILLS)
    ))  # fmt: skip
    seed = random.randrange(10**6)
    dice, session = random.Random(seed), new(agents)
    ours, seen = session.session_id, [f"seed {seed}"]
    for n in range(KILLS):
        prompt, after = f"paragraph {n}.", f"after paragraph {n}"
        warm, seconds = n % 2, dice.uniform(0.0, 1.2)
        if not warm:
            session.close()
        began, turn = time.monotonic(), session.start(prompt)
        wait_until(lambda: agents.commands("_bundled/claude"))
        wait_until(lambda at=began + seconds: time.monotonic() > at)
        for process in agents.commands("_bundled/claude"):
            process.kill()
        killed = turn.result(GENEROUS, raise_error=False)
        seen.append(f"{seconds:.2f} {'warm' if warm else 'cold'} {killed.outcome} {killed.text!r}")
        result = run(session, after)
        assert (result.text, result.session_id) == (f"echo: {after}", ours), (seen, result.error)
        if was_heard(killed):
            note, history = told(agents, after)
            seen.append("note" if note else "")
            assert prompt in note + history and killed.text.strip() in note + history, seen
    logging.getLogger("faults").info("%s", "\n".join(seen))
    agents.play(*SCRIPT)
    session.close()


# SES-G7: the ids of sub-agents.


def test_ses_g7_a_sub_agents_id_is_no_session(agents: Agents) -> None:
    ask = {"description": "look", "prompt": "sub work", "subagent_type": "general-purpose"}
    agents.play(
        Scenario("delegate", when="delegate", replies=[
            Reply("I ask. ", ToolUse("Agent", {**ask, "run_in_background": False})), Reply("Ok."),
        ]),
        *SCRIPT,
    )  # fmt: skip
    session = new(agents)
    ours = session.session_id
    result = run(session, "delegate")
    assert result.session_id == session.session_id == ours
    session.close()
    (path,) = agents.home.rglob("agent-*.jsonl")
    for which in (path.stem, path.stem.removeprefix("agent-")):
        with pytest.raises(UsageError):
            new(agents, resume=which)
    with pytest.raises(UsageError, match="sub-agent"):
        new(agents, resume=path.stem)
    assert path.stem not in {entry.id for entry in book().archive.register.entries()}
    later = new(agents, resume=ours)
    assert run(later, "who was it").session_id == ours
    assert "Ok." in agents.history("who was it")
    later.close()


# SES-G8: why it did not start.


def refusing_agent(folder: Path, *lines: str) -> str:
    """An agent that writes these lines to stderr and exits with 1."""
    path = folder / "refusing"
    said = "".join(f"echo '{line}' >&2\n" for line in lines)
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo 2.1.332 && exit\n{said}exit 1\n')
    path.chmod(0o755)
    return str(path)


def test_ses_g8_why_the_agent_ended_is_in_the_error(
    agents: Agents, rogue_cli: str, tmp_path: Path
) -> None:
    session = new(agents)
    run(session, "remember g8")
    ours = session.session_id
    session.close()
    cli = refusing_agent(tmp_path, "warming up", "Error: the moon is full", "come back later")
    result = run(session, "hello g8", cli=cli)
    assert result.outcome is Outcome.FAILED and result.session_id == ours
    for words in ("exit code 1", "the moon is full", "come back later"):
        assert words in (result.error or "")
    result = run(session, "hello g8 [rogue dies-before-init]", cli=rogue_cli)
    assert result.outcome is Outcome.LOST
    assert "exit code 3" in (result.error or "") and "out of order" in (result.error or "")
    assert run(session, "which").session_id == session.session_id == ours
    assert "remember g8" in agents.history("which")
    session.close()


# What a turn cost, over all of this.


def test_the_cost_of_a_turn_is_its_own_whatever_came_before(agents: Agents) -> None:
    def priced() -> tuple[float | None, Any]:
        result = run(session, f"priced {next(_count)}")
        return result.cost_usd, result.usage

    session = new(agents)
    alone = priced()
    assert alone[0] and alone[1]
    assert priced() == alone
    session.close()
    assert priced() == alone
    for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
        turn, agent = said(session.start("count cost"), "w5 "), connection_of(session)
        os.kill(agent.pid, number)
        cut = turn.result(GENEROUS, raise_error=False)
        wait_until(lambda agent=agent: not agent.alive)
        assert cut.cost_usd != 0 and (cut.usage is None or any(cut.usage.values()))
        assert priced() == alone, number
    cut = stopped(said(session.start("count cost"), "w5 "))
    assert cut.cost_usd != 0 and (cut.usage is None or any(cut.usage.values()))
    assert priced() == alone
    branch = session.fork(f"{session.name}-branch")
    parent, session = session, branch
    assert priced() == alone
    branch.close()
    session = parent
    assert priced() == alone
    session = found_again(agents, parent)
    assert priced() == alone
    session.close()
