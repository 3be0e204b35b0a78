"""The tasks of a job: command, environment and limits of each attempt (facts, 3, 5 and 10.1)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from batchyard.batch.changes import Start
from batchyard.batch.jobs import Outcome, Resources, StatusReason
from batchyard.batch.limits import MAX_CONTAINER_REASON_CHARS, MAX_OVERRIDE_CHARS
from batchyard.embedded.posix_spawn import Environ, SharedEnviron
from batchyard.embedded.runner import Task
from batchyard.emulator import job_definitions, names
from batchyard.emulator.docker_flags import Volume, create_flags, missing_volume
from batchyard.emulator.faults import FaultInjector
from batchyard.emulator.job_credentials import use_expiring_credentials
from batchyard.emulator.state import Document
from batchyard.shard import Turn

_REFERENCE = re.compile(r"Ref::([A-Za-z0-9_.-]+)")
_NO_LOG_GROUP = (
    "CannotStartContainerError: Error response from daemon: failed to initialize logging driver: "
    "failed to create Cloudwatch log stream: ResourceNotFoundException: The specified log group "
    "does not exist."
)
#: Hosts of a job whose environments are remembered: more than run its children at once here.
_MAX_REMEMBERED_HOSTS = 64
_ENCODING, _ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
#: Variables of the endpoint's own environment that jobs do not inherit.
_RESERVED_PREFIXES = ("AWS_BATCH_", "BATCHYARD_", "AWS_")


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Settings that all tasks of a region share."""

    #: Environment of a process on this machine, without variables about AWS or another job.
    environ: Mapping[str, str]
    #: Variables that a client of the endpoint needs: address, keys and region.
    client_variables: Mapping[str, str]
    #: Address of the metadata service; the id of a task is appended.
    metadata_address: str
    #: Marks the environment of each process that the endpoint starts.
    token: str
    salt: str
    #: Slot -> the number of the GPU in the driver.
    gpu_numbers: tuple[int, ...]
    #: How many of the slots are emulated GPUs: the last ones.
    emulated_gpus: int
    #: Returns the value of a container's secret from its `valueFrom`; raises LookupError.
    read_secret: Callable[[str], str]
    #: Returns whether the log group of a job that starts exists.
    open_log_group: Callable[[Document], bool]
    #: Whether children are containers, so that the command of the image is known.
    has_images: bool
    #: Volumes of every container.
    volumes: tuple[Volume, ...] = ()
    faults: FaultInjector = field(default_factory=FaultInjector)


@dataclass(frozen=True, slots=True)
class _HostVariables:
    """Variables that all children of a job have on one host."""

    #: Names of the variables that the endpoint sets. A container gets only these.
    names: tuple[bytes, ...]
    #: The whole environment of a process, without the variables of a single child.
    environ: SharedEnviron


@dataclass(slots=True)
class ContainerTasks:
    """Makes the tasks of a job. What its children share is made only once for each host."""

    number: int
    document: Document
    settings: TaskSettings
    #: Part of the TaskMaker protocol; only jobs with several commands per child use it.
    done: set[int] = field(default_factory=set)
    _by_host: dict[tuple[str, str], _HostVariables] = field(default_factory=dict)
    #: What all children have: the words of their command, what they request, and docker's flags.
    _words: tuple[str, ...] = field(init=False)
    _resources: Resources = field(init=False)
    _docker_flags: tuple[str, ...] | None = field(init=False)

    def __post_init__(self) -> None:
        requested = self.document["_resources"]
        self._words = self._command()
        self._resources = Resources(requested["vcpus"], requested["memory_mib"], requested["gpus"])
        self._docker_flags = self._flags() if self.settings.has_images else None

    def task(self, start: Start, slot: int = 0) -> Task:
        document, settings = self.document, self.settings
        container = document["container"]
        mark = f"{settings.token}.{self.number}.{start.child}.{start.attempt}."
        variables = self._child_variables(start)
        variables["BATCHYARD_TOKEN"] = mark
        if start.gpus:
            variables |= self._gpu_variables(start)
        command = self._words
        refusal = self._add_secrets(variables) or self._find_refusal(command)
        shared = self._host_variables(start)
        environ = Environ(encode_environment(variables), shared.environ)
        return Task(
            job_number=self.number,
            job_id=document["jobId"],
            step=document["jobId"],
            child=start.child,
            index_in_step=start.child,
            attempt=start.attempt,
            turn=Turn(range(1)),
            command=lambda _: command,
            environ=environ,
            engine_variables=(*shared.names, *environ.own) if settings.has_images else (),
            resources=self._resources,
            gpus=self._real_gpus(start.gpus),
            image=container["image"],
            mark=mark.encode(),
            container_flags=self._docker_flags,
            compute_environment=names.strip_arn(start.environment),
            host_id=start.host_id,
            refusal=refusal,
        )

    def _command(self) -> tuple[str, ...]:
        container, parameters = self.document["container"], self.document["parameters"]
        return tuple(substitute_references(word, parameters) for word in container["command"])

    def _flags(self) -> tuple[str, ...]:
        """Return the flags of `docker create`."""
        return create_flags(self.document["container"], self.settings.volumes)

    def _host_variables(self, start: Start) -> _HostVariables:
        host = (start.environment, start.host_id)
        shared = self._by_host.get(host)
        if shared is None:
            variables = self._hidden_gpus(start) | self._shared_variables(start)
            shared = _HostVariables(
                tuple(os.fsencode(name) for name in variables),
                SharedEnviron(encode_environment({**self.settings.environ, **variables})),
            )
            # A child without a host has its own metadata service, and credentials expire.
            if start.host_id and not self.settings.faults.settings.credentials:
                if len(self._by_host) >= _MAX_REMEMBERED_HOSTS:
                    self._by_host.clear()
                self._by_host[host] = shared
        return shared

    def _shared_variables(self, start: Start) -> dict[str, str]:
        """Return the variables that all children of the job have on the same host."""
        document, settings = self.document, self.settings
        size = document.get("arrayProperties", {}).get("size")
        key = names.AttemptKey(self.number, start.child, start.attempt)
        is_fargate = job_definitions.is_fargate(document)
        host_id = start.host_id or names.task_id(key, settings.salt)
        metadata_address = f"{settings.metadata_address}/{host_id}"
        client_variables = dict(settings.client_variables)
        if settings.faults.settings.credentials:
            client_variables = use_expiring_credentials(client_variables, metadata_address)
        variables = {
            **client_variables,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata_address,
            "AWS_EXECUTION_ENV": "AWS_ECS_FARGATE" if is_fargate else "AWS_ECS_EC2",
            **{
                variable["name"]: variable.get("value", "")
                for variable in document["container"]["environment"]
            },
            "AWS_BATCH_CE_NAME": names.strip_arn(start.environment),
            "AWS_BATCH_JQ_NAME": names.strip_arn(document["jobQueue"]),
        }
        if size is not None:
            variables["AWS_BATCH_JOB_ARRAY_SIZE"] = str(size)
        return variables

    def _child_variables(self, start: Start) -> dict[str, str]:
        """Return the variables of one child, which replace those of the same name."""
        job_id, attempt = self.document["jobId"], str(start.attempt)
        if self.document.get("arrayProperties", {}).get("size") is None:
            return {"AWS_BATCH_JOB_ID": job_id, "AWS_BATCH_JOB_ATTEMPT": attempt}
        return {
            "AWS_BATCH_JOB_ID": f"{job_id}:{start.child}",
            "AWS_BATCH_JOB_ATTEMPT": attempt,
            "AWS_BATCH_JOB_ARRAY_INDEX": str(start.child),
        }

    def _gpu_variables(self, start: Start) -> dict[str, str]:
        gpus = ",".join(str(self.settings.gpu_numbers[slot]) for slot in start.gpus)
        return {
            "NVIDIA_VISIBLE_DEVICES": gpus,
            "CUDA_VISIBLE_DEVICES": gpus,
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }

    def _hidden_gpus(self, start: Start) -> dict[str, str]:
        """Return a variable that hides the GPUs of others from a process without GPUs.

        The variables of the job replace it.
        """
        is_hidden = not start.gpus and not self.settings.has_images
        return {"CUDA_VISIBLE_DEVICES": ""} if is_hidden else {}

    def _real_gpus(self, slots: tuple[int, ...]) -> tuple[int, ...]:
        count = len(self.settings.gpu_numbers) - self.settings.emulated_gpus
        return tuple(slot for slot in slots if slot < count)

    def _add_secrets(self, variables: dict[str, str]) -> Outcome | None:
        """Add the secrets to the variables; return the outcome of a task that cannot have them."""
        if self.document["_overrides_length"] > MAX_OVERRIDE_CHARS:
            return Outcome(None, f"Container Overrides length must be at most {MAX_OVERRIDE_CHARS}")
        if "_refused" in self.document:
            return Outcome(None, self.document["_refused"])
        for secret in self.document["container"]["secrets"]:
            try:
                variables[secret["name"]] = self.settings.read_secret(secret["valueFrom"])
            except LookupError as exc:
                return _not_started(
                    "ResourceInitializationError: unable to retrieve secret "
                    f"{secret['name']}: {exc.args[0]}"
                )
        return None

    def _find_refusal(self, command: tuple[str, ...]) -> Outcome | None:
        """Return the outcome of a task that cannot be started, or None."""
        if not self.settings.open_log_group(self.document):
            return _not_started(_NO_LOG_GROUP)
        if self.settings.has_images:
            reason = missing_volume(self.document["container"], self.settings.volumes)
            return _not_started(reason) if reason else None
        if not command:
            return _not_started(
                "CannotStartContainerError: no command, and the image's own is only known with "
                "--runner docker"
            )
        return None


def _not_started(reason: str) -> Outcome:
    return Outcome(None, StatusReason.NOT_STARTED, reason[:MAX_CONTAINER_REASON_CHARS])


def substitute_references(word: str, parameters: Mapping[str, str]) -> str:
    """Replace each `Ref::name` by the parameter's value (facts, 5.1), unless it has none."""
    return _REFERENCE.sub(lambda match: parameters.get(match[1], match[0]), word)


def encode_environment(environ: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return what os.fsencode makes of all names and values. Each child has a few of them."""
    return {
        name.encode(_ENCODING, _ERRORS): value.encode(_ENCODING, _ERRORS)
        for name, value in environ.items()
    }


def inherited_environment(environ: Mapping[str, str], programs: str = "") -> dict[str, str]:
    """Return the variables of the endpoint that jobs inherit: none about AWS or another job.

    ``programs`` is the folder of `batchyard-worker`, which jobs must find. It is added at the end
    of PATH, so that it hides no other program.
    """
    inherited = {
        name: value for name, value in environ.items() if not name.startswith(_RESERVED_PREFIXES)
    }
    folders = inherited.get("PATH", os.defpath).split(os.pathsep)
    if programs and programs not in folders:
        inherited["PATH"] = os.pathsep.join([*folders, programs])
    return inherited
