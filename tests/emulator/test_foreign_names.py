"""Names and ARNs that stand for nothing here: of another account, region or kind (facts, 5.4)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from emulator_answers import held_to_account, refused
from emulator_endpoint import Endpoint

PREFIX = "arn:aws:batch:us-east-1:123456789012"
FOREIGN_PREFIXES = (
    "arn:aws:batch:us-east-1:999999999999",
    "arn:aws:batch:eu-west-1:123456789012",
    "arn:aws:ecs:us-east-1:123456789012",
    "arn:aws-cn:batch:us-east-1:123456789012",
)


@pytest.fixture(scope="module", autouse=True)
def as_described(endpoint: Endpoint) -> Iterator[None]:
    endpoint.definition("sent", "true")
    endpoint.batch.create_scheduling_policy(name="policy")
    yield from held_to_account(endpoint)


@pytest.mark.parametrize("prefix", FOREIGN_PREFIXES)
def test_an_arn_of_another_account_or_region(endpoint: Endpoint, prefix: str) -> None:
    batch = endpoint.batch
    queue, environment = f"{prefix}:job-queue/queue", f"{prefix}:compute-environment/cpu"
    definition, policy = f"{prefix}:job-definition/sent:1", f"{prefix}:scheduling-policy/policy"
    with refused(f"JobQueue {queue} not found."):
        endpoint.submit("sent", queue)
    with refused(f"JobDefinition name {definition} does not exist or is not in ACTIVE status"):
        endpoint.submit(definition)
    with refused(f"JobQueue {queue} not found."):
        batch.list_jobs(jobQueue=queue)
    with refused(f"JobQueue {queue} not found."):
        batch.update_job_queue(jobQueue=queue, priority=2)
    with refused(f"ComputeEnvironment {environment} not found."):
        batch.update_compute_environment(computeEnvironment=environment, state="DISABLED")
    with refused("Compute Environments must be created and valid before attaching"):
        endpoint.queue("never", environment)
    with refused(f"SchedulingPolicy {policy} not found."):
        endpoint.queue("never", "cpu", schedulingPolicyArn=policy)
    for arn in (queue, environment, definition, policy):
        with refused(arn):
            batch.tag_resource(resourceArn=arn, tags={"a": "b"})


@pytest.mark.parametrize("prefix", FOREIGN_PREFIXES)
def test_such_an_arn_describes_nothing_and_deletes_nothing(endpoint: Endpoint, prefix: str) -> None:
    batch = endpoint.batch
    queue, environment = f"{prefix}:job-queue/queue", f"{prefix}:compute-environment/cpu"
    definition, policy = f"{prefix}:job-definition/sent:1", f"{prefix}:scheduling-policy/policy"
    assert batch.describe_job_queues(jobQueues=[queue])["jobQueues"] == []
    found = batch.describe_compute_environments(computeEnvironments=[environment])
    assert found["computeEnvironments"] == []
    assert batch.describe_job_definitions(jobDefinitions=[definition])["jobDefinitions"] == []
    assert batch.describe_scheduling_policies(arns=[policy])["schedulingPolicies"] == []
    batch.delete_job_queue(jobQueue=queue)
    batch.delete_compute_environment(computeEnvironment=environment)
    batch.deregister_job_definition(jobDefinition=definition)
    batch.delete_scheduling_policy(arn=policy)
    assert len(batch.describe_job_queues(jobQueues=[f"{PREFIX}:job-queue/queue"])["jobQueues"]) == 1
    assert len(batch.describe_scheduling_policies(arns=[f"{PREFIX}:scheduling-policy/policy"])) > 1
    (kept,) = batch.describe_job_definitions(jobDefinitions=["sent:1"])["jobDefinitions"]
    assert kept["status"] == "ACTIVE"


def test_an_arn_of_another_kind(endpoint: Endpoint) -> None:
    with refused("JobQueue"):
        endpoint.submit("sent", f"{PREFIX}:compute-environment/queue")


def test_an_empty_job_id(endpoint: Endpoint) -> None:
    for call in (endpoint.batch.cancel_job, endpoint.batch.terminate_job):
        with refused("jobId must not be empty"):
            call(jobId="", reason="why not")
        call(jobId="nobody", reason="accepted, with no effect")


def test_an_empty_token_is_the_first_page(endpoint: Endpoint) -> None:
    """`awsbstat` of AWS ParallelCluster sends one."""
    batch = endpoint.batch
    assert batch.list_jobs(jobQueue="queue", nextToken="")["jobSummaryList"] == []
    assert len(batch.describe_job_queues(nextToken="")["jobQueues"]) == 1
    with refused("nextToken"):
        batch.list_jobs(jobQueue="queue", nextToken="none of yours")
