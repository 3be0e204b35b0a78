"""Recording where children ran: the number of calls, and what a second look adds."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from batchyard.batch.jobs import JobState, Resources
from batchyard.engines.aws.render import Part
from batchyard.engines.aws.run_files import RunFiles
from batchyard.engines.aws.usage_records import UsageRecords
from batchyard.engines.base import CommandDetail, JobDetail, Overview, RunState
from batchyard.engines.usage import LINGER_S, PaidHost, paid_until_s
from batchyard.errors import BusyServiceError
from batchyard.plan import Plan, PlannedJob

CLUSTER = "arn:aws:ecs:us-east-1:123456789012:container-instance/AWSBatch-lab"


class Account:
    """An array on hosts of 16 children each; plays AWS Batch, the hosts, and S3."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size = size
        draw = random.Random(seed)
        self._ends_s = []
        free_s = [1000.0] * 64
        for _ in range(size):
            slot = free_s.index(min(free_s))
            start_s = free_s[slot]
            free_s[slot] += draw.lognormvariate(3, 1)
            self._ends_s.append((start_s, free_s[slot], slot // 16))
        self.now_s = 1000.0
        self.end_s = max(free_s)
        self.describe_calls = 0
        self.host_calls = 0
        self.objects: dict[str, bytes] = {}
        self.refusals: dict[str, None] = {}
        #: whether ECS and EC2 have forgotten the hosts
        self.has_forgotten = False
        self.command_details: list[CommandDetail] = []
        self.command_reads: list[str] = []
        #: children whose only attempt fails
        self.failing: set[int] = set()
        #: the jobs, of equal sizes
        self.job_ids = ["job"]

    @property
    def step_size(self) -> int:
        return self.size // len(self.job_ids)

    # -- AWS Batch --

    def describe(self, ids: Sequence[str]) -> dict[str, Any]:
        self.describe_calls += ceil(len(ids) / 100)
        return {child_id: self.child(child_id) for child_id in ids}

    def slow_down(self, factor: float) -> None:
        """Let all children take longer."""
        self._ends_s = [
            (1000 + (start_s - 1000) * factor, 1000 + (end_s - 1000) * factor, host)
            for start_s, end_s, host in self._ends_s
        ]
        self.end_s = max(end_s for _, end_s, _ in self._ends_s)

    def child(self, child_id: str) -> Any:
        job_id, _, index = child_id.partition(":")
        number = self.job_ids.index(job_id) * self.step_size + int(index or 0)
        start_s, end_s, host = self._ends_s[number]
        requirements = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}]
        container = {"containerInstanceArn": f"{CLUSTER}/{host}"}
        job = {
            "jobId": child_id,
            "status": JobState.FAILED if number in self.failing else self._state(start_s, end_s),
            "startedAt": start_s * 1000,
            "container": {**container, "resourceRequirements": requirements},
        }
        if end_s <= self.now_s:
            times = {"startedAt": start_s * 1000, "stoppedAt": end_s * 1000}
            job["attempts"] = [{"container": container, **times}]
        return job

    def _state(self, start_s: float, end_s: float) -> JobState:
        if end_s <= self.now_s:
            return JobState.SUCCEEDED
        return JobState.RUNNING if start_s <= self.now_s else JobState.RUNNABLE

    def children(self, array_id: str, state: str) -> Iterator[str]:
        for number, (start_s, end_s, _) in enumerate(self._ends_s):
            if self._state(start_s, end_s) == state:
                yield f"{array_id}:{number}"

    def overview(self) -> Overview:
        states = [self._state(start_s, end_s) for start_s, end_s, _ in self._ends_s]
        is_over = states.count(JobState.SUCCEEDED) == self.size
        run_state = RunState.SUCCEEDED if is_over else RunState.RUNNING
        jobs = []
        for number, job_id in enumerate(self.job_ids):
            own_states = states[number * self.step_size : (number + 1) * self.step_size]
            counts = tuple(own_states.count(state) for state in JobState)
            has_ended = own_states.count(JobState.SUCCEEDED) == self.step_size
            state = JobState.SUCCEEDED if has_ended else JobState.PENDING
            step, size = self.step_of(number), self.step_size
            jobs.append(JobDetail(job_id, step, state, "", size, counts, 0, 0, 0, None))
        return Overview(run_state, tuple(jobs), 0, None)

    def step_of(self, number: int) -> str:
        return "a" if len(self.job_ids) == 1 else f"a{number}"

    def commands(self, step: str) -> Iterator[CommandDetail]:
        self.command_reads.append(step)
        yield from self.command_details

    # -- the hosts --

    def find(self, arns: Any) -> dict[str, PaidHost]:
        self.host_calls += 1
        if self.has_forgotten:
            return {}
        capacity = Resources(16, 64_000)
        return {
            arn: PaidHost(f"i-{arn[-1]}", "m5.4xlarge", "us-east-1a", capacity=capacity)
            for arn in arns
        }

    def update(self, hosts: Sequence[PaidHost], now_s: float) -> dict[str, PaidHost]:
        self.host_calls += 1
        if self.has_forgotten:
            return {}
        return {host.id: replace(host, launched_s=990.0) for host in hosts}

    # -- S3 --

    def put(self, address: str, data: bytes, content_type: str = "") -> None:
        self.objects[address] = data

    def get(self, address: str) -> bytes | None:
        return self.objects.get(address)


def recorder(
    account: Any, folder: Path, *, has_list: bool = False, steps: int = 1, **members: Any
) -> UsageRecords:
    if steps > 1:
        account.job_ids = [f"job{number}" for number in range(steps)]
    size = account.step_size
    names = [account.step_of(number) for number in range(steps)]
    command = None if has_list else "true"
    jobs = [
        PlannedJob(name, size, True, Resources(1, 64), step_size=size, command=command, **members)
        for name in names
    ]
    parts = [Part(name, name, size, 0, "d", {}) for name in names]
    files = RunFiles(folder, "s3://bucket/run/", account)
    return UsageRecords(
        Plan("p", tuple(jobs)),
        account,
        account,
        files,
        lambda: list(zip(parts, account.job_ids, strict=True)),
        account.commands,
        "us-east-1",
        lambda: account.now_s,
    )


@pytest.mark.parametrize("room", [98, 10, 0])
@pytest.mark.parametrize("size", [50, 100, 1000])
def test_recording_takes_one_call_for_a_hundred_children_that_ended(
    tmp_path: Path, size: int, room: int
) -> None:
    """``room``: children that a look at the jobs of the run describes, too."""
    account = Account(size)
    records = recorder(account, tmp_path)
    while account.now_s < account.end_s + 5:
        answers = {child_id: account.child(child_id) for child_id in records.next_ids[:room]}
        overview = account.overview()
        records.record(overview, answers)
        ended = overview.jobs[0].count(JobState.SUCCEEDED)
        if overview.state is RunState.RUNNING:
            assert account.describe_calls <= ended // 100
        account.now_s += 5
    assert account.describe_calls <= ceil(size / 100)
    if room == 98:
        # Nearly all children were described by looks at the jobs.
        assert account.describe_calls <= 1
    usage = records.read_local()
    assert usage is not None and len(usage.uses) == size and len(usage.hosts) == 4
    # All is recorded: further looks ask nothing.
    before = account.describe_calls
    records.record(account.overview())
    assert account.describe_calls == before and not records.next_ids


@pytest.mark.parametrize("room", [40, 0])
def test_recording_many_small_steps_takes_no_more_calls(tmp_path: Path, room: int) -> None:
    account = Account(300)
    records = recorder(account, tmp_path, steps=100)
    while account.now_s < account.end_s + 5:
        answers = {child_id: account.child(child_id) for child_id in records.next_ids[:room]}
        records.record(account.overview(), answers)
        account.now_s += 5
    assert account.describe_calls <= (1 if room else 3)
    usage = records.read_local()
    assert usage is not None and len(usage.uses) == 300
    assert len({(use.step, use.index) for use in usage.uses}) == 300


def test_no_host_is_forgotten_while_a_long_array_goes_on(tmp_path: Path) -> None:
    """Children end on hosts that ECS forgets an hour later, and no look has room for them."""
    account = Account(150)
    account.slow_down(100)  # the array takes hours
    records = recorder(account, tmp_path)
    looks = 0
    while account.now_s < account.end_s + 60:
        records.record(account.overview())
        account.now_s, looks = account.now_s + 60, looks + 1
    assert looks > 120
    usage = records.read_local()
    assert usage is not None and {host.type for host in usage.hosts} == {"m5.4xlarge"}
    # Half an hour passes between two calls, if nobody else asks.
    assert account.describe_calls <= looks / 30 + 2


class LateEnd(Account):
    """A child of the middle ends after an hour, all others much later."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._ends_s = [(1000.0, 90_000.0, number // 16) for number in range(size)]
        self._ends_s[size // 2] = (1000.0, 4600.0, 0)


def test_a_child_that_ends_late_takes_a_call_and_not_one_for_each_look(tmp_path: Path) -> None:
    account = LateEnd(60)
    records = recorder(account, tmp_path)
    for account.now_s in range(1000, 5500, 5):
        records.record(account.overview())
    usage = records.read_local()
    assert usage is not None and [use.index for use in usage.uses if use.ended_s] == [30]
    assert account.describe_calls == 1 and account.host_calls == 2


def test_where_the_child_is_not_found_others_are_described_half_an_hour_later(
    tmp_path: Path,
) -> None:
    account = LateEnd(500)
    records = recorder(account, tmp_path)
    for account.now_s in range(1000, 4600 + 2 * 1800 + 60, 5):
        records.record(account.overview())
    assert account.describe_calls == 3 and account.host_calls <= 2 * 7
    usage = records.read_local()
    assert usage is not None and [use.index for use in usage.uses if use.ended_s] == [250]


def test_hosts_are_looked_up_while_no_other_child_ends(tmp_path: Path) -> None:
    account = LateEnd(60)
    account._ends_s[30] = (1000.0, 1100.0, 0)
    records = recorder(account, tmp_path)
    for account.now_s in range(1000, 3000, 5):
        records.record(
            account.overview(), {key: account.child(key) for key in records.next_ids[:98]}
        )
    usage = records.read_local()
    assert account.describe_calls == 0 and usage is not None
    assert {host.type for host in usage.hosts} == {"m5.4xlarge"}
    assert account.host_calls == 2


class Forgotten(LateEnd):
    """AWS Batch forgets the jobs together with the hosts."""

    def describe(self, ids: Sequence[str]) -> dict[str, Any]:
        answers = super().describe(ids)
        return {} if self.has_forgotten else answers


def test_a_child_that_nobody_saw_ending_is_paid_for_until_the_last_look(tmp_path: Path) -> None:
    account = Forgotten(4)
    account.now_s = 2000
    assert len(recorder(account, tmp_path).refresh(account.overview()).uses) == 4
    account.now_s, account.has_forgotten = 2_000_000, True
    usage = recorder(account, tmp_path).refresh(account.overview())
    assert usage.is_final and [use.ended_s for use in usage.uses] == [2000] * 4
    assert "AWS Batch has forgotten 4 children: where they ran is not known" in usage.unknown
    (host,) = usage.hosts
    assert paid_until_s(host, usage.uses, usage.seen_s) == 2000 + LINGER_S


class OnFargate(LateEnd):
    """Each child has failed once, on Fargate, and is tried again."""

    def child(self, child_id: str) -> Any:
        times = {"startedAt": 900_000, "stoppedAt": 950_000}
        job = super().child(child_id)
        return {**job, "container": {}, "attempts": [{"container": {}, **times}]}


def test_attempts_on_fargate_are_counted_once(tmp_path: Path) -> None:
    account = OnFargate(4)
    records = recorder(account, tmp_path)
    for account.now_s in (2000, 3000, 4000, 5000, 100_000):
        usage = records.refresh(account.overview())
    assert usage.unknown == ("4 attempts ran on Fargate, which is not counted",)


def test_prices_that_another_process_adds_change_nothing_else(tmp_path: Path) -> None:
    account = Account(300)
    account.now_s = account.end_s + 10
    usage = recorder(account, tmp_path).refresh(account.overview())
    recorder(account, tmp_path).store_prices({"on_demand": {"m5.4xlarge": 0.768}})
    stored = recorder(account, tmp_path).read_local()
    assert stored is not None and stored.prices and not stored.is_final
    assert (stored.seen_s, stored.unknown) == (usage.seen_s, usage.unknown)
    assert usage.seen_s == account.now_s


class BusyOnce(Account):
    """Answers one DescribeJobs, and then refuses one."""

    def describe(self, ids: Sequence[str]) -> dict[str, Any]:
        if self.describe_calls == 1:
            self.describe_calls += 1
            raise BusyServiceError("AWS Batch is busy")
        return super().describe(ids)


def test_a_call_that_is_refused_loses_no_child_of_the_bill(tmp_path: Path) -> None:
    account = BusyOnce(300)
    account.now_s = account.end_s + 10
    records = recorder(account, tmp_path)
    with pytest.raises(BusyServiceError):
        records.refresh(account.overview())
    assert len(records.refresh(account.overview()).uses) == 300


class EndingMeanwhile(Account):
    """Children that are listed as running have ended when they are described."""

    def describe(self, ids: Sequence[str]) -> dict[str, Any]:
        self.now_s = self.end_s + 1
        return super().describe(ids)


def test_children_may_end_between_two_calls(tmp_path: Path) -> None:
    account = EndingMeanwhile(50)
    account.now_s = 1001.0
    assert recorder(account, tmp_path).refresh(account.overview()).uses


def test_another_machine_goes_on_where_the_first_one_stopped(tmp_path: Path) -> None:
    account = Account(300)
    account.slow_down(20)
    first = recorder(account, tmp_path / "first")
    (tmp_path / "first").mkdir()
    account.now_s = 1000 + (account.end_s - 1000) * 0.7
    for _ in range(3):
        first.record(account.overview(), {key: account.child(key) for key in first.next_ids[:98]})
        account.now_s += 5
    seen = first.read_local()
    assert seen is not None and len(seen.uses) >= 98 and not seen.is_final
    account.now_s = account.end_s + 10
    (tmp_path / "second").mkdir()
    second = recorder(account, tmp_path / "second")
    before = account.describe_calls
    usage = second.refresh(account.overview())
    assert len(usage.uses) == 300 and all(use.ended_s is not None for use in usage.uses)
    assert account.describe_calls - before <= 3
    # The hosts may still end; ten minutes later the run pays no longer for them.
    assert not usage.is_final
    account.now_s += 1000
    assert second.refresh(account.overview()).is_final


def test_commands_that_succeeded_in_a_failed_attempt_are_kept(tmp_path: Path) -> None:
    account = Account(4)
    account.failing = {0, 1}
    account.now_s = account.end_s + 5
    account.command_details = [
        CommandDetail(*("a", n, n // 2, state, 0, "", 1, 1_000_000, 1_003_000, 0.0, 0.0, 0, "", 1))
        for n, state in enumerate((JobState.SUCCEEDED, JobState.FAILED))
    ]
    records = recorder(account, tmp_path, has_list=True, command_count=8)
    usage = records.refresh(account.overview())
    assert {(use.index, use.counts, use.kept_s) for use in usage.uses} == {
        (0, False, 3.0),
        (1, False, 0.0),
        (2, True, 0.0),
        (3, True, 0.0),
    }


def test_records_of_commands_are_read_once_when_the_run_is_over(tmp_path: Path) -> None:
    account = Account(4)
    account.failing = {0, 1}
    records = recorder(account, tmp_path, has_list=True, command_count=8)
    account.now_s = (1000 + account.end_s) / 2
    for _ in range(3):
        records.refresh(account.overview())
    assert not account.command_reads
    account.now_s = account.end_s + 5000
    for _ in range(3):
        records.refresh(account.overview())
    assert account.command_reads == ["a"]


def test_what_a_user_may_not_ask_is_said_and_asked_again_by_others(tmp_path: Path) -> None:
    account = Account(10)
    account.now_s = account.end_s + 5000
    account.has_forgotten = True
    account.refusals = {"hosts of children: access denied": None}
    usage = recorder(account, tmp_path).refresh(account.overview())
    assert not usage.is_final and "hosts of children: access denied" in usage.unknown
    account.refusals, account.has_forgotten = {}, False
    usage = recorder(account, tmp_path).refresh(account.overview())
    assert usage.is_final and {host.type for host in usage.hosts} == {"m5.4xlarge"}
    assert not usage.unknown


def test_a_look_while_the_run_goes_on_has_the_children_that_run(tmp_path: Path) -> None:
    account = Account(100)
    account.now_s = 1001.0
    usage = recorder(account, tmp_path).refresh(account.overview())
    running = [use for use in usage.uses if use.ended_s is None]
    assert len(running) == account.overview().jobs[0].count(JobState.RUNNING)
    assert {host.type for host in usage.hosts} == {"m5.4xlarge"}


def test_where_nobody_watched_the_records_of_workers_tell_the_hosts(tmp_path: Path) -> None:
    account = Account(100)
    account.has_forgotten = True
    account.now_s = account.end_s + 5000
    facts = {"id": "i-7", "type": "m5.large", "zone": "z", "is_spot": True, "launched_s": 900}
    for number in range(100):
        attempt = 1 if number % 2 else 2  # records of another attempt tell nothing about this one
        record = {"attempt": attempt, "host": facts | {"id": f"i-{number}"}}
        account.objects[f"s3://bucket/run/done/a/{number:07d}"] = json.dumps(record).encode()
    usage = recorder(account, tmp_path, outputs=("x",)).refresh(account.overview())
    assert {host.type for host in usage.hosts} == {"m5.large"} and len(usage.hosts) == 4
    assert all(int(host.id[2:]) % 2 for host in usage.hosts) and not usage.unknown
    # A plain command leaves no record: its hosts are not known, and that is said.
    (tmp_path / "plain").mkdir()
    account.objects.clear()
    usage = recorder(account, tmp_path / "plain").refresh(account.overview())
    assert usage.unknown == ("the instance type of 4 hosts is not known",) and usage.is_final
