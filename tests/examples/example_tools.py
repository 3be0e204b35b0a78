"""Programs and libraries of the examples that `make` does not install; .ci/example-tools does."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest


def require(*, modules: tuple[str, ...] = (), programs: tuple[str, ...] = ()) -> None:
    """Skip the test if one is missing, or fail it if the environment requires them."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    missing += [name for name in programs if shutil.which(name) is None]
    if missing and os.environ.get("BATCHYARD_REQUIRE_EXAMPLES") == "1":
        pytest.fail(f"not installed: {', '.join(missing)}")
    if missing:
        pytest.skip(f"not installed, .ci/example-tools would do so: {', '.join(missing)}")
