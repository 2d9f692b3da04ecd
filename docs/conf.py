"""Sphinx: `sphinx-build docs docs/_build`."""

project = "turncell"
extensions = ["myst_nb"]
html_theme = "pydata_sphinx_theme"
exclude_patterns = ["_build"]
nb_execution_mode = "off"
