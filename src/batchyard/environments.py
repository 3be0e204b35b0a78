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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from batchyard.errors import BadInput

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
            raise BadInput(
                f"environment {self.name!r} has no {kind} queue",
                hint=f"it has {', '.join(sorted(self.queues)) or 'none'}; name one for the step with `queue:`",
            )
        return found

    def run_address(self, run_id: str) -> str:
        return f"s3://{self.bucket}/{self.prefix}runs/{run_id}/"


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
    raise BadInput(
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
    except (OSError, UnicodeDecodeError) as exc:
        raise BadInput(f"{path} cannot be read: {exc}") from exc
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as exc:
        raise BadInput(f"{path} is no YAML: {exc}") from exc
    entries = document.get("environments") if isinstance(document, dict) else None
    if not isinstance(entries, dict):
        raise BadInput(f"{path}: expected `environments:` with a name and its settings under it")
    return {str(name): from_mapping(str(name), settings, str(path)) for name, settings in entries.items()}


def from_mapping(name: str, settings: Any, where: str) -> Environment:
    """One entry of the file; raises BadInput for what is wrong in it."""
    if not isinstance(settings, dict):
        raise BadInput(f"{where}: environment {name!r} must be a mapping of settings")
    known = {one.name for one in fields(Environment)} - {"name"}
    for key in settings:
        if key not in known:
            near = get_close_matches(str(key), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(sorted(known))}"
            raise BadInput(f"{where}: environment {name!r} has an unknown key {key!r}", hint=hint)
    for key in ("region", "bucket"):
        if not settings.get(key):
            raise BadInput(f"{where}: environment {name!r} has no {key}", hint=f"add `{key}: ...`")
    queues = settings.get("queues", {})
    if not isinstance(queues, dict) or not queues or set(queues) - set(QUEUES):
        raise BadInput(
            f"{where}: environment {name!r}: `queues` must map some of {', '.join(QUEUES)} to the names of job queues"
        )
    wrong = [key for key, value in settings.items() if key != "queues" and not isinstance(value, str)]
    wrong += [f"queues.{key}" for key, value in queues.items() if not isinstance(value, str)]
    if wrong:
        raise BadInput(f"{where}: environment {name!r}: {', '.join(wrong)} must be text")
    prefix = settings.get("prefix", "")
    return Environment(**{**settings, "name": name, "prefix": f"{prefix.strip('/')}/" if prefix.strip("/") else ""})


def from_outputs(name: str, outputs: Mapping[str, str]) -> Environment:
    """What `batchyard deploy` has made. ``outputs``: of all its stacks, and `Region`."""
    settings = {ours: outputs[theirs] for theirs, ours in _OUTPUTS.items() if outputs.get(theirs)}
    queues = {ours: outputs[theirs] for theirs, ours in _QUEUE_OUTPUTS.items() if outputs.get(theirs)}
    if not queues or "bucket" not in settings:
        raise BadInput(
            f"environment {name!r} is deployed in part only: it has {', '.join(sorted(outputs)) or 'no outputs'}",
            hint=f"`batchyard deploy --env {name}` completes it",
        )
    return Environment(name=name, region=outputs["Region"], queues=queues, **settings)


def to_json(environment: Environment) -> dict[str, Any]:
    return {**asdict(environment), "queues": dict(environment.queues)}


def from_json(record: Mapping[str, Any]) -> Environment:
    return Environment(**record)
