"""Who starts when and where: queues, environments, shares, blocked heads; by what really runs
(facts, 7 and 9.1)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from emulator_answers import assert_no_traceback, held_to_account
from emulator_endpoint import Endpoint, until

MAX_RESOURCE = (
    "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE - CE(s) associated with the job queue "
    "cannot meet the CPU requirement of the job."
)
JOB_REQUIREMENT = (
    "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - The job resource requirement (vCPU/memory/GPU) is "
    "higher than that can be met by the CE(s) attached to the job queue."
)
NO_CAPACITY = (
    "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Service cannot fulfill the capacity requested "
    "for instance type [instanceTypeName]"
)
ACTION_REQUIRED = "ACTION_REQUIRED - CE(s) associated with the job queue are invalid."
EVERYTHING = [{"name": "JOB_NAME", "values": ["*"]}]


@pytest.fixture(scope="module", autouse=True)
def as_described(endpoint: Endpoint) -> Iterator[None]:
    yield from held_to_account(endpoint)


@pytest.fixture(autouse=True)
def tidy(endpoint: Endpoint) -> Iterator[None]:
    """Leaves the machine empty for the next test. Each test has queues of its own."""
    older_queues = set(list_queues(endpoint))
    yield
    unfinished = []
    for queue in set(list_queues(endpoint)) - older_queues:
        jobs = endpoint.batch.list_jobs(jobQueue=queue, filters=EVERYTHING)["jobSummaryList"]
        unfinished += [job["jobId"] for job in jobs if job["status"] not in ("SUCCEEDED", "FAILED")]
    for job_id in unfinished:
        endpoint.batch.terminate_job(jobId=job_id, reason="the test is over")
    for job_id in unfinished:
        endpoint.wait(job_id)


def list_queues(endpoint: Endpoint) -> list[str]:
    return [queue["jobQueueArn"] for queue in endpoint.batch.describe_job_queues()["jobQueues"]]


@pytest.fixture
def gate(endpoint: Endpoint, tmp_path: Path) -> Path:
    """Jobs of `hold` end when this file is there."""
    return tmp_path / "gate"


def hold(endpoint: Endpoint, queue: str, gate: Path, vcpus: int = 1, **members: Any) -> str:
    """A job that runs, and has its vCPUs, until the gate opens."""
    definition = endpoint.definition(
        "hold", "sh", "-c", f"until [ -e {gate} ]; do sleep 0.1; done", vcpus=vcpus
    )
    job_id = endpoint.submit(definition, queue, **members)
    endpoint.wait(job_id, "RUNNING")
    return job_id


def note(endpoint: Endpoint, queue: str, book: Path, word: str, **members: Any) -> str:
    """A job that writes a word into a book; one vCPU."""
    definition = endpoint.definition("note", "sh", "-c", f"echo {word} >> {book}")
    return endpoint.submit(definition, queue, **members)


def written(endpoint: Endpoint, book: Path, ids: list[str]) -> list[str]:
    for job_id in ids:
        assert endpoint.wait(job_id)["status"] == "SUCCEEDED"
    return book.read_text().split()


def status(endpoint: Endpoint, job_id: str) -> str:
    return str(endpoint.job(job_id)["status"])


def count(endpoint: Endpoint, array: str, state: str = "RUNNING") -> int:
    return int(endpoint.job(array)["arrayProperties"]["statusSummary"][state])


def settled(endpoint: Endpoint, total: int, *arrays: str) -> dict[str, int]:
    """How many children of each array run a moment after ``total`` of them do."""

    def counts() -> dict[str, int]:
        return {array: count(endpoint, array) for array in arrays}

    # On a busy machine they start one by one, with pauses: only the number tells that all have.
    until(lambda: sum(counts().values()), lambda running: running >= total)
    time.sleep(0.2)
    return counts()


def most_at_once(times: list[tuple[int, int]]) -> int:
    """Of (begin, end): how many there were at the fullest moment."""
    steps = sorted([(begin, 1) for begin, _ in times] + [(end, -1) for _, end in times])
    most = running = 0
    for _, step in steps:
        running += step
        most = max(most, running)
    return most


def blocked(endpoint: Endpoint, job_id: str) -> str:
    """What a RUNNABLE job says, once it says something."""
    return str(
        until(lambda: endpoint.job(job_id), lambda job: job.get("statusReason"))["statusReason"]
    )


# -- maxvCpus -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("vcpus", "at_once"), [(1, 3), (2, 1)])
def test_max_vcpus_is_a_cap_on_what_runs_at_once(
    endpoint: Endpoint, gate: Path, vcpus: int, at_once: int
) -> None:
    """5.3 and 8.1: instances count whole, of one vCPU or of two."""
    endpoint.queue(f"capped-{vcpus}", endpoint.environment(f"capped-{vcpus}", vcpus=3))
    script = f"date +%s%N; until [ -e {gate} ]; do sleep 0.02; done; sleep 0.1; date +%s%N"
    definition = endpoint.definition("stamps", "sh", "-c", script, vcpus=vcpus)
    array = endpoint.submit(
        definition, f"capped-{vcpus}", arrayProperties={"size": 6 if vcpus == 1 else 3}
    )
    assert settled(endpoint, at_once, array) == {array: at_once}
    gate.touch()
    size = endpoint.wait(array)["arrayProperties"]["statusSummary"]["SUCCEEDED"]
    times = [tuple(map(int, endpoint.output(f"{array}:{index}"))) for index in range(size)]
    # Those that follow may come one by one on a busy machine, and never too many.
    assert 1 <= most_at_once([(begin, end) for begin, end in times]) <= at_once


def test_max_vcpus_can_be_raised_and_lowered(endpoint: Endpoint) -> None:
    """8.10: a scaling update works at once; what runs goes on."""
    endpoint.queue("scaled", endpoint.environment("scaled", vcpus=1))
    array = endpoint.run("sleep", "600", queue="scaled", arrayProperties={"size": 6})
    assert settled(endpoint, 1, array) == {array: 1}
    endpoint.batch.update_compute_environment(
        computeEnvironment="scaled", computeResources={"maxvCpus": 3}
    )
    assert settled(endpoint, 3, array) == {array: 3}
    endpoint.batch.update_compute_environment(
        computeEnvironment="scaled", computeResources={"maxvCpus": 2}
    )
    endpoint.batch.terminate_job(jobId=f"{array}:0", reason="leaves two")
    endpoint.wait(f"{array}:0")
    assert settled(endpoint, 2, array) == {array: 2}


def test_two_environments_share_the_machine(start: Callable[..., Endpoint]) -> None:
    """Ours: environments are pretended, the machine is not. What all of them run is never more
    than it has."""
    endpoint = start("--cpus", "3", "--memory", "1GiB")
    arrays = []
    for name in ("left", "right"):
        endpoint.queue(name, endpoint.environment(name, vcpus=2))
        arrays.append(endpoint.run("sleep", "600", queue=name, arrayProperties={"size": 4}))
    assert settled(endpoint, 3, *arrays) == {arrays[0]: 2, arrays[1]: 1}
    endpoint.batch.terminate_job(jobId=f"{arrays[0]}:0", reason="makes room")
    endpoint.batch.terminate_job(jobId=f"{arrays[0]}:1", reason="makes room")
    for index in (0, 1):
        endpoint.wait(f"{arrays[0]}:{index}")
    assert sum(settled(endpoint, 3, *arrays).values()) == 3
    # The machine's memory is a bound too.
    large = endpoint.submit(endpoint.definition("large", "true", memory_mib=900), "left")
    for array in arrays:
        endpoint.batch.terminate_job(jobId=array, reason="done")
    assert endpoint.wait(large)["status"] == "SUCCEEDED"
    assert_no_traceback(endpoint)


# -- queues and environments ----------------------------------------------------------------------


def test_first_in_first_out(endpoint: Endpoint, gate: Path, tmp_path: Path) -> None:
    """7: a queue without a policy goes by submission; priorities of jobs count for nothing
    there."""
    endpoint.queue("fifo", endpoint.environment("fifo", vcpus=1))
    hold(endpoint, "fifo", gate)
    words = ["a", "b", "c", "d"]
    ids = [
        note(endpoint, "fifo", tmp_path / "book", word, schedulingPriorityOverride=number)
        for number, word in enumerate(words)
    ]
    gate.touch()
    assert written(endpoint, tmp_path / "book", ids) == words


def test_a_higher_queue_goes_first(endpoint: Endpoint, gate: Path, tmp_path: Path) -> None:
    """7: where queues share an environment, the one of higher priority is looked at first; a
    change counts at once."""
    endpoint.environment("common", vcpus=1)
    endpoint.queue("low", "common", priority=1)
    endpoint.queue("high", "common", priority=10)
    hold(endpoint, "low", gate)
    book = tmp_path / "book"
    ids = [note(endpoint, queue, book, queue) for queue in ("low", "low", "high", "high")]
    gate.touch()
    assert written(endpoint, book, ids) == ["high", "high", "low", "low"]
    gate.unlink()
    book.unlink()
    hold(endpoint, "low", gate)
    ids = [note(endpoint, queue, book, queue) for queue in ("high", "low")]
    endpoint.batch.update_job_queue(jobQueue="low", priority=11)
    gate.touch()
    assert written(endpoint, book, ids) == ["low", "high"]


def test_environments_are_filled_in_their_order(endpoint: Endpoint) -> None:
    """7: by `order`, not by place in the list; the next one when the one before is full. The job
    knows where it is."""
    for name, vcpus in (("first", 1), ("second", 2)):
        endpoint.environment(name, vcpus=vcpus)
    endpoint.batch.create_job_queue(
        jobQueueName="ordered",
        priority=1,
        computeEnvironmentOrder=[
            {"order": 20, "computeEnvironment": "second"},
            {"order": 10, "computeEnvironment": "first"},
        ],
    )
    say = ("sh", "-c", "echo $AWS_BATCH_CE_NAME; exec sleep 600")
    array = endpoint.run(*say, queue="ordered", arrayProperties={"size": 4})
    assert settled(endpoint, 3, array) == {array: 3}
    outputs = [
        until(lambda index=index: endpoint.output(f"{array}:{index}"), bool) for index in range(3)
    ]
    assert outputs == [["first"], ["second"], ["second"]]


def test_a_disabled_environment_takes_nothing_new(endpoint: Endpoint, gate: Path) -> None:
    """8.1: what runs in it goes on; new jobs go to the next one; enabled again it is used again."""
    for name in ("off-and-on", "spare"):
        endpoint.environment(name, vcpus=1)
    endpoint.queue("detour", "off-and-on", "spare")
    running = hold(endpoint, "detour", gate)
    endpoint.batch.update_compute_environment(computeEnvironment="off-and-on", state="DISABLED")
    print_environment = ("sh", "-c", "echo $AWS_BATCH_CE_NAME")
    job_id = endpoint.run(*print_environment, queue="detour")
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"
    assert endpoint.output(job_id) == ["spare"]
    assert status(endpoint, running) == "RUNNING"
    gate.touch()
    assert endpoint.wait(running)["status"] == "SUCCEEDED"
    endpoint.batch.update_compute_environment(computeEnvironment="off-and-on", state="ENABLED")
    job_id = endpoint.run(*print_environment, queue="detour")
    endpoint.wait(job_id)
    assert endpoint.output(job_id) == ["off-and-on"]


def test_a_queue_can_be_given_another_environment(endpoint: Endpoint, gate: Path) -> None:
    """7: what waits goes there."""
    endpoint.environment("crowded", vcpus=1)
    endpoint.environment("empty", vcpus=1)
    endpoint.queue("moves", "crowded")
    hold(endpoint, "moves", gate)
    job_id = endpoint.run("sh", "-c", "echo $AWS_BATCH_CE_NAME", queue="moves")
    assert status(endpoint, job_id) == "RUNNABLE"
    endpoint.batch.update_job_queue(
        jobQueue="moves", computeEnvironmentOrder=[{"order": 1, "computeEnvironment": "empty"}]
    )
    endpoint.wait(job_id)
    assert endpoint.output(job_id) == ["empty"]


def test_an_environment_of_the_same_name(endpoint: Endpoint, gate: Path) -> None:
    """One that is deleted and made again has instances of its own."""
    endpoint.environment("renewed", vcpus=2)
    endpoint.environment("meanwhile", vcpus=1)
    endpoint.queue("renewing", "renewed")
    old = hold(endpoint, "renewing", gate, vcpus=2)
    endpoint.batch.update_job_queue(
        jobQueue="renewing",
        computeEnvironmentOrder=[{"order": 1, "computeEnvironment": "meanwhile"}],
    )
    endpoint.batch.update_compute_environment(computeEnvironment="renewed", state="DISABLED")
    endpoint.batch.delete_compute_environment(computeEnvironment="renewed")
    assert status(endpoint, old) == "RUNNING"
    endpoint.queue("renewed", endpoint.environment("renewed", vcpus=2))
    new = endpoint.run("true", queue="renewed")
    assert endpoint.wait(new)["status"] == "SUCCEEDED"
    assert status(endpoint, old) == "RUNNING"
    gate.touch()
    assert endpoint.wait(old)["status"] == "SUCCEEDED"


def test_ones_own_instances(endpoint: Endpoint) -> None:
    """8.1: an UNMANAGED environment has the instances that its owner gives it: here, this
    machine."""
    endpoint.batch.create_compute_environment(
        computeEnvironmentName="own",
        type="UNMANAGED",
        serviceRole="arn:aws:iam::123456789012:role/batch",
    )
    endpoint.queue("own", "own")
    assert (
        endpoint.wait(endpoint.submit(endpoint.definition("on-own", "true", gpus=2), "own"))[
            "status"
        ]
        == "SUCCEEDED"
    )


def test_this_machine_is_the_instance_in_the_cluster_of_ones_own(endpoint: Endpoint) -> None:
    endpoint.batch.create_compute_environment(
        computeEnvironmentName="mine", type="UNMANAGED", serviceRole="any"
    )
    (mine,) = endpoint.batch.describe_compute_environments(computeEnvironments=["mine"])[
        "computeEnvironments"
    ]
    cluster = mine["ecsClusterArn"]
    ecs = endpoint.client("ecs")
    (arn,) = ecs.list_container_instances(cluster=cluster)["containerInstanceArns"]
    # By its name too, and the same every time.
    by_name = ecs.list_container_instances(cluster=cluster.rpartition("/")[2], status="ACTIVE")
    assert by_name["containerInstanceArns"] == [arn]
    assert (
        ecs.list_container_instances(cluster=cluster, status="DRAINING")["containerInstanceArns"]
        == []
    )
    answer = ecs.describe_container_instances(cluster=cluster, containerInstances=[arn, "other"])
    (machine,) = answer["containerInstances"]
    assert (
        machine["containerInstanceArn"] == arn
        and machine["agentConnected"]
        and machine["status"] == "ACTIVE"
    )
    resources = {entry["name"]: entry for entry in machine["registeredResources"]}
    assert resources["CPU"]["integerValue"] == 8 * 1024
    assert resources["MEMORY"]["integerValue"] == 16 * 1024
    assert len(resources["GPU"]["stringSetValue"]) == 2
    assert answer["failures"] == [{"arn": "other", "reason": "MISSING"}]
    endpoint.queue("mine", "mine")
    job_id = endpoint.run("sleep", "600", queue="mine")
    endpoint.wait(job_id, "RUNNING")
    (machine,) = ecs.describe_container_instances(cluster=cluster, containerInstances=[arn])[
        "containerInstances"
    ]
    left = {entry["name"]: entry for entry in machine["remainingResources"]}
    assert left["CPU"]["integerValue"] == 7 * 1024
    endpoint.batch.terminate_job(jobId=job_id, reason="the test is over")
    endpoint.wait(job_id)
    only_other = ecs.describe_container_instances(cluster=cluster, containerInstances=["other"])
    assert only_other["containerInstances"] == []
    with pytest.raises(ClientError, match="no filter"):
        ecs.list_container_instances(cluster=cluster, filter="attribute:a == b")


def test_a_job_on_ones_own_instance_sees_the_instance_of_the_cluster(endpoint: Endpoint) -> None:
    endpoint.batch.create_compute_environment(
        computeEnvironmentName="seen", type="UNMANAGED", serviceRole="any"
    )
    endpoint.queue("seen", "seen")
    ask = """
    base=$AWS_EC2_METADATA_SERVICE_ENDPOINT/latest
    ttl='X-aws-ec2-metadata-token-ttl-seconds: 60'
    token=$(curl -s -X PUT -H "$ttl" $base/api/token)
    curl -s -H "X-aws-ec2-metadata-token: $token" $base/meta-data/instance-id
    """
    job = endpoint.wait(endpoint.run("sh", "-c", ask, queue="seen"))
    arn = job["container"]["containerInstanceArn"]
    (machine,) = endpoint.client("ecs").describe_container_instances(
        cluster=arn.split("/")[1], containerInstances=[arn]
    )["containerInstances"]
    assert endpoint.output(job["jobId"]) == [machine["ec2InstanceId"]]


def test_other_clusters_are_as_they_were(endpoint: Endpoint) -> None:
    """Those of managed environments have no instances here, and those that somebody made are
    moto's."""
    endpoint.environment("launches")
    (environment,) = endpoint.batch.describe_compute_environments(computeEnvironments=["launches"])[
        "computeEnvironments"
    ]
    ecs = endpoint.client("ecs")
    assert (
        ecs.list_container_instances(cluster=environment["ecsClusterArn"])["containerInstanceArns"]
        == []
    )
    ecs.create_cluster(clusterName="made")
    assert ecs.list_container_instances(cluster="made")["containerInstanceArns"] == []


def test_a_job_that_is_larger_than_the_endpoint_is_said_to_be_so_once(
    start: Callable[..., Endpoint],
) -> None:
    endpoint = start("--cpus", "2", "--memory", "1GiB")
    endpoint.queue("queue", endpoint.environment("cpu", types=("m6i",)))
    large = endpoint.submit(endpoint.definition("large", "true", memory_mib=512_000), name="large")
    wide = endpoint.submit(endpoint.definition("wide", "true", vcpus=4, gpus=1), name="wide")
    # Behind those two it would wait as well.
    fits = endpoint.submit(
        endpoint.definition("fits", "true"), endpoint.queue("other", "cpu"), name="fits"
    )
    assert endpoint.wait(fits)["status"] == "SUCCEEDED"
    output = until(
        lambda: endpoint.said.read_text(), lambda text: f"{fits}  fits: SUCCEEDED" in text
    )
    lines = [line for line in output.splitlines() if "can never be placed here" in line]
    # Jobs of one moment are told of in any order.
    lines.sort(key=lambda line: large not in line)
    assert [line.partition(": ")[2] for line in lines] == [
        "can never be placed here: asks 512,000 MiB, this endpoint has 1,024 MiB; "
        "start it with more: --memory",
        "can never be placed here: asks 4 vCPUs, 1 GPUs, this endpoint has 2 vCPUs, 0 GPUs; "
        "start it with more: --cpus, --gpus",
    ]
    assert large in lines[0] and wide in lines[1]
    endpoint.stop()
    # Started anew it has enough for one of them.
    start("--cpus", "4", "--gpus", "1", "--memory", "1GiB")
    (line,) = [
        line
        for line in endpoint.said.read_text()[len(output) :].splitlines()
        if "can never" in line
    ]
    assert large in line


# -- GPUs -----------------------------------------------------------------------------------------


def test_gpus_are_given_whole_and_to_one_job_at_a_time(endpoint: Endpoint) -> None:
    """5.3: two pretended ones, three jobs; the third gets what the first gave back. Jobs without
    GPUs may pass."""
    endpoint.queue("gpus", endpoint.environment("gpus", types=("g5",)))
    command = ("sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES; exec sleep 600")
    one_gpu = endpoint.definition("one-gpu", *command, gpus=1)
    ids = [endpoint.submit(one_gpu, "gpus") for _ in range(3)]
    for job_id in ids[:2]:
        endpoint.wait(job_id, "RUNNING")
    gpu_lists = [
        until(lambda job_id=job_id: endpoint.output(job_id), bool)[0] for job_id in ids[:2]
    ]
    assert sorted(gpu_lists) == ["0", "1"]
    assert endpoint.wait(endpoint.run("true", queue="gpus"))["status"] == "SUCCEEDED"
    assert status(endpoint, ids[2]) == "RUNNABLE"
    assert "statusReason" not in endpoint.job(ids[2])
    endpoint.batch.terminate_job(jobId=ids[1], reason="gives it back")
    endpoint.wait(ids[2], "RUNNING")
    assert until(lambda: endpoint.output(ids[2]), bool) == [gpu_lists[1]]
    both = endpoint.submit(
        endpoint.definition("two-gpus", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES", gpus=2), "gpus"
    )
    for job_id in (ids[0], ids[2]):
        endpoint.batch.terminate_job(jobId=job_id, reason="gives it back")
    endpoint.wait(both)
    assert endpoint.output(both) == ["0,1"]


# -- what can never start (9.1) -------------------------------------------------------------------

#: what asks for what, where: (reason, environment, resources)
BLOCKED: dict[str, tuple[str, dict[str, Any], dict[str, int]]] = {
    "9.1 maxvCpus is too small": (MAX_RESOURCE, {"vcpus": 2}, {"vcpus": 4}),
    "8.3 `optimal` has no GPUs": (JOB_REQUIREMENT, {"types": ("optimal",)}, {"gpus": 1}),
    "5.3 more GPUs than one instance has": (
        JOB_REQUIREMENT,
        {"types": ("g5.xlarge",)},
        {"gpus": 2},
    ),
    "9.1 more vCPUs than one instance has": (
        JOB_REQUIREMENT,
        {"types": ("m6i.large",)},
        {"vcpus": 4},
    ),
    "5.3 16 GiB of an instance of 16 GiB": (
        JOB_REQUIREMENT,
        {"types": ("g4dn.xlarge",)},
        {"memory_mib": 16384},
    ),
    "9.1 more vCPUs than this machine has": (NO_CAPACITY, {}, {"vcpus": 16}),
    "9.1 more GPUs than this machine has": (NO_CAPACITY, {"types": ("p4d",)}, {"gpus": 8}),
    "9.1 more memory than this machine has": (NO_CAPACITY, {}, {"memory_mib": 65536}),
}


@pytest.mark.parametrize("case", BLOCKED)
def test_what_can_never_start_says_so_at_the_head_of_its_queue(
    endpoint: Endpoint, case: str
) -> None:
    """9.1 and 7: it stays RUNNABLE with AWS's reason, and blocks what is behind it, which has no
    reason; ListJobs has the same text. When it is gone the others go on."""
    reason, environment, requested = BLOCKED[case]
    name = f"blocked-{list(BLOCKED).index(case)}"
    endpoint.queue(name, endpoint.environment(name, **environment))
    head = endpoint.submit(endpoint.definition("head", "true", **requested), name)
    second = endpoint.submit(endpoint.definition("head", "true", **requested), name)
    assert blocked(endpoint, head) == reason
    assert status(endpoint, head) == "RUNNABLE"
    assert "statusReason" not in endpoint.job(second)
    runnable = endpoint.batch.list_jobs(jobQueue=name, jobStatus="RUNNABLE")["jobSummaryList"]
    assert {job["jobId"]: job.get("statusReason") for job in runnable} == {
        head: reason,
        second: None,
    }
    snapshot = endpoint.batch.get_job_queue_snapshot(jobQueue=name)["frontOfQueue"]["jobs"]
    assert [job["jobArn"].rpartition("/")[2] for job in snapshot] == [head, second]
    endpoint.batch.cancel_job(jobId=head, reason="will never start")
    assert endpoint.wait(head)["statusReason"] == "will never start"
    assert blocked(endpoint, second) == reason


def test_a_head_that_can_never_start_blocks_the_others(endpoint: Endpoint) -> None:
    """7: head of line."""
    endpoint.queue("stopped-up", endpoint.environment("stopped-up", vcpus=2))
    head = endpoint.submit(endpoint.definition("big", "true", vcpus=3), "stopped-up")
    small = endpoint.run("true", queue="stopped-up")
    assert blocked(endpoint, head) == MAX_RESOURCE
    assert status(endpoint, small) == "RUNNABLE"
    endpoint.batch.terminate_job(jobId=head, reason="unblocks")
    assert endpoint.wait(small)["status"] == "SUCCEEDED"


def test_the_instances_memory_is_less_than_its_name_says(endpoint: Endpoint) -> None:
    """5.3: 14336 of 16384 MiB can be had (above: 16384 can not)."""
    endpoint.queue("memory", endpoint.environment("memory", types=("g4dn.xlarge",)))
    job_id = endpoint.submit(endpoint.definition("most-memory", "true", memory_mib=14336), "memory")
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"


def test_environments_that_are_all_disabled(endpoint: Endpoint) -> None:
    """9.1, a choice: ACTION_REQUIRED, though AWS says `invalid`. It goes away with its cause."""
    endpoint.queue("dark", endpoint.environment("dark"))
    endpoint.batch.update_compute_environment(computeEnvironment="dark", state="DISABLED")
    job_id = endpoint.run("true", queue="dark")
    assert blocked(endpoint, job_id) == ACTION_REQUIRED
    endpoint.batch.update_compute_environment(computeEnvironment="dark", state="ENABLED")
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"


def test_a_mended_environment_unblocks_its_queue(endpoint: Endpoint) -> None:
    """9.1: raise maxvCpus, and the job runs."""
    endpoint.queue("mended", endpoint.environment("mended", vcpus=1))
    job_id = endpoint.submit(endpoint.definition("two", "true", vcpus=2), "mended")
    assert blocked(endpoint, job_id) == MAX_RESOURCE
    endpoint.batch.update_compute_environment(
        computeEnvironment="mended", computeResources={"maxvCpus": 2}
    )
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"


def test_an_environment_that_fits_is_enough(endpoint: Endpoint) -> None:
    """9.1: blocked is only what none of a queue's environments can take."""
    endpoint.queue(
        "one-fits",
        endpoint.environment("too-small", vcpus=1),
        endpoint.environment("fits", vcpus=4),
    )
    job_id = endpoint.submit(endpoint.definition("three", "true", vcpus=3), "one-fits")
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"


def test_a_child_at_the_head(endpoint: Endpoint) -> None:
    """9.1: of an array the first child has the reason, and nobody else."""
    endpoint.queue("array-head", endpoint.environment("array-head", vcpus=1))
    definition = endpoint.definition("wide", "true", vcpus=2)
    array = endpoint.submit(definition, "array-head", arrayProperties={"size": 2})
    assert blocked(endpoint, f"{array}:0") == MAX_RESOURCE
    assert "statusReason" not in endpoint.job(f"{array}:1")
    assert "statusReason" not in endpoint.job(array)


def test_who_waits_for_room_has_no_reason(endpoint: Endpoint, gate: Path) -> None:
    """9.1: a full environment is nothing to complain of."""
    endpoint.queue("full", endpoint.environment("full", vcpus=1))
    hold(endpoint, "full", gate)
    job_id = endpoint.run("true", queue="full")
    time.sleep(0.3)
    assert (status(endpoint, job_id), endpoint.job(job_id).get("statusReason")) == (
        "RUNNABLE",
        None,
    )


# -- fair share (7.1) -----------------------------------------------------------------------------


def fair(endpoint: Endpoint, name: str, vcpus: int, **policy: Any) -> str:
    arn = endpoint.batch.create_scheduling_policy(name=name, fairsharePolicy=policy)["arn"]
    return endpoint.queue(name, endpoint.environment(name, vcpus=vcpus), schedulingPolicyArn=arn)


def weights(**by_share: float) -> list[dict[str, Any]]:
    return [
        {"shareIdentifier": share.replace("_", "*"), "weightFactor": weight}
        for share, weight in by_share.items()
    ]


def compete(endpoint: Endpoint, queue: str, gate: Path, vcpus: int, *shares: str) -> dict[str, int]:
    """How many children of each share run, after all wanted to while the queue was full."""
    script = f"until [ -e {gate} ]; do sleep 0.1; done"
    holder = endpoint.submit(
        endpoint.definition("holds", "sh", "-c", script),
        queue,
        shareIdentifier="holder",
        arrayProperties={"size": vcpus},
    )
    until(lambda: count(endpoint, holder), lambda running: running == vcpus)
    definition = endpoint.definition("competes", "sleep", "600")
    arrays = {
        share: endpoint.submit(
            definition, queue, shareIdentifier=share, arrayProperties={"size": 8}
        )
        for share in shares
    }
    gate.touch()
    counts = settled(endpoint, vcpus, *arrays.values())
    return {share: counts[array] for share, array in arrays.items()}


def test_a_lower_weight_gets_more(endpoint: Endpoint, gate: Path) -> None:
    """7.1: 0.5 gets twice as much as 1.0, though it came later."""
    queue = fair(endpoint, "weighted", 6, shareDistribution=weights(light=0.5, heavy=1.0))
    assert compete(endpoint, queue, gate, 6, "heavy", "light") == {"heavy": 2, "light": 4}


def test_a_share_that_is_not_named_weighs_one(endpoint: Endpoint, gate: Path) -> None:
    """7.1: the default is 1.0."""
    queue = fair(endpoint, "unnamed", 6, shareDistribution=weights(heavy=2.0))
    assert compete(endpoint, queue, gate, 6, "heavy", "nobody") == {"heavy": 2, "nobody": 4}


def test_each_share_under_a_prefix_is_one_of_its_own(endpoint: Endpoint, gate: Path) -> None:
    """7.1: `team*` weighs each of them, and they do not share a share."""
    queue = fair(endpoint, "prefixed", 6, shareDistribution=weights(team_=1.0))
    assert compete(endpoint, queue, gate, 6, "teamA", "teamB", "other") == {
        "teamA": 2,
        "teamB": 2,
        "other": 2,
    }


def test_priority_counts_within_a_share(endpoint: Endpoint, gate: Path, tmp_path: Path) -> None:
    """7.1 and 5.4: the highest first, then who came first; the definition's where SubmitJob has
    none."""
    queue = fair(endpoint, "priorities", 1)
    hold(endpoint, queue, gate, shareIdentifier="holder")
    book = tmp_path / "book"
    words = {"zero": 0, "five": 5, "nine": 9, "five-too": 5}
    ids = [
        note(endpoint, queue, book, word, shareIdentifier="a", schedulingPriorityOverride=priority)
        for word, priority in words.items()
    ]
    seven = endpoint.definition("seven", "sh", "-c", f"echo seven >> {book}", schedulingPriority=7)
    ids.append(endpoint.submit(seven, queue, shareIdentifier="a"))
    gate.touch()
    assert written(endpoint, book, ids) == ["nine", "seven", "five", "five-too", "zero"]


def test_priority_does_not_count_between_shares(endpoint: Endpoint, gate: Path) -> None:
    """7.1: a share with urgent jobs gets no more than its share."""
    queue = fair(endpoint, "between", 4)
    hold(endpoint, queue, gate, 4, shareIdentifier="holder")
    definition = endpoint.definition("competes", "sleep", "600")
    arrays = [
        endpoint.submit(
            definition,
            queue,
            shareIdentifier=share,
            schedulingPriorityOverride=priority,
            arrayProperties={"size": 4},
        )
        for share, priority in (("calm", 0), ("urgent", 9999))
    ]
    gate.touch()
    assert list(settled(endpoint, 4, *arrays).values()) == [2, 2]


@pytest.mark.parametrize("decay_s", [0, 600])
def test_what_was_used_of_late_counts(
    endpoint: Endpoint, gate: Path, tmp_path: Path, decay_s: int
) -> None:
    """7.1: who has just used the queue waits. A choice for 0: the API speaks of a window of 600
    seconds, though the user guide says that only what runs counts."""
    queue = fair(endpoint, f"decay-{decay_s}", 1, shareDecaySeconds=decay_s)
    hold(endpoint, queue, gate, shareIdentifier="user")
    time.sleep(0.4)
    book = tmp_path / "book"
    ids = [note(endpoint, queue, book, share, shareIdentifier=share) for share in ("user", "other")]
    gate.touch()
    assert written(endpoint, book, ids) == ["other", "user"]


def test_a_part_is_kept_for_shares_that_are_not_active_yet(endpoint: Endpoint) -> None:
    """7.1: (50/100)^n of maxvCpus: half with one active share, a quarter with two."""
    queue = fair(endpoint, "reserved", 4, computeReservation=50)
    definition = endpoint.definition("competes", "sleep", "600")
    first = endpoint.submit(definition, queue, shareIdentifier="a", arrayProperties={"size": 4})
    assert settled(endpoint, 2, first) == {first: 2}
    second = endpoint.submit(definition, queue, shareIdentifier="b", arrayProperties={"size": 4})
    assert settled(endpoint, 3, first, second) == {first: 2, second: 1}


def test_a_changed_policy_counts_from_now_on(endpoint: Endpoint, gate: Path) -> None:
    """7.1: UpdateSchedulingPolicy, and UpdateJobQueue with another policy."""
    queue = fair(endpoint, "changed", 6)
    arn = "arn:aws:batch:us-east-1:123456789012:scheduling-policy/changed"
    endpoint.batch.update_scheduling_policy(
        arn=arn, fairsharePolicy={"shareDistribution": weights(a=0.5)}
    )
    assert compete(endpoint, queue, gate, 6, "b", "a") == {"b": 2, "a": 4}


def test_a_changed_decay_window_counts_from_now_on(
    endpoint: Endpoint, gate: Path, tmp_path: Path
) -> None:
    """7.1: UpdateSchedulingPolicy, of the window."""
    queue = fair(endpoint, "new-window", 1, shareDecaySeconds=0)
    arn = "arn:aws:batch:us-east-1:123456789012:scheduling-policy/new-window"
    endpoint.batch.update_scheduling_policy(arn=arn, fairsharePolicy={"shareDecaySeconds": 600})
    hold(endpoint, queue, gate, shareIdentifier="user")
    time.sleep(0.4)
    book = tmp_path / "book"
    ids = [note(endpoint, queue, book, share, shareIdentifier=share) for share in ("user", "other")]
    gate.touch()
    assert written(endpoint, book, ids) == ["other", "user"]


def test_a_share_is_active_until_its_window_is_over(endpoint: Endpoint) -> None:
    """7.1: as long as it has jobs, and for the decay window after; with two active ones a
    quarter is kept."""
    queue = fair(endpoint, "lately", 4, computeReservation=50, shareDecaySeconds=600)
    short = endpoint.submit(endpoint.definition("short", "true"), queue, shareIdentifier="b")
    assert endpoint.wait(short)["status"] == "SUCCEEDED"
    definition = endpoint.definition("competes", "sleep", "600")
    array = endpoint.submit(definition, queue, shareIdentifier="a", arrayProperties={"size": 4})
    assert settled(endpoint, 3, array) == {array: 3}


def test_the_head_of_a_fair_queue_is_who_would_start_next(endpoint: Endpoint) -> None:
    """9.1 and 7.1: a job of high priority that can never start blocks the share's others, and
    says why."""
    queue = fair(endpoint, "fair-head", 2)
    endpoint.batch.update_compute_environment(computeEnvironment="fair-head", state="DISABLED")
    small = endpoint.submit(
        endpoint.definition("small", "true"),
        queue,
        shareIdentifier="a",
        schedulingPriorityOverride=0,
    )
    large = endpoint.submit(
        endpoint.definition("large", "true", vcpus=3),
        queue,
        shareIdentifier="a",
        schedulingPriorityOverride=9,
    )
    endpoint.batch.update_compute_environment(computeEnvironment="fair-head", state="ENABLED")
    until(lambda: endpoint.job(large).get("statusReason"), lambda reason: reason == MAX_RESOURCE)
    time.sleep(0.3)
    assert status(endpoint, small) == "RUNNABLE"


# -- GetJobQueueSnapshot (7.3) --------------------------------------------------------------------


def front(endpoint: Endpoint, queue: str) -> dict[str, int]:
    """Job's id -> since when it has been at its place."""
    snapshot = endpoint.batch.get_job_queue_snapshot(jobQueue=queue)
    jobs = snapshot["frontOfQueue"]["jobs"]
    return {job["jobArn"].rpartition("/")[2]: job["earliestTimeAtPosition"] for job in jobs}


def test_a_snapshot_of_what_is_next(endpoint: Endpoint, gate: Path) -> None:
    """7.3: RUNNABLE jobs only, children one by one, a hundred at most, in the order in which
    they would start."""
    endpoint.queue("snapped", endpoint.environment("snapped", vcpus=1))
    assert front(endpoint, "snapped") == {}
    running = hold(endpoint, "snapped", gate)
    single = endpoint.run("true", queue="snapped")
    endpoint.run("true", queue="snapped", dependsOn=[{"jobId": single}])
    array = endpoint.run("true", queue="snapped", arrayProperties={"size": 120})
    assert list(front(endpoint, "snapped")) == [
        single,
        *[f"{array}:{index}" for index in range(99)],
    ]
    snapshot = endpoint.batch.get_job_queue_snapshot(jobQueue="snapped")
    assert snapshot["queueUtilization"]["totalCapacityUsage"] == [
        {"capacityUnit": "VCPU", "quantity": 1.0}
    ]
    assert "fairshareUtilization" not in snapshot["queueUtilization"]
    now_ms = time.time() * 1000
    for times in (snapshot["frontOfQueue"], snapshot["queueUtilization"]):
        assert now_ms - 60_000 < times["lastUpdatedAt"] <= now_ms
    assert running not in front(endpoint, "snapped")


def test_since_when_a_job_is_at_its_place(endpoint: Endpoint, gate: Path) -> None:
    """7.3: since it became RUNNABLE, or since the last one ahead of it left: by starting, or by
    being cancelled."""
    endpoint.queue("moving", endpoint.environment("moving", vcpus=1))
    first = hold(endpoint, "moving", gate)
    second, third, fourth = (endpoint.run("sleep", "600", queue="moving") for _ in range(3))
    dependent = endpoint.run("true", queue="moving", dependsOn=[{"jobId": first}])
    at = front(endpoint, "moving")
    assert at == {job_id: endpoint.job(job_id)["createdAt"] for job_id in (second, third, fourth)}
    time.sleep(0.05)
    gate.touch()
    endpoint.wait(second, "RUNNING")
    at = front(endpoint, "moving")
    assert list(at) == [third, fourth, dependent]
    assert at[third] == at[fourth] == endpoint.job(second)["startedAt"]
    assert at[dependent] >= endpoint.job(first)["stoppedAt"]
    time.sleep(0.05)
    endpoint.batch.cancel_job(jobId=third, reason="leaves the line")
    stopped = endpoint.wait(third)["stoppedAt"]
    since = front(endpoint, "moving")[fourth]
    assert min(since, stopped) > at[fourth] and abs(since - stopped) < 2_000


def test_what_the_shares_of_a_queue_use(endpoint: Endpoint, gate: Path) -> None:
    """7.3: fairshareUtilization, the largest first."""
    queue = fair(endpoint, "used", 6, shareDistribution=weights(a=0.5))
    assert compete(endpoint, queue, gate, 6, "b", "a") == {"b": 2, "a": 4}
    utilization = endpoint.batch.get_job_queue_snapshot(jobQueue=queue)["queueUtilization"]
    assert utilization["totalCapacityUsage"] == [{"capacityUnit": "VCPU", "quantity": 6.0}]
    assert utilization["fairshareUtilization"]["activeShareCount"] == 2
    top = utilization["fairshareUtilization"]["topCapacityUtilization"]
    assert [(usage["shareIdentifier"], usage["capacityUsage"][0]["quantity"]) for usage in top] == [
        ("a", 4.0),
        ("b", 2.0),
    ]


def test_a_snapshot_of_a_fair_queue(endpoint: Endpoint, gate: Path) -> None:
    """7.3: AWS's description has jobs of such queues ordered by priority and by what their
    shares use."""
    queue = fair(endpoint, "fair-front", 1)
    hold(endpoint, queue, gate, shareIdentifier="a")
    ids = {
        name: note(
            endpoint,
            queue,
            gate,
            name,
            shareIdentifier=name[0],
            schedulingPriorityOverride=int(name[1]),
        )
        for name in ("a1", "a9", "b1")
    }
    assert list(front(endpoint, queue)) == [ids["b1"], ids["a9"], ids["a1"]]


# -- what was tried -------------------------------------------------------------------------------


def test_a_job_that_is_tried_again_goes_to_the_front(endpoint: Endpoint, tmp_path: Path) -> None:
    """7 and 1.1."""
    endpoint.queue("again", endpoint.environment("again", vcpus=1))
    book = tmp_path / "book"
    command = f"echo try >> {book}; [ $AWS_BATCH_JOB_ATTEMPT = 3 ]"
    stubborn = endpoint.run("sh", "-c", command, queue="again", retryStrategy={"attempts": 3})
    waiting_jobs = [note(endpoint, "again", book, "other") for _ in range(2)]
    assert written(endpoint, book, [stubborn, *waiting_jobs]) == [
        "try",
        "try",
        "try",
        "other",
        "other",
    ]


def test_every_start_is_counted_once(endpoint: Endpoint, tmp_path: Path) -> None:
    """7: many jobs of several queues on two environments; each runs once and the machine is
    empty afterwards."""
    for name in ("busy-1", "busy-2"):
        endpoint.environment(name, vcpus=2)
    endpoint.queue("busy-1", "busy-1", "busy-2", priority=2)
    endpoint.queue("busy-2", "busy-2")
    arrays = [
        endpoint.run(
            "sh", "-c", "echo $AWS_BATCH_JOB_ID", queue=queue, arrayProperties={"size": 20}
        )
        for queue in ("busy-1", "busy-2", "busy-1")
    ]
    for array in arrays:
        assert endpoint.wait(array)["status"] == "SUCCEEDED"
    outputs = Counter(
        line
        for array in arrays
        for index in range(20)
        for line in endpoint.output(f"{array}:{index}")
    )
    assert set(outputs.values()) == {1} and len(outputs) == 60
    for queue in ("busy-1", "busy-2"):
        usage = endpoint.batch.get_job_queue_snapshot(jobQueue=queue)["queueUtilization"][
            "totalCapacityUsage"
        ]
        assert usage == [{"capacityUnit": "VCPU", "quantity": 0}]
