"""The EC2 instance that the worker runs on, as its metadata service describes it.

Success records have it, so that a run can be billed also where nobody has watched it: ECS and EC2
forget an instance soon after its end.
"""

from __future__ import annotations

import calendar
import json
import threading
import time
from typing import Any

from batchyard.worker.notices import Metadata, NoMetadataError

_IDENTITY_PATH = "/latest/dynamic/instance-identity/document"
_LIFE_CYCLE_PATH = "/latest/meta-data/instance-life-cycle"
#: A record is no reason to wait longer for the metadata service.
_MAX_WAIT_S = 0.3


class Host:
    """What is known about the instance. A thread reads it, while commands run already."""

    def __init__(self) -> None:
        self._facts: dict[str, Any] | None = None
        self._is_read = threading.Event()

    def read(self, metadata: Metadata) -> None:
        """Ask the metadata service."""
        try:
            identity = metadata.read(_IDENTITY_PATH)
            if identity is not None:
                self._facts = read_identity(identity, metadata.read(_LIFE_CYCLE_PATH) or "")
        except NoMetadataError:
            pass
        self.give_up()

    def give_up(self) -> None:
        """Let nobody wait any longer: nothing more will be known."""
        self._is_read.set()

    def facts(self) -> dict[str, Any] | None:
        """Return what is known, in the names of success records; None if that is nothing."""
        self._is_read.wait(_MAX_WAIT_S)
        # Whoever has waited once does not wait again.
        self._is_read.set()
        return self._facts


def read_identity(identity: str, life_cycle: str) -> dict[str, Any] | None:
    """Return the host of an identity document; None for any other text."""
    try:
        document = json.loads(identity)
        launched = time.strptime(document["pendingTime"], "%Y-%m-%dT%H:%M:%SZ")
        return {
            "id": document["instanceId"],
            "type": document["instanceType"],
            "zone": document["availabilityZone"],
            "is_spot": life_cycle == "spot",
            "launched_s": calendar.timegm(launched),
        }
    except (ValueError, TypeError, KeyError):
        return None
