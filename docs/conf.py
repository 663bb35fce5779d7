"""Configure Sphinx: run `make docs`, then open docs/_build/index.html. Nothing is downloaded."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

project = "faze"
author = "the authors of faze"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "generated"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "faze"
html_static_path = ["style"]
html_css_files = ["faze.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

highlight_language = "text"
default_role = "code"  # the docstrings are written with single backquotes
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "ignore-module-all": True}
add_module_names = False
suppress_warnings = ["ref.python"]  # attributes of the same name in several classes
