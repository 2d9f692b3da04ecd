"""Ends agents and kernels under their turn, over and over: a new kernel must go on with all of it.

    python benchmarks/survival.py --rounds 20
    python benchmarks/survival.py --only "power cut in tool" --seed 7 --first 12 --rounds 1

The cases of `tests/kernel/test_survival.py`, each so many times: with the real agent, in one
chain of kernels (the one that has gone on is the next one to be ended). Then the journals that
this left, cut at every byte, and a disk that is full: by a limit on the size of files, and, where
one may mount, by a tmpfs. Exits with 1 when any case failed; what that one left is then kept, and
the second line above does one again, with its journal torn at the same place.
"""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / part) for part in ("", "kernel")]

import test_survival as survival  # noqa: E402 - found by the line above
from places import AgentKernel, Place  # noqa: E402

from turncell.archive.archive import Archive  # noqa: E402
from turncell.modelserver import ModelServer  # noqa: E402

#: Bytes of the small disk.
SMALL = 400_000
#: What is left of them when it is full.
ROOM = 12_000


def _sockets(folder: str, names: list[str]) -> list[str]:
    """Of these, what cannot be copied."""
    return [name for name in names if (Path(folder) / name).is_socket()]


@dataclass
class Tally:
    """How often each case went well, and what went wrong."""

    home: Path  # of what the cases leave
    good: dict[str, int] = field(default_factory=dict)
    tried: dict[str, int] = field(default_factory=dict)

    def attempt(self, name: str, case: Callable[[], object], how: str = "") -> bool:
        """Try it once; whether it went well. `how`: with what options it can be done again."""
        self.tried[name] = self.tried.get(name, 0) + 1
        began = time.monotonic()
        try:
            case()
        except (AssertionError, TimeoutError, RuntimeError, OSError, LookupError, ValueError):
            print(f"FAILED {name} {how}\n{traceback.format_exc(limit=-4)}", flush=True)
            print(f"What is left of it: {self.evidence()}", flush=True)
            return False
        self.good[name] = self.good.get(name, 0) + 1
        print(f"{time.monotonic() - began:5.1f} s  {name}", flush=True)
        return True

    def evidence(self) -> Path:
        """A copy of the archive and of what the agent wrote down."""
        kept = Path(tempfile.mkdtemp(prefix="turncell-survival-"))
        shutil.copytree(self.home, kept, dirs_exist_ok=True, ignore=_sockets, symlinks=True)
        return kept

    def table(self) -> str:
        """One row a case, as Markdown."""
        rows = [f"| {name} | {self.good.get(name, 0)} of {n} |" for name, n in self.tried.items()]
        return "\n".join(["| Case | Went on with all of it |", "|---|---|", *rows])

    @property
    def code(self) -> int:
        """0 when all went well."""
        return 0 if self.good == self.tried else 1


@dataclass
class Chain:
    """The kernel that is the next one to be ended."""

    place: Place
    kernel: AgentKernel | None = None

    def survive(self, ending: str, moment: str, dice: random.Random) -> None:
        """One case; a chain that broke begins anew with the next one."""
        kernel, self.kernel = self.kernel or AgentKernel(self.place, **survival.SHELL), None
        try:
            self.kernel = survival.survive(kernel, ending, moment, dice)
        finally:
            if self.kernel is None:
                kernel.__exit__()

    def close(self) -> None:
        """End the last one."""
        if self.kernel is not None:
            self.kernel.__exit__()
            self.kernel = None


def cut_journals(place: Place, scratch: Path) -> None:
    """Every journal of the last conversations, at every byte."""
    archive = survival.archive_of(place)
    cuts = 0
    for number, path in enumerate(archive.journals.paths()[:8]):
        cuts += survival.cut_everywhere(path, scratch / str(number))
    print(f"{cuts:,} cuts", flush=True)


def limited(place: Place) -> None:
    """The disk is full for the kernel alone: no file of it may grow over 4,000 bytes."""
    with AgentKernel(place) as kernel:
        survival.disk_full(
            kernel,
            survival.archive_of(place),
            fill=lambda: kernel.run(survival.LIMIT.format(4000)),
            make_room=lambda: kernel.run(survival.LIMIT.format("resource.RLIM_INFINITY")),
        )


def small_disk(place: Place, disk: Path) -> None:
    """A disk of its own for the archive, which something else fills up but for a few pages."""
    filler = disk / "filler"

    def fill() -> None:
        with open(filler, "wb", buffering=0) as file:
            try:
                while file.write(b"x" * 512):
                    continue
            except OSError:
                file.truncate(max(0, file.tell() - ROOM))

    state = disk / "turncell"
    with AgentKernel(place, TURNCELL_STATE=str(state)) as kernel:
        survival.disk_full(kernel, Archive(state), fill, filler.unlink)


def mounted(disk: Path) -> bool:
    """Whether a tmpfs could be mounted there."""
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(disk)]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def full_disks(tally: Tally, place: Place, rounds: int, stack: ExitStack) -> None:
    """Both kinds of it."""
    for _ in range(rounds):
        tally.attempt("disk full, by a limit", lambda: limited(place))
    disk = place.home / "disk"
    if not mounted(disk):
        print("A tmpfs cannot be mounted here: left out.")
        return
    stack.callback(subprocess.run, ["umount", "--lazy", str(disk)], check=True)
    for number in range(rounds):
        part = disk / str(number)
        part.mkdir()
        tally.attempt("disk full, a small tmpfs", lambda part=part: small_disk(place, part))
        shutil.rmtree(part)


def endings(tally: Tally, chain: Chain, only: str, seed: int, numbers: range) -> None:
    """Every case of these rounds whose name has `only` in it."""
    for number in numbers:
        for ending, moment in survival.CASES:
            name = f"{ending} in {moment}"
            if only in name:
                dice = random.Random(f"{seed} {number} {name}")
                case = partial(chain.survive, ending, moment, dice)
                tally.attempt(name, case, f"--seed {seed} --first {number}")


def main(only: str, seed: int, numbers: range) -> int:
    print(f"--seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, ExitStack() as stack:
        home = Path(name)
        (home / "work").mkdir()
        # Kernels would warn on stderr that they listen on TCP.
        config = home / "ipython" / "profile_default" / "ipython_kernel_config.py"
        config.parent.mkdir(parents=True)
        config.write_text("get_config().IPKernelApp.log_level = 40\n")
        server = stack.enter_context(ModelServer(survival.SCRIPT, home=home))
        place, tally = Place(home, server, secrets.token_hex(8)), Tally(home)
        chain = Chain(place)
        stack.callback(chain.close)
        endings(tally, chain, only, seed, numbers)
        chain.close()
        if survival.archive_of(place).journals.paths():
            tally.attempt("journals, cut at every byte", lambda: cut_journals(place, home / "torn"))
        if only in "disk full":
            full_disks(tally, place, len(numbers), stack)
        place.wait_gone()
    print(tally.table())
    return tally.code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="of each case (20)")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--seed", type=int, help="where journals are torn, as an earlier run said")
    parser.add_argument("--first", type=int, default=0, help="number of the first round (0)")
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    numbers = range(options.first, options.first + options.rounds)
    sys.exit(main(options.only, seed, numbers))
