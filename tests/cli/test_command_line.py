"""The command line, in processes of its own. `turncell demo` is tested with its notebook."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from places import Place

pytestmark = pytest.mark.cli

TURNCELL = [sys.executable, "-m", "turncell.cli"]


def run(place: Place, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TURNCELL, *words], env={**place.env, **variables}, cwd=place.cwd, capture_output=True,
        text=True, timeout=60,
    )  # fmt: skip


def test_help_names_the_commands(place: Place) -> None:
    done = run(place, "--help")
    assert done.returncode == 0
    for command in ("demo", "doctor", "serve-model"):
        assert command in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "COMMAND"),
        (["dance"], 2, "dance"),
        (["serve-model", "--port", "many"], 2, "--port"),
        (["serve-model", "--script", "nowhere.yaml"], 1, "nowhere.yaml"),
        (["demo", "--out", "file/below"], 1, "file"),
        (["stop"], 1, "not there yet"),
        (["serve-model", "--port", "70000"], 2, "--port"),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, list) else "",
)
def test_words_it_cannot_use(place: Place, words: list[str], code: int, said: str) -> None:
    (place.cwd / "file").touch()
    done = run(place, *words)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 4


def test_doctor_tells_without_telling_the_secret(place: Place) -> None:
    done = run(place, "doctor", ANTHROPIC_API_KEY="sk-the-secret")
    assert done.returncode == 0, done.stderr
    assert "sk-the-secret" not in done.stdout + done.stderr
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in done.stdout.splitlines())
    assert re.match(r"\d+\.\d+\.\d+ \(Claude Code\) at /", rows["agent"])
    assert rows["credentials"] == "an API key in ANTHROPIC_API_KEY"
    assert rows["model server"] == place.server.url
    assert rows["settings directory"] == place.env["CLAUDE_CONFIG_DIR"]
    assert not Path(rows["settings directory"]).exists()  # looking makes nothing


def test_doctor_says_what_is_wrong(place: Place) -> None:
    done = run(
        place, "doctor", ANTHROPIC_API_KEY="", ANTHROPIC_BASE_URL="", TURNCELL_CLI="/nowhere/agent",
        CLAUDE_CONFIG_DIR=f"{__file__}/below",
    )  # fmt: skip
    assert "The agent binary /nowhere/agent cannot be run" in done.stdout
    assert "none found: set ANTHROPIC_API_KEY" in done.stdout
    assert "cannot keep conversations in" in done.stdout
    assert "Traceback" not in done.stderr


@contextmanager
def served(place: Place, *words: str) -> Iterator[dict[str, str]]:
    """`turncell serve-model`, ended by Ctrl-C; gives the environment that it prints."""
    with subprocess.Popen(
        [*TURNCELL, "serve-model", *words], env=place.env, cwd=place.cwd, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        printed = {}
        while "ANTHROPIC_API_KEY" not in printed or "IS_SANDBOX" not in printed:
            line = process.stdout.readline()
            assert line, process.stderr and process.stderr.read()
            if line.startswith("export "):
                name, _, value = shlex.split(line)[1].partition("=")
                printed[name] = value
        yield printed
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")


def test_serve_model_serves_another_notebook(place: Place) -> None:
    script = place.cwd / "mine.yaml"
    script.write_text("scenarios:\n- name: only\n  replies:\n  - - text: By the script.\n")
    with served(place, "--script", str(script)) as env:
        code = (
            "import turncell, asyncio\n"
            "print(asyncio.run(turncell.Session('x').run('hello')).text)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], env={**place.env, **env}, cwd=place.cwd,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.stdout == "By the script.\n", done.stderr
        with urllib.request.urlopen(env["ANTHROPIC_BASE_URL"] + "/turncell/requests") as answer:
            (request,) = json.load(answer)
        assert request["scenario"] == "only"
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(env["ANTHROPIC_BASE_URL"], timeout=5)


def test_serve_model_on_a_port_that_is_taken(place: Place) -> None:
    done = run(place, "serve-model", "--port", str(place.server.port))
    assert done.returncode == 1
    assert "in use" in done.stderr
    assert "Traceback" not in done.stderr
