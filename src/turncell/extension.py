"""Load and unload: everything registered here is taken back here."""

from __future__ import annotations

import sys
from typing import Any

from turncell.hold import kernel_interrupts
from turncell.magics import AgentMagics

__all__ = ["load", "unload"]


def load(shell: Any) -> None:
    """Register the magics and their settings."""
    magics = AgentMagics(shell)
    shell.register_magics(magics)
    shell.configurables.append(magics)
    shell.input_transformers_cleanup.append(give_body)


def give_body(lines: list[str]) -> list[str]:
    """Give a lone `%%agent --help` an empty body: IPython refuses a cell magic without one
    before we are asked. No other line, for a terminal takes a body to mean "complete"."""
    words = lines[0].split() if lines else []
    alone = words[:1] == ["%%agent"] and "--help" in words and not "".join(lines[1:]).strip()
    return [lines[0].rstrip("\n") + "\n", "\n", "\n"] if alone else lines


def unload(shell: Any) -> None:
    """Stop what runs, end the agents and the runtime thread, take the magics back."""
    session = sys.modules.get("turncell.session")
    with kernel_interrupts(shell):  # half of it would be neither loaded nor unloaded
        try:
            if session is not None:  # without it no turn was ever run
                session.book().close()
        finally:
            _take_back(shell)


def _take_back(shell: Any) -> None:
    manager = shell.magics_manager
    for kind in ("line", "cell"):
        bound = manager.magics[kind].get("agent")
        if isinstance(getattr(bound, "__self__", None), AgentMagics):
            del manager.magics[kind]["agent"]
    manager.registry.pop(AgentMagics.__name__, None)
    if give_body in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.remove(give_body)
    shell.configurables[:] = [c for c in shell.configurables if not isinstance(c, AgentMagics)]
