"""A run that is stopped before all of its jobs were submitted.

Every query about it has the same answer at the time of the stop and later.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from batchyard import plan as planning
from batchyard import runs
from batchyard.engines.aws import ENGINE
from batchyard.engines.aws.run import AwsRun
from batchyard.engines.aws.submission import RunStoppedError
from batchyard.engines.aws.target import Target
from batchyard.engines.base import PreparedRun, RunRecord, RunState, new_run_id
from batchyard.environments import Environment
from batchyard.errors import OperationalError
from batchyard.folder import RunFolder
from batchyard.pipeline_file import reading

PIPELINE = """\
name: p
image: x
steps:
  - {name: a, command: 'true'}
  - {name: b, needs: [a], command: 'true'}
  - {name: c, needs: [b], command: 'true'}
"""


class Account:
    """A session to AWS Batch and S3, as far as a run needs them."""

    class exceptions:  # noqa: N801 (an attribute of boto3 clients has this name)
        NoSuchKey = KeyError

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.objects: dict[str, bytes] = {}
        #: key -> how often it was asked for
        self.reads: Counter[str] = Counter()
        #: called before each job is submitted, with how many there are
        self.meanwhile: Callable[[int], None] = lambda count: None
        #: called when it was accepted, before the answer
        self.then: Callable[[int], None] = lambda count: None
        #: whether what is told to stop has stopped
        self.is_quick = True
        #: what AWS says when it is asked for the jobs of a queue
        self.refusal: tuple[str, int] | None = None

    def client(self, service: str, *, repeats: bool = True) -> Account:
        return self

    def giving_up_early(self) -> AbstractContextManager[None]:
        return nullcontext()

    def get_paginator(self, operation: str) -> Account:
        return self

    def paginate(self, **request: Any) -> Iterator[dict[str, Any]]:
        if "jobQueue" in request:
            yield self.list_jobs(**request)
        else:
            yield {"jobDefinitions": [], "Contents": []}

    def register_job_definition(self, **request: Any) -> dict[str, Any]:
        return {"jobDefinitionName": request["jobDefinitionName"], "revision": 1}

    def submit_job(self, **request: Any) -> dict[str, str]:
        self.meanwhile(len(self.jobs))
        job_id = f"id-{request['jobName'].rpartition('-')[2]}"
        job = {
            "jobId": job_id,
            "status": "RUNNING",
            "createdAt": 1,
            "startedAt": 2,
            "container": {},
        }
        self.jobs[job_id] = {**job, "jobName": request["jobName"]}
        self.then(len(self.jobs))
        return {"jobId": job_id}

    def list_jobs(self, **request: Any) -> dict[str, Any]:
        if self.refusal is not None:
            code, status = self.refusal
            answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
            raise ClientError(answer, "ListJobs")
        (wanted,) = request["filters"][0]["values"]
        return {
            "jobSummaryList": [
                job
                for job in self.jobs.values()
                if job["jobName"] == wanted
                or (wanted.endswith("*") and job["jobName"].startswith(wanted[:-1]))
            ]
        }

    def describe_jobs(self, jobs: list[str]) -> dict[str, Any]:
        return {"jobs": [self.jobs[job_id] for job_id in jobs if job_id in self.jobs]}

    def terminate_job(self, **request: str) -> None:
        self.jobs[request["jobId"]]["statusReason"] = request["reason"]
        if self.is_quick:
            self.end()

    def end(self) -> None:
        """All that was told to stop has."""
        for job in self.jobs.values():
            if "statusReason" in job:
                job.update(status="FAILED", stoppedAt=9)

    def put_object(self, **request: Any) -> None:
        self.objects[request["Key"]] = request["Body"]

    def get_object(self, **request: str) -> dict[str, Any]:
        self.reads[request["Key"].rpartition("/")[2]] += 1
        return {"Body": io.BytesIO(self.objects[request["Key"]]), "ETag": "etag"}


class ProcessDiedError(Exception):
    """Stands for the death of the process while it submits."""


def begun(folder: Path, pipeline: str = PIPELINE) -> RunRecord:
    file = folder / "pipeline.yaml"
    file.write_text(pipeline)
    plan = planning.make(reading.load(file, {}))
    where = Environment("lab", "us-east-1", "bucket", {"cpu": "q"})
    images = {job.step: "x" for job in plan.jobs}
    target = Target(where, new_run_id(plan), images, "s3://bucket/w/", "me")
    prepared = PreparedRun(plan, target, target.run_id)
    return runs.begin(folder / ".batchyard", ENGINE, prepared, file=file)


def opened(record: RunRecord, account: Account) -> AwsRun:
    """As another process opens it."""
    return AwsRun(record, account, sleep=lambda seconds: None)  # type: ignore[arg-type]


def elsewhere(record: RunRecord, account: Account, folder: Path) -> RunRecord:
    """The run as another machine takes it over."""
    copy = RunFolder(folder / "other" / "runs" / record.run_id)
    copy.path.mkdir(parents=True)
    copy.record.write_bytes(record.folder.record.read_bytes())
    other = runs.read(copy)
    opened(other, account).expect_jobs_of_others()
    return other


def half_submitted(record: RunRecord, account: Account) -> None:
    """The first of three jobs, and no more."""

    def die(count: int) -> None:
        if count == 1:
            raise ProcessDiedError

    account.meanwhile = die
    with pytest.raises(ProcessDiedError):
        opened(record, account).submit(record.plan)
    account.meanwhile = lambda count: None


def stop(record: RunRecord, account: Account) -> None:
    engine = opened(record, account)
    engine.stop(engine.job_ids, "stopped by the user")


def test_it_is_interrupted_until_somebody_stops_it(tmp_path: Path) -> None:
    account, record = Account(), begun(tmp_path)
    half_submitted(record, account)
    now = opened(record, account).overview()
    assert now.state is RunState.RUNNING and now.is_interrupted
    account.is_quick = False
    stop(record, account)
    # AWS is still at it: to be waited for, and not to be resumed.
    now = opened(record, account).overview()
    assert now.state is RunState.RUNNING and not now.is_interrupted
    with pytest.raises(RunStoppedError, match="stopped before all of it was submitted"):
        opened(record, account).start()
    account.end()
    now = opened(record, account).overview()
    assert now.state is RunState.STOPPED and not now.is_interrupted


def test_how_it_ended_is_known_when_aws_has_forgotten(tmp_path: Path) -> None:
    account, record = Account(), begun(tmp_path)
    half_submitted(record, account)
    stop(record, account)
    ended = opened(record, account).overview()
    assert ended.state is RunState.STOPPED
    account.jobs.clear()
    assert opened(record, account).overview() == ended
    assert [job.status_reason for job in ended.jobs] == ["stopped by the user"] + 2 * [
        "stopped before it was submitted"
    ]


def test_what_aws_has_forgotten_before_anybody_looked_is_not_kept_as_the_end(
    tmp_path: Path,
) -> None:
    account, record = Account(), begun(tmp_path)
    half_submitted(record, account)
    stop(record, account)
    account.jobs.clear()
    opened(record, account).overview()
    assert not (record.folder.path / "final.json").exists()


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_stop_while_it_is_being_submitted_ends_that(tmp_path: Path, count: int) -> None:
    """A job that is submitted during the stop is unknown to the process that stops the run.

    The process that submitted the job stops it.
    """
    account, record = Account(), begun(tmp_path)
    account.meanwhile = lambda jobs: stop(record, account) if jobs == count else None
    engine = opened(record, account)
    if count < 2:
        with pytest.raises(RunStoppedError):
            engine.submit(record.plan)
    else:
        engine.submit(record.plan)
    assert [job["statusReason"] for job in account.jobs.values()] == ["stopped by the user"] * (
        count + 1
    )
    assert opened(record, account).overview().state is RunState.STOPPED


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_stop_from_another_machine_ends_the_submitting(tmp_path: Path, count: int) -> None:
    account, record = Account(), begun(tmp_path)

    def stop_elsewhere(jobs: int) -> None:
        if jobs == count:
            stop(elsewhere(record, account, tmp_path), account)

    account.meanwhile = stop_elsewhere
    engine = opened(record, account)
    if count < 2:
        with pytest.raises(RunStoppedError):
            engine.submit(record.plan)
    else:
        engine.submit(record.plan)
    assert [job["statusReason"] for job in account.jobs.values()] == ["stopped by the user"] * (
        count + 1
    )
    assert opened(record, account).overview().state is RunState.STOPPED
    # Nothing more of it is submitted, by whomever.
    account.meanwhile = lambda jobs: pytest.fail("submitted")
    for one in (record, elsewhere(record, account, tmp_path / "third")):
        again = opened(one, account)
        if count < 2:
            with pytest.raises(RunStoppedError):
                again.start()
            with pytest.raises(RunStoppedError):
                again.submit(one.plan)
        else:
            again.submit(one.plan)


def test_whether_somebody_has_stopped_it_is_asked_once_a_job(tmp_path: Path) -> None:
    account, record = Account(), begun(tmp_path)
    opened(record, account).submit(record.plan)
    assert account.reads["stopped.json"] == len(account.jobs) + 1


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_what_a_process_that_died_has_submitted_is_stopped_too(
    tmp_path: Path, is_elsewhere: bool
) -> None:
    """AWS has accepted the second job, and its id came nowhere."""
    account, record = Account(), begun(tmp_path)

    def die(count: int) -> None:
        if count == 2:
            raise ProcessDiedError

    account.then = die
    with pytest.raises(ProcessDiedError):
        opened(record, account).submit(record.plan)
    stop(elsewhere(record, account, tmp_path) if is_elsewhere else record, account)
    assert [job.get("statusReason") for job in account.jobs.values()] == ["stopped by the user"] * 2
    # Whoever comes later knows of both.
    third = opened(elsewhere(record, account, tmp_path / "third"), account)
    assert [job.status_reason for job in third.overview().jobs] == [
        "stopped by the user",
        "stopped by the user",
        "stopped before it was submitted",
    ]


def test_what_cannot_be_looked_for_does_not_keep_the_rest_from_being_stopped(
    tmp_path: Path,
) -> None:
    account, record = Account(), begun(tmp_path)
    half_submitted(record, account)
    account.refusal = ("AccessDenied", 403)
    with pytest.raises(OperationalError, match="jobs in q: could not look for jobs: access denied"):
        stop(record, account)
    assert [job["statusReason"] for job in account.jobs.values()] == ["stopped by the user"]
    account.refusal = ("ClientException", 400)  # the queue is gone, and all jobs with it
    stop(record, account)


def test_another_machine_that_goes_on_with_a_retry_knows_what_need_not_run(tmp_path: Path) -> None:
    account, record = Account(), begun(tmp_path)
    (record.folder.path / "skip.json").write_text('{"a": [0, 3]}')
    opened(record, account).start()
    assert opened(elsewhere(record, account, tmp_path), account).skipped_commands == {"a": [0, 3]}


class Impatient(Account):
    """Notes whether each read of S3 gives up early."""

    def __init__(self) -> None:
        super().__init__()
        self.is_early = False
        self.reads_early: list[bool] = []

    @contextmanager
    def giving_up_early(self) -> Iterator[None]:
        self.is_early = True
        yield
        self.is_early = False

    def paginate(self, **request: Any) -> Iterator[dict[str, Any]]:
        self.reads_early.append(self.is_early)
        return super().paginate(**request)


def test_a_new_run_does_not_wait_long_for_the_lengths_of_an_old_one(tmp_path: Path) -> None:
    account = Impatient()
    pipeline = "{name: p, image: x, steps: [{name: a, commands: [c, d], share_out: dynamic}]}"
    assert list(opened(begun(tmp_path, pipeline), account).durations("a")) == []
    assert account.reads_early and all(account.reads_early)
