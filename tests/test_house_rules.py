"""House rules that no linter knows."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "turncell"
FILES = sorted(SOURCE.rglob("*.py"))
#: The table of the ladder and the one method a stimulus stay in sight of each other.
LONGER = {"ladder.py": 320, "turn.py": 370, "link.py": 271}
VAGUE = re.compile(r"(Manager|Helper|Util|Utils|Handler)$")


def functions() -> Iterator[tuple[str, int]]:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert node.end_lineno is not None
                yield f"{path.name}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1


def test_files_are_short() -> None:
    lengths = {path.name: path.read_text().count("\n") for path in FILES}
    assert not {name: n for name, n in lengths.items() if n > LONGER.get(name, 270)}


def test_functions_are_short() -> None:
    lengths = dict(functions())
    assert not {name: n for name, n in lengths.items() if n > 45}
    assert statistics.median(lengths.values()) <= 9


def test_names_say_something() -> None:
    classes = [n.name for p in FILES for n in ast.walk(ast.parse(p.read_text()))
               if isinstance(n, ast.ClassDef)]  # fmt: skip
    assert not [name for name in classes if VAGUE.search(name)]


def test_nothing_is_decided_by_the_wording_of_an_error() -> None:
    assert not [path.name for path in FILES if "in str(" in path.read_text()]
