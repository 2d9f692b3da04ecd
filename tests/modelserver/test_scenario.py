"""Scripts: choosing, counting, refusing; Python and YAML say the same. Pure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import turncell.modelserver
from turncell.modelserver import (
    Cut,
    Echo,
    HttpError,
    Pause,
    Ping,
    Recall,
    Reply,
    Scenario,
    Script,
    Silence,
    Stall,
    Text,
    Thinking,
    ToolUse,
    Words,
    default_script,
    loads,
)
from turncell.modelserver.plan import Begin, Deltas, End, plan
from turncell.modelserver.prompt import Asked, asked, capped

TWINS = """
scenarios:
  - name: everything
    when: all of it
    model: opus
    replies:
      - steps:
          - thinking: "Let me see."
            pace: 0.01
            signature: abc
          - text: "I look. "
            chunk: 4
          - ping
          - pause: 1.5
          - tool_use: Bash
            input: {command: ls}
            chunk: 3
        input_tokens: 7
        output_tokens: 8
        stop_reason: max_tokens
      - - http_error: 529
          message: busy
          times: 2
          retry_after: 0
        - words: 3
          word: "{i} "
        - stall
  - name: rest
    replies: [[echo, cut], [silence], [{echo: null, chunk: 2}]]
"""


def user(*blocks: str | dict[str, object]) -> dict[str, object]:
    made = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
    return {"role": "user", "content": made}


RESULT: dict[str, object] = {"type": "tool_result", "tool_use_id": "t", "content": "out"}
REMINDER = "<system-reminder>\nhello\n</system-reminder>\n"
ANSWER = {"role": "assistant", "content": [{"type": "text", "text": "yes"}]}


def test_yaml_and_python_are_twins() -> None:
    first = Reply(
        Thinking("Let me see.", pace=0.01, signature="abc"),
        Text("I look. ", chunk=4),
        Ping(),
        Pause(1.5),
        ToolUse("Bash", {"command": "ls"}, chunk=3),
        input_tokens=7,
        output_tokens=8,
        stop_reason="max_tokens",
    )
    second = Reply(HttpError(529, "busy", times=2, retry_after=0), Words(3, word="{i} "), Stall())
    rest = [Reply(Echo(), Cut()), Reply(Silence()), Reply(Echo(chunk=2))]
    script = Script(
        Scenario("everything", when="all of it", replies=[first, second], model="opus"),
        Scenario("rest", replies=rest),
    )
    assert loads(TWINS) == script


def test_the_documentation_says_the_same_twice() -> None:
    page = Path(__file__).parents[2] / "docs" / "model-server.md"
    text = page.read_text(encoding="utf-8")
    (as_yaml,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (as_python,) = re.findall(r"```python\n(Script\(.*?)```", text, re.DOTALL)
    assert eval(as_python, vars(turncell.modelserver)) == loads(as_yaml)


def test_the_first_fitting_when_wins_before_the_first_without() -> None:
    script = Script(Scenario("any"), Scenario("a", when="Red"), Scenario("b", when="red fox"))
    assert script.find("the RED fox").name == "a"
    assert script.find("blue").name == "any"


def test_model_narrows_a_scenario() -> None:
    script = Script(Scenario("small", model="Haiku"), Scenario("any"))
    assert script.find("x", "claude-haiku-9").name == "small"
    assert script.find("x", "claude-opus-9").name == "any"


def test_an_empty_script_echoes() -> None:
    assert Script().find("anything").replies == (Reply(Echo()),)


def test_the_last_reply_repeats() -> None:
    scenario = Scenario("s", replies=[Reply("one"), Reply("two")])
    assert [scenario.reply(n).steps[0] for n in range(4)] == [
        Text("one"), Text("two"), Text("two"), Text("two"),
    ]  # fmt: skip


def test_stop_reason_follows_the_steps() -> None:
    assert Reply("hi").reason == "end_turn"
    assert Reply("hi", ToolUse("Bash")).reason == "tool_use"
    assert Reply("hi", stop_reason="max_tokens").reason == "max_tokens"


def test_pieces() -> None:
    assert list(Text("  a bc\nd ").pieces()) == ["  ", "a ", "bc\n", "d "]
    assert list(Text("abcde", chunk=2).pieces()) == ["ab", "cd", "e"]
    assert list(Words(2).pieces()) == ["w0 ", "w1 "]
    assert list(Words(2, word="x").pieces()) == ["x", "x"]
    assert list(Words(0).pieces()) == []
    assert "".join(ToolUse("T", {"a": "ü"}, chunk=3).pieces()) == '{"a": "\\u00fc"}'


def test_blocks_join_over_pauses_and_stay_open_before_a_stall() -> None:
    moves = list(plan([Text("a"), Pause(1), Words(1), Thinking("t"), Stall(), ToolUse("T")], ""))
    kinds = [type(move) for move in moves]
    assert kinds == [
        Begin,
        Deltas,
        Pause,
        Deltas,
        End,
        Begin,
        Deltas,
        Stall,
        End,
        Begin,
        Deltas,
        End,
    ]
    assert [move.index for move in moves if isinstance(move, Begin)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([user("hi")], Asked("hi", 0)),
        ([{"role": "user", "content": "hi"}], Asked("hi", 0)),
        ([user("hi"), ANSWER, user(RESULT)], Asked("hi", 1)),
        ([user("hi"), ANSWER, user(RESULT, RESULT), ANSWER, user(RESULT)], Asked("hi", 2)),
        ([user("hi"), ANSWER, user(RESULT), user(RESULT)], Asked("hi", 1)),
        ([user("one"), ANSWER, user("two")], Asked("two", 0)),
        ([user("stopped", "[Request interrupted by user]", "next")], Asked("next", 0)),
        ([user("hi", REMINDER)], Asked("hi", 0)),
        ([user("hi"), ANSWER, user(RESULT, REMINDER)], Asked("hi", 1)),
        ([user("hi"), {"role": "system", "content": "environment"}], Asked("hi", 0)),
        ([user("hi"), ANSWER, user(RESULT, "and also")], Asked("and also", 0)),
        ([user({"type": "image"}), {"role": "user", "content": None}], Asked("", 0)),
        ([], Asked("", 0)),
    ],
)  # fmt: skip
def test_the_prompt_and_its_round(messages: list[dict[str, object]], expected: Asked) -> None:
    found = asked(messages)
    assert (found.prompt, found.round) == (expected.prompt, expected.round)


def test_recall_says_what_the_request_remembers() -> None:
    def said(*messages: dict[str, object]) -> str:
        found = asked(messages)
        moves = plan([Recall()], found.prompt, found.remembered)
        return "".join(piece for m in moves if isinstance(m, Deltas) for piece in m.pieces)

    stopped = {"role": "assistant", "content": [{"type": "text", "text": "w1 w2 w3"}]}
    filler = {"role": "assistant", "content": [{"type": "text", "text": "No response requested."}]}
    resumed = said(user("tell"), stopped, filler, user("go on"))
    assert resumed == "My last words to you were “…w1 w2 w3”."
    assert said(user("go on")) == "This is the first thing I hear in this conversation."


def test_long_strings_are_capped_and_say_so() -> None:
    value = {"a": ["xxxxx", 7], "b": "xx"}
    assert capped(value, 2) == {"a": ["xx... [3 more characters]", 7], "b": "xx"}


def test_the_default_script_has_its_scenarios() -> None:
    script = default_script()
    names = [
        script.find(p).name for p in ("Hello!", "please explain", "run a command", "count", "?")
    ]
    assert names == ["greeting", "explanation", "tool", "slow", "anything else"]
