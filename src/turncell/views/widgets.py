"""What every widget of ours needs: to be shown in an output, and to leave nothing behind."""

from __future__ import annotations

from typing import Any

__all__ = ["close", "shown"]

# ipywidgets is untyped: `Any` marks that border.

_VIEW = "application/vnd.jupyter.widget-view+json"


def shown(widget: Any, words: str) -> dict[str, Any]:
    """The mime bundle that displays it; where there are no widgets, these words."""
    view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    return {"text/plain": words, _VIEW: view}


def close(*widgets: Any) -> None:
    """Remove them from the screen and from the kernel, layouts and styles included."""
    for widget in widgets:
        styles = [widget.style] if widget.has_trait("style") else []
        for part in (widget, widget.layout, *styles):
            part.close()
