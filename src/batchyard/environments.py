"""Named AWS set-ups: queues, bucket, roles, repository. From a file of the user's, or from the deployed stacks.

`.batchyard/environments.yaml`, for people who bring their own:

    environments:
      lab:
        region: eu-central-1
        bucket: lab-runs
        queues: {cpu: lab-cpu, gpu: lab-gpu, cpu_on_demand: lab-cpu-od, gpu_on_demand: lab-gpu-od}
        job_role: arn:aws:iam::123456789012:role/lab-job
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from batchyard import json_fields, s3_layout
from batchyard.errors import InputError, from_os_error
from batchyard.pipeline_file import yaml_parsing
from batchyard.pipeline_file.mistakes import Mistakes

FILE_NAME = "environments.yaml"
QUEUES = ("cpu", "gpu", "cpu_on_demand", "gpu_on_demand")

#: a stack's output -> what it is here
_OUTPUTS = {
    "Bucket": "bucket",
    "JobRoleArn": "job_role",
    "ExecutionRoleArn": "execution_role",
    "Repository": "repository",
    "LogGroup": "log_group",
    "DefinitionPrefix": "definition_prefix",
}
_QUEUE_OUTPUTS = {
    "CpuQueue": "cpu",
    "GpuQueue": "gpu",
    "CpuOnDemandQueue": "cpu_on_demand",
    "GpuOnDemandQueue": "gpu_on_demand",
}
#: S3's rules for a name, or an access point's ARN
_BUCKET = re.compile(
    r"(?!.*\.\.)(?![0-9.]+$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]|arn:aws[a-z-]*:s3[a-z-]*:[^/]+"
)
#: until 2018 names could be longer there, and have other letters
_OLD_REGION = "us-east-1"
_OLD_BUCKET = re.compile(r"[A-Za-z0-9._-]{3,255}")
_REGION = re.compile(r"[a-z]+(-[a-z]+)+-[0-9]{1,2}")
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[^\s:]+")
#: setting -> (what it must look like, what it is, for example)
_SHAPES = {
    "region": (_REGION, "region", "us-east-1"),
    "job_role": (_ROLE, "role's ARN", "arn:aws:iam::123456789012:role/lab-job"),
    "execution_role": (_ROLE, "role's ARN", "arn:aws:iam::123456789012:role/lab-execution"),
    "repository": (
        re.compile(r"[a-z0-9][a-z0-9._-]*(:[0-9]+)?(/[a-z0-9._-]+)+|[a-z0-9][a-z0-9._-]*"),
        "repository's address, which has no tag and no https://",
        "123456789012.dkr.ecr.us-east-1.amazonaws.com/lab",
    ),
    "log_group": (re.compile(r"[A-Za-z0-9_/.#-]{1,512}"), "log group's name", "/aws/batch/job"),
    "definition_prefix": (
        re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"),
        "beginning of names: up to 100 letters, digits, - and _",
        "lab",
    ),
    "share": (re.compile(r"[A-Za-z0-9]{1,255}"), "share: letters and digits only", "vision"),
    "prefix": (re.compile(r"(?!s3:)[^\s\\]*"), "folder in the bucket", "team/runs"),
}
#: a queue's name or ARN
_QUEUE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}|arn:aws[a-z-]*:batch:[a-z0-9-]+:[0-9]{12}:job-queue/[\w-]+"
)
#: the stacks of an environment that have these outputs: `<environment>-<name>`
STACKS = ("batch", "storage", "iam", "registry")


@dataclass(frozen=True, slots=True)
class Environment:
    name: str
    region: str
    bucket: str
    #: which: its name or ARN
    queues: Mapping[str, str] = field(default_factory=dict)
    #: where in the bucket runs are kept; empty, or ending with /
    prefix: str = ""
    job_role: str | None = None
    execution_role: str | None = None
    #: of images: its address without a tag
    repository: str | None = None
    #: fair-share identifier, where a step names none
    share: str | None = None
    log_group: str = "/aws/batch/job"
    #: names of job definitions begin with it
    definition_prefix: str = "batchyard"
    profile: str | None = None

    def queue(self, *, needs_gpu: bool, on_demand: bool = False) -> str:
        kind = ("gpu" if needs_gpu else "cpu") + ("_on_demand" if on_demand else "")
        found = self.queues.get(kind)
        if found is None:
            raise InputError(
                f"environment {self.name!r} has no {kind} queue",
                hint=f"it has {', '.join(sorted(self.queues)) or 'none'}; name one for the step with `queue:`",
            )
        return found

    @property
    def runs_address(self) -> str:
        """The s3:// address of all runs of this environment."""
        return s3_layout.runs_address(self.bucket, self.prefix)

    def run_address(self, run_id: str) -> str:
        return s3_layout.run_address(self.bucket, self.prefix, run_id)


def load(
    home: Path,
    name: str,
    deployed: Callable[[str], Mapping[str, str]],
    names: Callable[[], Iterable[str]] = lambda: (),
) -> Environment:
    """The environment of this name: from the file, else from the stacks, whose outputs ``deployed`` fetches.
    ``names``: of all that are deployed, asked only where there is none of this name."""
    known = read(home / FILE_NAME)
    if name in known:
        return known[name]
    outputs = deployed(name)
    if outputs:
        return from_outputs(name, outputs)
    raise InputError(
        f"there is no environment {name!r}: not in {home / FILE_NAME}, and no stack {name}-batch is deployed",
        hint=near_hint(name, [*known, *names()]) or f"`batchyard deploy --env {name}` makes one",
    )


def near_hint(name: str, known: Iterable[str]) -> str:
    """`did you mean ...?`, where one of the known names is near."""
    near = get_close_matches(name, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else ""


def hint_without_region(name: str, known: Iterable[str]) -> str:
    """What to do where the file has no such name, and nothing says in which region to look for a deployed one."""
    in_file = near_hint(name, known) or f"the file has {', '.join(sorted(known)) or 'none'}."
    return (
        f"{in_file} Without a region deployed environments cannot be looked for: set AWS_REGION, or for the endpoint "
        "on this machine, paste the lines that `batchyard emulate` prints"
    )


def read(path: Path) -> dict[str, Environment]:
    """Those of the file; none where there is no file."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as exc:
        raise InputError(
            f"{path} is no UTF-8 text: byte {exc.start + 1} is none", hint="save it as UTF-8"
        ) from exc
    except OSError as exc:
        raise from_os_error(exc, "read", path) from exc
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as exc:
        # The reader of pipelines finds the place, and has plain words for it.
        mistakes = Mistakes(str(path))
        yaml_parsing.parse(text, mistakes)
        mistakes.finish()
        raise InputError(
            f"{path} is no YAML: {exc}", hint="put text in quotes, and indent with spaces"
        ) from exc
    entries = document.get("environments") if isinstance(document, dict) else None
    if not isinstance(entries, dict):
        raise InputError(
            f"{path}: expected `environments:` with a name and its settings under it",
            hint="for example `environments: {lab: {region: eu-central-1, bucket: lab-runs, queues: {cpu: lab-cpu}}}`",
        )
    return {
        str(name): from_mapping(str(name), settings, str(path))
        for name, settings in entries.items()
    }


def from_mapping(name: str, settings: Any, where: str) -> Environment:
    """One entry of the file; raises InputError for what is wrong in it."""
    if not isinstance(settings, dict):
        raise InputError(
            f"{where}: environment {name!r} must be a mapping of settings",
            hint="give it region, bucket and queues",
        )
    known = {one.name for one in fields(Environment)} - {"name"}
    for key in settings:
        if key not in known:
            near = get_close_matches(str(key), known, 1)
            hint = (
                f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(sorted(known))}"
            )
            raise InputError(f"{where}: environment {name!r} has an unknown key {key!r}", hint=hint)
    for key in ("region", "bucket"):
        if not settings.get(key):
            raise InputError(
                f"{where}: environment {name!r} has no {key}", hint=f"add `{key}: ...`"
            )
    queues = settings.get("queues", {})
    if not isinstance(queues, dict) or not queues or set(queues) - set(QUEUES):
        raise InputError(
            f"{where}: environment {name!r}: `queues` must map some of {', '.join(QUEUES)} to the names of job queues"
        )
    wrong = [
        key for key, value in settings.items() if key != "queues" and not isinstance(value, str)
    ]
    wrong += [f"queues.{key}" for key, value in queues.items() if not isinstance(value, str)]
    if wrong:
        raise InputError(f"{where}: environment {name!r}: {', '.join(wrong)} must be text")
    _require_shapes(name, settings, where)
    prefix = settings.get("prefix", "")
    return Environment(
        **{**settings, "name": name, "prefix": f"{prefix.strip('/')}/" if prefix.strip("/") else ""}
    )


def _require_shapes(name: str, settings: Mapping[str, Any], where: str) -> None:
    """What cannot be what it should be is said before anything is done with it."""
    found = f"{where}: environment {name!r}"
    bucket = settings["bucket"]
    is_old = settings["region"] == _OLD_REGION and _OLD_BUCKET.fullmatch(bucket)
    if not _BUCKET.fullmatch(bucket) and not is_old:
        plain, _, below = bucket.removeprefix("s3://").partition("/")
        hint = "3 to 63 lower-case letters, digits, periods and hyphens"
        if bucket.startswith("s3://") and _BUCKET.fullmatch(plain):
            hint = f"write `bucket: {plain}`" + (
                f" and `prefix: {below}`" if below.strip("/") else ""
            )
        raise InputError(f"{found}: {bucket!r} is no bucket's name", hint=hint)
    for key, (shape, what, example) in _SHAPES.items():
        if key in settings and not shape.fullmatch(settings[key]):
            raise InputError(
                f"{found}: {key} is {settings[key]!r}, which is no {what}",
                hint=f"for example {example}",
            )
    for key, queue in settings["queues"].items():
        if not _QUEUE.fullmatch(queue):
            raise InputError(
                f"{found}: queues.{key} is {queue!r}", hint="write a job queue's name or its ARN"
            )


def from_outputs(name: str, outputs: Mapping[str, str]) -> Environment:
    """What `batchyard deploy` has made. ``outputs``: of all its stacks, and `Region`."""
    settings = {ours: outputs[theirs] for theirs, ours in _OUTPUTS.items() if outputs.get(theirs)}
    queues = {
        ours: outputs[theirs] for theirs, ours in _QUEUE_OUTPUTS.items() if outputs.get(theirs)
    }
    if not queues or "bucket" not in settings:
        raise InputError(
            f"environment {name!r} is deployed in part only: it has {', '.join(sorted(outputs)) or 'no outputs'}",
            hint=f"`batchyard deploy --env {name}` completes it",
        )
    return Environment(name=name, region=outputs["Region"], queues=queues, **settings)


def to_json(environment: Environment) -> dict[str, Any]:
    return {**asdict(environment), "queues": dict(environment.queues)}


def from_json(record: Mapping[str, Any]) -> Environment:
    """Return the environment that ``to_json`` wrote. Raises JsonFieldError."""
    environment: Environment = json_fields.read(Environment, record, "environment")
    return environment
