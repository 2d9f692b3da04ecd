"""CI must not be green because the real tests were skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
INI = "[pytest]\ntestpaths = .\nmarkers =\n    kernel\n    cli\n    browser\n"
ALL = (
    "import pytest\n@pytest.mark.kernel\n@pytest.mark.cli\n@pytest.mark.browser\ndef test(): pass\n"
)
SKIPPED = "import pytest\n@pytest.mark.browser\ndef test(): pytest.skip('no browser')\n"
MODULE = "import pytest\npytest.skip('no browser', allow_module_level=True)\n"
OTHER = "import pytest\ndef test(): pytest.skip('not on this system')\n"


def outcome(folder: Path, test: str, *words: str, ci: str = "true") -> tuple[int, str]:
    """Exit code and output of a run over `test` alone, with our conftest."""
    (folder / "pytest.ini").write_text(INI)
    (folder / "test_all.py").write_text(ALL)
    (folder / "test_it.py").write_text(test)
    paths = os.pathsep.join(map(str, [TESTS, TESTS / "kernel", TESTS.parent / "src"]))
    env = {"CI": ci, "PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", *words],
        cwd=folder, env={**os.environ, **env}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.parametrize("test", [SKIPPED, MODULE], ids=["test", "module"])
def test_a_skipped_browser_test_fails_the_run(tmp_path: Path, test: str) -> None:
    code, said = outcome(tmp_path, test)
    assert code == 1
    assert "CI refuses this run: skipped test_it.py" in said
    assert outcome(tmp_path, test, ci="")[0] == 0  # at home, that is all right


def test_other_skipped_tests_do_not(tmp_path: Path) -> None:
    assert outcome(tmp_path, OTHER)[0] == 0


def test_a_full_run_needs_all_kinds(tmp_path: Path) -> None:
    nothing = "def test(): pass\n"
    assert outcome(tmp_path, nothing)[0] == 0
    code, said = outcome(tmp_path, nothing, "--ignore=test_all.py")
    assert code == 1
    assert "CI refuses this run: no browser test was run" in said
    assert outcome(tmp_path, nothing, "test_it.py")[0] == 0  # a part was asked for by name
