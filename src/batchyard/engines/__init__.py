"""Where runs execute. ``base`` is the contract; each engine is a module or package of its own.

A new engine is one package with an ``ENGINE`` and one line in ``ENGINES``. Nothing outside this
package names an engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchyard.errors import InputError
from batchyard.quick_dataclasses import NamedTuple

if TYPE_CHECKING:
    from batchyard.engines.base import Engine


class Entry(NamedTuple):
    """An engine in the table."""

    #: The module that has ENGINE. It is imported when the engine is used.
    module: str
    #: What a run on the engine does, for `--help`.
    summary: str


#: Name -> engine.
ENGINES = {
    "local": Entry("batchyard.engines.local", "run on this machine"),
    "aws": Entry("batchyard.engines.aws", "run on AWS Batch"),
    "ecs": Entry("batchyard.engines.ecs", "run as tasks of an ECS cluster"),
    "memory": Entry(
        "batchyard.engines.memory",
        "rehearse; no command is executed, and each counts as succeeded",
    ),
}
#: The engine of a run for which no other is named.
DEFAULT = "local"
#: The engine that has queues, which benchmarks on AWS and the doctor of pipelines use.
AWS_BATCH = "aws"


def load(name: str) -> Engine:
    """Return the engine of this name. Raises InputError."""
    from importlib import import_module

    if name not in ENGINES:
        engine_names = ", ".join(repr(engine) for engine in ENGINES)
        raise InputError(f"there is no engine {name!r}", hint=f"the engines are {engine_names}")
    engine: Engine = import_module(ENGINES[name].module).ENGINE
    return engine
