"""How a turn is shown: in a notebook, in a terminal, on a plain stream.

Nothing heavy is imported before the first picture.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from turncell.views.base import CellView, View
from turncell.views.notebook import NotebookView
from turncell.views.plain import PlainView
from turncell.views.terminal import TerminalView

__all__ = ["CellView", "NotebookView", "PlainView", "TerminalView", "View", "choose"]


def choose(
    shell: Any,
    on_stop: Callable[[], None] | None,
    *,
    can_ask: bool,
    quiet: bool,
    background: bool = False,
    hint: str | None = None,
) -> CellView:
    """The view that fits this shell (an IPython shell or None).

    `can_ask` says that somebody can answer (not under nbclient and the like); `quiet` shows
    only the end; `hint` says how to stop where no button can be shown.
    """
    if getattr(shell, "kernel", None) is not None:
        live = can_ask and not quiet
        return NotebookView(shell, on_stop, live=live, background=background, hint=hint)
    # Streaming into a prompt that somebody types at helps nobody: only the end, then.
    quiet = quiet or background
    if sys.stdout.isatty():
        return TerminalView(hint=hint, quiet=quiet)
    return PlainView(sys.stdout, quiet=quiet)
