"""What `turncell demo` prints: only what was seen, from outside the kernel."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turncell.demo.run import NOTEBOOK, Account, run_notebook, surroundings
from turncell.errors import SettingError

if TYPE_CHECKING:
    from rich.console import Console

    from turncell.modelserver import Request

__all__ = ["open_lab", "play"]

#: What `--lab` opens: a fresh copy, whatever was run before.
LIVE = "first_turn_live.ipynb"
#: The cells that are told about while they run.
_STEPS = {
    "explain": "a streamed turn",
    "count": "a turn with a shell command",
    "story": "a long turn, stopped half way",
    "after": "the same conversation, resumed",
}


def play(out: Path, console: Console) -> int:
    """Run the demo into `out` and say what happened; the exit code (0: all as promised)."""
    out.mkdir(parents=True, exist_ok=True)
    console.print("A scripted model on this machine, the real agent, a real kernel. Running …")

    def watch(cell: str) -> None:
        if cell in _STEPS:
            console.print(f"  · {_STEPS[cell]}", style="dim")

    with surroundings(out) as (server, env):
        account = run_notebook(out, env, watch)
        asked = [request for request in server.requests if request.scenario]
    shutil.rmtree(out / ".agent", ignore_errors=True)
    good = _tell(account, asked, console)
    console.print(f"\nThe executed notebook: [bold]{out / NOTEBOOK}[/bold]", highlight=False)
    return 0 if good else 1


def _tell(account: Account, asked: list[Request], console: Console) -> bool:
    from rich.table import Table

    table = Table(title="What happened", title_justify="left", show_lines=False)
    table.add_column("step")
    table.add_column("seen")
    table.add_column("", width=4)
    rows = list(_rows(account, asked))
    for step, seen, good in rows:
        table.add_row(step, seen, "ok" if good else "[red]NO[/red]")
    console.print(table)
    if account.failed is not None:
        console.print(f"[red]{account.failed}[/red]", highlight=False)
    return account.failed is None and all(good for _, _, good in rows)


def _rows(account: Account, asked: list[Request]) -> list[tuple[str, str, bool]]:
    explain, count, story, after = (
        account.records.get(cell, {}) for cell in ("explain", "count", "story", "after")
    )
    return [
        _streamed(explain, asked),
        _tool(count),
        _pressed(account, story),
        _receipt(story),
        _resumed(story, after, asked),
    ]


def _streamed(record: dict[str, Any], asked: list[Request]) -> tuple[str, str, bool]:
    deltas = sum(request.deltas for request in asked if request.scenario == "explain")
    text = f"{record.get('outcome')} in {record.get('duration', 0):.1f} s, {deltas} pieces"
    return "streamed turn", text, record.get("outcome") == "completed" and deltas > 10


def _tool(record: dict[str, Any]) -> tuple[str, str, bool]:
    tools = record.get("tools") or [{}]
    seen = f"{tools[0].get('name')} {tools[0].get('status')}: {str(tools[0].get('output')).strip()}"
    return "real shell command", seen, tools[0].get("status") == "done"


def _pressed(account: Account, record: dict[str, Any]) -> tuple[str, str, bool]:
    if account.pressed_after is None or account.over_after is None:
        return "Stop pressed", "the button was not there in time", False
    seen = account.seen_after
    answer = "no answer seen" if seen is None else f"answered in {seen * 1000:.0f} ms"
    text = (
        f"after {account.words_at_press} of 600 steps, while its cell ran: {answer}, "
        f"cell over in {account.over_after * 1000:.0f} ms"
    )
    return "Stop pressed", text, seen is not None and record.get("outcome") == "interrupted"


def _receipt(record: dict[str, Any]) -> tuple[str, str, bool]:
    receipt = record.get("receipt") or {}
    text = (
        f"rung {receipt.get('rung')}, agent {receipt.get('connection')}, "
        f"{receipt.get('text_chars')} characters kept, left running: "
        f"{len(receipt.get('survivors', [])) or 'nothing'}"
    )
    return "receipt", text, bool(receipt) and not receipt["survivors"]


def _resumed(
    story: dict[str, Any], after: dict[str, Any], asked: list[Request]
) -> tuple[str, str, bool]:
    recalls = [request for request in asked if request.scenario == "recall"]
    sent = str(recalls[-1].history) if recalls else ""
    partial = "step 10," in sent
    same = after.get("session_id") == story.get("session_id")
    text = f"{'same' if same else 'ANOTHER'} session id; the model was sent " + (
        "the partial story" if partial else "NOTHING of the story"
    )
    return "resumed", text, same and partial and after.get("outcome") == "completed"


def open_lab(out: Path, console: Console) -> int:
    """Open the quickstart notebook in JupyterLab, live, until it is closed.

    Raises SettingError when JupyterLab is not installed.
    """
    from turncell.demo.run import find_notebook

    try:
        import jupyterlab  # noqa: F401 - only whether it is there
    except ImportError:
        raise SettingError(
            "JupyterLab is not installed. Run pip install 'jupyterlab>=4.2' and try again."
        ) from None
    out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(find_notebook(), out / LIVE)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server below is ended
    port, token = _free_port(), secrets.token_hex(16)
    command = [sys.executable, "-m", "jupyter", "lab", "-y", "--ip=127.0.0.1", f"--port={port}",
               f"--IdentityProvider.token={token}", str(out / LIVE)]  # fmt: skip
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # in a container one is root, and nobody else is there
    with surroundings(out) as (server, env):
        console.print(f"The scripted model is at {server.url}. The notebook will be at")
        address = f"http://127.0.0.1:{port}/lab/tree/{LIVE}?token={token}"
        console.print(address, soft_wrap=True)
        console.print("Ctrl-C here ends all of it.")
        with subprocess.Popen(command, env=env) as lab:
            try:
                return lab.wait()
            except KeyboardInterrupt:
                return 0
            finally:
                lab.terminate()
                lab.wait(20)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
