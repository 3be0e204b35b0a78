"""Types of single values that only pipelines have: commands, timeouts, exit rules, globs, names."""

from __future__ import annotations

import re
from dataclasses import replace

from batchyard import units
from batchyard.batch import limits
from batchyard.child_patterns import is_inside_workspace
from batchyard.pipeline import RETRY_WORDS, ExitRule
from batchyard.pipeline_file import key_limits
from batchyard.pipeline_file.mistakes import Mistakes
from batchyard.pipeline_file.value_types import (
    WEIGHT,
    ValueType,
    check_amount,
    check_text,
    list_of,
    mapping_of,
    matching_text,
    text,
    whole_number,
)
from batchyard.shard import SHARE_OUTS
from batchyard.yaml_positions import Node, Scalar

#: key -> smallest and largest value; `run LIST` holds its flags to the same limits
_RESERVED_PREFIXES = ("AWS_BATCH_", "BATCHYARD_")
_RESERVED_NAMES = ("ARRAY_SIZE", "LIST_FILE_S3_PATH")
_ENV_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = "|".join([*_RESERVED_PREFIXES, *(f"{name}$" for name in _RESERVED_NAMES)])
_PARAM_NAME = re.compile("[A-Za-z_][A-Za-z0-9_-]*")
_ARN = re.compile(r"arn:\S+")
_EXIT_CODES = re.compile("([0-9]{1,3})(?:-([0-9]{1,3}))?")
_MAX_EXIT_CODE = 255
_COMMAND_WORD = re.compile(r"\$\{command\.[^{}]+\}")
_WEIGHT = "a list of numbers, one for each command, or ${command.WORD}"
_WEIGHTS: ValueType = list_of(WEIGHT, _WEIGHT, "list of numbers", may_be_empty=False)
_EXIT_RULE = (
    f'an exit code from 1 to {_MAX_EXIT_CODE}, a range like "64-78", '
    f"or one of {', '.join(RETRY_WORDS)}"
)


def limited_type(key: str) -> ValueType:
    """Return the type of a key that ``key_limits.LIMITS`` has."""
    return whole_number(*key_limits.LIMITS[key])


def name_type(max_length: int, prefix: str) -> ValueType:
    """Return the type of a pipeline's or a step's name; ``prefix`` is that of
    ``suggest_name``."""
    return matching_text(
        "[a-z][a-z0-9-]*",
        f"lower-case letters, digits and -, beginning with a letter, at most {max_length}",
        max_length=max_length,
        suggest=lambda invalid: key_limits.suggest_name(invalid, max_length, prefix),
    )


def _check_command(node: Node, label: str, mistakes: Mistakes) -> str | None:
    value = check_text(node, label, mistakes, "a shell command")
    if value is not None and not value.strip():
        mistakes.add(node, f"{label} is empty", "write a shell command")
        return None
    return value.strip() if value else value


def _check_command_line(node: Node, label: str, mistakes: Mistakes) -> str | None:
    value = _check_command(node, label, mistakes)
    if value and ("\n" in value or "\r" in value):
        suggestion = "write it as one line, or put it in a script"
        mistakes.add(node, f"{label} has several lines", suggestion)
        return None
    return value


def _check_memory(node: Node, label: str, mistakes: Mistakes) -> int | None:
    return check_amount(node, label, mistakes, units.parse_memory)


def _check_duration(node: Node, label: str, mistakes: Mistakes) -> int | None:
    return check_amount(node, label, mistakes, units.parse_duration)


def _check_timeout(node: Node, label: str, mistakes: Mistakes) -> int | None:
    timeout_s = _check_duration(node, label, mistakes)
    if timeout_s is not None:
        key_limits.warn_of_short_timeout(timeout_s, node, label, mistakes)
    return timeout_s


def _check_exit_rule(node: Node, label: str, mistakes: Mistakes) -> ExitRule | None:
    value = check_text(node, label, mistakes, _EXIT_RULE)
    if value is None:
        return None
    if value in RETRY_WORDS:
        return ExitRule(word=value)
    match = _EXIT_CODES.fullmatch(value)
    if not match:
        mistakes.add(node, f"{label} is {units.quote(value)}", f"write {_EXIT_RULE}")
        return None
    first, last = int(match[1]), int(match[2] or match[1])
    problem = _exit_code_problem(first, last)
    if problem:
        mistakes.add(node, f"{label} is {value}, {problem[0]}", problem[1])
        return None
    return ExitRule(first=first, last=last)


def _exit_code_problem(first: int, last: int) -> tuple[str, str] | None:
    """Return what is wrong with a range of exit codes, and what to write instead."""
    valid_codes = f"write codes from 1 to {_MAX_EXIT_CODE}"
    if first > last:
        return "a range from high to low", f'write "{last}-{first}"'
    if first == 0:
        return "and exit code 0 is success", valid_codes
    if last > _MAX_EXIT_CODE:
        return "and there is no such exit code", valid_codes
    return None


def _check_glob(node: Node, label: str, mistakes: Mistakes) -> str | None:
    value = check_text(node, label, mistakes, "a path or pattern in the workspace, like data/**")
    if value is None:
        return None
    if not is_inside_workspace(value):
        problem = f"{label} is {units.quote(value)}, which is not inside the workspace"
        mistakes.add(node, problem, "write a path or pattern relative to it, like data/**")
        return None
    return value


def _check_secret_arn(node: Node, label: str, mistakes: Mistakes) -> str | None:
    if isinstance(node, Scalar) and _ARN.fullmatch(node.text):
        return node.text
    # The message does not quote the value, which may be the secret itself.
    suggestion = "write the ARN of a secret or parameter, like arn:aws:..."
    mistakes.add(node, f"{label} is not an ARN", suggestion)
    return None


def env_name_problem(name: str) -> str:
    if not _ENV_NAME.fullmatch(name):
        return "write letters, digits and _, beginning with a letter or _"
    if name.startswith(_RESERVED_PREFIXES) or name in _RESERVED_NAMES:
        return "the engine sets this variable itself: choose another name"
    return ""


def _param_name_problem(name: str) -> str:
    if _PARAM_NAME.fullmatch(name):
        return ""
    return "write letters, digits, _ and -, beginning with a letter or _"


def _check_weights(node: Node, label: str, mistakes: Mistakes) -> str | tuple[float, ...] | None:
    if not isinstance(node, Scalar):
        weights: tuple[float, ...] | None = _WEIGHTS.check(node, label, mistakes)
        return weights
    value = check_text(node, label, mistakes, _WEIGHT)
    if value is not None and not _COMMAND_WORD.fullmatch(value):
        mistakes.add(node, f"{label} is {units.quote(value)}", f"write {_WEIGHT}")
        return None
    return value


COMMAND = ValueType(_check_command, text("").schema, "text")
COMMAND_LINE = ValueType(_check_command_line, text("").schema, "text")
MEMORY = ValueType(
    _check_memory,
    {
        "type": "string",
        "pattern": rf"^\s*{units.MEMORY_PATTERN}\s*$",
        "examples": ["512MiB", "2GiB", "1.5GiB"],
    },
    "amount",
)
DURATION = ValueType(
    _check_duration,
    {
        "anyOf": [
            {"type": "integer", "minimum": 1},
            {"type": "string", "pattern": rf"^\s*(?=[0-9]){units.DURATION_PATTERN}\s*$"},
            {"type": "string", "pattern": "^[0-9]+$"},
        ],
        "examples": ["90s", "30m", "1h30m", "2d"],
    },
    "time",
)
TIMEOUT = replace(DURATION, check=_check_timeout)
EXIT_RULE = ValueType(
    _check_exit_rule,
    {
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": _MAX_EXIT_CODE},
            {"enum": list(RETRY_WORDS)},
            {"type": "string", "pattern": f"^{_EXIT_CODES.pattern}$"},
        ]
    },
    "exit rule",
)
GLOB = ValueType(
    _check_glob,
    {"type": "string", "minLength": 1, "pattern": r"^(?!/)(?!.*://)(?!(.*/)?\.\.(/|$))"},
    "glob",
)
GLOBS = list_of(GLOB, "a list of paths or patterns", "list of globs")
IMAGE = matching_text(
    r"\S+",
    f"the name of a container image, at most {limits.MAX_IMAGE_CHARS} letters, without spaces",
    max_length=limits.MAX_IMAGE_CHARS,
)
QUEUE = matching_text(
    "[A-Za-z0-9][A-Za-z0-9_-]*",
    f"the name of a queue: letters, digits, - and _, at most {limits.MAX_NAME_CHARS}",
    max_length=limits.MAX_NAME_CHARS,
)
SHARE = matching_text(
    "[A-Za-z0-9]+",
    f"letters and digits only, at most {limits.MAX_SHARE_CHARS}",
    max_length=limits.MAX_SHARE_CHARS,
)
WEIGHTS = ValueType(
    _check_weights,
    {
        "anyOf": [
            {"type": "string", "pattern": f"^{_COMMAND_WORD.pattern}$"},
            _WEIGHTS.schema,
        ]
    },
    "list of numbers, or a word",
)
SHARE_OUT = matching_text("|".join(SHARE_OUTS), "static, strided or dynamic")
LOG_MODE = matching_text("blocking|non-blocking", "blocking or non-blocking")
_VALUE = text('a value, or "" for an empty one')
_ENV_NAME_SCHEMA = f"^(?!{_RESERVED}){_ENV_NAME.pattern}$"
ENV = mapping_of(env_name_problem, _ENV_NAME_SCHEMA, _VALUE, "a mapping, like {OMP_NUM_THREADS: 1}")
PARAMS = mapping_of(
    _param_name_problem, f"^{_PARAM_NAME.pattern}$", _VALUE, "a mapping, like {slices: 64}"
)
SECRETS = mapping_of(
    env_name_problem,
    _ENV_NAME_SCHEMA,
    ValueType(_check_secret_arn, {"type": "string", "pattern": f"^{_ARN.pattern}$"}, "ARN"),
    "a mapping, like {TOKEN: arn:aws:secretsmanager:...}",
)
