"""A script that cannot be played is refused in one line that says where the fault is. Pure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from turncell.modelserver import Reply, Scenario, Script, ScriptError, Text, Words, load, loads


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ("{text: hi, pace: fast}", "replies[0].steps[0]: pace: must be seconds, 0 or more, not"),
        ("{text: hi, speed: 1}", "steps[0] (text): unknown key 'speed' (known here: chunk, pace)"),
        ("{words: -1}", "words: must be a whole number, 0 or more, not -1"),
        ("{words: true}", "words: must be a whole number"),
        ("{pause: .nan}", "pause: must be seconds"),
        ("{http_error: 200}", "http_error: must be a status from 400 to 599, not 200"),
        ("{http_error: 500, times: 0}", "times: must be a whole number, 1 or more, not 0"),
        ("{tool_use: Bash, input: ls}", "input: must be a mapping, not 'ls'"),
        ("{tool_use: Bash, input: {a: 2020-01-01}}", "input: must be JSON"),
        ("{stall: 3}", "stall: takes no value, not 3"),
        ("{text: a, words: 1}", "needs one of text, words"),
        ("dance", "needs one of text, words"),
        ("7", "a step is a mapping or one word, not 7"),
    ],
)  # fmt: skip
def test_bad_steps_are_named(steps: str, said: str) -> None:
    text = f"scenarios: [{{name: dancer, replies: [[{steps}]]}}]"
    with pytest.raises(ScriptError) as caught:
        loads(text, "show.yaml")
    assert str(caught.value).startswith("show.yaml: scenario 'dancer': ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("scenarios: [", "f.yaml: not YAML: "),
        ("- 1", "f.yaml: needs the key 'scenarios' with a list"),
        ("scenarios: []\nport: 1", "f.yaml: top level: unknown key 'port'"),
        ("scenarios: [7]", "f.yaml: scenarios[0]: must be a mapping, not 7"),
        ("scenarios: [{replies: [[echo]]}]", "f.yaml: scenarios[0]: name: must be a string"),
        ("scenarios: [{name: a}]", "f.yaml: scenario 'a': replies: must be a list of replies"),
        ("scenarios: [{name: a, replies: []}]", "f.yaml: scenario 'a': replies: must be one Reply"),
        ("scenarios: [{name: a, replies: [echo]}]", "replies[0]: a reply is a list of steps"),
        ("scenarios: [{name: a, replies: [{steps: 1}]}]", "replies[0]: steps: must be a list"),
        ("scenarios: [{name: a, replies: [{steps: [], input_tokens: x}]}]", "input_tokens: must"),
        ("scenarios: [{name: a, when: 3, replies: [[echo]]}]", "scenario 'a': when: must be"),
        ("scenarios: [{name: a, who: b, replies: [[echo]]}]", "scenario 'a': unknown key 'who'"),
        ("scenarios: [{name: a, replies: [[]]}, {name: a, replies: [[]]}]", "two scenarios named"),
    ],
)
def test_bad_scripts_are_named(text: str, said: str) -> None:
    with pytest.raises(ScriptError) as caught:
        loads(text, "f.yaml")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_load_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("scenarios: 1", encoding="utf-8")
    with pytest.raises(ScriptError, match="bad.yaml"):
        load(path)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Text("a", pace=-1),
        lambda: Words(1.5),  # type: ignore[arg-type]
        lambda: Reply(7),  # type: ignore[arg-type]
        lambda: Reply("a", output_tokens=-1),
        lambda: Scenario("a", replies=[]),
        lambda: Scenario("a", when=""),
        lambda: Script(Scenario("a"), Scenario("a")),
    ],
)
def test_python_values_are_checked_too(make: Callable[[], object]) -> None:
    with pytest.raises(ScriptError):
        make()
