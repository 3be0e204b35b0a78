"""Hides the libraries that `batchyard bench` can use beside NumPy.

Where they are installed, each run of it imports all of them and compiles code for some, which takes
8 s. Most tests are about something else.
"""

from __future__ import annotations

from pathlib import Path

from batchyard.bench.discovery import LIBRARIES


def hide_other_libraries(folder: Path) -> Path:
    """Write modules that cannot be imported, for programs that look in this folder first."""
    folder.mkdir(parents=True, exist_ok=True)
    for library in LIBRARIES.values():
        name = library.module.partition(".")[0]
        # Matplotlib needs PIL, which is quick to import.
        if name not in ("numpy", "PIL"):
            (folder / f"{name}.py").write_text(
                f"raise ModuleNotFoundError('hidden by the tests', name={library.module!r})\n"
            )
    return folder
