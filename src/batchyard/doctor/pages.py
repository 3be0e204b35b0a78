"""The pages that explain findings: in the installed package, or in docs/findings of a checkout."""

from __future__ import annotations

import re
from pathlib import Path

from batchyard.doctor.finding import PAGES
from batchyard.doctor.kinds import BY_ID
from batchyard.errors import InputError, OperationalError

_PACKAGE = Path(__file__).parent
#: pyproject.toml puts the pages into the wheel
_FOLDERS = (_PACKAGE / "pages", _PACKAGE.parents[2] / PAGES)
_NUMBER = re.compile(r"(?:BY)?0*(\d{1,3})", re.IGNORECASE)


def read_page(name: str, folders: tuple[Path, ...] = _FOLDERS) -> str:
    """Return the page of a finding, named as BY042, by042 or 42.

    Raises InputError where there is no such finding, OperationalError where its page is missing.
    """
    match = _NUMBER.fullmatch(name.strip())
    kind = BY_ID.get(f"BY{int(match[1]):03}") if match else None
    if kind is None:
        raise InputError(
            f"there is no finding {name!r}",
            hint="`batchyard doctor explain` lists all findings, like BY042",
        )
    for folder in folders:
        try:
            return (folder / f"{kind.id}.md").read_text(encoding="utf-8")
        except OSError:
            continue
    raise OperationalError(
        f"the page of {kind.id} is not installed", hint="install batchyard again"
    )
