"""batchyard runs lists of commands and pipelines, on this machine or on AWS Batch.

The public Python interface is what ``__all__`` lists; everything else may change between releases.
Names are resolved on first use, so that ``batchyard --version`` does not import the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from batchyard.api import Pipeline, Run, Step
    from batchyard.engines.base import Offer
    from batchyard.errors import BatchyardError
    from batchyard.service_api import Service

__all__ = ["BatchyardError", "Offer", "Pipeline", "Run", "Service", "Step", "__version__"]


def __getattr__(name: str) -> Any:
    if name in ("Offer", "Pipeline", "Run", "Step"):
        from batchyard import api

        return getattr(api, name)
    if name == "Service":
        from batchyard.service_api import Service

        return Service
    if name == "BatchyardError":
        from batchyard.errors import BatchyardError

        return BatchyardError
    raise AttributeError(f"module 'batchyard' has no attribute {name!r}")
