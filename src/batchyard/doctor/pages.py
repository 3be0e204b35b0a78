"""The pages of the findings: in the installed package, or in docs/findings of a checkout. Reads these alone."""

from __future__ import annotations

import re
from pathlib import Path

from batchyard.doctor.finding import PAGES
from batchyard.doctor.kinds import BY_ID
from batchyard.errors import InputError, OperationalError

HERE = Path(__file__).parent
#: pyproject.toml puts them into the wheel
_FOLDERS = (HERE / "pages", HERE.parents[2] / PAGES)
_NUMBER = re.compile(r"(?:BY)?0*(\d{1,3})", re.IGNORECASE)


def page_of(name: str, folders: tuple[Path, ...] = _FOLDERS) -> str:
    """``name``: BY042, by042, or just 42."""
    match = _NUMBER.fullmatch(name.strip())
    kind = BY_ID.get(f"BY{int(match[1]):03}") if match else None
    if kind is None:
        raise InputError(
            f"there is no finding {name!r}",
            hint="`batchyard doctor explain` lists them all, like BY042",
        )
    for folder in folders:
        try:
            return (folder / f"{kind.id}.md").read_text(encoding="utf-8")
        except OSError:
            continue
    raise OperationalError(
        f"the page of {kind.id} is not here", hint="install batchyard again: its pages are missing"
    )
