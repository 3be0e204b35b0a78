"""The local engine's part of a run's record."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from batchyard.batch.jobs import Resources
from batchyard.quick_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Where and with what a run executes on this machine."""

    workspace: Path
    capacity: Resources
    #: Numbers of the GPUs that the capacity counts, as the driver knows them.
    gpu_numbers: tuple[int, ...]
    #: "process" or "docker".
    runner: str
    #: A text in the environment of all processes of the run, and of no other process.
    token: str
    #: Amounts of the capacity that the user has limited ("vcpus", "memory_mib"): `scale` raises
    #: only the others.
    limited: tuple[str, ...] = ()
    #: Whether samples are taken of what children use.
    is_sampled: bool = True


def new_token() -> str:
    """Return a text that marks every process of one run."""
    return f"by{os.urandom(16).hex()}"


def to_json(settings: LocalSettings) -> dict[str, Any]:
    return {"setting": {**asdict(settings), "workspace": str(settings.workspace)}}


def from_json(document: Mapping[str, Any]) -> LocalSettings:
    members = dict(document["setting"])
    return LocalSettings(
        **{
            **members,
            "workspace": Path(members["workspace"]),
            "capacity": Resources(**members["capacity"]),
            "gpu_numbers": tuple(members["gpu_numbers"]),
            "limited": tuple(members.get("limited", ())),
        }
    )
