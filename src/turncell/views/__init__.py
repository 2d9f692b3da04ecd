"""How a turn is shown: in a notebook, in a terminal, on a plain stream.

Each view is loaded when it is chosen, what it draws with when it draws: loading the
extension must be fast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turncell.views.asking import Asking
    from turncell.views.base import CellView

__all__ = ["choose"]


def choose(
    shell: Any,
    on_stop: Callable[[], None] | None,
    *,
    can_ask: bool,
    quiet: bool,
    background: bool = False,
    hint: str | None = None,
    asking: Asking | None = None,
    math: bool = False,
) -> CellView:
    """The view that fits this shell (an IPython shell or None).

    `can_ask` says that somebody can answer (not under nbclient and the like); `quiet` shows
    only the end; `hint` says how to stop where no button can be shown; `asking` takes what
    a person answers to questions; `math` has a notebook typeset what stands between dollars.
    """
    if getattr(shell, "kernel", None) is not None:
        from turncell.views.notebook import NotebookView

        live = can_ask and not quiet
        return NotebookView(
            shell, on_stop, live=live, background=background, hint=hint, asking=asking, math=math
        )
    # Streaming into a prompt that somebody types at helps nobody: only the end, then.
    quiet = quiet or background
    if sys.stdout.isatty():
        from turncell.views.terminal import TerminalView

        on_answer = asking.on_answer if asking is not None and can_ask else None
        return TerminalView(hint=hint, quiet=quiet, on_answer=on_answer)
    from turncell.views.plain import PlainView

    return PlainView(sys.stdout, quiet=quiet)
