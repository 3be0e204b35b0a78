"""The flags of `docker create` for the container of a job, and the volumes of `emulate --volume`.

Facts, 5.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from posixpath import normpath

from batchyard.embedded.docker import mount_flags, ulimit_flags, user_of_step
from batchyard.emulator.state import Document
from batchyard.errors import InputError

#: Kinds of volumes that exist only on AWS: member of a volume -> (name, member with its id).
_AWS_VOLUMES = {
    "efsVolumeConfiguration": ("EFS", "fileSystemId"),
    "s3filesVolumeConfiguration": ("S3 Files", "fileSystemArn"),
}


@dataclass(frozen=True, slots=True)
class Volume:
    """A folder or file of this machine that is mounted in every container."""

    source: str
    target: str
    is_read_only: bool = False

    @classmethod
    def parse(cls, text: str) -> Volume:
        """Parse `HOST[:CONTAINER][:ro]`. Raises InputError."""
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
                f"--volume {text!r} would replace the whole image",
                hint="add a path in the container, like --volume /:/host",
            )
        return cls(paths[0], target, is_read_only)


def parse_volumes(texts: Iterable[str]) -> tuple[Volume, ...]:
    """Parse the values of --volume. Raises InputError if two have the same path."""
    volumes: dict[str, Volume] = {}
    for text in texts:
        volume = Volume.parse(text)
        if volume.target in volumes:
            raise InputError(
                f"--volume {text!r}: {volumes[volume.target].source} is already mounted at "
                f"{volume.target}",
                hint="mount each volume at another path in the container",
            )
        volumes[volume.target] = volume
    return tuple(volumes.values())


def create_flags(container: Document, volumes: Sequence[Volume] = ()) -> tuple[str, ...]:
    """Return the flags for the members of containerProperties that `docker create` supports.

    ``volumes`` are mounted in every container. They replace volumes of the job at the same path.
    """
    flags: list[str] = []
    if "user" in container:
        flags += user_of_step(container["user"])
    if container.get("privileged"):
        flags.append("--privileged")
    if container.get("readonlyRootFilesystem"):
        flags.append("--read-only")
    for limit in container.get("ulimits", []):
        flags += ulimit_flags(limit["name"], limit["softLimit"], limit["hardLimit"])
    flags += _mount_flags(container, volumes)
    flags += _linux_flags(container.get("linuxParameters", {}))
    return tuple(flags)


def missing_volume(container: Document, volumes: Sequence[Volume] = ()) -> str | None:
    """Return the container.reason of a job that mounts a volume which exists only on AWS.

    Returns None if it mounts none, or if one of ``volumes`` replaces each.
    """
    replaced = {volume.target for volume in volumes}
    by_name = {volume.get("name"): volume for volume in container.get("volumes", [])}
    for mount in container.get("mountPoints", []):
        path, volume = mount["containerPath"], by_name[mount["sourceVolume"]]
        for member, (kind, id_member) in _AWS_VOLUMES.items():
            if member in volume and normpath(path) not in replaced:
                return (
                    f"ResourceInitializationError: this endpoint has no {kind}, so it cannot mount "
                    f"{volume[member][id_member]} at {path}: start `batchyard emulate` with "
                    f"--volume HOST:{path} to mount a folder of this machine instead"
                )
    return None


def _mount_flags(container: Document, volumes: Sequence[Volume]) -> list[str]:
    """Return the mounts. A volume without a path on the host is an anonymous Docker volume."""
    flags = []
    replaced = {volume.target for volume in volumes}
    read_only = set()
    sources = {
        volume.get("name"): volume.get("host", {}).get("sourcePath")
        for volume in container.get("volumes", [])
    }
    for mount in container.get("mountPoints", []):
        target, is_read_only = mount["containerPath"], bool(mount.get("readOnly"))
        if is_read_only:
            read_only.add(normpath(target))
        if normpath(target) not in replaced:
            source = sources[mount["sourceVolume"]]
            flags += mount_flags(source, target, is_read_only=is_read_only)
    for volume in volumes:
        is_read_only = volume.is_read_only or volume.target in read_only
        flags += mount_flags(volume.source, volume.target, is_read_only=is_read_only)
    return flags


def _linux_flags(parameters: Document) -> list[str]:
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
        permissions = "".join(letters[name] for name in device.get("permissions", letters))
        target = device.get("containerPath", device["hostPath"])
        flags += ["--device", f"{device['hostPath']}:{target}:{permissions}"]
    return flags
