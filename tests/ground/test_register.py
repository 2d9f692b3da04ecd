"""The register of sessions: found again by what a person says, and never lost as a whole."""

from __future__ import annotations

import json
import os
import stat
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from turncell.archive import files
from turncell.archive.notebook import notebook_of
from turncell.archive.register import Entry, Register
from turncell.errors import UsageError

HERE, THERE = "/work/here.ipynb", "/work/there.ipynb"


def an_id(begin: str) -> str:
    return begin + str(uuid.uuid4())[len(begin) :]


@pytest.fixture
def register(tmp_path: Path) -> Register:
    return Register(tmp_path / "sessions")


def enter(register: Register, name: str, notebook: str = HERE, begin: str = "") -> Entry:
    return register.update(
        an_id(begin), name=name, notebook=notebook, last_used=files.moment(), opened=True
    )


def test_an_entry_is_one_private_file_that_a_person_can_read(
    register: Register, tmp_path: Path
) -> None:
    entry = enter(register, "main")
    (path,) = (tmp_path / "sessions").glob("*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert json.loads(path.read_text())["name"] == "main"
    assert path.read_text().count("\n") > 5
    assert register.get(entry.id) == entry


def test_a_change_leaves_the_rest_as_it_was(register: Register) -> None:
    entry = enter(register, "main")
    changed = register.update(entry.id, left="killed", turns=4)
    assert (changed.name, changed.created, changed.turns) == ("main", entry.created, 4)
    assert register.get(entry.id) == changed


def test_they_are_listed_the_newest_first(register: Register) -> None:
    made = [enter(register, f"s{n}") for n in range(4)]
    register.update(made[1].id, last_used=files.moment())
    assert [entry.name for entry in register.entries()] == ["s1", "s3", "s2", "s0"]


def test_a_register_that_is_not_there_is_empty(register: Register) -> None:
    assert register.entries() == []
    assert register.get(an_id("")) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"id": 3, "name": "x"}', '{"name": "x"}', '{"id": "x", "turns": "y"}']
)
def test_a_damaged_entry_is_set_aside_and_takes_no_other_along(
    register: Register, tmp_path: Path, text: str
) -> None:
    good = enter(register, "good")
    bad = tmp_path / "sessions" / f"{an_id('bad')}.json"
    bad.write_text(text)
    assert register.entries() == [good]
    (message,) = register.take_messages()
    assert bad.stem in message
    assert "%agent resume" in message
    assert (tmp_path / "sessions" / "set-aside" / bad.name).read_text() == text
    assert register.take_messages() == []
    assert register.entries() == [good]


def test_fields_of_a_newer_version_are_ignored(register: Register, tmp_path: Path) -> None:
    entry = enter(register, "main")
    path = tmp_path / "sessions" / f"{entry.id}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "mood": "good"}))
    assert register.get(entry.id) == entry


def test_a_write_that_fails_leaves_the_old_entry(
    register: Register, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = enter(register, "main")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        register.update(entry.id, turns=9)
    assert register.get(entry.id) == entry
    left = {path.name for path in (tmp_path / "sessions").iterdir()}
    assert left == {f"{entry.id}.json", ".lock"}  # no draft


def test_many_writers_lose_no_change(register: Register) -> None:
    entry = enter(register, "main")

    def change(number: int) -> None:
        register.update(entry.id if number % 2 else an_id(""), name=f"n{number}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(change, range(40)))
    assert len(register.entries()) == 21
    assert register.take_messages() == []


class TestFind:
    def test_by_id_name_and_beginning(self, register: Register) -> None:
        entry, _ = enter(register, "main", begin="abcdef0"), enter(register, "other", begin="0123")
        for which in (entry.id, entry.id.upper(), "main", entry.id[:6], entry.id[:20]):
            assert register.find(which, HERE) == entry

    def test_a_name_means_this_notebooks_newest(self, register: Register) -> None:
        enter(register, "main")
        mine = enter(register, "main")
        enter(register, "main", THERE)
        assert register.find("main", HERE) == mine

    def test_a_name_of_one_other_notebook_is_found(self, register: Register) -> None:
        theirs = enter(register, "plots", THERE)
        assert register.find("plots", HERE) == theirs

    def test_a_name_of_two_other_notebooks_is_ambiguous(self, register: Register) -> None:
        one, two = enter(register, "plots", "/a.ipynb"), enter(register, "plots", "/b.ipynb")
        with pytest.raises(UsageError) as error:
            register.find("plots", HERE)
        assert one.id[:8] in str(error.value)
        assert two.id[:8] in str(error.value)
        assert "of a.ipynb" in str(error.value)

    def test_a_beginning_that_two_have_is_ambiguous(self, register: Register) -> None:
        enter(register, "a", begin="abcdef1"), enter(register, "b", begin="abcdef2")
        with pytest.raises(UsageError, match="means 2 sessions"):
            register.find("abcdef", HERE)

    def test_five_characters_are_too_few(self, register: Register) -> None:
        enter(register, "main", begin="abcdef1")
        with pytest.raises(UsageError, match="There is no session abcde"):
            register.find("abcde", HERE)

    def test_a_whole_id_that_nobody_knows_is_left_to_the_agent(self, register: Register) -> None:
        assert register.find(str(uuid.uuid4()), HERE) is None

    def test_the_nearest_are_named(self, register: Register) -> None:
        for name in ("analysis", "plots", "cleaning", "x", "y"):
            enter(register, name)
        with pytest.raises(UsageError, match="There is no session analisys") as error:
            register.find("analisys", HERE)
        assert str(error.value).index("analysis (") < 80

    def test_there_is_nothing_near_in_an_empty_register(self, register: Register) -> None:
        with pytest.raises(UsageError, match="No session was used yet"):
            register.find("main", HERE)

    def test_a_sub_agents_id_is_no_session(self, register: Register) -> None:
        with pytest.raises(UsageError, match="sub-agent"):
            register.find("agent-a1b2c3", HERE)


def test_where_it_is_kept(tmp_path: Path) -> None:
    assert files.state_directory({"TURNCELL_STATE": str(tmp_path)}) == tmp_path
    assert files.state_directory({"TURNCELL_STATE": "~/x"}) == Path("~/x").expanduser()
    assert files.state_directory({}).name == "turncell"


@pytest.mark.parametrize(
    ("environ", "variables", "expected"),
    [
        ({"JPY_SESSION_NAME": "/n/a.ipynb"}, {}, "/n/a.ipynb"),
        ({"JPY_SESSION_NAME": "a.ipynb"}, {}, "/cwd/a.ipynb"),
        ({}, {"__vsc_ipynb_file__": "/v/b.ipynb"}, "/v/b.ipynb"),
        ({"JPY_SESSION_NAME": ""}, {}, "/cwd"),
        ({}, {}, "/cwd"),
    ],
)
def test_which_notebook_this_is(
    environ: dict[str, str], variables: dict[str, str], expected: str
) -> None:
    assert notebook_of(environ, variables, "/cwd") == expected
