"""The task of the engine for a container of an ECS task: command, environment and limits."""

from __future__ import annotations

from dataclasses import dataclass

from batchyard.batch.changes import Start
from batchyard.batch.jobs import Outcome, StatusReason
from batchyard.emulator.ecs.job_members import METADATA, SIBLINGS, TASK_ID
from batchyard.emulator.ecs.records import Container, EcsTask
from batchyard.emulator.faults import TaskFault
from batchyard.emulator.job_credentials import use_expiring_credentials
from batchyard.emulator.job_tasks import ContainerTasks
from batchyard.emulator.state import Document


def make_document(task: EcsTask, container: Container, machine_memory_mib: int) -> Document:
    """Return a container in the form of a job's document, for the task maker and the logs."""
    spec = container.spec
    instance = task.instance
    return {
        "jobId": container.job_id,
        "container": spec.container,
        "parameters": {},
        "_definition": task.family,
        "_task": {"containers": [{"name": spec.name}]},
        "_overrides_length": 0,
        "_resources": {
            "vcpus": spec.need.cpu_units // 1024,
            "memory_mib": spec.memory_limit_mib or task.spec.need.memory_mib or machine_memory_mib,
            "gpus": spec.need.gpus,
        },
        TASK_ID: task.task_id,
        SIBLINGS: {sibling.spec.name: sibling.number for sibling in task.containers},
        METADATA: {
            "host": instance.ec2_id if instance else task.task_id,
            "path": f"{task.task_id}/v4/{container.runtime_id}",
            "role": task.spec.task_role or "",
            "launch_type": task.launch_type,
        },
    }


@dataclass(slots=True)
class EcsContainerTasks(ContainerTasks):
    """Makes the task of a container."""

    def _command(self) -> tuple[str, ...]:
        container = self.document["container"]
        entry_point = container["entryPoint"]
        # Docker takes the first word of an entry point as a flag.
        words = entry_point[1:] if self.settings.has_images else entry_point
        return (*words, *container["command"])

    def _flags(self) -> tuple[str, ...]:
        flags = ContainerTasks._flags(self)
        container = self.document["container"]
        if container["entryPoint"]:
            flags += ("--entrypoint", container["entryPoint"][0])
        if container["workingDirectory"]:
            flags += ("--workdir", container["workingDirectory"])
        return flags

    def _child_variables(self, start: Start) -> dict[str, str]:
        return {}

    def _shared_variables(self, start: Start) -> dict[str, str]:
        settings, metadata = self.settings, self.document[METADATA]
        address = f"{settings.metadata_address}/{metadata['host']}"
        task_address = f"{settings.metadata_address}/{metadata['path']}"
        client_variables = dict(settings.client_variables)
        if metadata["role"] or settings.faults.settings.credentials:
            client_variables = use_expiring_credentials(client_variables, task_address)
        return {
            **client_variables,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": address,
            "AWS_EXECUTION_ENV": f"AWS_ECS_{metadata['launch_type']}",
            "ECS_CONTAINER_METADATA_URI": task_address,
            "ECS_CONTAINER_METADATA_URI_V4": task_address,
            "ECS_AGENT_URI": task_address,
            **{
                variable["name"]: variable.get("value", "")
                for variable in self.document["container"]["environment"]
            },
        }

    def _find_refusal(self, command: tuple[str, ...]) -> Outcome | None:
        refusal = ContainerTasks._find_refusal(self, command)
        if refusal is None and self.settings.faults.draw_for_task(
            TaskFault.NO_IMAGE, self.document["_definition"]
        ):
            image = self.document["container"]["image"]
            reason = (
                "CannotPullContainerError: pull image manifest has been retried 5 time(s): "
                f"failed to resolve ref {image}: not found"
            )
            return Outcome(None, StatusReason.NOT_STARTED, reason)
        return refusal
