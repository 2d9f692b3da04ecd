"""The command line: `turncell demo`, `doctor`, `serve-model`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from turncell.errors import TurncellError

__all__ = ["main"]


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (0 good, 1 the command failed, 2 bad words)."""
    options = _parser().parse_args(words)
    try:
        return int(options.run(options))
    except (TurncellError, ValueError, OSError) as error:
        sys.stderr.write(f"turncell: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="turncell", description="Run an AI agent from a notebook, and stop it for real."
    )
    version = f"turncell {metadata.version('turncell')}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="the main job with no account and no network")
    demo.add_argument("--lab", action="store_true", help="open it in JupyterLab instead, live")
    demo.add_argument(
        "--out", type=Path, default=Path("turncell-demo"), metavar="DIR",
        help="where the executed notebook goes (default: turncell-demo)",
    )  # fmt: skip
    demo.set_defaults(run=_demo)
    doctor = commands.add_parser("doctor", help="versions, agent, credentials source")
    doctor.set_defaults(run=_doctor)
    serve = commands.add_parser("serve-model", help="only the scripted model server")
    serve.add_argument("--port", type=_port, default=0, metavar="N", help="default: a free one")
    serve.add_argument("--script", type=Path, metavar="FILE", help="a YAML script to play")
    serve.set_defaults(run=_serve_model)
    clean = commands.add_parser("clean", help="find processes that dead kernels left behind")
    clean.add_argument("--yes", action="store_true", help="end them")
    clean.set_defaults(run=_clean)
    stop = commands.add_parser("stop", help="not there yet")
    stop.add_argument("session", nargs="?")
    stop.set_defaults(run=_not_yet)
    return parser


def _port(text: str) -> int:
    if not 0 <= int(text) < 65536:
        raise ValueError(text)
    return int(text)


def _demo(options: argparse.Namespace) -> int:
    from rich.console import Console

    from turncell.demo.account import open_lab, play

    run = open_lab if options.lab else play
    return run(options.out.resolve(), Console())


def _doctor(_: argparse.Namespace) -> int:
    from turncell.config import settings_from_environment
    from turncell.doctor import examine

    found = examine(settings_from_environment().cli)
    width = max(len(what) for what, _ in found)
    for what, text in found:
        sys.stdout.write(f"{what:<{width}}  {text}\n")
    return 0


def _serve_model(options: argparse.Namespace) -> int:
    from turncell.modelserver import ModelServer, load, serve, shell_lines

    script = load(options.script) if options.script else None

    def say(server: ModelServer) -> None:
        lines = shell_lines(server.env(Path.cwd() / ".turncell-agent"))
        sys.stdout.write("\n".join([f"# The scripted model is at {server.url}", *lines, ""]))
        sys.stdout.flush()

    serve(options.port, script, say)
    return 0


def _clean(options: argparse.Namespace) -> int:
    from turncell.procs import clear, leftovers

    found = leftovers()
    if not found:
        sys.stdout.write("Nothing of dead kernels is running.\n")
        return 0
    left = 0
    for token, processes in found.items():
        for proc in sorted(processes, key=lambda proc: proc.pid):
            sys.stdout.write(f"{proc.pid}  {proc.command}\n")
        left += len(clear(token, processes).survivors) if options.yes else len(processes)
    done = "All of them were ended." if options.yes and not left else ""
    sys.stdout.write((done or f"{left} still running. End them with turncell clean --yes.") + "\n")
    return 1 if options.yes and left else 0


def _not_yet(_: argparse.Namespace) -> int:
    raise TurncellError("turncell stop is not there yet. In a notebook: %agent stop.")


if __name__ == "__main__":
    sys.exit(main())
