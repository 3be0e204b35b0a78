"""The keys of a pipeline file, as tables: key -> check -> field of the model.

To add a key, add a line, and one to ``pipeline.schema.json``: a test compares the two. What concerns several
keys or steps is in ``reading.py``.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from typing import Any

from batchyard import units
from batchyard.pipeline import (
    AWS_MIN_TIMEOUT_S,
    MAX_ARRAY_SIZE,
    MAX_NAME_LENGTH,
    MAX_RETRIES,
    MAX_STEP_NAME_LENGTH,
    RETRY_WORDS,
    ExitRule,
    Need,
)
from batchyard.pipeline_file import yaml_nodes
from batchyard.pipeline_file.mistakes import Notes, Place
from batchyard.pipeline_file.value_checks import (
    Key,
    amount,
    list_of,
    matching,
    record,
    table_of,
    text,
    whole,
    yes_no,
)
from batchyard.pipeline_file.yaml_nodes import Node, Scalar

#: field -> least and most; the command line's flags for a plain list are held against the same
LIMITS = {
    "array": (1, MAX_ARRAY_SIZE),
    "cpus": (1, 100_000),
    "gpus": (0, 100_000),
    "retries": (0, MAX_RETRIES),
    "max_running": (1, MAX_ARRAY_SIZE),
    "priority": (0, 9_999),  # AWS Batch's schedulingPriority
}
_ENV_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_PARAM_NAME = re.compile("[A-Za-z_][A-Za-z0-9_-]*")
_OUR_PREFIXES = ("AWS_BATCH_", "BATCHYARD_")
_OUR_NAMES = ("ARRAY_SIZE", "LIST_FILE_S3_PATH")
_ARN = re.compile(r"arn:\S+")
_EXIT_CODES = re.compile("([0-9]{1,3})(?:-([0-9]{1,3}))?")


@dataclass(frozen=True, slots=True)
class NeedAt:
    need: Need
    node: Node


@dataclass(frozen=True, slots=True)
class StepDraft:
    """A step's values, each right by itself, before they have been held against each other."""

    node: yaml_nodes.Mapping
    #: field of Step -> value; ``needs`` holds NeedAt, ``commands_file`` the path as written
    values: dict[str, Any]

    @property
    def name(self) -> str:
        """As written, right or not, so that a step that needs a misnamed one is not wrong as well."""
        entry = self.node.entries.get("name")
        return entry[1].text if entry and isinstance(entry[1], Scalar) else ""

    def node_of(self, key: str) -> Node:
        return self.node.entries[key][1] if key in self.node.entries else self.node


def suggest_name(wish: str, at_most: int, prefix: str) -> str:
    """The nearest name that the rules allow; ``prefix`` goes before one that does not begin with a letter."""
    plain = unicodedata.normalize("NFKD", wish).encode("ascii", "ignore").decode().lower()
    name = re.sub("[^a-z0-9]+", "-", plain).strip("-")
    if not name[:1].isalpha():
        name = f"{prefix}-{name}".strip("-")
    return name[:at_most].strip("-")


def command(node: Node, called: str, notes: Notes) -> str | None:
    value: str | None = text("a shell command")(node, called, notes)
    if value is not None and not value.strip():
        notes.wrong(node, f"{called} is empty", "write a shell command")
        return None
    return value.strip() if value else value


def command_line(node: Node, called: str, notes: Notes) -> str | None:
    value = command(node, called, notes)
    if value and ("\n" in value or "\r" in value):
        notes.wrong(
            node, f"{called} has several lines", "write it as one line, or put it in a script"
        )
        return None
    return value


def timeout(node: Node, called: str, notes: Notes) -> int | None:
    value: int | None = amount(units.seconds)(node, called, notes)
    if value is not None:
        warn_of_short_timeout(value, node, called, notes)
    return value


def warn_of_short_timeout(timeout_s: int, at: Place, called: str, notes: Notes) -> None:
    if timeout_s < AWS_MIN_TIMEOUT_S:
        what = (
            f"{called} is {timeout_s} s, and AWS Batch will refuse less than {AWS_MIN_TIMEOUT_S} s"
        )
        notes.warn(at, what, f"write {AWS_MIN_TIMEOUT_S}s or more to run it there")


def exit_rule(node: Node, called: str, notes: Notes) -> ExitRule | None:
    words = ", ".join(RETRY_WORDS)
    expected = f'an exit code from 1 to 255, a range like "64-78", or one of {words}'
    value: str | None = text(expected)(node, called, notes)
    if value is None or value in RETRY_WORDS:
        return ExitRule(word=value) if value else None
    match = _EXIT_CODES.fullmatch(value)
    if not match:
        notes.wrong(node, f"{called} is {units.quoted(value)}", f"write {expected}")
        return None
    first, last = int(match[1]), int(match[2] or match[1])
    if first > last:
        notes.wrong(
            node, f"{called} is {value}, a range from high to low", f'write "{last}-{first}"'
        )
    elif first == 0:
        notes.wrong(
            node, f"{called} is {value}, and exit code 0 is success", "write codes from 1 to 255"
        )
    elif last > 255:
        notes.wrong(
            node,
            f"{called} is {value}, and there is no such exit code",
            "write codes from 1 to 255",
        )
    else:
        return ExitRule(first=first, last=last)
    return None


def workspace_glob(node: Node, called: str, notes: Notes) -> str | None:
    value: str | None = text("a path or pattern in the workspace, like data/**")(
        node, called, notes
    )
    if value is None:
        return None
    if not value or value.startswith("/") or "://" in value or ".." in value.split("/"):
        what = f"{called} is {units.quoted(value)}, which is not inside the workspace"
        notes.wrong(node, what, "write a path or pattern relative to it, like data/**")
        return None
    return value


def need(node: Node, called: str, notes: Notes) -> NeedAt | None:
    if not isinstance(node, yaml_nodes.Mapping):
        step: str | None = text("the name of a step")(node, called, notes)
        return NeedAt(Need(step), node) if step is not None else None
    values = record(NEED_KEYS, node, called, notes)
    if values is None or "step" not in node.entries:
        notes.wrong(node, f"{called} names no step", "write {step: NAME, each: true}")
        return None
    return NeedAt(Need(**values), node.entries["step"][1]) if "step" in values else None


def step(node: Node, called: str, notes: Notes) -> StepDraft | None:
    values = record(STEP_KEYS, node, "a step", notes, "{name: a, command: echo hello}")
    return (
        StepDraft(node, values)
        if isinstance(node, yaml_nodes.Mapping) and values is not None
        else None
    )


def defaults(node: Node, called: str, notes: Notes) -> dict[str, Any] | None:
    if isinstance(node, yaml_nodes.Mapping):
        misplaced = [
            name for name in node.entries if name in STEP_KEYS and name not in DEFAULT_KEYS
        ]
        for name in misplaced:
            notes.wrong(
                node.entries[name][0], f"{name} cannot be a default", "write it in each step"
            )
        node = replace(node, entries={n: e for n, e in node.entries.items() if n not in misplaced})
    return record(DEFAULT_KEYS, node, called, notes, "{cpus: 1, memory: 2GiB}")


def secret_arn(node: Node, called: str, notes: Notes) -> str | None:
    if isinstance(node, Scalar) and _ARN.fullmatch(node.text):
        return node.text
    # What was found is not shown: it may well be the secret itself.
    notes.wrong(
        node, f"{called} is not an ARN", "write the ARN of a secret or parameter, like arn:aws:..."
    )
    return None


def env_name_problem(name: str) -> str:
    if not _ENV_NAME.fullmatch(name):
        return "write letters, digits and _, beginning with a letter or _"
    if name.startswith(_OUR_PREFIXES) or name in _OUR_NAMES:
        return "the engine sets that one itself: choose another name"
    return ""


def param_name_problem(name: str) -> str:
    if _PARAM_NAME.fullmatch(name):
        return ""
    return "write letters, digits, _ and -, beginning with a letter or _"


def _name(at_most: int, prefix: str) -> Any:
    return matching(
        f"[a-z][a-z0-9-]{{0,{at_most - 1}}}",
        f"lower-case letters, digits and -, beginning with a letter, at most {at_most}",
        lambda wish: suggest_name(wish, at_most, prefix),
    )


_value = text('a value, or "" for an empty one')
_env = table_of(env_name_problem, _value, "a mapping, like {OMP_NUM_THREADS: 1}")
_globs = list_of(workspace_glob, "a list of paths or patterns")
_image = matching(
    r"\S{1,255}", "the name of a container image, at most 255 letters, without spaces"
)
_queue = matching(
    "[A-Za-z0-9][A-Za-z0-9_-]{0,127}", "the name of a queue: letters, digits, - and _, at most 128"
)
_share = matching("[A-Za-z0-9]{1,255}", "letters and digits only, at most 255")
_retry_on = list_of(exit_rule, "a list of exit codes or words, one at least", may_be_empty=False)

NEED_KEYS = {"step": Key(text("the name of a step")), "each": Key(yes_no)}

STEP_KEYS = {
    "name": Key(_name(MAX_STEP_NAME_LENGTH, "step")),
    "command": Key(command),
    "commands": Key(list_of(command_line, "a list of commands, one at least", may_be_empty=False)),
    "commands_file": Key(text("the path of a file with one command a line")),
    "array": Key(whole(*LIMITS["array"])),
    "needs": Key(list_of(need, "a list of steps")),
    "inputs": Key(_globs),
    "outputs": Key(_globs),
    "checkpoint": Key(_globs),
    "cpus": Key(whole(*LIMITS["cpus"]), in_defaults=True),
    "memory": Key(amount(units.memory_mib), field="memory_mib", in_defaults=True),
    "gpus": Key(whole(*LIMITS["gpus"]), in_defaults=True),
    "timeout": Key(timeout, field="timeout_s", in_defaults=True),
    "retries": Key(whole(*LIMITS["retries"]), in_defaults=True),
    "retry_on": Key(_retry_on, in_defaults=True),
    "fail_on": Key(list_of(exit_rule, "a list of exit codes"), in_defaults=True),
    "max_running": Key(whole(*LIMITS["max_running"]), in_defaults=True),
    "keep_going": Key(yes_no, in_defaults=True),
    "image": Key(_image, in_defaults=True),
    "env": Key(_env),
    "secrets": Key(
        table_of(
            env_name_problem, secret_arn, "a mapping, like {TOKEN: arn:aws:secretsmanager:...}"
        )
    ),
    "queue": Key(_queue, in_defaults=True),
    "share": Key(_share, in_defaults=True),
    "priority": Key(whole(*LIMITS["priority"]), in_defaults=True),
    "shm": Key(amount(units.memory_mib), field="shm_mib", in_defaults=True),
}

DEFAULT_KEYS = {name: key for name, key in STEP_KEYS.items() if key.in_defaults}

FILE_KEYS = {
    "name": Key(_name(MAX_NAME_LENGTH, "pipeline")),
    "image": Key(_image),
    "env": Key(_env),
    "params": Key(table_of(param_name_problem, _value, "a mapping, like {slices: 64}")),
    "defaults": Key(defaults),
    "steps": Key(
        list_of(step, "a list with at least one step", may_be_empty=False, of_words=False)
    ),
    "workspace": Key(matching(r".+", "a folder, or a prefix like s3://bucket/path")),
    "fail_fast": Key(yes_no),
}
