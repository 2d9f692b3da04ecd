"""What the view tests stand on: a scripted turn, and a front end that counts bytes."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from turncell import events as ev
from turncell.outcome import Reason, Rung, StopReceipt
from turncell.picture import Snapshot, StopView
from turncell.transcript import Transcript
from turncell.views.notebook import NotebookView

PARENT = {"msg_id": "cell-1", "msg_type": "execute_request"}
RECEIPT = StopReceipt(Reason.USER, Rung.INTERRUPT, 5.0, 0.01, 0.04, 0.04, connection="warm")
ENDED: dict[str, Any] = {"outcome": "completed", "duration": 12.0}
STOPPED: dict[str, Any] = {
    "outcome": "interrupted",
    "reason": "user",
    "receipt": RECEIPT,
    "duration": 3.0,
}


class Script:
    """Makes snapshots as a driver does: through a real transcript, on a clock of its own."""

    def __init__(self, session: str = "main") -> None:
        self.transcript = Transcript()
        self.picture = Snapshot("turn-1", session, "starting", 100.0, 100.0)

    def at(self, phase: str = "running", after: float = 0.05, **changes: Any) -> Snapshot:
        """The picture so many seconds later."""
        now = self.picture.now + after
        self.picture = replace(self.picture, phase=phase, now=now, **changes)
        return self.transcript.paint(self.picture)

    def fold(self, *events: ev.Event) -> Snapshot:
        """Take events in, one moment later."""
        for event in events:
            self.transcript.fold(replace(event, at=self.picture.now))
        return self.at()

    def say(self, text: str, block: str = "b", step: int = 20) -> Iterator[Snapshot]:
        """Stream a text in small deltas and settle it."""
        for at in range(0, len(text), step):
            yield self.fold(ev.TextDelta(text=text[at : at + step], block=block))
        yield self.fold(ev.TextSettled(text=text, block=block))

    def end(self, **facts: Any) -> Snapshot:
        """The last picture."""
        self.transcript.close(self.picture.now)
        return self.at("ended", **{**ENDED, **facts})


def whole_turn(
    first: str = "First **part**.", second: str = "And the *end*."
) -> Iterator[Snapshot]:
    """A turn with everything in it."""
    script = Script()
    yield script.at("queued", queued_behind=2)
    yield script.at("starting")
    yield script.fold(ev.SessionOpened(session_id="0123456789abcdef", model="model-x"))
    yield script.fold(ev.ThinkingDelta(text="hm " * 50, block="t"))
    yield from script.say(first, "b1")
    yield script.fold(ev.ToolStarted(tool_id="x1", name="Bash", input={"command": "ls -l"}))
    yield script.at(after=1.45)
    yield script.fold(ev.ToolEnded(tool_id="x1", status="done", output="a file\n" * 500))
    yield script.fold(ev.Notice(text="look out", level="warning"))
    yield script.fold(ev.ApiRetry(attempt=3, limit=10, delay=1.2, status=529))
    yield from script.say("And the *end*.", "b2", step=3)
    yield script.fold(ev.ToolStarted(tool_id="x2", name="Read", input={"file_path": "/a/b.py"}))
    yield script.at("stopping", stop=StopView("interrupt", 115.0, 120.0))
    yield script.fold(ev.UsageReported(cost_usd=0.0123, usage={"input_tokens": 12}))
    yield script.end(**STOPPED)


class Socket:
    """Stands for the kernel's session, publisher and socket at once; keeps what is sent."""

    topic = b"display_data"
    pub_socket = "iopub"
    parent_header = PARENT

    def __init__(self) -> None:
        self.session = self
        self.messages: list[dict[str, Any]] = []

    def msg(self, kind: str, content: dict[str, Any], parent: Any) -> dict[str, Any]:
        """As jupyter_client's Session.msg."""
        return {"msg_type": kind, "content": content, "parent_header": parent}

    def send(self, socket: str, message: dict[str, Any], ident: bytes) -> None:
        """As Session.send: packs, so what cannot be packed fails here too."""
        assert (socket, ident) == ("iopub", b"display_data")
        packed = json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
        self.messages.append(json.loads(packed))

    @property
    def size(self) -> int:
        """Bytes so far."""
        return sum(len(json.dumps(message)) for message in self.messages)


def shell_of(socket: Socket) -> Any:
    """As much of an IPython shell in a kernel as a view needs."""
    return SimpleNamespace(display_pub=socket, kernel=object())


def on_screen(messages: Iterable[dict[str, Any]], *, deaf: bool = False) -> list[dict[str, Any]]:
    """The bundles a front end shows; a deaf one ignores update_display_data."""
    shown: dict[str, dict[str, Any]] = {}
    clear = False
    for message in messages:
        kind, content = message["msg_type"], message["content"]
        if kind == "clear_output":
            clear = True
            continue
        key = content["transient"]["display_id"]
        if kind == "update_display_data":
            if key in shown and not deaf:
                shown[key] = content["data"]
            continue
        if clear:
            shown.clear()
        clear = False
        assert key not in shown, "displayed twice"
        shown[key] = content["data"]
    return list(shown.values())


def words_of(bundle: dict[str, Any]) -> str:
    """What a bundle says, in any of its forms."""
    plain = bundle.get("text/plain")
    return str(plain) if plain is not None else re.sub("<[^>]*>", "", bundle["text/html"])


class Tty(io.StringIO):
    """A terminal, as far as anybody asks."""

    def isatty(self) -> bool:
        """Say yes."""
        return True


def noop() -> None:
    """Stands for a stop."""


def shown(pictures: Any, **how: Any) -> Socket:
    """Draw pictures in a notebook view; return what was sent."""
    socket = Socket()
    view = NotebookView(shell_of(socket), noop, **{"live": True, **how})
    view.open()
    for picture in pictures:
        view.show(picture)
    return socket


def streamed(text: str, step: int, **how: Any) -> Socket:
    """Stream a text and end; return what was sent."""
    script = Script()
    return shown([*script.say(text, step=step), script.end()], **how)
