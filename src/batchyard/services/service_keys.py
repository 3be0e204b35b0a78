"""The keys of a service file; the reader, the JSON schema and the key reference come from here.

To change a key, change its entry, then run ``docs/generate_pipeline_reference.py``.
"""

from __future__ import annotations

import json
from typing import Any

from batchyard import units
from batchyard.pipeline import MAX_NAME_LENGTH
from batchyard.pipeline_file import container_keys, key_types
from batchyard.pipeline_file.mistakes import Mistakes
from batchyard.pipeline_file.value_types import (
    Key,
    ValueType,
    check_amount,
    check_mapping,
    list_of,
    mapping_schema,
    matching_text,
    text,
    whole_number,
)
from batchyard.services.service import CLUSTERS, NETWORKS, HealthCheck
from batchyard.yaml_positions import Mapping, Node, Sequence

MAX_COUNT = 5000
_MAX_CPUS = 192
_MAX_GPUS = 16
_WORDS = list_of(text("a word of the command"), "a list of words", "list of text")
_HEALTH_EXAMPLE = "{command: curl -f localhost:8888, interval: 30s}"


def _check_command(node: Node, label: str, mistakes: Mistakes) -> tuple[str, ...] | None:
    """Return the words of a command; text is a command of the shell."""
    if isinstance(node, Sequence):
        words: tuple[str, ...] | None = _WORDS.check(node, label, mistakes)
        return words
    command = key_types.COMMAND.check(node, label, mistakes)
    return None if command is None else ("sh", "-c", command)


def _duration(minimum_s: int, maximum_s: int) -> ValueType:
    """Return the type of a time from ``minimum_s`` to ``maximum_s``, both included."""

    def check(node: Node, label: str, mistakes: Mistakes) -> int | None:
        duration_s = check_amount(node, label, mistakes, units.parse_duration)
        if duration_s is None or minimum_s <= duration_s <= maximum_s:
            return duration_s
        expected = f"write a time from {minimum_s}s to {maximum_s}s"
        mistakes.add(node, f"{label} is {units.format_duration(duration_s)}", expected)
        return None

    return ValueType(check, key_types.TIMEOUT.schema, "time")


def _one_of(words: tuple[str, ...]) -> ValueType:
    return matching_text("|".join(words), f"one of {', '.join(words)}")


HEALTH_KEYS = {
    "command": Key(
        key_types.COMMAND,
        "Shell command in the container; it exits with 0 while the service works.",
        is_required=True,
        examples=("curl -f localhost:8888/api",),
    ),
    "interval": Key(_duration(5, 300), "Time between two checks.", "30s", field="interval_s"),
    "timeout": Key(_duration(2, 60), "Time that one check may take.", "5s", field="timeout_s"),
    "retries": Key(
        whole_number(1, 10), "Failures in a row after which the task is replaced.", default=3
    ),
    "start": Key(
        _duration(1, 300),
        "Time after the start of the container in which failures do not count.",
        absence="none",
        field="start_s",
    ),
}


def _check_health(node: Node, label: str, mistakes: Mistakes) -> HealthCheck | None:
    if not isinstance(node, Mapping):
        command = key_types.COMMAND.check(node, label, mistakes)
        return None if command is None else HealthCheck(command)
    values = check_mapping(HEALTH_KEYS, node, label, mistakes, _HEALTH_EXAMPLE)
    if "command" not in node.entries:
        mistakes.add(node, f"{label} has no command", f"write {_HEALTH_EXAMPLE}")
    return HealthCheck(**values) if values and "command" in values else None


_HEALTH = ValueType(
    _check_health,
    {"anyOf": [key_types.COMMAND.schema, mapping_schema(HEALTH_KEYS)]},
    "text or mapping",
)

SERVICE_KEYS = {
    "name": Key(
        key_types.name_type(MAX_NAME_LENGTH, "service"),
        "Name of the service: lower-case letters, digits and `-`, beginning with a letter, at most"
        f" {MAX_NAME_LENGTH}.",
        is_required=True,
        examples=("notebook",),
    ),
    "image": Key(
        key_types.IMAGE,
        "Container image. One that `image push` has pushed to the environment is used exactly as it"
        " was pushed.",
        is_required=True,
        examples=("quay.io/jupyter/pytorch-notebook:cuda12-latest",),
    ),
    "command": Key(
        ValueType(
            _check_command,
            {"anyOf": [key_types.COMMAND.schema, _WORDS.schema]},
            "text or list of text",
        ),
        "Shell command, or the words of a command without a shell.",
        absence="the image's",
        examples=("jupyter lab --ip 0.0.0.0 --port 8888", ["python", "serve.py"]),
    ),
    "count": Key(
        whole_number(0, MAX_COUNT),
        "Tasks that are kept running.",
        absence="1, or what `scale` has set",
        examples=(1,),
    ),
    "cpus": Key(whole_number(1, _MAX_CPUS), "vCPUs of each task.", default=1),
    "memory": Key(
        key_types.MEMORY,
        "Memory of each task, at least 4MiB. A task that uses more is killed.",
        default="2GiB",
        field="memory_mib",
    ),
    "gpus": Key(
        whole_number(0, _MAX_GPUS), "GPUs of each task, for it alone.", default=0, examples=(1,)
    ),
    "ports": Key(
        list_of(whole_number(1, 65535), "a list of ports", "list of numbers", max_items=100),
        "Ports of the container. They are open to nobody: `service forward` brings one to your"
        " machine.",
        examples=([8888],),
    ),
    "env": Key(key_types.ENV, "Environment variables.", examples=({"MODEL": "s3://lab/model"},)),
    "secrets": Key(
        key_types.SECRETS,
        "Environment variables from Secrets Manager or Parameter Store, name to ARN. Their names"
        " begin with that of the environment and `/`.",
        examples=({"TOKEN": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:lab/token"},),
    ),
    "shm": Key(
        key_types.MEMORY,
        "Size of `/dev/shm`. A service with GPUs has half its memory by default.",
        absence="Docker's, 64MiB",
        examples=("1GiB",),
        field="shm_mib",
    ),
    "volumes": Key(
        container_keys.MOUNTS,
        "Folders of the container that are on EFS, on the node, or on its NVMe disks, with the keys"
        " of [`mounts`](pipeline-file.md#keys-of-a-step) in a pipeline file.",
        examples=([{"path": "/work", "efs": "fs-0123456789abcdef0"}],),
    ),
    "health": Key(
        _HEALTH,
        "Shell command that exits with 0 while the service works, or a mapping with the keys below."
        " ECS replaces a task whose check fails.",
        examples=("curl -f localhost:8888/api", {"command": "true", "interval": "1m"}),
    ),
    "network": Key(
        _one_of(NETWORKS),
        "`bridge`: each task has ports of its own on the node. `host`: the ports of the node, so"
        " that a node has one task. `awsvpc`: a network interface and a security group of its own.",
        default="bridge",
    ),
    "cluster": Key(
        _one_of(CLUSTERS),
        "Stack of the environment whose cluster runs the service.",
        absence="`ecs` if it is deployed, else `spotfleet`",
        examples=("spotfleet",),
    ),
}

#: name in the comments of docs/ecs.md -> keys of the table between them
TABLES = {"service": SERVICE_KEYS, "health": HEALTH_KEYS}


def service_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a service file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "batchyard service",
        "description": "A container that ECS keeps up on the cluster of an environment.",
        **mapping_schema(SERVICE_KEYS),
        "examples": [{"name": "notebook", "image": "jupyter/base-notebook", "ports": [8888]}],
    }


def schema_text() -> str:
    """Return the content of ``service.schema.json``."""
    return json.dumps(service_schema(), indent=2) + "\n"
