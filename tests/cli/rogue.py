#!/usr/bin/env python3
"""An agent with bad manners: the real CLI behind a proxy that misbehaves when told to.

Named as the agent binary (`cli=`), with the real one in ROGUE_CLI. Lines pass both ways as they
are, unless a prompt has `[rogue NAME]` or `[rogue NAME NUMBER]` in it: for that turn, one of

never-acks            swallows interrupt requests; the CLI never hears them
acks-and-runs-on      answers them itself; the CLI never hears them
acks-late SECONDS     hands them on so much later
no-terminal           drops result frames
terminal-twice        writes them twice
terminal-late         drops them, and writes them after the next prompt, before its frames
terminal-again        writes them now, and again as terminal-late does
dies-before-init      on the prompt: one line on stderr, exit code 3, no frame
dies-mid-ack          on an interrupt: half an answer to it, exit code 3
dies-mid-line         on an interrupt: half a frame of the stream, exit code 3
deaf                  only SIGKILL ends it: no interrupt, SIGINT, SIGTERM or end of input does
junk                  noise before and between frames, frames with CRLF, a character cut in two
blocks SECONDS        on the first interrupt: passes nothing either way for so long
half-then-silent [N]  after N deltas of text (5): writes nothing any more
half-then-closes [N]  the same, then exit code 0
half-then-mute [N]    the same, but closes its stdout and lives on
init-other-id         its init frames name another session
result-other-id       its result frame does
both-other-id         both do: the same one

With ROGUE_START=forks a session is resumed as old CLIs did: as a copy, under an id of its own.

The file ROGUE_LOG gets a line for each prompt, interrupt, SIGINT, SIGTERM and end of input.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import suppress
from typing import Any, NoReturn

DIRECTIVE = re.compile(r"\[rogue ([a-z-]+)(?: ([\d.]+))?\]")
STRAY = (
    b'\xbb\nAttempting login...\n\n{broken\n[1]\n"x"\n{"type":"unheard_of","x":1}\n'
    b'{"type":"assistant"}\n'
)
HUGE = b'{"type":"system","subtype":"unheard_of","pad":"' + b"x" * 20_000_000 + b'"}\n'


class Rogue:
    """The proxy: `listen` passes lines in, `pass_on` passes frames out, each in its thread."""

    def __init__(self, cli: str, words: list[str]) -> None:
        self.name, self.number = "", 0.0
        self.frames = self.deltas = 0
        self.kept: list[bytes] = []
        self.cut = self.mute = False
        self.quiet_until = 0.0
        self._writing = threading.Lock()
        self._log = os.environ.get("ROGUE_LOG", os.devnull)
        self._other = str(uuid.uuid4())
        if os.environ.get("ROGUE_START") == "forks" and "--resume" in " ".join(words):
            words = [*words, "--fork-session"]
        self.child = subprocess.Popen([cli, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def note(self, word: str) -> None:
        with open(self._log, "a") as log:
            log.write(word + "\n")

    def say(self, data: bytes) -> None:
        """Write to whoever runs us; nothing when nobody reads any more."""
        rest = memoryview(data)
        with self._writing, suppress(OSError):
            while rest:
                rest = rest[os.write(1, rest) :]

    def tell(self, line: bytes) -> None:
        """Hand a line on to the real CLI; nothing when it has ended."""
        assert self.child.stdin is not None
        with suppress(OSError, ValueError):
            self.child.stdin.write(line)
            self.child.stdin.flush()

    # From the one who runs us to the CLI.

    def listen(self) -> None:
        """Pass every line in; the end of input, too."""
        for line in sys.stdin.buffer:
            sent = json.loads(line)
            if sent.get("type") == "user":
                self.prompted(line, json.dumps(sent["message"]))
            elif sent.get("request", {}).get("subtype") == "interrupt":
                self.note("interrupt")
                self.interrupted(line, str(sent["request_id"]))
            else:
                self.tell(line)
        self.note("end")
        if self.name != "deaf" and self.child.stdin is not None:
            self.child.stdin.close()

    def prompted(self, line: bytes, text: str) -> None:
        self.note("prompt")
        told = DIRECTIVE.search(text)
        self.name, self.number = (told[1], float(told[2] or 0)) if told else ("", 0.0)
        self.frames = self.deltas = 0
        self.cut = self.mute = False
        self.quiet_until = 0.0
        if self.name == "dies-before-init":
            die(3, "rogue: out of order")
        self.tell(line)

    def interrupted(self, line: bytes, request_id: str) -> None:
        answer = {"subtype": "success", "request_id": request_id, "response": {"still_queued": []}}
        ack = json.dumps({"type": "control_response", "response": answer}).encode() + b"\n"
        if self.name == "acks-and-runs-on":
            self.say(ack)
        elif self.name == "acks-late":
            threading.Timer(self.number, self.tell, [line]).start()
        elif self.name == "dies-mid-ack":
            self.say(ack[:40])
            die(3)
        elif self.name == "dies-mid-line":
            self.say(b'{"type":"stream_event","event":{"type":"content_bl')
            die(3)
        elif self.name not in ("never-acks", "deaf"):
            if self.name == "blocks" and not self.quiet_until:
                self.quiet_until = time.monotonic() + self.number
                time.sleep(self.number)
            self.tell(line)

    def signalled(self, number: int, _: Any) -> None:
        self.note(signal.Signals(number).name)
        if self.name != "deaf":
            self.child.send_signal(number)

    # From the CLI to the one who runs us.

    def pass_on(self) -> None:
        """Pass every frame out, and end when the CLI ends."""
        assert self.child.stdout is not None
        for line in self.child.stdout:
            time.sleep(max(0.0, self.quiet_until - time.monotonic()))
            self.passed(line, json.loads(line))
        code = self.child.wait()
        if self.name == "deaf":
            threading.Event().wait()
        die(code if code >= 0 else 128 - code)

    def passed(self, line: bytes, frame: dict[str, Any]) -> None:
        self.frames += 1
        if self.frames == 1 and self.kept:
            self.say(self.kept.pop())
        if self.name.startswith("half-then-"):
            self.half(line, frame)
        elif self.name == "junk":
            self.noisy(line)
        elif self.renames(frame):
            self.say(json.dumps({**frame, "session_id": self._other}).encode() + b"\n")
        elif frame.get("type") == "result":
            again = {"no-terminal": 0, "terminal-late": 0, "terminal-twice": 2}.get(self.name, 1)
            self.say(line * again)
            if self.name in ("terminal-late", "terminal-again"):
                self.kept = [line]
        else:
            self.say(line)

    def renames(self, frame: dict[str, Any]) -> bool:
        kinds = {"init": "subtype", "result": "type"}
        return any(
            self.name in (f"{kind}-other-id", "both-other-id") and frame.get(key) == kind
            for kind, key in kinds.items()
        )

    def half(self, line: bytes, frame: dict[str, Any]) -> None:
        delta = frame.get("event", {}).get("delta", {})
        self.deltas += delta.get("type") == "text_delta"
        if self.deltas <= (self.number or 5) and not self.mute:
            self.say(line)
            return
        if self.name == "half-then-closes":
            die(0)
        if self.name == "half-then-mute" and not self.mute:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        self.mute = True

    def noisy(self, line: bytes) -> None:
        if self.frames in (1, 6):
            sys.stderr.write("noise on and on\n" * 65_000)
            self.say(HUGE)
        self.say(STRAY)
        where = next((i for i, byte in enumerate(line) if byte > 127), 0)
        if where and not self.cut:
            self.cut = True
            self.say(line[: where + 1])
            time.sleep(0.1)
            line = line[where + 1 :]
        self.say(line.rstrip(b"\n") + b"\r\n")


def die(code: int, said: str = "") -> NoReturn:
    """End at once, whatever the child does."""
    if said:
        sys.stderr.write(f"{said}\n")
        sys.stderr.flush()
    os._exit(code)


def main() -> None:
    cli, words = os.environ["ROGUE_CLI"], sys.argv[1:]
    if words == ["--version"]:
        os.execv(cli, [cli, *words])
    rogue = Rogue(cli, words)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, rogue.signalled)
    out = threading.Thread(target=rogue.pass_on)
    out.start()
    rogue.listen()
    out.join()


if __name__ == "__main__":
    main()
