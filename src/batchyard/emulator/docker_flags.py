"""A job's container as the docker command is told of it, beside what all children have (facts, 5.3). Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from posixpath import normpath

from batchyard.emulator.state import Document
from batchyard.errors import InputError

#: volumes of AWS's that no machine of one's own has: member of a volume -> its name, and what says which it is
_ONLY_ON_AWS = {
    "efsVolumeConfiguration": ("EFS", "fileSystemId"),
    "s3filesVolumeConfiguration": ("S3 Files", "fileSystemArn"),
}


@dataclass(frozen=True, slots=True)
class Volume:
    """A folder or file of this machine that every container has: `emulate --volume`."""

    source: str
    target: str
    is_read_only: bool = False

    @classmethod
    def parsed(cls, text: str) -> Volume:
        """`HOST[:CONTAINER][:ro]`. Raises InputError."""
        paths = text.split(":")
        is_read_only = paths[-1] == "ro"
        if is_read_only:
            paths.pop()
        if len(paths) not in (1, 2) or not all(path.startswith("/") for path in paths):
            raise InputError(
                f"--volume {text!r} is not of the form HOST[:CONTAINER][:ro] with absolute paths",
                hint="for example --volume /data, or --volume $PWD/data:/data:ro",
            )
        target = normpath(paths[-1])
        if not target.strip("/"):
            raise InputError(
                f"--volume {text!r} would take the place of the whole image",
                hint="say where in the container it is to be, like --volume /:/host",
            )
        return cls(paths[0], target, is_read_only)


def parsed_volumes(texts: Iterable[str]) -> tuple[Volume, ...]:
    """Raises InputError."""
    found: dict[str, Volume] = {}
    for text in texts:
        volume = Volume.parsed(text)
        if volume.target in found:
            raise InputError(
                f"--volume {text!r}: {found[volume.target].source} is at {volume.target} already",
                hint="give each a place of its own in the container",
            )
        found[volume.target] = volume
    return tuple(found.values())


def create_flags(container: Document, volumes: Sequence[Volume] = ()) -> tuple[str, ...]:
    """Of containerProperties: volumes, limits, devices, user, whatever `docker create` has a flag for. ``volumes``:
    those that every container has; at the same place they come instead of the job's own."""
    flags: list[str] = []
    if "user" in container:
        flags += ["--user", container["user"]]
    if container.get("privileged"):
        flags.append("--privileged")
    if container.get("readonlyRootFilesystem"):
        flags.append("--read-only")
    for limit in container.get("ulimits", []):
        flags += ["--ulimit", f"{limit['name']}={limit['softLimit']}:{limit['hardLimit']}"]
    flags += _mounts(container, volumes)
    flags += _linux(container.get("linuxParameters", {}))
    return tuple(flags)


def missing_volume(container: Document, volumes: Sequence[Volume] = ()) -> str | None:
    """container.reason of a job that mounts what there is only on AWS, and nothing of ours comes instead."""
    there = {volume.target for volume in volumes}
    by_name = {volume.get("name"): volume for volume in container.get("volumes", [])}
    for mount in container.get("mountPoints", []):
        place, volume = mount["containerPath"], by_name[mount["sourceVolume"]]
        for member, (kind, which) in _ONLY_ON_AWS.items():
            if member in volume and normpath(place) not in there:
                return (
                    f"ResourceInitializationError: no {kind} is served here, so there is no {volume[member][which]} "
                    f"for {place}: give `batchyard emulate` --volume HOST:{place}, a folder of this machine instead"
                )
    return None


def _mounts(container: Document, volumes: Sequence[Volume]) -> list[str]:
    """Host volumes; one without a path on the host is an anonymous volume, as Docker makes it."""
    flags = []
    there = {volume.target for volume in volumes}
    read_only = set()
    sources = {
        v.get("name"): v.get("host", {}).get("sourcePath") for v in container.get("volumes", [])
    }
    for mount in container.get("mountPoints", []):
        target = mount["containerPath"]
        if mount.get("readOnly"):
            read_only.add(normpath(target))
        if normpath(target) not in there:
            flags += _mount(
                sources[mount["sourceVolume"]], target, is_read_only=bool(mount.get("readOnly"))
            )
    for volume in volumes:
        flags += _mount(
            volume.source,
            volume.target,
            is_read_only=volume.is_read_only or volume.target in read_only,
        )
    return flags


def _mount(source: str | None, target: str, *, is_read_only: bool) -> list[str]:
    fields = [f"type={'bind' if source else 'volume'}"]
    fields += [f"source={source}"] if source else []
    fields.append(f"target={target}")
    fields += ["readonly"] if is_read_only else []
    return ["--mount", _csv(fields)]


def _linux(parameters: Document) -> list[str]:
    flags = []
    if parameters.get("initProcessEnabled"):
        flags.append("--init")
    if "sharedMemorySize" in parameters:
        flags += ["--shm-size", f"{parameters['sharedMemorySize']}m"]
    for tmpfs in parameters.get("tmpfs", []):
        options = ",".join([f"size={tmpfs['size']}m", *tmpfs.get("mountOptions", [])])
        flags += ["--tmpfs", f"{tmpfs['containerPath']}:{options}"]
    for device in parameters.get("devices", []):
        letters = {"READ": "r", "WRITE": "w", "MKNOD": "m"}
        permissions = "".join(letters[p] for p in device.get("permissions", letters))
        target = device.get("containerPath", device["hostPath"])
        flags += ["--device", f"{device['hostPath']}:{target}:{permissions}"]
    return flags


def _csv(fields: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()
