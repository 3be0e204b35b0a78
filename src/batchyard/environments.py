"""Environments: named AWS set-ups (queues, bucket, roles), from a file or from deployed stacks.

`.batchyard/environments.yaml` names queues and buckets that batchyard did not deploy:

    environments:
      lab:
        region: eu-central-1
        bucket: lab-runs
        queues: {cpu: lab-cpu, gpu: lab-gpu, cpu_on_demand: lab-cpu-od, gpu_on_demand: lab-gpu-od}
        job_role: arn:aws:iam::123456789012:role/lab-job

An environment has queues of AWS Batch, an ECS cluster (`cluster: lab-ecs`), or both. Of a cluster:

        capacity_provider: lab-gpu      # or `launch_type: FARGATE`; default: the cluster's own
        subnets: [subnet-0a1b2c3d]      # only for tasks with a network interface of their own
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from batchyard import json_fields, s3_layout
from batchyard.batch import limits
from batchyard.errors import InputError, from_os_error
from batchyard.folder import environments_file
from batchyard.pipeline_file import yaml_parsing
from batchyard.pipeline_file.mistakes import Mistakes

QUEUES = ("cpu", "gpu", "cpu_on_demand", "gpu_on_demand")

#: output of a stack -> field of Environment
_OUTPUTS = {
    "Bucket": "bucket",
    "JobRoleArn": "job_role",
    "ExecutionRoleArn": "execution_role",
    "Repository": "repository",
    "LogGroup": "log_group",
    "DefinitionPrefix": "definition_prefix",
}
#: field of Environment -> outputs of the stack `ecs`, or else `spotfleet`, which has no provider
_ECS_OUTPUTS = {
    "cluster": "EcsCluster",
    "capacity_provider": "EcsCapacityProvider",
    "task_role": "EcsTaskRoleArn",
    "task_log_group": "EcsLogGroup",
}
_SPOT_FLEET_OUTPUTS = {"cluster": "SpotFleetCluster", "task_log_group": "SpotFleetLogGroup"}
_QUEUE_OUTPUTS = {
    "CpuQueue": "cpu",
    "GpuQueue": "gpu",
    "CpuOnDemandQueue": "cpu_on_demand",
    "GpuOnDemandQueue": "gpu_on_demand",
}
#: a bucket name by S3's rules, or the ARN of an access point
_BUCKET = re.compile(
    r"(?!.*\.\.)(?![0-9.]+$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]|arn:aws[a-z-]*:s3[a-z-]*:[^/]+"
)
#: until 2018 names of buckets in this region could be longer and have other characters
_OLD_REGION = "us-east-1"
_OLD_BUCKET = re.compile(r"[A-Za-z0-9._-]{3,255}")
_REGION = re.compile(r"[a-z]+(-[a-z]+)+-[0-9]{1,2}")
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[^\s:]+")
#: setting -> (pattern, description, example)
_PATTERNS = {
    "region": (_REGION, "a region", "us-east-1"),
    "job_role": (_ROLE, "the ARN of a role", "arn:aws:iam::123456789012:role/lab-job"),
    "execution_role": (_ROLE, "the ARN of a role", "arn:aws:iam::123456789012:role/lab-execution"),
    "task_role": (_ROLE, "the ARN of a role", "arn:aws:iam::123456789012:role/lab-task"),
    "cluster": (
        re.compile(r"[A-Za-z0-9_-]{1,255}|arn:aws[a-z-]*:ecs:[a-z0-9-]+:[0-9]{12}:cluster/[\w-]+"),
        "the name or ARN of an ECS cluster",
        "lab-ecs",
    ),
    "capacity_provider": (
        re.compile(r"[A-Za-z0-9_-]{1,255}"),
        "the name of a capacity provider",
        "lab-gpu-nodes",
    ),
    "repository": (
        re.compile(r"[a-z0-9][a-z0-9._-]*(:[0-9]+)?(/[a-z0-9._-]+)+|[a-z0-9][a-z0-9._-]*"),
        "the address of a repository, without a tag and without https://",
        "123456789012.dkr.ecr.us-east-1.amazonaws.com/lab",
    ),
    "log_group": (
        re.compile(r"[A-Za-z0-9_/.#-]{1,512}"),
        "the name of a log group",
        "/aws/batch/job",
    ),
    "task_log_group": (
        re.compile(r"[A-Za-z0-9_/.#-]{1,512}"),
        "the name of a log group",
        "/batchyard/lab/ecs",
    ),
    "definition_prefix": (
        re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"),
        "the beginning of a name: up to 100 letters, digits, - and _",
        "lab",
    ),
    "share": (
        re.compile(rf"[A-Za-z0-9]{{1,{limits.MAX_SHARE_CHARS}}}"),
        f"a share identifier: up to {limits.MAX_SHARE_CHARS} letters and digits",
        "vision",
    ),
    "assign_public_ip": (re.compile("ENABLED|DISABLED"), "ENABLED or DISABLED", "DISABLED"),
    "launch_type": (re.compile("EC2|FARGATE|EXTERNAL"), "EC2, FARGATE or EXTERNAL", "EC2"),
    "prefix": (re.compile(r"(?!s3:)[^\s\\]*"), "a folder in the bucket", "team/runs"),
}
#: a queue's name or ARN
_QUEUE = re.compile(
    rf"{limits.NAME_PATTERN.pattern}"
    r"|arn:aws[a-z-]*:batch:[a-z0-9-]+:[0-9]{12}:job-queue/[\w-]+"
)
#: stacks of an environment that have these outputs; a stack is named `<environment>-<name>`
STACKS = ("batch", "storage", "iam", "registry", "ecs", "spotfleet")
#: those of them that run jobs or tasks: each of them makes an environment
WORKING_STACKS = ("batch", "ecs", "spotfleet")
#: settings that are lists of ids, and how an id begins
_ID_LISTS = {"subnets": "subnet-", "security_groups": "sg-"}
DEFAULT_LOG_GROUP = "/aws/batch/job"


@dataclass(frozen=True, slots=True)
class Environment:
    name: str
    region: str
    bucket: str
    #: kind of queue (see QUEUES) -> its name or ARN
    queues: Mapping[str, str] = field(default_factory=dict)
    #: folder of the runs in the bucket; empty, or ending with /
    prefix: str = ""
    job_role: str | None = None
    execution_role: str | None = None
    #: address of the repository of images, without a tag
    repository: str | None = None
    #: share identifier of steps that have none
    share: str | None = None
    log_group: str = DEFAULT_LOG_GROUP
    #: beginning of the names of job definitions
    definition_prefix: str = "batchyard"
    profile: str | None = None
    #: whether tasks on Fargate get a public address: ENABLED or DISABLED, as AWS Batch has it
    assign_public_ip: str = "ENABLED"
    #: name or ARN of the ECS cluster that runs tasks; None if the environment has none
    cluster: str | None = None
    #: capacity provider of the cluster; None to run tasks on the hosts that the cluster has
    capacity_provider: str | None = None
    #: role of the code in tasks; the role of jobs if it is None
    task_role: str | None = None
    #: log group of tasks; that of jobs if it is None
    task_log_group: str | None = None
    #: in place of a capacity provider: EC2, FARGATE or EXTERNAL
    launch_type: str | None = None
    #: of tasks with a network interface of their own (awsvpc), as Fargate has them
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()

    def queue(self, *, needs_gpu: bool, on_demand: bool = False) -> str:
        """Return the name or ARN of the queue. Raises InputError if there is none of this kind."""
        kind = ("gpu" if needs_gpu else "cpu") + ("_on_demand" if on_demand else "")
        queue = self.queues.get(kind)
        if queue is None:
            raise InputError(
                f"environment {self.name!r} has no {kind} queue",
                hint=f"it has {', '.join(sorted(self.queues)) or 'none'}; "
                "set the queue of the step with `queue:`",
            )
        return queue

    @property
    def runs_address(self) -> str:
        """The s3:// address of all runs of this environment."""
        return s3_layout.runs_address(self.bucket, self.prefix)

    def run_address(self, run_id: str) -> str:
        return s3_layout.run_address(self.bucket, self.prefix, run_id)


def load(
    home: Path,
    name: str,
    fetch_outputs: Callable[[str], Mapping[str, str]],
    fetch_names: Callable[[], Iterable[str]] = lambda: (),
) -> Environment:
    """Return the environment of this name, from the file or else from the deployed stacks.

    ``fetch_outputs`` returns the outputs of an environment's stacks. ``fetch_names`` returns the
    names of all deployed environments, and is called only if there is none of this name.
    """
    in_file = read(environments_file(home))
    if name in in_file:
        return in_file[name]
    outputs = fetch_outputs(name)
    if outputs:
        return from_outputs(name, outputs)
    hint = near_hint(name, [*in_file, *fetch_names()])
    raise InputError(
        f"there is no environment {name!r}: not in {environments_file(home)}, "
        f"and no stack {' or '.join(f'{name}-{stack}' for stack in WORKING_STACKS)} is deployed",
        hint=hint or f"`batchyard deploy --env {name}` creates one",
    )


def near_hint(name: str, names: Iterable[str]) -> str:
    """Return `did you mean ...?` if one of the names is similar, else an empty text."""
    near = get_close_matches(name, list(names), 1)
    return f"did you mean {near[0]!r}?" if near else ""


def hint_without_region(name: str, names: Iterable[str]) -> str:
    """Return the hint for a name that is not in the file, while no region is set.

    ``names``: the environments of the file.
    """
    in_file = near_hint(name, names) or f"the file has {', '.join(sorted(names)) or 'none'}."
    return (
        f"{in_file} To look for deployed environments, set AWS_REGION; for the endpoint "
        "on this machine, paste the lines that `batchyard emulate` prints"
    )


def read(path: Path) -> dict[str, Environment]:
    """Return the environments of the file by name; none if there is no file. Raises InputError."""
    document = _read_yaml(path)
    if document is None:
        return {}
    entries = document.get("environments") if isinstance(document, dict) else None
    if not isinstance(entries, dict):
        example = "lab: {region: eu-central-1, bucket: lab-runs, queues: {cpu: lab-cpu}}"
        raise InputError(
            f"{path}: expected `environments:` with a name and its settings under it",
            hint=f"for example `environments: {{{example}}}`",
        )
    return {
        str(name): from_mapping(str(name), settings, str(path))
        for name, settings in entries.items()
    }


def _read_yaml(path: Path) -> Any:
    """Return the document of a YAML file (`""` if it is empty); None if there is no file."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as exc:
        raise InputError(
            f"{path} is not UTF-8 text: byte {exc.start + 1} is invalid", hint="save it as UTF-8"
        ) from exc
    except OSError as exc:
        raise from_os_error(exc, "read", path) from exc
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as exc:
        # The parser of pipeline files raises an error with the place of the mistake.
        mistakes = Mistakes(str(path))
        yaml_parsing.parse(text, mistakes)
        mistakes.finish()
        raise InputError(
            f"{path} is not valid YAML: {exc}", hint="put text in quotes, and indent with spaces"
        ) from exc
    return "" if document is None else document


def from_mapping(name: str, settings: Any, file_name: str) -> Environment:
    """Return the environment of one entry of the file. Raises InputError."""
    place = f"{file_name}: environment {name!r}"
    if not isinstance(settings, dict):
        raise InputError(
            f"{place} must be a mapping of settings", hint="give it region, bucket and queues"
        )
    _require_known_keys(settings, place)
    for key in ("region", "bucket"):
        if not settings.get(key):
            raise InputError(f"{place} has no {key}", hint=f"add `{key}: ...`")
    _require_texts(settings, place)
    _require_bucket_name(settings["bucket"], settings["region"], place)
    _require_patterns(settings, place)
    _require_cluster(settings, place)
    prefix = settings.get("prefix", "").strip("/")
    lists = {key: tuple(settings[key]) for key in _ID_LISTS if key in settings}
    return Environment(
        **{**settings, **lists, "name": name, "prefix": f"{prefix}/" if prefix else ""}
    )


def _require_known_keys(settings: Mapping[str, Any], place: str) -> None:
    known_keys = {member.name for member in fields(Environment)} - {"name"}
    for key in settings:
        if key not in known_keys:
            near = near_hint(str(key), known_keys)
            hint = near or f"known are: {', '.join(sorted(known_keys))}"
            raise InputError(f"{place} has an unknown key {key!r}", hint=hint)


def _require_texts(settings: Mapping[str, Any], place: str) -> None:
    queues = settings.get("queues", {})
    has_compute = bool(queues) or "cluster" in settings
    if not isinstance(queues, dict) or not has_compute or set(queues) - set(QUEUES):
        kinds = ", ".join(QUEUES)
        raise InputError(
            f"{place}: `queues` must map one or more of {kinds} to the names of job queues",
            hint="or add `cluster:` with the name of an ECS cluster",
        )
    no_texts = [
        key
        for key, value in settings.items()
        if key not in ("queues", *_ID_LISTS) and not isinstance(value, str)
    ]
    no_texts += [f"queues.{key}" for key, value in queues.items() if not isinstance(value, str)]
    if no_texts:
        raise InputError(f"{place}: {', '.join(no_texts)} must be text")


def _require_bucket_name(bucket: str, region: str, place: str) -> None:
    if _BUCKET.fullmatch(bucket) or (region == _OLD_REGION and _OLD_BUCKET.fullmatch(bucket)):
        return
    hint = "3 to 63 lower-case letters, digits, periods and hyphens"
    bucket_name, _, prefix = bucket.removeprefix("s3://").partition("/")
    if bucket.startswith("s3://") and _BUCKET.fullmatch(bucket_name):
        hint = f"write `bucket: {bucket_name}`"
        if prefix.strip("/"):
            hint += f" and `prefix: {prefix}`"
    raise InputError(f"{place}: {bucket!r} is not the name of a bucket", hint=hint)


def _require_patterns(settings: Mapping[str, Any], place: str) -> None:
    for key, (pattern, description, example) in _PATTERNS.items():
        if key in settings and not pattern.fullmatch(settings[key]):
            raise InputError(
                f"{place}: {key} is {settings[key]!r}, which is not {description}",
                hint=f"for example {example}",
            )
    for kind, queue in settings.get("queues", {}).items():
        if not _QUEUE.fullmatch(queue):
            raise InputError(
                f"{place}: queues.{kind} is {queue!r}", hint="write a job queue's name or its ARN"
            )


def _require_cluster(settings: Mapping[str, Any], place: str) -> None:
    """Raise InputError for settings of a cluster that do not go together."""
    of_cluster = ("capacity_provider", "launch_type", *_ID_LISTS)
    lonely = [key for key in of_cluster if key in settings and "cluster" not in settings]
    if lonely:
        raise InputError(
            f"{place}: {', '.join(lonely)} without a cluster", hint="add `cluster: NAME`"
        )
    if "capacity_provider" in settings and "launch_type" in settings:
        raise InputError(
            f"{place} has both capacity_provider and launch_type", hint="leave one of them out"
        )
    for key, beginning in _ID_LISTS.items():
        ids = settings.get(key, [])
        if not isinstance(ids, list) or not all(
            isinstance(entry, str) and entry.startswith(beginning) for entry in ids
        ):
            raise InputError(
                f"{place}: {key} is {ids!r}", hint=f"write a list of ids: [{beginning}0a1b2c3d]"
            )
    if settings.get("launch_type") == "FARGATE" and not settings.get("subnets"):
        raise InputError(
            f"{place} has launch_type FARGATE and no subnets",
            hint="add `subnets: [subnet-...]`: tasks on Fargate have network interfaces of their "
            "own",
        )


def from_outputs(name: str, outputs: Mapping[str, str]) -> Environment:
    """Return an environment that `batchyard deploy` has created.

    ``outputs``: the outputs of all its stacks, and `Region`.
    """
    settings: dict[str, Any] = {
        member: outputs[output] for output, member in _OUTPUTS.items() if outputs.get(output)
    }
    queues = {
        kind: outputs[output] for output, kind in _QUEUE_OUTPUTS.items() if outputs.get(output)
    }
    settings |= _find_cluster(outputs)
    if not (queues or "cluster" in settings) or "bucket" not in settings:
        raise InputError(
            f"environment {name!r} is deployed in part only: "
            f"it has {', '.join(sorted(outputs)) or 'no outputs'}",
            hint=f"`batchyard deploy --env {name}` completes it",
        )
    return Environment(name=name, region=outputs["Region"], queues=queues, **settings)


def _find_cluster(outputs: Mapping[str, str]) -> dict[str, str]:
    """Return the fields about the ECS cluster: that of the stack `ecs`, or else of `spotfleet`."""
    for members in (_ECS_OUTPUTS, _SPOT_FLEET_OUTPUTS):
        if outputs.get(members["cluster"]):
            return {
                member: outputs[output] for member, output in members.items() if outputs.get(output)
            }
    return {}


def to_json(environment: Environment) -> dict[str, Any]:
    lists = {key: list(getattr(environment, key)) for key in _ID_LISTS}
    return {**asdict(environment), **lists, "queues": dict(environment.queues)}


def from_json(record: Mapping[str, Any]) -> Environment:
    """Return the environment that ``to_json`` wrote. Raises JsonFieldError."""
    environment: Environment = json_fields.read(Environment, record, "environment")
    return environment
