"""The templates of the views: whatever is put into one is escaped."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["template"]


@lru_cache(maxsize=8)
def template(name: str) -> Template:
    """The template of this name in the folder `templates`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # not at import

    loader = PackageLoader("turncell.views")
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    ).get_template(name)  # fmt: skip
