"""A job's container as the docker command is told of it, beside what all children have (facts, 5.3). Pure."""

from __future__ import annotations

import csv
import io

from batchyard.emulator.yard import Document


def create_flags(container: Document) -> tuple[str, ...]:
    """Of containerProperties: volumes, limits, devices, user, whatever `docker create` has a flag for."""
    flags: list[str] = []
    if "user" in container:
        flags += ["--user", container["user"]]
    if container.get("privileged"):
        flags.append("--privileged")
    if container.get("readonlyRootFilesystem"):
        flags.append("--read-only")
    for limit in container.get("ulimits", []):
        flags += ["--ulimit", f"{limit['name']}={limit['softLimit']}:{limit['hardLimit']}"]
    flags += _mounts(container)
    flags += _linux(container.get("linuxParameters", {}))
    return tuple(flags)


def _mounts(container: Document) -> list[str]:
    """Host volumes; one without a path on the host is an anonymous volume, as Docker makes it."""
    flags = []
    sources = {v.get("name"): v.get("host", {}).get("sourcePath") for v in container.get("volumes", [])}
    for mount in container.get("mountPoints", []):
        source = sources[mount["sourceVolume"]]
        fields = [f"type={'bind' if source else 'volume'}"]
        fields += [f"source={source}"] if source else []
        fields.append(f"target={mount['containerPath']}")
        fields += ["readonly"] if mount.get("readOnly") else []
        flags += ["--mount", _csv(fields)]
    return flags


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
