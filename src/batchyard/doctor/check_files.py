"""Find the checks in the files of a package. A file in it is registered by being there."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages
from typing import TypeVar

T = TypeVar("T")


def find_checks(package: str, form: type[T]) -> list[T]:
    """Return the checks that modules of the package, and of the packages in it, define."""
    modules = walk_packages(import_module(package).__path__, f"{package}.")
    # A table is what calls this function.
    names = [module.name for module in modules if not module.name.endswith(".table")]
    values = (value for name in names for value in vars(import_module(name)).values())
    return list(dict.fromkeys(value for value in values if isinstance(value, form)))
