"""Every operation of the endpoint with the real `aws` command, once; and those that it does not
serve, refused by name.

A test's name is its command: `test_submit_job` calls `aws batch submit-job`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore import xform_name
from emulator_answers import MODEL, assert_no_traceback, complaints, held_to_account, post, refused
from emulator_endpoint import Endpoint

from batchyard.emulator.operations import OPERATIONS

PREFIX = "arn:aws:batch:us-east-1:123456789012"
COMMANDS = {f"test_{xform_name(operation)}": operation for operation in OPERATIONS["batch"]}

Call = Callable[..., Any]


@pytest.fixture(scope="module", autouse=True)
def as_described(endpoint: Endpoint) -> Iterator[None]:
    endpoint.environment("off")
    endpoint.queue("off", "off")
    endpoint.batch.update_compute_environment(computeEnvironment="off", state="DISABLED")
    yield from held_to_account(endpoint)


@pytest.fixture
def call(endpoint: Endpoint, request: pytest.FixtureRequest) -> Call:
    """Calls the command that the test is named after."""
    operation = COMMANDS[request.node.name]

    def it(*arguments: str) -> Any:
        answer = endpoint.aws("batch", xform_name(operation, "-"), *arguments)
        assert complaints(operation, answer or {}) == []
        return answer

    return it


@pytest.fixture
def waiting(endpoint: Endpoint) -> str:
    """A job that never starts."""
    return endpoint.run("true", queue="off")


def from_file(endpoint: Endpoint, name: str, request: dict[str, Any]) -> str:
    """`file://...`, for --cli-input-json."""
    path = endpoint.folder / f"{name}.json"
    path.write_text(json.dumps(request))
    return f"file://{path}"


def test_every_operation_has_a_test() -> None:
    missing = {name for name in COMMANDS if name not in globals()}
    assert missing == set(), "operations without a test with the aws command"


# -- compute environments -------------------------------------------------------------------------


def test_create_compute_environment(endpoint: Endpoint, call: Call) -> None:
    resources = (
        "type=SPOT,allocationStrategy=SPOT_PRICE_CAPACITY_OPTIMIZED,minvCpus=0,maxvCpus=16,"
        "subnets=subnet-0a,securityGroupIds=sg-0a,instanceRole=r,instanceTypes=m6i,c6i"
    )
    answer = call(
        "--compute-environment-name", "made", "--type", "MANAGED", "--compute-resources", resources
    )
    assert answer == {
        "computeEnvironmentName": "made",
        "computeEnvironmentArn": f"{PREFIX}:compute-environment/made",
    }


def test_update_compute_environment(endpoint: Endpoint, call: Call) -> None:
    endpoint.environment("to-update")
    answer = call(
        "--compute-environment",
        "to-update",
        "--state",
        "DISABLED",
        "--compute-resources",
        "maxvCpus=7",
    )
    assert answer["computeEnvironmentArn"] == f"{PREFIX}:compute-environment/to-update"
    (environment,) = endpoint.batch.describe_compute_environments(
        computeEnvironments=["to-update"]
    )["computeEnvironments"]
    assert (environment["state"], environment["computeResources"]["maxvCpus"]) == ("DISABLED", 7)


def test_delete_compute_environment(endpoint: Endpoint, call: Call) -> None:
    endpoint.environment("to-delete")
    endpoint.batch.update_compute_environment(computeEnvironment="to-delete", state="DISABLED")
    assert call("--compute-environment", "to-delete") is None
    assert (
        endpoint.batch.describe_compute_environments(computeEnvironments=["to-delete"])[
            "computeEnvironments"
        ]
        == []
    )


def test_describe_compute_environments(call: Call) -> None:
    (environment,) = call("--compute-environments", "cpu")["computeEnvironments"]
    assert (environment["computeEnvironmentName"], environment["status"]) == ("cpu", "VALID")


# -- job queues -----------------------------------------------------------------------------------


def test_create_job_queue(call: Call) -> None:
    order = "order=1,computeEnvironment=cpu"
    answer = call(
        "--job-queue-name", "made", "--priority", "5", "--compute-environment-order", order
    )
    assert answer == {"jobQueueName": "made", "jobQueueArn": f"{PREFIX}:job-queue/made"}


def test_update_job_queue(endpoint: Endpoint, call: Call) -> None:
    endpoint.queue("to-update", "cpu")
    assert call("--job-queue", "to-update", "--priority", "9")["jobQueueName"] == "to-update"
    assert (
        endpoint.batch.describe_job_queues(jobQueues=["to-update"])["jobQueues"][0]["priority"] == 9
    )


def test_delete_job_queue(endpoint: Endpoint, call: Call) -> None:
    endpoint.queue("to-delete", "cpu", state="DISABLED")
    assert call("--job-queue", "to-delete") is None
    assert endpoint.batch.describe_job_queues(jobQueues=["to-delete"])["jobQueues"] == []


def test_describe_job_queues(call: Call) -> None:
    (queue,) = call("--job-queues", "queue")["jobQueues"]
    assert (queue["jobQueueName"], queue["status"]) == ("queue", "VALID")


def test_get_job_queue_snapshot(endpoint: Endpoint, call: Call, waiting: str) -> None:
    jobs = call("--job-queue", "off")["frontOfQueue"]["jobs"]
    assert f"{PREFIX}:job/{waiting}" in [job["jobArn"] for job in jobs]


# -- scheduling policies --------------------------------------------------------------------------


def test_create_scheduling_policy(endpoint: Endpoint, call: Call) -> None:
    shares = '[{"shareIdentifier": "a*", "weightFactor": 0.5}]'
    policy = f'{{"shareDecaySeconds": 600, "shareDistribution": {shares}}}'
    answer = call("--name", "made", "--fairshare-policy", policy)
    assert answer == {"name": "made", "arn": f"{PREFIX}:scheduling-policy/made"}


def test_update_scheduling_policy(endpoint: Endpoint, call: Call) -> None:
    arn = endpoint.batch.create_scheduling_policy(name="to-update")["arn"]
    assert call("--arn", arn, "--fairshare-policy", "computeReservation=10") is None
    (policy,) = endpoint.batch.describe_scheduling_policies(arns=[arn])["schedulingPolicies"]
    assert policy["fairsharePolicy"] == {"computeReservation": 10}


def test_delete_scheduling_policy(endpoint: Endpoint, call: Call) -> None:
    arn = endpoint.batch.create_scheduling_policy(name="to-delete")["arn"]
    assert call("--arn", arn) is None
    assert endpoint.batch.describe_scheduling_policies(arns=[arn])["schedulingPolicies"] == []


def test_describe_scheduling_policies(endpoint: Endpoint, call: Call) -> None:
    arn = endpoint.batch.create_scheduling_policy(name="described", tags={"a": "b"})["arn"]
    (policy,) = call("--arns", arn)["schedulingPolicies"]
    assert policy == {"name": "described", "arn": arn, "fairsharePolicy": {}, "tags": {"a": "b"}}


def test_list_scheduling_policies(endpoint: Endpoint, call: Call) -> None:
    arn = endpoint.batch.create_scheduling_policy(name="listed")["arn"]
    assert {"arn": arn} in call()["schedulingPolicies"]


# -- job definitions ------------------------------------------------------------------------------


def test_register_job_definition(endpoint: Endpoint, call: Call) -> None:
    requirements = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}]
    container = {
        "image": "busybox",
        "command": ["echo", "Ref::x"],
        "resourceRequirements": requirements,
    }
    request = {"jobDefinitionName": "made", "type": "container", "containerProperties": container}
    assert call("--cli-input-json", from_file(endpoint, "definition", request)) == {
        "jobDefinitionName": "made",
        "jobDefinitionArn": f"{PREFIX}:job-definition/made:1",
        "revision": 1,
    }


def test_deregister_job_definition(endpoint: Endpoint, call: Call) -> None:
    name = endpoint.definition("to-go", "true")
    assert call("--job-definition", name) is None
    (definition,) = endpoint.batch.describe_job_definitions(jobDefinitionName="to-go")[
        "jobDefinitions"
    ]
    assert definition["status"] == "INACTIVE"


def test_describe_job_definitions(endpoint: Endpoint, call: Call) -> None:
    endpoint.definition("described", "true")
    (definition,) = call("--job-definition-name", "described", "--status", "ACTIVE")[
        "jobDefinitions"
    ]
    assert (definition["jobDefinitionName"], definition["revision"]) == ("described", 1)


# -- jobs -----------------------------------------------------------------------------------------


def test_submit_job(endpoint: Endpoint, call: Call) -> None:
    endpoint.definition("greets", "echo", "hello", "Ref::who")
    answer = call(
        *("--job-name", "greeting", "--job-queue", "queue", "--job-definition", "greets"),
        *("--parameters", "who=world", "--container-overrides", "environment=[{name=A,value=b}]"),
    )
    assert answer["jobName"] == "greeting"
    assert answer["jobArn"] == f"{PREFIX}:job/{answer['jobId']}"
    assert endpoint.wait(answer["jobId"])["status"] == "SUCCEEDED"
    assert endpoint.output(answer["jobId"]) == ["hello world"]


def test_cancel_job(endpoint: Endpoint, call: Call, waiting: str) -> None:
    assert call("--job-id", waiting, "--reason", "not needed") is None
    job = endpoint.wait(waiting)
    assert (job["status"], job["statusReason"], job["isCancelled"]) == (
        "FAILED",
        "not needed",
        True,
    )


def test_terminate_job(endpoint: Endpoint, call: Call) -> None:
    job_id = endpoint.run("sleep", "600")
    endpoint.wait(job_id, "RUNNING")
    assert call("--job-id", job_id, "--reason", "enough") is None
    job = endpoint.wait(job_id)
    assert (job["status"], job["statusReason"], job["isTerminated"]) == ("FAILED", "enough", True)


def test_cancel_jobs(endpoint: Endpoint, waiting: str) -> None:
    """By boto3: the command of PyPI is a version behind, and does not know it yet. 1.6: ids of
    nobody are no error."""
    answer = endpoint.batch.cancel_jobs(jobs=[waiting, "nobody"], reason="not needed")
    assert (answer["successful"], answer["errors"]) == ([waiting, "nobody"], [])
    assert endpoint.wait(waiting)["statusReason"] == "not needed"


def test_terminate_jobs(endpoint: Endpoint, waiting: str) -> None:
    """By boto3, as above. 1.6: 50 ids at most."""
    answer = endpoint.batch.terminate_jobs(jobs=[waiting], reason="enough")
    assert (answer["successful"], answer["errors"]) == ([waiting], [])
    for wrong in ([], ["x"] * 51):
        with refused("1 to 50"):
            endpoint.batch.terminate_jobs(jobs=wrong, reason="enough")
    assert endpoint.wait(waiting)["statusReason"] == "enough"


def test_describe_jobs(call: Call, waiting: str) -> None:
    (job,) = call("--jobs", waiting)["jobs"]
    assert (job["jobId"], job["status"]) == (waiting, "RUNNABLE")


def test_list_jobs(call: Call, waiting: str) -> None:
    summaries = call("--job-queue", "off", "--job-status", "RUNNABLE")["jobSummaryList"]
    assert waiting in [summary["jobId"] for summary in summaries]


# -- consumable resources -------------------------------------------------------------------------


def test_create_consumable_resource(endpoint: Endpoint, call: Call) -> None:
    answer = call(
        "--consumable-resource-name",
        "made",
        "--total-quantity",
        "3",
        "--resource-type",
        "NON_REPLENISHABLE",
    )
    assert answer == {
        "consumableResourceName": "made",
        "consumableResourceArn": f"{PREFIX}:consumable-resource/made",
    }


@pytest.fixture
def licence(endpoint: Endpoint, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("_", "-")
    endpoint.batch.create_consumable_resource(consumableResourceName=name, totalQuantity=2)
    return str(name)


def test_update_consumable_resource(call: Call, licence: str) -> None:
    assert (
        call("--consumable-resource", licence, "--operation", "ADD", "--quantity", "3")[
            "totalQuantity"
        ]
        == 5
    )


def test_delete_consumable_resource(endpoint: Endpoint, call: Call, licence: str) -> None:
    assert call("--consumable-resource", licence) is None
    names = [
        resource["consumableResourceName"]
        for resource in endpoint.batch.list_consumable_resources()["consumableResources"]
    ]
    assert licence not in names


def test_describe_consumable_resource(call: Call, licence: str) -> None:
    resource = call("--consumable-resource", licence)
    assert (
        resource["totalQuantity"],
        resource["inUseQuantity"],
        resource["availableQuantity"],
    ) == (2, 0, 2)


def test_list_consumable_resources(call: Call, licence: str) -> None:
    resources = call("--filters", f"name=CONSUMABLE_RESOURCE_NAME,values={licence}")[
        "consumableResources"
    ]
    assert [resource["consumableResourceName"] for resource in resources] == [licence]


def test_list_jobs_by_consumable_resource(endpoint: Endpoint, call: Call, licence: str) -> None:
    needed = {"consumableResourceList": [{"consumableResource": licence, "quantity": 1}]}
    job_id = endpoint.run("true", queue="off", consumableResourcePropertiesOverride=needed)
    (summary,) = call("--consumable-resource", licence)["jobs"]
    assert (summary["jobArn"], summary["jobStatus"]) == (f"{PREFIX}:job/{job_id}", "RUNNABLE")


# -- tags -----------------------------------------------------------------------------------------


def test_tag_resource(endpoint: Endpoint, call: Call) -> None:
    assert call("--resource-arn", f"{PREFIX}:job-queue/queue", "--tags", "team=a b") is None
    assert (
        endpoint.batch.describe_job_queues(jobQueues=["queue"])["jobQueues"][0]["tags"]["team"]
        == "a b"
    )


def test_untag_resource(endpoint: Endpoint, call: Call) -> None:
    arn = f"{PREFIX}:compute-environment/cpu"
    endpoint.batch.tag_resource(resourceArn=arn, tags={"a": "1", "b": "2", "c": "3"})
    assert call("--resource-arn", arn, "--tag-keys", "a", "b") is None
    assert endpoint.batch.list_tags_for_resource(resourceArn=arn)["tags"] == {"c": "3"}


def test_list_tags_for_resource(endpoint: Endpoint, call: Call) -> None:
    arn = endpoint.batch.create_scheduling_policy(name="with-tags", tags={"a": "b"})["arn"]
    assert call("--resource-arn", arn) == {"tags": {"a": "b"}}


# -- the others -----------------------------------------------------------------------------------

NOT_SERVED = sorted(set(MODEL.operation_names) - set(OPERATIONS["batch"]))


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        (
            "SubmitServiceJob",
            "--job-name j --job-queue queue --service-job-type SAGEMAKER_TRAINING "
            "--service-request-payload {}",
        ),
        (
            "CreateServiceEnvironment",
            "--service-environment-name e --service-environment-type SAGEMAKER_TRAINING "
            "--capacity-limits maxCapacity=1,capacityUnit=NUM_INSTANCES",
        ),
        (
            "CreateQuotaShare",
            "--quota-share-name q --job-queue queue "
            "--capacity-limits maxCapacity=1,capacityUnit=ml.m5.large "
            "--resource-sharing-configuration strategy=RESERVE "
            "--preemption-configuration inSharePreemption=DISABLED",
        ),
    ],
)
def test_what_is_not_served_is_refused_by_name(
    endpoint: Endpoint, operation: str, arguments: str
) -> None:
    """7.3: service jobs and quota shares are for SageMaker."""
    done = endpoint.aws("batch", xform_name(operation, "-"), *arguments.split(), check=False)
    assert done.returncode != 0
    assert "ClientException" in done.stderr
    assert f"{operation} is not an operation of batchyard's AWS Batch endpoint" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("operation", NOT_SERVED)
def test_nothing_else_is_served_by_accident(endpoint: Endpoint, operation: str) -> None:
    http = MODEL.operation_model(operation).http
    status, answer = post(endpoint, http["requestUri"], {}, http["method"])
    assert status == 400
    assert answer["message"].startswith(
        f"{operation} is not an operation of batchyard's AWS Batch endpoint"
    )


def test_an_error_as_the_command_shows_it(endpoint: Endpoint) -> None:
    """5.4: the general shape of an error."""
    done = endpoint.aws(
        *(
            "batch",
            "submit-job",
            "--job-name",
            "a b",
            "--job-queue",
            "queue",
            "--job-definition",
            "x",
        ),
        check=False,
    )
    assert done.returncode != 0
    assert "(ClientException) when calling the SubmitJob operation" in done.stderr
    assert "jobName" in done.stderr


def test_the_check_of_answers_finds_what_is_wrong() -> None:
    """Of the tests' own means: an answer with an unknown member, wrong types, a missing member."""
    wrong = {
        "computeEnvironments": [
            {
                "computeEnvironmentName": 7,
                "colour": "red",
                "computeResources": {"maxvCpus": "1"},
                "state": "ASLEEP",
            }
        ]
    }
    place = "DescribeComputeEnvironments.computeEnvironments[0]"
    assert complaints("DescribeComputeEnvironments", wrong) == [
        f"{place}.colour is unknown",
        f"{place}.computeEnvironmentArn is missing",
        f"{place}.computeEnvironmentName should be string: 7",
        f"{place}.computeResources.type is missing",
        f"{place}.computeResources.maxvCpus should be integer: '1'",
        f"{place}.state should be string: 'ASLEEP'",
    ]
    assert complaints("DescribeComputeEnvironments", {"computeEnvironments": {}}) != []


def test_nothing_went_wrong_on_the_way(endpoint: Endpoint) -> None:
    assert_no_traceback(endpoint)
