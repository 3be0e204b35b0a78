"""The keys of a pipeline file: one table each for the file, a step, and an item of ``needs``.

The reader, the JSON schema (``schema``) and the key reference in the docs (``key_reference``) all
come from these tables. To add a key, add an entry, then run
``docs/generate_pipeline_reference.py``. Rules about several keys or steps are in ``reading``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from batchyard import yaml_positions
from batchyard.batch import limits
from batchyard.pipeline import MAX_NAME_LENGTH, MAX_STEP_NAME_LENGTH, Need
from batchyard.pipeline_file import container_keys, cost_keys, key_types
from batchyard.pipeline_file.key_types import limited_type
from batchyard.pipeline_file.mistakes import Mistakes
from batchyard.pipeline_file.value_types import (
    BOOLEAN,
    Key,
    ValueType,
    check_mapping,
    check_text,
    list_of,
    mapping_schema,
    matching_text,
    text,
)
from batchyard.quick_dataclasses import dataclass
from batchyard.yaml_positions import Node, Scalar

#: The keys that say what a step runs. A step has exactly one of them.
WORK_KEYS = ("command", "commands", "commands_file")


@dataclass(frozen=True, slots=True)
class NeedAt:
    """A step that another one needs, and the node that names it."""

    need: Need
    node: Node


@dataclass(frozen=True, slots=True)
class StepDraft:
    """The values of a step: each is valid by itself, none has been compared with another."""

    node: yaml_positions.Mapping
    #: field of Step -> value; ``needs`` holds NeedAt, ``commands_file`` the path as written
    values: dict[str, Any]

    @property
    def name(self) -> str:
        """The name as written, also an invalid one, so that a step that needs it is no mistake."""
        entry = self.node.entries.get("name")
        return entry[1].text if entry and isinstance(entry[1], Scalar) else ""

    def node_of(self, key: str) -> Node:
        """Return the node of the key's value, or of the whole step where the key is absent."""
        return self.node.entries[key][1] if key in self.node.entries else self.node


def _check_need(node: Node, label: str, mistakes: Mistakes) -> NeedAt | None:
    if not isinstance(node, yaml_positions.Mapping):
        step = check_text(node, label, mistakes, "the name of a step")
        return NeedAt(Need(step), node) if step is not None else None
    values = check_mapping(NEED_KEYS, node, label, mistakes)
    if values is None or "step" not in node.entries:
        mistakes.add(node, f"{label} names no step", "write {step: NAME, each: true}")
        return None
    return NeedAt(Need(**values), node.entries["step"][1]) if "step" in values else None


def _check_step(node: Node, label: str, mistakes: Mistakes) -> StepDraft | None:
    values = check_mapping(STEP_KEYS, node, "a step", mistakes, "{name: a, command: echo hello}")
    if values is None or not isinstance(node, yaml_positions.Mapping):
        return None
    return StepDraft(node, values)


def _check_defaults(node: Node, label: str, mistakes: Mistakes) -> dict[str, Any] | None:
    if isinstance(node, yaml_positions.Mapping):
        misplaced = [name for name in node.entries if name in STEP_KEYS.keys() - DEFAULT_KEYS]
        for name in misplaced:
            key_node = node.entries[name][0]
            mistakes.add(key_node, f"{name} cannot be a default", "write it in each step")
        node = replace(node, entries={n: e for n, e in node.entries.items() if n not in misplaced})
    return check_mapping(DEFAULT_KEYS, node, label, mistakes, "{cpus: 1, memory: 2GiB}")


#: There are 255 exit codes that are no success.
_MAX_EXIT_RULES = 256

_STEP_NAME = text("the name of a step")

NEED_KEYS = {
    "step": Key(_STEP_NAME, "Name of the step to wait for.", is_required=True),
    "each": Key(BOOLEAN, "Child i waits only for child i of that step.", default=False),
}

_NEED = ValueType(
    _check_need, {"anyOf": [_STEP_NAME.schema, mapping_schema(NEED_KEYS)]}, "step or mapping"
)

STEP_KEYS = {
    "name": Key(
        key_types.name_type(MAX_STEP_NAME_LENGTH, "step"),
        "Name of the step, unique in the file: lower-case letters, digits and `-`, beginning with"
        f" a letter, at most {MAX_STEP_NAME_LENGTH}.",
        is_required=True,
        examples=("preprocess",),
    ),
    "command": Key(
        key_types.COMMAND,
        "Shell command, the same in every child. It may have several lines.",
        absence="",
        examples=("python calibrate.py",),
        see="What a step runs",
    ),
    "commands": Key(
        list_of(
            key_types.COMMAND_LINE,
            "a list of commands, one at least",
            "list of text",
            may_be_empty=False,
        ),
        "Shell commands, one line each, shared out among the children. At least one.",
        absence="",
        examples=(["python slice.py 1", "python slice.py 2"],),
    ),
    "commands_file": Key(
        text("the path of a file with one command a line", "path"),
        "File with one shell command a line, shared out among the children."
        " The path is relative to the pipeline file.",
        absence="",
        examples=("reconstruct.txt",),
    ),
    "array": Key(
        limited_type("array"),
        "Number of children.",
        absence="one child, no array",
        examples=(4, 100),
    ),
    "share_out": Key(
        key_types.SHARE_OUT,
        "How the children share the list of commands. `static`: child i gets the i-th part of the"
        " list. `strided`: every n-th command. `dynamic`: each child takes the next commands when"
        " it is free, so that no child is idle while there is work.",
        default="static",
        examples=("dynamic",),
        see="How a list is shared out",
    ),
    "weight": Key(
        key_types.WEIGHTS,
        "How much work each command of a dynamic step is: a list of numbers, or"
        " `${command.WORD}`, a word of the command that is a number. Large ones go first.",
        absence="the times of earlier runs",
        examples=([30, 5, 5], "${command.--frames}"),
        see="Longest first",
    ),
    "needs": Key(
        list_of(_NEED, "a list of steps", "list of steps"),
        "Steps that must succeed before this one starts.",
        examples=(["preprocess"], [{"step": "preprocess", "each": True}]),
        see="Order: needs and each",
    ),
    "cpus": Key(
        limited_type("cpus"), "vCPUs of each child.", default=1, examples=(1, 4), in_defaults=True
    ),
    "memory": Key(
        key_types.MEMORY,
        "Memory of each child, at least 4MiB.",
        default="512MiB",
        field="memory_mib",
        in_defaults=True,
    ),
    "gpus": Key(
        limited_type("gpus"), "GPUs of each child.", default=0, examples=(1,), in_defaults=True
    ),
    "timeout": Key(
        key_types.TIMEOUT,
        "Longest time that one attempt of a child may run. AWS Batch refuses less than "
        f"{limits.MIN_TIMEOUT_S} s.",
        see="Timeouts",
        field="timeout_s",
        in_defaults=True,
    ),
    "expect": Key(
        key_types.DURATION,
        "Usual time of one command. It is used for estimates of cost as long as no earlier run"
        " tells the time.",
        examples=("3m",),
        field="expect_s",
        in_defaults=True,
    ),
    "retries": Key(
        limited_type("retries"),
        "Extra attempts: a child has `retries` + 1.",
        default=0,
        examples=(2, 3),
        see="Retries",
        in_defaults=True,
    ),
    "retry_on": Key(
        list_of(
            key_types.EXIT_RULE,
            "a list of exit codes or words, one at least",
            "list of exit rules",
            may_be_empty=False,
            max_items=_MAX_EXIT_RULES,
        ),
        "Endings of an attempt that are followed by another attempt: exit codes, ranges of exit"
        " codes, and the words `spot`, `oom`, `image` and `any`. At least one.",
        default=["any"],
        examples=(["spot", 75, "64-78"],),
        in_defaults=True,
    ),
    "fail_on": Key(
        list_of(
            key_types.EXIT_RULE,
            "a list of exit codes",
            "list of exit rules",
            max_items=_MAX_EXIT_RULES,
        ),
        "Endings of an attempt that are never followed by another one. `fail_on` goes before"
        " `retry_on`.",
        examples=([2],),
        in_defaults=True,
    ),
    "max_running": Key(
        limited_type("max_running"),
        "Largest number of children of the step that run at the same time.",
        absence="no limit",
        examples=(20,),
        in_defaults=True,
    ),
    "keep_going": Key(
        BOOLEAN,
        "A child runs its remaining commands after one of them failed.",
        default=False,
        see="keep_going and fail_fast",
        in_defaults=True,
    ),
    "env": Key(
        key_types.ENV,
        "Environment variables of this step. They override those of the file.",
        examples=({"OMP_NUM_THREADS": "1"},),
        see="env",
    ),
    "image": Key(
        key_types.IMAGE,
        "Container image, at most 255 letters, no spaces. `--runner docker` uses it, and AWS"
        " requires it.",
        absence="the file's",
        examples=("python:3.12-slim",),
        in_defaults=True,
    ),
    "shm": Key(
        key_types.MEMORY,
        "Size of `/dev/shm` in the container. On AWS, a step with GPUs has half its memory"
        " by default. A process ignores it.",
        absence="the container engine's",
        examples=("1GiB",),
        field="shm_mib",
        in_defaults=True,
    ),
    "inputs": Key(
        key_types.GLOBS,
        "On AWS: files of the workspace that a child downloads before its commands.",
        examples=(["raw/**"],),
        see="Keys for AWS",
    ),
    "outputs": Key(
        key_types.GLOBS,
        "On AWS: files that a child uploads to the workspace after each command.",
        examples=(["flat/**"],),
    ),
    "checkpoint": Key(
        key_types.GLOBS,
        "On AWS: files that are saved when the host is reclaimed, and restored for the next"
        " attempt.",
        examples=(["state/*.npz"],),
    ),
    "secrets": Key(
        key_types.SECRETS,
        "On AWS: environment variables from Secrets Manager or Parameter Store, name to ARN.",
        examples=({"API_TOKEN": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:token"},),
    ),
    "queue": Key(
        key_types.QUEUE,
        "On AWS: job queue to use in place of the environment's. Letters, digits, `-` and `_`,"
        " at most 128.",
        examples=("gpu-spot",),
        in_defaults=True,
    ),
    "share": Key(
        key_types.SHARE,
        "On AWS: fair-share identifier, for queues with a scheduling policy. Letters and digits,"
        " at most 255.",
        examples=("teamA",),
        in_defaults=True,
    ),
    "priority": Key(
        limited_type("priority"),
        "On AWS: scheduling priority within the share. Higher goes first.",
        examples=(50,),
        in_defaults=True,
    ),
    "log_mode": Key(
        key_types.LOG_MODE,
        "On AWS: what happens while CloudWatch Logs takes no output. `blocking` stops commands"
        " that print, `non-blocking` drops lines.",
        default="blocking",
        examples=("non-blocking",),
        in_defaults=True,
    ),
    "mounts": Key(
        container_keys.MOUNTS,
        "Folders of the container that are on EFS, on the host, or on its NVMe disks."
        " On AWS and with `--runner docker`, which has no EFS.",
        examples=([{"path": "/data", "efs": "fs-0123456789abcdef0"}],),
        in_defaults=True,
    ),
    "ulimits": Key(
        container_keys.ULIMITS,
        "Limits of the processes of the container, as `docker run --ulimit` has them. On AWS and"
        " with `--runner docker`.",
        examples=({"nofile": 65536, "memlock": -1},),
        in_defaults=True,
    ),
    "user": Key(
        container_keys.USER,
        "User of the container's processes, by name or number. On AWS and with `--runner docker`.",
        absence="the image's",
        examples=("1000:1000",),
        in_defaults=True,
    ),
}

DEFAULT_KEYS = {name: key for name, key in STEP_KEYS.items() if key.in_defaults}

FILE_KEYS = {
    "name": Key(
        key_types.name_type(MAX_NAME_LENGTH, "pipeline"),
        "Name of the pipeline: lower-case letters, digits and `-`, beginning with a letter, at"
        f" most {MAX_NAME_LENGTH}. Runs are named after it.",
        is_required=True,
        examples=("reconstruction",),
    ),
    "steps": Key(
        list_of(
            ValueType(_check_step, {"$ref": "#/$defs/step"}, "step"),
            "a list with at least one step",
            "list of steps",
            may_be_empty=False,
            suggest_brackets=False,
        ),
        "The steps, at least one. `needs` decides their order, not their order in the file.",
        is_required=True,
    ),
    "image": Key(
        key_types.IMAGE,
        "Container image of the steps that have no `image`.",
        examples=("python:3.12-slim",),
    ),
    "env": Key(
        key_types.ENV,
        "Environment variables of every step.",
        examples=({"OMP_NUM_THREADS": "1"},),
        see="env",
    ),
    "params": Key(
        key_types.PARAMS,
        "Values for `${params.NAME}` in commands and patterns. `--set NAME=VALUE` overrides a"
        " value.",
        examples=({"slices": 64},),
        see="params",
    ),
    "defaults": Key(
        ValueType(_check_defaults, {"$ref": "#/$defs/defaults"}, "mapping"),
        "Values for the steps that do not have the key themselves.",
        examples=({"cpus": 1, "memory": "2GiB", "timeout": "1h", "retries": 2},),
        see="defaults",
    ),
    "workspace": Key(
        matching_text(".+", "a folder, or a prefix like s3://bucket/path"),
        "Folder in which commands run, relative to the pipeline file, or an `s3://` prefix.",
        absence="the file's folder",
        examples=("data", "s3://bucket/prefix"),
        see="workspace",
    ),
    "fail_fast": Key(
        BOOLEAN,
        "Stop the whole run once a child has failed for good.",
        default=False,
        see="keep_going and fail_fast",
    ),
    "spot": Key(
        cost_keys.SPOT,
        "On AWS: when children that spot instances do not finish go on, on demand.",
        absence="they stay on spot",
        examples=({"fallback_after": 2}, {"fallback_after": "15m"}),
        see="spot",
    ),
    "max_cost": Key(
        cost_keys.COST,
        "On AWS: the most that a run may cost, in US dollars. `--max-cost` overrides it.",
        absence="no limit",
        examples=(20, 2.5),
        see="max_cost",
        field="max_cost_usd",
    ),
}
