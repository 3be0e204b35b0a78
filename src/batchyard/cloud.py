"""From a pipeline to a run on AWS: which environment, what it needs there, submitting it, following it to its end."""

from __future__ import annotations

import getpass
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from batchyard import environments, runs, s3_layout
from batchyard import plan as planning
from batchyard.aws import cloudformation
from batchyard.aws.batch import Batch
from batchyard.aws.s3 import S3
from batchyard.aws.session import AwsSession, NoRegionError
from batchyard.embedded.lock import RunLock
from batchyard.engines.aws import inputs, render, staging
from batchyard.engines.aws.render import Target
from batchyard.engines.base import RunState
from batchyard.engines.local.reading import load_list
from batchyard.environments import Environment
from batchyard.errors import BatchyardError, InputError, RunNotFoundError
from batchyard.pipeline import Pipeline
from batchyard.plan import Plan
from batchyard.runs import Record

_FIRST_POLL_S, _LONGEST_POLL_S = 1.0, 30.0
_GROWTH = 1.5
#: AWS takes letters, digits and blanks of any script, and these signs
_NOT_IN_TAGS = re.compile(r"[^\w +=.:/@-]")
_LONGEST_TAG = 256


def environment(home: Path, name: str) -> Environment:
    """The environment of this name. Raises InputError."""
    try:
        return environments.load(home, name, cloudformation.outputs_of, _deployed)
    except NoRegionError as exc:
        known = environments.read(home / environments.FILE_NAME)
        where = home / environments.FILE_NAME
        raise NoRegionError(
            f"there is no environment {name!r} in {where}, and nothing says in which region to look for its stacks",
            hint=environments.hint_without_region(name, known),
        ) from exc


def _deployed() -> list[str]:
    """The names of the deployed environments; none where this user may not ask."""
    try:
        summaries = cloudformation.CloudFormation(AwsSession(None)).summaries()
    except BatchyardError:
        return []
    names = [
        one["StackName"]
        for one in summaries
        if one["StackStatus"] in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
    ]
    return sorted(name.removesuffix("-batch") for name in names if name.endswith("-batch"))


def begin(
    home: Path,
    plan: Plan,
    pipeline: Pipeline,
    env: str,
    *,
    on_demand: bool = False,
    use_gpus: bool = True,
    workspace: str | None = None,
    pinned: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> tuple[Record, Sequence[str]]:
    """Records a new run in this environment, which has still to be submitted, and returns what the user should know
    about it. ``workspace``: a folder or an s3:// prefix instead of the pipeline's own; the rest as for ``target``."""
    if not use_gpus:
        plan = planning.without_gpus(plan)
    in_s3 = workspace if workspace is not None and workspace.startswith("s3://") else None
    folder = None if in_s3 else local_workspace(pipeline, workspace)
    where = target(
        plan,
        pipeline,
        environment(home, env),
        runs.new_id(plan),
        on_demand=on_demand,
        workspace=in_s3,
        pinned=pinned,
    )
    notes = [*render.render(plan, where).notes]
    if folder is not None:
        notes += inputs.require(plan, folder)
    return runs.begin(home, plan, where, file=file, workspace=folder), notes


def target(
    plan: Plan,
    pipeline: Pipeline,
    where: Environment,
    run_id: str,
    *,
    on_demand: bool = False,
    workspace: str | None = None,
    pinned: Mapping[str, str] | None = None,
) -> Target:
    """Where the plan's run goes. ``workspace``: an s3:// prefix instead of the run's own; ``pinned``: images by the
    addresses that they were pushed to."""
    images = {job.step: (pinned or {}).get(job.image, job.image) for job in plan.jobs if job.image}
    given = workspace or (
        pipeline.workspace if (pipeline.workspace or "").startswith("s3://") else None
    )
    address = (
        f"{given.rstrip('/')}/" if given else s3_layout.workspace_address(where.run_address(run_id))
    )
    return _with_queues(Target(where, run_id, images, address, user_name(), on_demand), plan)


def _with_queues(found: Target, plan: Plan) -> Target:
    """With what AWS says about the queues. Raises InputError where one is missing or takes no jobs."""
    where = found.environment
    names = sorted({render.queue_of(job, found) for job in plan.jobs})
    known = Batch(AwsSession(where.region, where.profile)).queues(names)
    for name in names:
        if name not in known:
            raise InputError(
                f"there is no job queue {name} in {where.region}",
                hint=f"check the queues and the region of environment {where.name!r}",
            )
        if known[name]["state"] != "ENABLED":
            command = f"aws batch update-job-queue --job-queue {name} --state ENABLED --region {where.region}"
            raise InputError(
                f"job queue {name} is {known[name]['state']}: it takes no jobs",
                hint=f"enable it with `{command}`, or name another queue",
            )
    return replace(
        found,
        fair_queues=frozenset(name for name in names if known[name].get("schedulingPolicyArn")),
    )


def user_name() -> str:
    """For the tags: who began the run."""
    try:
        return tag_text(getpass.getuser())
    except (KeyError, OSError):
        return str(os.getuid())


def tag_text(text: str) -> str:
    """In the characters that a tag's value may have."""
    return _NOT_IN_TAGS.sub("_", text)[:_LONGEST_TAG]


def local_workspace(pipeline: Pipeline, given: str | None) -> Path | None:
    """The folder whose files go to S3 and come back; None where the workspace is in S3 itself."""
    text = given or pipeline.workspace
    if text is not None and text.startswith("s3://"):
        return None
    if given is not None:
        path = Path(given).absolute()
    else:
        path = (pipeline.folder / text).absolute() if text else pipeline.folder
    if not path.is_dir():
        raise InputError(
            f"the workspace {path} is not a folder",
            hint="make it, or name another with --workspace",
        )
    return path


def submit(record: Record, say: Callable[[str], None] = lambda text: None) -> None:
    """Brings the run to AWS: files, lists, jobs. Again after a crash: goes on where it stopped, and repeats nothing."""
    lock = RunLock(record.folder.lock)  # two at once would submit everything twice
    try:
        _submit(record, say)
    finally:
        lock.release()


def _submit(record: Record, say: Callable[[str], None]) -> None:
    engine = record.open_aws()
    engine.require_going()
    if engine.is_submitted:
        return
    place = record.place
    assert isinstance(place, Target)
    if record.workspace:
        sent = staging.send_inputs(
            engine.s3, record.plan.jobs, Path(record.workspace), place.workspace
        )
        if sent:
            say(f"uploaded {sent} input {'files' if sent > 1 else 'file'} to {place.workspace}")
    engine.s3.put(
        place.address + s3_layout.RUN_RECORD, runs.to_text(record).encode(), "application/json"
    )
    engine.keep_skipped()
    engine.submit(_with_lists(record, engine.s3), engine.skipped)


def _with_lists(record: Record, s3: S3) -> Plan:
    """From the run's folder, or where another machine has begun it, from S3."""
    lists = dict(record.plan.lists)
    for job in record.plan.jobs:
        if not job.has_list or job.step in lists:
            continue
        path = record.folder.list_of(job.step)
        if path.exists():
            lists[job.step] = load_list(path)
            continue
        assert isinstance(record.place, Target)
        address = s3_layout.list_address(record.place.address, job.step)
        text = s3.get(address)
        if text is None:
            raise InputError(
                f"the list of {job.step} is not at {address}",
                hint="start the run anew from its file",
            )
        lists[job.step] = text.decode().removesuffix("\n").split("\n")
    return replace(record.plan, lists=lists)


def begin_retry(
    old: Record, *, on_demand: bool = False, say: Callable[[str], None] = lambda text: None
) -> Record:
    """Records a new run of only what failed or never ran in the old one, on the same files. ``say``: where what
    succeeded is known from, if not from AWS Batch."""
    engine = old.open_aws()
    overview = engine.overview()
    if overview.is_interrupted:
        raise InputError(
            f"run {old.run_id} was not submitted whole",
            hint=f"`batchyard resume {old.run_id}` first",
        )
    if overview.state is RunState.RUNNING:
        raise InputError(
            f"run {old.run_id} is still running", hint=f"`batchyard stop {old.run_id}` first"
        )
    children_left, commands_done = engine.unfinished()
    if engine.source:
        say(engine.source)
    if not any(children_left.values()):
        raise InputError(f"run {old.run_id} has nothing to retry: everything in it succeeded")
    plan = planning.only_unfinished(_with_lists(old, engine.s3), children_left)
    place = old.place
    assert isinstance(place, Target)
    where = replace(place, run_id=runs.new_id(plan), on_demand=on_demand or place.on_demand)
    where = _with_queues(where, plan)
    render.render(plan, where)  # what AWS cannot be told is refused before the run is recorded
    home = old.folder.path.parents[1]
    file = Path(old.file) if old.file else None
    workspace = Path(old.workspace) if old.workspace else None
    if old.workspace_here is not None:
        # What cannot be sent is refused before the run is recorded.
        staging.matching(
            old.workspace_here, (pattern for job in plan.jobs for pattern in job.inputs)
        )
    return runs.begin(
        home, plan, where, file=file, retry_of=old.run_id, done=commands_done, workspace=workspace
    )


def fetch(record: Record, folder: Path) -> int:
    """Downloads what the steps have given back. Returns how many files."""
    place = record.place
    assert isinstance(place, Target)
    return staging.fetch_outputs(record.open_aws().s3, record.plan.jobs, folder, place.workspace)


def take_over(home: Path, where: Environment, name: str) -> Record:
    """A run that another machine began, by its id or `last`."""
    s3 = S3(AwsSession(where.region, where.profile))
    prefix = where.runs_address
    if name == "last":
        raise InputError(
            "`last` is about this machine's runs",
            hint=f"`batchyard runs --env {where.name}` lists those in S3",
        )
    text = s3.get(where.run_address(name) + s3_layout.RUN_RECORD)
    if text is None:
        raise RunNotFoundError(
            f"there is no run {name} in {prefix}",
            hint=f"`batchyard runs --env {where.name}` lists them",
        )
    fields = json.loads(text)
    if not Path(fields.get("workspace", "")).is_dir():
        fields["workspace"] = ""  # a folder of the other machine
    record = runs.take_over(home, name, json.dumps(fields, indent=1))
    record.open_aws().look_for_all()
    return record


def known_runs(where: Environment) -> list[str]:
    """The ids of all runs in the environment's bucket."""
    return sorted(S3(AwsSession(where.region, where.profile)).folders(where.runs_address))


class Patience:
    """How long to wait between two looks: longer and longer while nothing changes."""

    def __init__(self, first_s: float = _FIRST_POLL_S, longest_s: float = _LONGEST_POLL_S) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._delay_s = first_s
        self._seen: object = None

    def after(self, seen: object) -> float:
        self._delay_s = (
            self._first_s if seen != self._seen else min(self._longest_s, self._delay_s * _GROWTH)
        )
        self._seen = seen
        return self._delay_s


def wait_until_stopped(
    record: Record, seconds: float, sleep: Callable[[float], None] = time.sleep
) -> bool:
    """Whether all of it has ended within so many seconds."""
    engine = record.open_aws()
    deadline = time.monotonic() + seconds
    while engine.overview().state is RunState.RUNNING:
        if time.monotonic() > deadline:
            return False
        sleep(1.0)
    return True
