"""turncell: one cell, one turn. Run an AI agent from a notebook, and stop it for real.

Importing this package is cheap; the agent SDK is imported by the first turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turncell.errors import TurncellError, TurnFailed, TurnStopped
from turncell.outcome import Outcome, Reason, StopReceipt, TurnResult
from turncell.settings import StopPolicy

if TYPE_CHECKING:
    from turncell.handle import TurnHandle as Turn
    from turncell.session import Session

__all__ = [
    "Outcome",
    "Reason",
    "Session",
    "StopPolicy",
    "StopReceipt",
    "Turn",
    "TurnFailed",
    "TurnResult",
    "TurnStopped",
    "TurncellError",
    "load_ipython_extension",
    "unload_ipython_extension",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # anyio comes with these two, and `%load_ext` must not pay for it.
    if name == "Session":
        from turncell.session import Session

        return Session
    if name == "Turn":
        from turncell.handle import TurnHandle

        return TurnHandle
    raise AttributeError(f"module 'turncell' has no attribute {name!r}")


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext turncell`: register the magics; write, start and import nothing heavy."""
    from turncell.extension import load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """`%unload_ext turncell`: stop what runs and leave nothing behind."""
    from turncell.extension import unload

    unload(ipython)
