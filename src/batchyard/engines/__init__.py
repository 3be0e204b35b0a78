"""Where runs execute. ``base`` is the contract; each engine is a module or package of its own.

A new engine is one package with an ``ENGINE`` and one line in ``ENGINES``. Nothing outside this
package names an engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchyard.errors import InputError

if TYPE_CHECKING:
    from batchyard.engines.base import Engine

#: Name -> the module whose ENGINE it is. Modules are imported when they are used.
ENGINES = {
    "local": "batchyard.engines.local",
    "aws": "batchyard.engines.aws",
    "memory": "batchyard.engines.memory",
}
#: The engine of a run for which no other is named.
DEFAULT = "local"
#: The engine that has queues, which benchmarks on AWS and the doctor of pipelines use.
AWS_BATCH = "aws"


def load(name: str) -> Engine:
    """Return the engine of this name. Raises InputError."""
    from importlib import import_module

    if name not in ENGINES:
        known = ", ".join(repr(engine) for engine in ENGINES)
        raise InputError(f"there is no engine {name!r}", hint=f"the engines are {known}")
    engine: Engine = import_module(ENGINES[name]).ENGINE
    return engine
