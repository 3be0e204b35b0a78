"""The files that the browser gets, read once when the server starts. Pure of requests.

A request names a file by a key of a table, so that no text of a client becomes a path.
"""

from __future__ import annotations

from importlib import resources

from batchyard.report import style
from batchyard.ui.answers import Answer

#: Ending of a file's name -> its type.
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX = "index.html"


def load_page_files() -> dict[str, Answer]:
    """Return path -> the answer with the file."""
    files = {}
    for file in resources.files("batchyard.ui").joinpath("page").iterdir():
        name = file.name
        kind = _TYPES.get(name[name.rfind(".") :])
        if kind is not None:
            files[f"/page/{name}"] = Answer(200, kind, file.read_bytes())
    # The colours and charts are those of `batchyard report`.
    files["/page/report.css"] = Answer(200, _TYPES[".css"], style.CSS.encode())
    return files
