"""What each rung of a stop keeps, seen on the real agent: the table of docs/stopping.md.

The agent stands behind a proxy (`tests/cli/rogue.py`) that decides how far the stop must go. An
earlier turn has left a background shell and a process in a session of its own, and an MCP server
of the agent's runs.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / part) for part in ("", "cli", "kernel")]

from agents import GENEROUS, Agents, running_agents, said, wait_until  # noqa: E402
from test_claude_stops import SERVER  # noqa: E402

from turncell import Session  # noqa: E402
from turncell.backends.claude_launch import find_cli  # noqa: E402
from turncell.modelserver import Reply, Scenario, ToolUse, Words  # noqa: E402

ROGUE = str(HERE.parent / "tests" / "cli" / "rogue.py")
LEAVE = [
    ToolUse("Bash", {"command": "tail -f /dev/null", "run_in_background": True}),
    ToolUse("Bash", {"command": "setsid -f tail -F /dev/null"}),
]
SCRIPT = (
    Scenario("leave", when="leave", replies=[Reply("I begin. ", *LEAVE), Reply("They run.")]),
    Scenario("stream", when="stream", replies=[Reply(Words(400, pace=0.05))]),
)
#: rung -> (what the proxy is told, options of the turn, whether `--now`).
RUNGS: dict[str, tuple[str, dict[str, object], bool]] = {
    "interrupt": ("", {}, False),
    "sigint": ("[rogue never-acks] ", {"ack": 1.0}, False),
    "terminate": ("", {"strategy": "kill"}, False),
    "kill": ("", {}, True),
}


def main() -> int:
    os.environ["ROGUE_CLI"] = find_cli(None)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        running_agents(Path(name)) as agents,
    ):
        agents.play(*SCRIPT)
        rows = [row(agents, rung) for rung in RUNGS]
    heads = list(rows[0])
    print("| | " + " | ".join(f"`{rung}`" for rung in RUNGS) + " |")
    print("|---" * (len(rows) + 1) + "|")
    for head in heads:
        print(f"| {head} | " + " | ".join(r[head] for r in rows) + " |")
    return 0


def row(agents: Agents, rung: str) -> dict[str, str]:
    """One stop that ends on this rung, and what is left."""
    (agents.cwd / "server.py").write_text(SERVER)
    config = '{"mcpServers": {"clock": {"command": "%s", "args": ["%s"]}}}'
    (agents.cwd / ".mcp.json").write_text(config % (sys.executable, agents.cwd / "server.py"))
    (agents.cwd / ".claude").mkdir(exist_ok=True)
    allow = '{"enableAllProjectMcpServers": true}'
    (agents.cwd / ".claude" / "settings.json").write_text(allow)
    session = agents.session(rung, cli=ROGUE, sources=("project",))
    session.start("leave").result(GENEROUS)
    wait_until(lambda: agents.commands("server.py"))
    directive, options, now = RUNGS[rung]
    turn = said(session.start(f"{directive}stream", **options), "w9 ")
    began = time.monotonic()
    turn.stop(now=now)
    result = turn.result(GENEROUS, raise_error=False)
    took = time.monotonic() - began
    assert result.receipt is not None and str(result.receipt.rung) == rung, result.receipt
    found = facts(agents, session, result.text)
    found["seconds, from the press"] = f"{took:.2f}"
    session.close()
    for process in agents.processes():
        process.kill()
    wait_until(lambda: not agents.processes())
    return found


def facts(agents: Agents, session: Session, text: str) -> dict[str, str]:
    """What of the turn and of the agent is there after the stop."""
    servers, shells = agents.commands("server.py"), agents.commands("tail -f")
    loose = agents.commands("tail -F")
    warm = session._conversation.link.connection is not None
    after = session.start(f"go on {session.name}").result(GENEROUS)
    told = agents.history(f"go on {session.name}")
    return {
        "text in the cell and in `r.text`": yes(text.startswith("w0 w1 w2 ")),
        "text in the conversation": yes("w0 w1 w2" in told),
        "the agent's own note that it was interrupted": yes("[Request interrupted" in told),
        "the conversation": yes(after.text.startswith("echo: go on") and "leave" in told),
        "warm agent": yes(warm),
        "the agent's MCP servers": yes(bool(servers)),
        "background shells of earlier turns": yes(bool(shells)),
        "other processes that earlier turns left": yes(bool(loose)),
    }


def yes(kept: bool) -> str:
    return "yes" if kept else "no"


if __name__ == "__main__":
    sys.exit(main())
