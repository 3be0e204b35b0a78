"""All regions in one endpoint: each has its own resources and jobs, and one machine runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from emulator_answers import refused
from emulator_endpoint import Endpoint, until

HOME, AWAY, CHINA = "us-east-1", "eu-west-1", "cn-north-1"


class Region:
    """Clients of one region, with an environment `cpu`, a queue `queue` and a definition `sent`."""

    def __init__(self, endpoint: Endpoint, name: str) -> None:
        self.name = name
        self.client: Callable[[str], Any] = lambda service: endpoint.client(service, name)
        self.batch = self.client("batch")

    def set_up(self, *command: str) -> Region:
        self.batch.create_compute_environment(
            computeEnvironmentName="cpu",
            type="MANAGED",
            computeResources={
                "type": "EC2",
                "minvCpus": 0,
                "maxvCpus": 256,
                "subnets": ["subnet-0a"],
                "securityGroupIds": ["sg-0a"],
                "instanceRole": "ecsInstanceRole",
                "instanceTypes": ["m6i.large"],
            },
        )
        self.batch.create_job_queue(
            jobQueueName="queue",
            priority=1,
            computeEnvironmentOrder=[{"order": 1, "computeEnvironment": "cpu"}],
        )
        self.batch.register_job_definition(
            jobDefinitionName="sent",
            type="container",
            containerProperties={
                "image": "none",
                "command": list(command),
                "resourceRequirements": [
                    {"type": "VCPU", "value": "1"},
                    {"type": "MEMORY", "value": "64"},
                ],
            },
        )
        return self

    def submit(self, **members: Any) -> str:
        answer = self.batch.submit_job(
            jobName="job", jobQueue="queue", jobDefinition="sent", **members
        )
        return str(answer["jobId"])

    def job(self, job_id: str) -> dict[str, Any]:
        (job,) = self.batch.describe_jobs(jobs=[job_id])["jobs"]
        return dict(job)

    def wait(self, job_id: str, *states: str) -> dict[str, Any]:
        states = states or ("SUCCEEDED", "FAILED")
        return until(lambda: self.job(job_id), lambda job: job["status"] in states)

    def events(self, job_id: str) -> list[str]:
        stream = self.job(job_id)["container"]["logStreamName"]
        answer = self.client("logs").get_log_events(
            logGroupName="/aws/batch/job", logStreamName=stream
        )
        return [event["message"] for event in answer["events"]]


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Any:
    it = Endpoint(tmp_path_factory.mktemp("endpoint"), "--cpus", "2", "--job-region")
    yield it
    it.stop()


def names_of(region: Region) -> list[str]:
    batch = region.batch
    return [
        *(
            d["computeEnvironmentArn"]
            for d in batch.describe_compute_environments()["computeEnvironments"]
        ),
        *(d["jobQueueArn"] for d in batch.describe_job_queues()["jobQueues"]),
        *(d["jobDefinitionArn"] for d in batch.describe_job_definitions()["jobDefinitions"]),
        *region.client("ecs").list_clusters()["clusterArns"],
    ]


def test_a_region_that_moto_does_not_know(endpoint: Endpoint) -> None:
    """AWS opens new ones every year."""
    new = Region(endpoint, "ap-north-9").set_up("echo", "hello")
    job_id = new.submit()
    assert new.wait(job_id)["status"] == "SUCCEEDED"
    assert new.events(job_id) == ["hello"]
    streams = new.client("logs").describe_log_streams(logGroupName="/aws/batch/job")
    assert len(streams["logStreams"]) == 1
    with pytest.raises(ClientError, match=r"moto .* could not answer"):
        new.client("ec2").describe_instances()
    assert "Traceback" not in endpoint.said.read_text()


def test_a_job_in_another_region(endpoint: Endpoint) -> None:
    home, away = Region(endpoint, HOME), Region(endpoint, AWAY)
    assert names_of(away) == []
    away.set_up("sh", "-c", "echo $AWS_REGION $AWS_BATCH_CE_NAME $AWS_BATCH_JQ_NAME")
    assert names_of(home) == []
    arns = names_of(away)
    assert len(arns) == 4 and all(arn.split(":")[3] == AWAY for arn in arns)

    job_id = away.submit()
    job = away.wait(job_id)
    assert job["status"] == "SUCCEEDED" and job["jobArn"].split(":")[3] == AWAY
    assert away.events(job_id) == [f"{AWAY} cpu queue"]
    task_arn = job["container"]["taskArn"]
    cluster = task_arn.split("/")[1]
    tasks = away.client("ecs").describe_tasks(cluster=cluster, tasks=[task_arn])["tasks"]
    assert [task["taskArn"] for task in tasks] == [task_arn] and AWAY in task_arn

    assert home.batch.describe_jobs(jobs=[job_id])["jobs"] == []
    logs = home.client("logs")
    with pytest.raises(logs.exceptions.ResourceNotFoundException):
        logs.get_log_events(
            logGroupName="/aws/batch/job", logStreamName=job["container"]["logStreamName"]
        )
    for arn in arns[:3]:
        with refused(arn):
            home.batch.tag_resource(resourceArn=arn, tags={"a": "b"})


def test_the_same_names_in_two_regions(endpoint: Endpoint) -> None:
    home = Region(endpoint, HOME).set_up("sleep", "600")
    away = Region(endpoint, "ap-southeast-2").set_up("sleep", "600")
    first, second = home.submit(), home.submit()
    for job_id in (first, second):
        home.wait(job_id, "RUNNING")
    third = away.submit()
    # All jobs share this machine, which has two vCPUs.
    assert away.wait(third, "RUNNABLE", "RUNNING")["status"] == "RUNNABLE"
    with refused(f"no job has the id {first}"):
        away.submit(dependsOn=[{"jobId": first}])
    away.batch.terminate_job(jobId=first, reason="not of this region")
    assert home.job(first)["status"] == "RUNNING"
    instances = home.client("ec2").describe_instances()["Reservations"]
    assert len(instances) == 1
    assert away.client("ec2").describe_instances()["Reservations"] == []
    for region, running in ((home, 2), (away, 0)):
        arns = region.client("ecs").list_clusters()["clusterArns"]
        (cluster,) = region.client("ecs").describe_clusters(clusters=arns)["clusters"]
        assert cluster["runningTasksCount"] == running
    home.batch.terminate_job(jobId=first, reason="make room")
    away.wait(third, "RUNNING")
    for region, job_id in ((home, second), (away, third)):
        region.batch.terminate_job(jobId=job_id, reason="the end")
        assert region.wait(job_id)["statusReason"] == "the end"


def test_events_go_to_the_rules_of_the_region(endpoint: Endpoint) -> None:
    away = Region(endpoint, "eu-north-1")
    sqs = away.client("sqs")
    url = sqs.create_queue(QueueName="events")["QueueUrl"]
    arn = f"arn:aws:sqs:{away.name}:123456789012:events"
    rules = away.client("events")
    rules.put_rule(Name="jobs", EventPattern=json.dumps({"source": ["aws.batch"]}))
    rules.put_targets(Rule="jobs", Targets=[{"Id": "1", "Arn": arn}])
    away.set_up("true")
    job_id = away.submit()
    away.wait(job_id)
    seen: list[dict[str, Any]] = []

    def receive() -> list[dict[str, Any]]:
        messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
        seen.extend(json.loads(message["Body"]) for message in messages)
        return seen

    until(receive, lambda events: any(e["detail"]["status"] == "SUCCEEDED" for e in events))
    assert {event["region"] for event in seen} == {away.name}


def test_a_stack_makes_its_resources_in_its_region(endpoint: Endpoint) -> None:
    away = Region(endpoint, CHINA)
    policy = {"Type": "AWS::Batch::SchedulingPolicy", "Properties": {"Name": "fair"}}
    template = json.dumps({"Resources": {"Policy": policy}})
    away.client("cloudformation").create_stack(StackName="policies", TemplateBody=template)
    arns = [d["arn"] for d in away.batch.list_scheduling_policies()["schedulingPolicies"]]
    assert arns == [f"arn:aws-cn:batch:{CHINA}:123456789012:scheduling-policy/fair"]
    away.client("cloudformation").delete_stack(StackName="policies")
    until(
        lambda: away.batch.list_scheduling_policies()["schedulingPolicies"], lambda left: not left
    )


def test_all_regions_survive_a_restart(start: Callable[..., Endpoint]) -> None:
    endpoint = start("--cpus", "1")
    home = Region(endpoint, HOME).set_up("echo", "home")
    away = Region(endpoint, AWAY).set_up("sh", "-c", "test -e go || sleep 600; echo away")
    ended, running = home.submit(), away.submit()
    home.wait(ended)
    away.wait(running, "RUNNING")
    (endpoint.folder / "go").touch()
    endpoint.stop()
    again = start("--cpus", "1")
    home, away = Region(again, HOME), Region(again, AWAY)
    assert away.wait(running)["status"] == "SUCCEEDED" and away.events(running) == ["away"]
    assert home.events(ended) == ["home"]
    assert away.batch.describe_jobs(jobs=[ended])["jobs"] == []
    newest = away.submit()
    assert away.wait(newest)["status"] == "SUCCEEDED"
    assert away.events(newest) == ["away"] and home.events(ended) == ["home"]
