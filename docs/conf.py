"""Settings of Sphinx, which `make docs` uses to build the site. See generate_site.py."""

from __future__ import annotations

import batchyard

project = "batchyard"
author = "the batchyard maintainers"
release = batchyard.__version__
extensions = ["myst_parser"]
root_doc = "index"
html_theme = "furo"
html_title = f"batchyard {release}"
exclude_patterns = ["facts/*"]
# As GitHub makes the anchors of headings, so that the same links work in both places.
myst_heading_anchors = 4
# Examples show what a terminal prints, with placeholders that no lexer knows.
suppress_warnings = ["misc.highlighting_failure", "myst.xref_missing"]
