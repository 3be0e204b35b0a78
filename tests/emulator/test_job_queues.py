"""Job queues by boto3: what may be made, changed and deleted (facts, 6 and 7). What they do is
in test_placement.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from emulator_answers import assert_no_traceback, held_to_account, post, refused
from emulator_endpoint import Endpoint, until

LIMIT = {
    "reason": "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY",
    "state": "RUNNABLE",
    "maxTimeSeconds": 600,
    "action": "CANCEL",
}


@pytest.fixture(scope="module", autouse=True)
def as_described(endpoint: Endpoint) -> Iterator[None]:
    endpoint.environment("arm", types=("m6g",))
    endpoint.batch.create_compute_environment(
        computeEnvironmentName="fargate",
        type="MANAGED",
        computeResources={
            "type": "FARGATE",
            "maxvCpus": 4,
            "subnets": ["subnet-0a"],
            "securityGroupIds": ["sg-0a"],
        },
    )
    for name in ("one", "two", "three", "four"):
        endpoint.environment(name)
    for name in ("policy", "another"):
        endpoint.batch.create_scheduling_policy(name=name)
    yield from held_to_account(endpoint)


def policy(name: str) -> str:
    return f"arn:aws:batch:us-east-1:123456789012:scheduling-policy/{name}"


def order(*environments: str) -> list[dict[str, Any]]:
    return [
        {"order": number, "computeEnvironment": name} for number, name in enumerate(environments)
    ]


def described(endpoint: Endpoint, name: str) -> Any:
    (queue,) = endpoint.batch.describe_job_queues(jobQueues=[name])["jobQueues"]
    return queue


def test_one_as_it_is_described(endpoint: Endpoint) -> None:
    """7: its state, status, priority and environments; of three at most (6)."""
    arn = "arn:aws:batch:us-east-1:123456789012:job-queue/mine"
    answer = endpoint.batch.create_job_queue(
        jobQueueName="mine",
        priority=7,
        computeEnvironmentOrder=order("one", "two", "three"),
        jobStateTimeLimitActions=[LIMIT],
        tags={"team": "a"},
    )
    assert (answer["jobQueueName"], answer["jobQueueArn"]) == ("mine", arn)
    queue = described(endpoint, arn)
    assert (queue["state"], queue["status"], queue["priority"]) == ("ENABLED", "VALID", 7)
    assert queue["statusReason"] == "JobQueue Healthy"
    assert queue["jobQueueType"] == "ECS"
    assert queue["tags"] == {"team": "a"}
    assert queue["jobStateTimeLimitActions"] == [LIMIT]
    assert "schedulingPolicyArn" not in queue
    assert [
        entry["computeEnvironment"].rpartition("/")[2] for entry in queue["computeEnvironmentOrder"]
    ] == [
        "one",
        "two",
        "three",
    ]


REFUSED_QUEUES = {
    "6 four environments": (
        {"computeEnvironmentOrder": order("one", "two", "three", "four")},
        "1 to 3",
    ),
    "7 no environment": (
        {"computeEnvironmentOrder": []},
        "Exception : computeEnvironmentOrder is required., RequestId: ",
    ),
    "7 an environment that is not there": (
        {"computeEnvironmentOrder": order("nobody")},
        "Compute Environments must be created and valid before attaching them to a job queue",
    ),
    "7 one order twice": (
        {"computeEnvironmentOrder": [*order("one"), *order("two")]},
        "Duplicate ComputeEnvironment order values.",
    ),
    "7 EC2 with Fargate": (
        {"computeEnvironmentOrder": order("one", "fargate")},
        "Fargate and EC2 compute environments can not be mixed.",
    ),
    "7 x86_64 with arm64": (
        {"computeEnvironmentOrder": order("one", "arm")},
        "x86_64 and of arm64",
    ),
    "7 priority over 1000": ({"priority": 1001}, "between 0 and 1000"),
    "7 negative priority": ({"priority": -1}, "between 0 and 1000"),
    "7 a policy that is not there": (
        {"schedulingPolicyArn": policy("nobody")},
        f"SchedulingPolicy {policy('nobody')} not found.",
    ),
    "7 a state that is none": ({"state": "ASLEEP"}, "ENABLED, DISABLED"),
    "7.3 a type of other environments": (
        {"jobQueueType": "ECS_FARGATE"},
        "jobQueueType must be ECS",
    ),
    "7.3 a type that is not served": ({"jobQueueType": "SAGEMAKER_TRAINING"}, "not for it"),
    "7.2 a reason without an action": (
        {"jobStateTimeLimitActions": [{**LIMIT, "reason": "ACTION_REQUIRED"}]},
        "reason must be one of",
    ),
    "7.2 another reason without an action": (
        {
            "jobStateTimeLimitActions": [
                {**LIMIT, "reason": "MISCONFIGURATION:SERVICE_ROLE_PERMISSIONS"}
            ]
        },
        "reason must be one of",
    ),
    "7.2 one action twice": (
        {"jobStateTimeLimitActions": [LIMIT, LIMIT]},
        "Duplicate job state limit actions are not allowed.",
    ),
    "7.2 TERMINATE is for SageMaker": (
        {"jobStateTimeLimitActions": [{**LIMIT, "action": "TERMINATE"}]},
        "CANCEL",
    ),
    "7.2 RUNNABLE is the only state": (
        {"jobStateTimeLimitActions": [{**LIMIT, "state": "RUNNING"}]},
        "RUNNABLE",
    ),
    "7.2 less than 600 seconds": (
        {"jobStateTimeLimitActions": [{**LIMIT, "maxTimeSeconds": 599}]},
        "600 and 86400",
    ),
    "7.2 over a day": (
        {"jobStateTimeLimitActions": [{**LIMIT, "maxTimeSeconds": 86401}]},
        "600 and 86400",
    ),
    "5.4 a name that is none": ({"jobQueueName": "a.b"}, "jobQueueName"),
    "5.4 a name that is too long": ({"jobQueueName": "a" * 129}, "jobQueueName"),
    "a name that is taken": ({"jobQueueName": "queue"}, "Object already exists"),
    **{
        f"7.2 {member} is required": (
            {
                "jobStateTimeLimitActions": [
                    {name: value for name, value in LIMIT.items() if name != member}
                ]
            },
            f"{member} must not be null",
        )
        for member in LIMIT
    },
}


@pytest.mark.parametrize("case", REFUSED_QUEUES)
def test_what_no_queue_can_be(endpoint: Endpoint, case: str) -> None:
    change, text = REFUSED_QUEUES[case]
    request = {
        "jobQueueName": "never",
        "priority": 1,
        "computeEnvironmentOrder": order("one"),
        **change,
    }
    status, answer = post(endpoint, "/v1/createjobqueue", request)
    assert status == 400
    assert text in answer["message"]
    assert endpoint.batch.describe_job_queues(jobQueues=["never"])["jobQueues"] == []


@pytest.mark.parametrize(
    "reason",
    [
        "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY",
        "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE",
        "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT",
    ],
)
@pytest.mark.parametrize("seconds", [600, 86400])
def test_time_limits(endpoint: Endpoint, reason: str, seconds: int) -> None:
    """7.2: the reasons that have an action, and the limits of its time. That one is carried out
    is shown, with a clock that can be turned, in tests/unit/test_queues.py."""
    limit = {**LIMIT, "reason": reason, "maxTimeSeconds": seconds}
    endpoint.batch.update_job_queue(jobQueue="queue", jobStateTimeLimitActions=[limit])
    assert described(endpoint, "queue")["jobStateTimeLimitActions"] == [limit]
    endpoint.batch.update_job_queue(jobQueue="queue", jobStateTimeLimitActions=[])
    assert described(endpoint, "queue")["jobStateTimeLimitActions"] == []


def test_what_may_change(endpoint: Endpoint) -> None:
    endpoint.queue("changes", "one")
    endpoint.batch.update_job_queue(
        jobQueue="changes",
        priority=1000,
        state="DISABLED",
        computeEnvironmentOrder=order("two", "three"),
    )
    queue = described(endpoint, "changes")
    assert (queue["priority"], queue["state"], len(queue["computeEnvironmentOrder"])) == (
        1000,
        "DISABLED",
        2,
    )
    for change, text in (
        ({"priority": 1001}, "between 0 and 1000"),
        ({"computeEnvironmentOrder": order("fargate")}, "cannot change between EC2 and Fargate"),
        ({"computeEnvironmentOrder": order("one", "arm")}, "x86_64 and of arm64"),
    ):
        with refused(text):
            endpoint.batch.update_job_queue(jobQueue="changes", **change)
    assert described(endpoint, "changes") == queue
    with refused("JobQueue nobody not found."):
        endpoint.batch.update_job_queue(jobQueue="nobody", priority=1)


def test_a_policy_is_replaced_and_never_added_or_removed(endpoint: Endpoint) -> None:
    """7."""
    endpoint.queue("fifo", "one")
    endpoint.queue("fair", "one", schedulingPolicyArn=policy("policy"))
    with refused("cannot be added"):
        endpoint.batch.update_job_queue(jobQueue="fifo", schedulingPolicyArn=policy("policy"))
    endpoint.batch.update_job_queue(jobQueue="fair", schedulingPolicyArn=policy("another"))
    assert described(endpoint, "fair")["schedulingPolicyArn"] == policy("another")
    with refused("SchedulingPolicy  not found."):
        endpoint.batch.update_job_queue(jobQueue="fair", schedulingPolicyArn="")
    assert described(endpoint, "fair")["schedulingPolicyArn"] == policy("another")


def test_a_disabled_queue_finishes_what_it_has(endpoint: Endpoint) -> None:
    """7 and 5.4: it takes no new jobs; what it has goes on, also what has not started yet."""
    endpoint.queue("closing", endpoint.environment("small", vcpus=1))
    gate = endpoint.folder / "closing"
    running = endpoint.run("sh", "-c", f"until [ -e {gate} ]; do sleep 0.1; done", queue="closing")
    waiting = endpoint.run("true", queue="closing")
    endpoint.wait(running, "RUNNING")
    endpoint.batch.update_job_queue(jobQueue="closing", state="DISABLED")
    with refused("DISABLED"):
        endpoint.run("true", queue="closing")
    gate.touch()
    assert endpoint.wait(waiting)["status"] == "SUCCEEDED"
    endpoint.batch.update_job_queue(jobQueue="closing", state="ENABLED")
    assert endpoint.wait(endpoint.run("true", queue="closing"))["status"] == "SUCCEEDED"


def test_deleting_a_queue_ends_what_is_in_it(endpoint: Endpoint) -> None:
    """7 and 1.8: `JobQueue deleted`, running or not. Jobs of a queue that is gone can still be
    described."""
    endpoint.queue("doomed", endpoint.environment("tiny", vcpus=1))
    running, waiting = (endpoint.run("sleep", "60", queue="doomed") for _ in range(2))
    endpoint.wait(running, "RUNNING")
    with refused("must be disabled first"):
        endpoint.batch.delete_job_queue(jobQueue="doomed")
    endpoint.batch.update_job_queue(jobQueue="doomed", state="DISABLED")
    endpoint.batch.delete_job_queue(jobQueue="doomed")
    endpoint.batch.delete_job_queue(jobQueue="doomed")
    for job_id in (running, waiting):
        job = endpoint.wait(job_id)
        assert (job["status"], job["statusReason"]) == ("FAILED", "JobQueue deleted")
    assert endpoint.batch.describe_job_queues(jobQueues=["doomed"])["jobQueues"] == []
    for call in (
        lambda: endpoint.run("true", queue="doomed"),
        lambda: endpoint.batch.list_jobs(jobQueue="doomed"),
        lambda: endpoint.batch.get_job_queue_snapshot(jobQueue="doomed"),
    ):
        with refused("JobQueue doomed not found."):
            call()


def test_a_queue_of_the_same_name_starts_afresh(start: Callable[..., Endpoint]) -> None:
    """A queue that is deleted and made again takes jobs, in its own environment, also after a
    restart."""
    endpoint = start("--cpus", "2", "--memory", "2GiB")
    endpoint.queue("again", endpoint.environment("first"))
    old = endpoint.run("sleep", "60", queue="again")
    endpoint.wait(old, "RUNNING")
    endpoint.batch.update_job_queue(jobQueue="again", state="DISABLED")
    endpoint.batch.delete_job_queue(jobQueue="again")
    endpoint.queue("again", endpoint.environment("second"))
    new = endpoint.run("sh", "-c", "echo $AWS_BATCH_CE_NAME", queue="again")
    assert endpoint.wait(new)["status"] == "SUCCEEDED"
    assert endpoint.output(new) == ["second"]
    assert endpoint.wait(old)["statusReason"] == "JobQueue deleted"
    endpoint.stop()
    endpoint = start("--cpus", "2", "--memory", "2GiB")
    assert endpoint.job(new)["status"] == "SUCCEEDED"
    assert (endpoint.job(old)["status"], endpoint.job(old)["statusReason"]) == (
        "FAILED",
        "JobQueue deleted",
    )
    assert endpoint.wait(endpoint.run("true", queue="again"))["status"] == "SUCCEEDED"
    assert_no_traceback(endpoint)


def test_a_fair_queue_in_the_place_of_a_fifo_one(start: Callable[..., Endpoint]) -> None:
    endpoint = start("--cpus", "2", "--memory", "2GiB")
    endpoint.queue("again", endpoint.environment("first"))
    assert endpoint.wait(endpoint.run("true", queue="again"))["status"] == "SUCCEEDED"
    endpoint.batch.update_job_queue(jobQueue="again", state="DISABLED")
    endpoint.batch.delete_job_queue(jobQueue="again")
    endpoint.batch.create_scheduling_policy(name="policy")
    endpoint.queue("again", "first", schedulingPolicyArn=policy("policy"))
    job_id = endpoint.run("true", queue="again", shareIdentifier="a", schedulingPriorityOverride=1)
    until(
        lambda: endpoint.process.poll(),
        lambda code: code is not None or endpoint.job(job_id)["status"] == "SUCCEEDED",
    )
    assert endpoint.process.poll() is None


def test_describe_by_name_arn_and_page(endpoint: Endpoint) -> None:
    """6: at most 100 names, pages of 1 to 100."""
    everything = endpoint.batch.describe_job_queues()["jobQueues"]
    first = endpoint.batch.describe_job_queues(maxResults=1)
    second_page = endpoint.batch.describe_job_queues(nextToken=first["nextToken"])["jobQueues"]
    assert first["jobQueues"] + second_page == everything
    arn = everything[0]["jobQueueArn"]
    assert (
        endpoint.batch.describe_job_queues(jobQueues=[arn, "nobody"])["jobQueues"] == everything[:1]
    )
    with refused("100"):
        endpoint.batch.describe_job_queues(jobQueues=["x"] * 101)
    with refused("maxResults should be between 1 and 100"):
        endpoint.batch.describe_job_queues(maxResults=101)
