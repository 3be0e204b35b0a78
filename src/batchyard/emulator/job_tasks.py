"""What a job's children are told and given: command, environment, limits (facts, 3, 5 and 10.1). Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from batchyard.batch.changes import Start
from batchyard.batch.jobs import Outcome, Resources, StatusReason
from batchyard.batch.limits import MAX_OVERRIDE_CHARS
from batchyard.embedded.runner import Task
from batchyard.emulator import names
from batchyard.emulator.docker_flags import Volume, create_flags, missing_volume
from batchyard.emulator.state import Document
from batchyard.shard import Turn

_REFERENCE = re.compile(r"Ref::([A-Za-z0-9_.-]+)")
_OWN_PREFIXES = ("AWS_BATCH_", "BATCHYARD_", "AWS_")


@dataclass(frozen=True, slots=True)
class Site:
    """What all children of an endpoint have in common."""

    #: of a process on this machine, without what is about AWS or another job
    environ: Mapping[str, str]
    #: the endpoint's address, keys and region, for whoever calls AWS
    aws: Mapping[str, str]
    #: where the metadata service of a task is: its id is appended
    metadata_address: str
    #: in the environment of everything that the endpoint starts, and nowhere else
    token: str
    salt: str
    #: slot -> the GPU's number as the driver knows it
    gpu_numbers: tuple[int, ...]
    #: how many of the slots are GPUs in name only, the last ones
    pretended_gpus: int
    #: what a container's secret stands for; raises LookupError
    secret: Callable[[str], str]
    #: whether children are containers, and the image's own command is known
    has_images: bool
    #: what every container has of this machine
    volumes: tuple[Volume, ...] = ()


@dataclass(slots=True)
class ContainerTasks:
    """Makes the tasks of one job."""

    number: int
    document: Document
    site: Site
    #: only jobs with several commands a child have use for it, and these have one
    done: set[int] = field(default_factory=set)

    def task(self, start: Start) -> Task:
        document, here = self.document, self.site
        container, job_id = document["container"], document["jobId"]
        size = document.get("arrayProperties", {}).get("size")
        key = names.task_id(names.AttemptKey(self.number, start.child, start.attempt), here.salt)
        is_fargate = document["platformCapabilities"] == ["FARGATE"]
        mark = f"{here.token}.{self.number}.{start.child}.{start.attempt}."
        told = {
            **here.aws,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{here.metadata_address}/{key}",
            "AWS_EXECUTION_ENV": "AWS_ECS_FARGATE" if is_fargate else "AWS_ECS_EC2",
            **{
                variable["name"]: variable.get("value", "") for variable in container["environment"]
            },
            "AWS_BATCH_CE_NAME": start.environment,
            "AWS_BATCH_JQ_NAME": names.bare(document["jobQueue"]),
            "AWS_BATCH_JOB_ID": job_id if size is None else f"{job_id}:{start.child}",
            "AWS_BATCH_JOB_ATTEMPT": str(start.attempt),
            "BATCHYARD_TOKEN": mark,
        }
        if size is not None:
            told |= {
                "AWS_BATCH_JOB_ARRAY_INDEX": str(start.child),
                "AWS_BATCH_JOB_ARRAY_SIZE": str(size),
            }
        if start.gpus:
            gpus = ",".join(str(here.gpu_numbers[slot]) for slot in start.gpus)
            told |= {
                "NVIDIA_VISIBLE_DEVICES": gpus,
                "CUDA_VISIBLE_DEVICES": gpus,
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            }
        elif not here.has_images:
            # A process that was given no GPU must not find one that another was given.
            told.setdefault("CUDA_VISIBLE_DEVICES", "")
        command = tuple(substituted(word, document["parameters"]) for word in container["command"])
        refused = self._refusal(told, command)
        wanted = document["_resources"]
        return Task(
            job_number=self.number,
            job_id=job_id,
            step=job_id,
            child=start.child,
            index_in_step=start.child,
            attempt=start.attempt,
            turn=Turn(range(1)),
            command=lambda _: command,
            environ=encoded({**here.environ, **told}),
            told=tuple(os.fsencode(name) for name in told),
            resources=Resources(wanted["vcpus"], wanted["memory_mib"], wanted["gpus"]),
            gpus=self._real(start.gpus),
            image=container["image"],
            mark=mark.encode(),
            container_flags=create_flags(container, here.volumes) if here.has_images else None,
            place=start.environment,
            refused=refused,
        )

    def _real(self, slots: tuple[int, ...]) -> tuple[int, ...]:
        count = len(self.site.gpu_numbers) - self.site.pretended_gpus
        return tuple(slot for slot in slots if slot < count)

    def _refusal(self, told: dict[str, str], command: tuple[str, ...]) -> Outcome | None:
        """Why it cannot be started at all; adds its secrets to what it is told."""
        if self.document["_overrides_length"] > MAX_OVERRIDE_CHARS:
            return Outcome(None, f"Container Overrides length must be at most {MAX_OVERRIDE_CHARS}")
        if "_refused" in self.document:
            return Outcome(None, self.document["_refused"])
        for secret in self.document["container"]["secrets"]:
            try:
                told[secret["name"]] = self.site.secret(secret["valueFrom"])
            except LookupError as exc:
                reason = f"ResourceInitializationError: unable to retrieve secret {secret['name']}: {exc.args[0]}"
                return Outcome(None, StatusReason.NOT_STARTED, reason[:255])
        if self.site.has_images:
            missing = missing_volume(self.document["container"], self.site.volumes)
            return Outcome(None, StatusReason.NOT_STARTED, missing[:255]) if missing else None
        if not command:
            reason = "CannotStartContainerError: no command, and the image's own is only known with --runner docker"
            return Outcome(None, StatusReason.NOT_STARTED, reason)
        return None


def substituted(word: str, parameters: Mapping[str, str]) -> str:
    """`Ref::name` becomes the parameter's value (facts, 5.1); one that nobody has given stays as it is."""
    return _REFERENCE.sub(lambda found: parameters.get(found[1], found[0]), word)


def encoded(environ: Mapping[str, str]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in environ.items()}


def inherited(environ: Mapping[str, str], programs: str = "") -> dict[str, str]:
    """Of the endpoint's own environment, what a job may have: nothing about AWS, nor about another job. ``programs``:
    the folder of batchyard's own, of which `batchyard-worker` must be found: last in PATH, so that it changes no other.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith(_OWN_PREFIXES)}
    folders = kept.get("PATH", os.defpath).split(os.pathsep)
    return (
        {**kept, "PATH": os.pathsep.join([*folders, programs])}
        if programs and programs not in folders
        else kept
    )
