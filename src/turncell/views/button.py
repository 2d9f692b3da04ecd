"""The Stop button and the status beside it, as ipywidgets.

The comm id of the button is known once it is made and nothing is on screen yet: the click
tap goes in between. All calls but the first come from a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turncell.views import frames, widgets

__all__ = ["StopButton"]

# ipywidgets is untyped: `Any` marks that border.

_HOW = "Stop this turn (a kernel interrupt does it, too)"  # where no click gets in, say
_SAVED = "turncell: a turn was running when this was saved"


class StopButton:
    """A Stop button and one line of status. Raises ImportError where there is no ipywidgets."""

    def __init__(self, on_stop: Callable[[], None]) -> None:
        import ipywidgets

        self._on_stop = on_stop
        self._open = True
        width = ipywidgets.Layout(width="auto", min_width="5.5em", flex="0 0 auto")
        self._button: Any = ipywidgets.Button(description="Stop", tooltip=_HOW, layout=width)
        room = ipywidgets.Layout(flex="1 1 auto", margin="0 0 0 .6em")
        self._status: Any = ipywidgets.HTML(value=frames.status("starting"), layout=room)
        row = ipywidgets.Layout(align_items="center", width="100%")
        unseen = ipywidgets.Layout(display="none")
        self._style: Any = ipywidgets.HTML(value=frames.style(), layout=unseen)
        parts = [self._button, self._status, self._style]
        self._box: Any = ipywidgets.HBox(parts, layout=row)
        self._button.on_click(self._clicked)

    @property
    def comm_id(self) -> str:
        """The comm a click on the button arrives on."""
        return str(self._button.model_id)

    def bundle(self) -> dict[str, Any]:
        """What displays it. Its plain text is what a notebook saved in mid turn shows."""
        return widgets.shown(self._box, _SAVED)

    def draw(self, label: str, status: str) -> None:
        """Show these words; ipywidgets sends only what changed."""
        if not self._open:
            return
        stopping = label != "Stop"
        self._button.tooltip = "Stop now, by force" if stopping else _HOW
        self._button.button_style = "danger" if stopping else ""
        self._button.description = label
        self._status.value = frames.status(status)

    def close(self) -> None:
        """Remove it from the screen and from the kernel, parts included."""
        self._open = False
        self._button.on_click(self._clicked, remove=True)
        widgets.close(self._box, self._button, self._status, self._style)

    def _clicked(self, _button: Any) -> None:
        # Only where no tap took the click: a background turn, or a kernel without a tap.
        if self._open:
            self._on_stop()
