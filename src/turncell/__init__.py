"""turncell: one cell, one turn. Run an AI agent from a notebook, and stop it for real.

Every name is loaded on first use: `%load_ext turncell` must cost nothing that a
notebook without a turn does not need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turncell.errors import TurncellError, TurnFailed, TurnStopped
    from turncell.handle import TurnHandle as Turn
    from turncell.outcome import Outcome, Reason, StopReceipt, TurnResult
    from turncell.session import Session
    from turncell.settings import StopPolicy

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

_HOMES = {
    "Outcome": ("outcome", "Outcome"),
    "Reason": ("outcome", "Reason"),
    "Session": ("session", "Session"),
    "StopPolicy": ("settings", "StopPolicy"),
    "StopReceipt": ("outcome", "StopReceipt"),
    "Turn": ("handle", "TurnHandle"),
    "TurnFailed": ("errors", "TurnFailed"),
    "TurnResult": ("outcome", "TurnResult"),
    "TurnStopped": ("errors", "TurnStopped"),
    "TurncellError": ("errors", "TurncellError"),
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'turncell' has no attribute {name!r}")
    module, attribute = home
    return getattr(importlib.import_module(f"turncell.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext turncell`: register the magics; write, start and import nothing heavy."""
    from turncell.extension import load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """`%unload_ext turncell`: stop what runs and leave nothing behind."""
    from turncell.extension import unload

    unload(ipython)
