"""Which GPUs a child has, by its environment variables. Pure."""

from __future__ import annotations

from collections.abc import Mapping

#: Stands for all GPUs that the driver shows.
ALL = "all"
#: Values of NVIDIA_VISIBLE_DEVICES of a container without GPUs.
_NO_DEVICES = ("", "void", "none")


def list_devices(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPUs of a container, by its environment variables: numbers, UUIDs, or "all".

    Numbers in NVIDIA_VISIBLE_DEVICES are those of the host. The driver counts the GPUs that a
    container has from 0, so that they are all that the container sees.
    """
    cuda = environ.get("CUDA_VISIBLE_DEVICES")
    if cuda is not None:
        return split_devices(cuda)
    nvidia = environ.get("NVIDIA_VISIBLE_DEVICES", "").strip()
    if nvidia in _NO_DEVICES:
        return ()
    devices = split_devices(nvidia)
    return (ALL,) if any(is_number(device) for device in devices) else devices


def split_devices(setting: str) -> tuple[str, ...]:
    """Return the entries of CUDA_VISIBLE_DEVICES. Like CUDA, this stops at an invalid entry."""
    devices = []
    for entry in map(str.strip, setting.split(",")):
        if not (is_number(entry) or entry.startswith(("GPU-", "MIG-")) or entry == ALL):
            break
        devices.append(entry)
    return tuple(devices)


def is_number(entry: str) -> bool:
    return entry.isascii() and entry.isdigit()
