"""Which notebook this is: what sessions are found by after a restart of the kernel."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

__all__ = ["here", "notebook_of"]


def here() -> str:
    """The working directory, "" where it was removed under us."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def notebook_of(environ: Mapping[str, str], variables: Mapping[str, Any], cwd: str) -> str:
    """The path of the notebook, or the directory where there is none.

    Jupyter Server (2.0 and newer) sets JPY_SESSION_NAME in the kernel's environment, VS Code
    a variable in its namespace; a script or a terminal is known by its directory.
    """
    path = environ.get("JPY_SESSION_NAME") or variables.get("__vsc_ipynb_file__")
    return os.path.normpath(os.path.join(cwd, str(path))) if path else os.path.normpath(cwd)
