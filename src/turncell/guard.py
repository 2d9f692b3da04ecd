"""Starts the guard process, tells it the tokens, and ends it when it is not needed."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from turncell import guard_process

__all__ = ["Guard"]

#: Seconds a guard gets to leave when it is told to.
_LEAVE = 2.0


class Guard:
    """The guard of this process. Used on the runtime thread only."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._tokens: list[str] = []

    @property
    def pid(self) -> int | None:
        """The pid of the guard process, None before its first token."""
        return self._process.pid if self._process else None

    def watch(self, token: str) -> None:
        """Have everything that carries `token` ended when this process dies.

        Said again with each prompt, so that a guard that died is started again.
        """
        known = token in self._tokens
        if not known:
            self._tokens.append(token)
        if self._process is None or self._process.poll() is not None:
            try:
                self._start()
            except OSError as error:  # the turn is worth more than its guard
                logging.getLogger("turncell").warning(
                    "no guard could be started (%s): if this process is killed, its agents "
                    "may go on. turncell clean --yes ends them.", error,
                )  # fmt: skip
            self._tell("".join(f"+{each}\n" for each in self._tokens))
        elif not known:
            self._tell(f"+{token}\n")

    def close(self) -> None:
        """End the guard process, which ends whatever still carries a token first."""
        process, self._process, self._tokens = self._process, None, []
        if process is None or process.stdin is None:
            return
        with suppress(OSError):
            process.stdin.write(b"quit\n")
            process.stdin.flush()
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_LEAVE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_LEAVE)

    def _start(self) -> None:
        if sys.platform == "win32":
            return  # nobody's environment can be read there
        # No environment of ours: it needs none, and would look like one of our agents.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(guard_process.__file__)), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath},
            cwd="/",
            start_new_session=True,
        )

    def _tell(self, words: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # a guard that died is started again with the next prompt
                self._process.stdin.write(words.encode())
                self._process.stdin.flush()
