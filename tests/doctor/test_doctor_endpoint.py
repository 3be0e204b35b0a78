"""Sick systems at a real endpoint, examined by the real command: it finds the cause alone.

`batchyard emulate` serves the jobs and queues; moto behind it serves networks, roles and launch
templates.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("moto")

from emulator_endpoint import BATCHYARD, Endpoint, until

import prestarted
from batchyard.aws.session import AwsSession
from batchyard.doctor.facts import Environment, Facts, Job
from batchyard.doctor.gather.subjects import MAX_CALLS, Gatherer
from batchyard.ec2_prices import Prices

ECS_POLICY = "arn:aws:iam::aws:policy/service-role/AmazonEC2ContainerServiceforEC2Role"
ANYONE = json.dumps({"Version": "2012-10-17", "Statement": []})
#: on an idle machine
MAX_ANSWER_S = 3.0


class Yard:
    """An endpoint with a healthy network, role and profile, and the doctor command."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.ec2 = endpoint.client("ec2")
        self.iam = endpoint.client("iam")
        self.subnet, self.group = self.network("10.1.0.0/16")
        self.profile = self.instance_profile("nodes", ECS_POLICY)
        self._count = 0

    def network(
        self, block: str, *, has_route: bool = True, is_public: bool = True
    ) -> tuple[str, str]:
        """A subnet and a security group in a VPC of their own."""
        vpc = self.ec2.create_vpc(CidrBlock=block)["Vpc"]["VpcId"]
        subnet = self.ec2.create_subnet(
            VpcId=vpc, CidrBlock=block.replace("/16", "/24"), AvailabilityZone="us-east-1a"
        )
        subnet_id = subnet["Subnet"]["SubnetId"]
        if has_route:
            gateway = self.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
            self.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
            table = self.ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
            self.ec2.create_route(
                RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway
            )
            self.ec2.associate_route_table(RouteTableId=table, SubnetId=subnet_id)
        self.ec2.modify_subnet_attribute(
            SubnetId=subnet_id, MapPublicIpOnLaunch={"Value": is_public}
        )
        group = self.ec2.create_security_group(GroupName=f"of-{vpc}", Description="x", VpcId=vpc)[
            "GroupId"
        ]
        return subnet_id, group

    def instance_profile(self, name: str, *policies: str, has_role: bool = True) -> str:
        self.iam.create_instance_profile(InstanceProfileName=name)
        if has_role:
            self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=ANYONE)
            for policy in policies:
                self.iam.attach_role_policy(RoleName=name, PolicyArn=policy)
            self.iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
        return name

    def environment(
        self, vcpus: int = 64, types: tuple[str, ...] = ("m6i.large", "m6i.xlarge"), **changes: Any
    ) -> str:
        self._count += 1
        resources = {
            "subnets": [self.subnet],
            "securityGroupIds": [self.group],
            "instanceRole": self.profile,
            "allocationStrategy": "BEST_FIT_PROGRESSIVE",
        }
        return self.endpoint.environment(f"e{self._count}", vcpus, types, **(resources | changes))

    def queue(self, *environments: str, **options: Any) -> str:
        self._count += 1
        return self.endpoint.queue(f"q{self._count}", *environments, **options)

    def submit(
        self, queue: str, *command: str, asks: dict[str, int] | None = None, **options: Any
    ) -> str:
        definition = self.endpoint.definition("any", *(command or ("true",)), **(asks or {}))
        return self.endpoint.submit(definition, queue, **options)

    def submit_and_wait(self, *args: Any, **options: Any) -> str:
        """Submit a job and wait until it is RUNNABLE; return its id."""
        job_id = self.submit(*args, **options)
        self.endpoint.wait(job_id, "RUNNABLE")
        return job_id

    def submit_blocked(self, *args: Any, **options: Any) -> str:
        """Submit a job that no host fits; wait until AWS Batch gives the reason; return its id."""
        job_id = self.submit(*args, **options)
        until(lambda: self.endpoint.job(job_id).get("statusReason", ""), bool)
        return job_id

    def doctor(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = prestarted.run(
            [BATCHYARD, "doctor", *args],
            env=self.endpoint.environ,
            cwd=self.endpoint.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def report(self, *args: str) -> Any:
        done = self.doctor(*args, "--json")
        assert done.returncode in (0, 1, 2) and done.stdout, done.stderr
        report = json.loads(done.stdout)
        assert (done.returncode, report["state"]) in (
            (0, "healthy"),
            (0, "waiting"),
            (1, "findings"),
            (2, "blind"),
        )
        return report

    def find_ids(self, *args: str) -> list[str]:
        return [finding["id"] for finding in self.report(*args)["findings"]]

    def find_texts(self, *args: str) -> dict[str, str]:
        """Return the cause and the evidence of each finding by its id, in the report's order."""
        findings = self.report(*args)["findings"]
        texts = {
            finding["id"]: "\n".join([finding["cause"], *finding["evidence"]])
            for finding in findings
        }
        assert len(texts) == len(findings), "two findings have one id"
        return texts

    def evidence(self, kind: str, *args: str) -> str:
        findings = [finding for finding in self.report(*args)["findings"] if finding["id"] == kind]
        assert findings, f"{kind} was not found"
        return "\n".join([findings[0]["cause"], *findings[0]["evidence"]])


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    endpoint = Endpoint(
        tmp_path_factory.mktemp("endpoint"), "--cpus", "16", "--memory", "64GiB", "--gpus", "2"
    )
    try:
        yield Yard(endpoint)
    finally:
        endpoint.stop()


# -- what is right -----------------------------------------------------------------------------


def test_a_healthy_queue_environment_and_finished_job_give_nothing(yard: Yard) -> None:
    environment = yard.environment()
    queue = yard.queue(environment)
    job_id = yard.submit(queue)
    assert yard.endpoint.wait(job_id)["status"] == "SUCCEEDED"
    for args in (("queue", queue), ("env", environment), ("job", job_id)):
        report = yard.report(*args)
        assert (args, report["findings"], report["blind"]) == (args, [], "")
        assert report["state"] == "healthy"
    done = yard.doctor("queue", queue, "--all")
    assert (
        done.returncode == 0
        and "BY031 instances in every subnet can reach ECS, ECR and the logs" in done.stdout
    )


def test_what_the_endpoint_does_not_offer_is_said_to_be_so(yard: Yard) -> None:
    unseen = {
        u["id"]: u["why"] for u in yard.report("queue", yard.queue(yard.environment()))["unseen"]
    }
    assert "not available" in unseen["BY025"]  # quotas of EC2
    assert "no Auto Scaling group of e" in unseen["BY026"]


def test_a_job_that_runs_is_healthy(yard: Yard) -> None:
    job_id = yard.submit(yard.queue(yard.environment()), "sleep", "600")
    yard.endpoint.wait(job_id, "RUNNING")
    assert yard.report("job", job_id)["state"] == "healthy"
    yard.endpoint.batch.terminate_job(jobId=job_id, reason="done")
    yard.endpoint.wait(job_id)
    # Stopped by hand: whoever did it knows why.
    assert yard.report("job", job_id)["state"] == "healthy"


@pytest.mark.slow
def test_an_environment_that_was_just_deployed_is_healthy(yard: Yard) -> None:
    command = [BATCHYARD, "deploy", "--env", "fresh", "--yes"]
    subprocess.run(
        command,
        env=yard.endpoint.environ,
        cwd=yard.endpoint.folder,
        check=True,
        capture_output=True,
    )
    report = yard.report("env", "fresh")
    assert (report["findings"], report["state"]) == ([], "healthy")
    report = yard.report("env", "fresh", "--gpus", "1", "--memory", "14GiB")
    assert report["findings"] == [] and "g5.xlarge" in report["fits"][0]
    for queue in ("fresh-cpu", "fresh-gpu", "fresh-gpu-on-demand"):
        assert yard.report("queue", queue)["findings"] == []


def own_queue(yard: Yard, name: str) -> str:
    """A queue of an UNMANAGED environment, as the endpoint's own docs make it."""
    yard.endpoint.batch.create_compute_environment(
        computeEnvironmentName=name, type="UNMANAGED", serviceRole="any"
    )
    return yard.endpoint.queue(name, name)


def pipeline_at(folder: Path, queue: str, steps: str) -> Path:
    """A pipeline beside an environment `here`, all of whose steps go to this queue."""
    (folder / ".batchyard").mkdir()
    settings = {"region": "us-east-1", "bucket": "lab", "queues": {"cpu": queue, "gpu": queue}}
    (folder / ".batchyard" / "environments.yaml").write_text(
        json.dumps({"environments": {"here": settings}})
    )
    (folder / "pipeline.yaml").write_text(f"{{name: a, image: b, steps: {steps}}}")
    return folder / "pipeline.yaml"


@pytest.mark.slow
def test_an_unmanaged_environment_runs_on_this_machine_and_is_healthy(
    yard: Yard, tmp_path: Path
) -> None:
    queue = own_queue(yard, "here")
    job_id = yard.submit(queue)
    assert yard.endpoint.wait(job_id)["status"] == "SUCCEEDED"
    path = pipeline_at(tmp_path, queue, '[{name: c, command: "true"}]')
    for args in (
        ("queue", queue),
        ("env", queue),
        ("job", job_id),
        ("pipeline", str(path), "--env", "here"),
    ):
        report = yard.report(*args)
        assert (args, report["findings"], report["state"]) == (args, [], "healthy")
    assert "BY055" in [kind["id"] for kind in yard.report("queue", queue)["right"]]


def test_what_aws_says_of_a_job_that_this_machine_cannot_hold(yard: Yard) -> None:
    job_id = yard.submit_blocked(own_queue(yard, "too-small"), asks={"memory_mib": 512_000})
    reason = yard.endpoint.job(job_id)["statusReason"]
    assert reason.startswith("MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT")
    findings = yard.find_texts("job", job_id)
    assert list(findings) == ["BY015"]
    evidence = findings["BY015"]
    assert reason in evidence and "registers 16 vCPUs, 65,536 MiB, 2 GPUs" in evidence
    yard.endpoint.batch.terminate_job(jobId=job_id, reason="done")


@pytest.mark.parametrize(
    ("asks", "kind"),
    [
        ("memory: 64GiB, cpus: 16, gpus: 2", ""),
        ("memory: 65537MiB", "BY015"),
        ("cpus: 17", "BY014"),
        ("gpus: 3", "BY016"),
    ],
)
def test_the_steps_of_a_pipeline_are_compared_with_the_hosts_of_an_unmanaged_environment(
    yard: Yard, tmp_path: Path, asks: str, kind: str
) -> None:
    queue = own_queue(yard, f"own-{kind or 'fits'}")
    steps = f"[{{name: small, command: x}}, {{name: large, command: x, {asks}}}]"
    pipeline = ("pipeline", str(pipeline_at(tmp_path, queue, steps)), "--env", "here")
    report = yard.report(*pipeline)
    fits = "\n".join(report["fits"])
    assert f"step small fits {queue}: i-" in fits
    if not kind:
        assert (report["findings"], report["state"]) == ([], "healthy")
        assert f"step large fits {queue}: i-" in fits
        return
    (finding,) = report["findings"]
    assert (finding["id"], finding["place"]) == (kind, "step large")
    assert " registers 16 vCPUs, 65,536 MiB, 2 GPUs" in "\n".join(finding["evidence"])
    assert yard.doctor(*pipeline).returncode == 1


# -- jobs that cannot start --------------------------------------------------------------------


def test_maxvcpus_too_small(yard: Yard) -> None:
    job_id = yard.submit_blocked(
        yard.queue(yard.environment(vcpus=1, types=("m6i.large",))), asks={"vcpus": 2}
    )
    findings = yard.find_texts("job", job_id)
    assert list(findings) == ["BY012"] and "maxvCpus 1; m6i.large has 2 vCPUs" in findings["BY012"]


def test_a_disabled_environment(yard: Yard) -> None:
    environment = yard.environment()
    queue = yard.queue(environment)
    yard.endpoint.batch.update_compute_environment(computeEnvironment=environment, state="DISABLED")
    assert yard.find_ids("job", yard.submit_and_wait(queue)) == ["BY004"]
    assert yard.find_ids("queue", queue) == ["BY004"]
    assert yard.find_ids("env", environment) == ["BY004"]


def test_a_disabled_queue(yard: Yard) -> None:
    queue = yard.queue(yard.environment(vcpus=2, types=("m6i.large",)))
    first = yard.submit(queue, "sleep", "600", asks={"vcpus": 2})
    yard.endpoint.wait(first, "RUNNING")
    job_id = yard.submit_and_wait(queue)
    yard.endpoint.batch.update_job_queue(jobQueue=queue, state="DISABLED")
    assert yard.find_ids("job", job_id) == ["BY002"]
    # The environment of the queue is full, too, and a job waits for it.
    assert yard.find_ids("queue", queue) == ["BY002", "BY013"]
    yard.endpoint.batch.terminate_job(jobId=first, reason="done")


def test_no_gpu_types_for_a_gpu_job(yard: Yard) -> None:
    job_id = yard.submit_blocked(yard.queue(yard.environment()), asks={"gpus": 1})
    assert yard.find_ids("job", job_id) == ["BY017"]


def test_a_job_too_big_for_every_type(yard: Yard) -> None:
    queue = yard.queue(yard.environment(types=("m6i.large",)))
    assert yard.find_ids("job", yard.submit_blocked(queue, asks={"memory_mib": 8192})) == ["BY015"]
    queue = yard.queue(yard.environment(types=("m6i.large",)))
    assert yard.find_ids("job", yard.submit_blocked(queue, asks={"vcpus": 4})) == ["BY014"]
    queue = yard.queue(yard.environment(types=("g5.xlarge",)))
    assert yard.find_ids("job", yard.submit_blocked(queue, asks={"gpus": 2})) == ["BY016"]


@pytest.mark.slow
def test_a_type_that_the_catalogue_does_not_know_is_asked_about(yard: Yard) -> None:
    queue = yard.queue(yard.environment(types=("t3.medium",)))
    report = yard.report("queue", queue, "--memory", "3GiB")
    assert report["findings"] == [] and "t3.medium" in report["fits"][0]
    assert yard.find_ids("queue", queue, "--memory", "4GiB") == ["BY015"]


@pytest.mark.slow
def test_a_job_that_waits_for_another_is_not_stuck(yard: Yard) -> None:
    queue = yard.queue(yard.environment())
    first = yard.submit(queue, "sleep", "600")
    second = yard.submit(queue, dependsOn=[{"jobId": first}])
    yard.endpoint.wait(first, "RUNNING")
    time.sleep(1.1)
    report = yard.report("job", second, "--dwell", "1s")
    assert report["state"] == "waiting" and f"{first} (RUNNING)" in report["waiting"]
    yard.endpoint.batch.terminate_job(jobId=first, reason="done")


def test_a_dead_dependency(yard: Yard) -> None:
    queue = yard.queue(yard.environment())
    first = yard.submit(queue, "false")
    second = yard.submit(queue, dependsOn=[{"jobId": first}])
    yard.endpoint.wait(second)
    findings = yard.find_texts("job", second)
    assert list(findings) == ["BY001"] and first in findings["BY001"]


@pytest.mark.slow
def test_another_job_blocks_the_queue(yard: Yard) -> None:
    queue = yard.queue(yard.environment(types=("m6i.large",)))
    head = yard.submit_blocked(queue, asks={"vcpus": 4})
    job_id = yard.submit_and_wait(queue)
    time.sleep(1.1)
    report = yard.report("job", job_id, "--dwell", "1s")
    assert [finding["id"] for finding in report["findings"]] == ["BY011"]
    assert head in str(report["findings"]) and "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT" in str(
        report["findings"]
    )


@pytest.mark.slow
def test_a_consumable_resource_is_exhausted(yard: Yard) -> None:
    queue = yard.queue(yard.environment())
    yard.endpoint.batch.create_consumable_resource(
        consumableResourceName="licence", totalQuantity=1
    )

    def wants(quantity: int) -> dict[str, Any]:
        entry = {"consumableResource": "licence", "quantity": quantity}
        return {"consumableResourcePropertiesOverride": {"consumableResourceList": [entry]}}

    holder = yard.submit(queue, "sleep", "600", **wants(1))
    yard.endpoint.wait(holder, "RUNNING")
    job_id = yard.submit_and_wait(queue, **wants(1))
    time.sleep(1.1)
    assert "requests 1; 0 of 1 free" in yard.evidence("BY044", "job", job_id, "--dwell", "1s")
    assert yard.report("job", job_id)["state"] == "waiting"
    never = yard.submit_and_wait(queue, **wants(2))
    assert yard.find_ids("job", never) == ["BY044"]  # at once: it can never start
    yard.endpoint.batch.terminate_job(jobId=holder, reason="done")


@pytest.mark.slow
def test_a_fair_share_policy_keeps_room_for_others(yard: Yard) -> None:
    policy = yard.endpoint.batch.create_scheduling_policy(
        name="kept-back", fairsharePolicy={"computeReservation": 50}
    )["arn"]
    queue = yard.queue(yard.environment(vcpus=4), schedulingPolicyArn=policy)
    holders = [yard.submit(queue, "sleep", "600", shareIdentifier="a") for _ in range(2)]
    for holder in holders:
        yard.endpoint.wait(holder, "RUNNING")
    job_id = yard.submit_and_wait(queue, shareIdentifier="a")
    time.sleep(1.1)
    findings = yard.find_texts("job", job_id, "--dwell", "1s")
    assert list(findings) == ["BY045"]
    assert "usable 2, in use 2; the job requests 1" in findings["BY045"]
    for holder in holders:
        yard.endpoint.batch.terminate_job(jobId=holder, reason="done")


# -- jobs that failed --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def queue(yard: Yard) -> str:
    return yard.queue(yard.environment())


def run_failing_job(yard: Yard, *args: Any, **options: Any) -> str:
    job_id = yard.submit(*args, **options)
    assert yard.endpoint.wait(job_id)["status"] == "FAILED"
    return job_id


def test_a_command_that_fails(yard: Yard, queue: str) -> None:
    assert yard.find_ids("job", run_failing_job(yard, queue, "sh", "-c", "exit 3")) == ["BY060"]


def test_a_command_that_is_not_there(yard: Yard, queue: str) -> None:
    assert yard.find_ids("job", run_failing_job(yard, queue, "sh", "-c", "no-such-program")) == [
        "BY072"
    ]


def test_out_of_memory(yard: Yard, queue: str) -> None:
    eater = "x = bytearray(200 * 2**20); import time; time.sleep(30)"
    job_id = run_failing_job(yard, queue, "python3", "-c", eater, asks={"memory_mib": 64})
    findings = yard.find_texts("job", job_id)
    assert list(findings) == ["BY062"] and "requested 64 MiB" in findings["BY062"]


def test_overrides_too_long(yard: Yard, queue: str) -> None:
    variables = [{"name": "A", "value": "x" * 8192}]
    assert yard.find_ids(
        "job", run_failing_job(yard, queue, containerOverrides={"environment": variables})
    ) == ["BY064"]


def test_the_host_is_lost(yard: Yard, queue: str) -> None:
    job_id = yard.submit(queue, "sleep", "600")
    yard.endpoint.wait(job_id, "RUNNING")
    command = [BATCHYARD, "emulate", "reclaim", job_id, "--notice", "0"]
    prestarted.run(command, env=yard.endpoint.environ, check=True, capture_output=True, timeout=300)
    yard.endpoint.wait(job_id)
    assert yard.find_ids("job", job_id) == ["BY063"]


@pytest.mark.docker
def test_an_image_that_cannot_be_pulled(docker_engine: None, tmp_path: Path) -> None:
    endpoint = Endpoint(tmp_path, "--runner", "docker")
    try:
        docker = Yard(endpoint)
        queue = docker.queue(docker.environment())
        image = {"image": "127.0.0.1:1/no/such:image"}
        definition = endpoint.definition("no-image", "true", container=image)
        job_id = endpoint.submit(definition, queue)
        assert endpoint.wait(job_id, within_s=300)["status"] == "FAILED"
        assert docker.find_ids("job", job_id) == ["BY061"]
    finally:
        endpoint.stop()


# -- arrays ------------------------------------------------------------------------------------

BY_INDEX = (
    "case $((AWS_BATCH_JOB_ARRAY_INDEX % 4)) in "
    "0) exit 0;; 1) exit 3;; 2) exit 127;; *) exit 3;; esac"
)


class WatchedSession(AwsSession):
    """A session that records the requests of its clients."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint.variables["AWS_REGION"])
        self._endpoint = endpoint
        self.requests: list[str] = []

    def client(self, service: str, *, repeats: bool = True) -> Any:
        key = (service, repeats)
        if key not in self._clients:
            client = self._clients[key] = self._endpoint.client(service)
            client.meta.events.register("before-call", self._note)
        return self._clients[key]

    def _note(self, model: Any, **_: Any) -> None:
        self.requests.append(f"{model.service_model.service_name}:{model.name}")


def gather(yard: Yard, ask: Callable[[Gatherer], Facts]) -> tuple[Facts, list[str]]:
    session = WatchedSession(yard.endpoint)
    gatherer = Gatherer(session, lambda: int(time.time() * 1000))
    facts = ask(gatherer)
    # The gatherer counts all requests.
    assert gatherer.calls.count == len(session.requests)
    return facts, session.requests


def test_an_arrays_children_by_cause(yard: Yard, queue: str) -> None:
    job_id = run_failing_job(yard, queue, "sh", "-c", BY_INDEX, arrayProperties={"size": 40})
    findings = yard.find_texts("job", job_id)
    assert sorted(findings) == ["BY060", "BY072"]
    assert "20 children of 40, exit code 3" in findings["BY060"]
    assert "10 children of 40, exit code 127" in findings["BY072"]


@pytest.mark.slow
def test_at_most_25_calls_for_the_largest_array(yard: Yard, queue: str) -> None:
    definition = yard.endpoint.definition("fails", "false")
    job_id = yard.endpoint.submit(definition, queue, arrayProperties={"size": 2500})
    yard.endpoint.wait(job_id, within_s=300)
    facts, requests = gather(yard, lambda gatherer: gatherer.job(job_id))
    # The array, its failed children, then one of these with the end of its log.
    assert requests == [
        "batch:DescribeJobs",
        "batch:ListJobs",
        "batch:DescribeJobs",
        "logs:GetLogEvents",
    ]
    assert isinstance(facts.job, Job) and facts.job.failed == 2500
    evidence = yard.evidence("BY060", "job", job_id)
    assert (
        "1,000 children of 2,500" in evidence
        and "1,000 of the 2,500 that failed were looked at" in evidence
    )


@pytest.mark.slow
def test_at_most_25_calls_for_an_array_that_waits_in_three_environments(yard: Yard) -> None:
    template = launch_template(yard, "three", HEALTHY_USER_DATA)
    using = {"launchTemplate": {"launchTemplateId": template}}
    environments = [
        yard.environment(
            types=(kind,), instanceRole=yard.instance_profile(f"node-{kind}", ECS_POLICY), **using
        )
        for kind in ("m6i.large", "c6i.large", "r6i.large")
    ]
    waits_for = yard.submit(yard.queue(yard.environment()), "true")
    yard.endpoint.wait(waits_for)
    job_id = yard.submit(
        yard.queue(*environments),
        asks={"gpus": 1},
        arrayProperties={"size": 10_000},
        dependsOn=[{"jobId": waits_for}],
    )
    until(
        lambda: yard.endpoint.job(job_id),
        lambda job: job["arrayProperties"]["statusSummary"].get("RUNNABLE"),
    )
    facts, requests = gather(yard, lambda gatherer: gatherer.job(job_id))
    assert len(requests) <= MAX_CALLS == 25
    assert (
        isinstance(facts.job, Job) and facts.job.status == "RUNNABLE" and facts.job.size == 10_000
    )
    report = yard.report("job", job_id)
    assert [finding["id"] for finding in report["findings"]] == ["BY017"]
    assert report["calls"] == len(requests)
    assert "AWS says: MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT" in yard.evidence(
        "BY017", "job", job_id
    )
    yard.endpoint.batch.cancel_job(jobId=job_id, reason="done")


def test_it_answers_in_time(yard: Yard) -> None:
    job_id = yard.submit_blocked(yard.queue(yard.environment()), asks={"gpus": 1})
    times = []
    for _ in range(5):
        began = time.monotonic()
        yard.doctor("job", job_id)
        times.append(time.monotonic() - began)
        if times[-1] < MAX_ANSWER_S:
            return
    # A machine that is busy with other things is slow at everything.
    assert min(times) < MAX_ANSWER_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


# -- the environment's surroundings, before anything is stuck ----------------------------------

MIME = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="==B=="

--==B==
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
{script}

--==B==--
"""
HEALTHY_USER_DATA = MIME.format(
    script="echo ECS_IMAGE_PULL_BEHAVIOR=prefer-cached >> /etc/ecs/ecs.config"
)


def launch_template(yard: Yard, name: str, user_data: str, **options: Any) -> str:
    data = {"UserData": base64.b64encode(user_data.encode()).decode(), **options}
    answer = yard.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
    return str(answer["LaunchTemplate"]["LaunchTemplateId"])


def test_a_vpc_without_routes(yard: Yard) -> None:
    subnet, group = yard.network("10.2.0.0/16", has_route=False)
    environment = yard.environment(subnets=[subnet], securityGroupIds=[group])
    findings = yard.find_texts("env", environment)
    assert list(findings) == ["BY031"] and "7 of 7 endpoints missing" in findings["BY031"]
    # The same with endpoints is right.
    vpc = yard.ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"]
    for service in ("ecs", "ecs-agent", "ecs-telemetry", "ecr.api", "ecr.dkr", "logs", "s3"):
        yard.ec2.create_vpc_endpoint(
            VpcId=vpc,
            ServiceName=f"com.amazonaws.us-east-1.{service}",
            VpcEndpointType="Interface",
            SubnetIds=[subnet],
        )
    assert yard.find_ids("env", environment) == []


@pytest.mark.slow
def test_no_public_address_in_a_public_subnet(yard: Yard) -> None:
    subnet, group = yard.network("10.3.0.0/16", is_public=False)
    assert yard.find_ids("env", yard.environment(subnets=[subnet], securityGroupIds=[group])) == [
        "BY032"
    ]


def test_a_security_group_that_lets_nothing_out(yard: Yard) -> None:
    subnet, group = yard.network("10.4.0.0/16")
    everything = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    yard.ec2.revoke_security_group_egress(GroupId=group, IpPermissions=everything)
    assert yard.find_ids("env", yard.environment(subnets=[subnet], securityGroupIds=[group])) == [
        "BY033"
    ]


@pytest.mark.slow
def test_a_network_acl_that_denies_https(yard: Yard) -> None:
    subnet, group = yard.network("10.5.0.0/16")
    acls = yard.ec2.describe_network_acls(
        Filters=[{"Name": "association.subnet-id", "Values": [subnet]}]
    )
    yard.ec2.create_network_acl_entry(
        NetworkAclId=acls["NetworkAcls"][0]["NetworkAclId"],
        RuleNumber=50,
        Protocol="6",
        RuleAction="deny",
        Egress=True,
        CidrBlock="0.0.0.0/0",
        PortRange={"From": 443, "To": 443},
    )
    environment = yard.environment(subnets=[subnet], securityGroupIds=[group])
    findings = yard.find_texts("env", environment)
    assert list(findings) == ["BY034"] and "rule 50 denies TCP 443 out" in findings["BY034"]


def test_an_instance_profile_that_is_missing_or_empty(yard: Yard) -> None:
    assert yard.find_ids("env", yard.environment(instanceRole="nowhere")) == ["BY035"]
    empty = yard.instance_profile("empty", has_role=False)
    assert yard.find_ids("env", yard.environment(instanceRole=empty)) == ["BY035"]


def test_user_data_that_deadlocks_in_a_launch_template(yard: Yard) -> None:
    sick = launch_template(yard, "sick-template", MIME.format(script="systemctl restart ecs"))
    environment = yard.environment(launchTemplate={"launchTemplateId": sick})
    assert yard.find_ids("env", environment) == ["BY101"]
    job_id = yard.submit_blocked(yard.queue(environment), asks={"gpus": 1})
    assert yard.find_ids("job", job_id) == ["BY017", "BY101"]
    right = launch_template(yard, "right-template", HEALTHY_USER_DATA)
    assert yard.find_ids("env", yard.environment(launchTemplate={"launchTemplateId": right})) == []
    by_name = {"launchTemplateName": "sick-template", "version": "$Latest"}
    assert yard.find_ids("env", yard.environment(launchTemplate=by_name)) == ["BY101"]


@pytest.mark.slow
def test_user_data_that_deadlocks_on_some_types_only(yard: Yard) -> None:
    sick = launch_template(yard, "sick-override", MIME.format(script="systemctl restart ecs"))
    right = launch_template(yard, "right-default", HEALTHY_USER_DATA)
    override = {
        "launchTemplateId": sick,
        "version": "$Latest",
        "targetInstanceTypes": ["m6i.large"],
    }
    environment = yard.environment(
        launchTemplate={"launchTemplateId": right, "overrides": [override]}
    )
    assert yard.find_ids("queue", yard.queue(environment)) == ["BY101"]


def test_a_queue_that_can_never_launch_anything(yard: Yard) -> None:
    assert yard.find_ids("queue", yard.queue(yard.environment(vcpus=1))) == ["BY012"]
    assert yard.find_ids("queue", yard.queue(yard.environment(vcpus=2))) == []


@pytest.mark.slow
def test_a_launch_template_that_keeps_containers_from_the_metadata_service(yard: Yard) -> None:
    options = {"MetadataOptions": {"HttpPutResponseHopLimit": 1}}
    template = launch_template(yard, "one-hop", HEALTHY_USER_DATA, **options)
    assert yard.find_ids(
        "env", yard.environment(launchTemplate={"launchTemplateId": template})
    ) == ["BY056"]


@pytest.mark.slow
def test_spot_without_its_role(yard: Yard) -> None:
    environment = yard.environment(type="SPOT", allocationStrategy="SPOT_PRICE_CAPACITY_OPTIMIZED")
    assert yard.find_ids("env", environment) == []  # AWS makes it at the first request
    job_id = yard.submit_blocked(yard.queue(environment), asks={"vcpus": 32})
    time.sleep(1.1)
    assert sorted(yard.find_ids("job", job_id, "--dwell", "1s")) == ["BY014", "BY041"]
    # As AWS names it; moto's CreateServiceLinkedRole has a way of its own.
    yard.iam.create_role(
        RoleName="AWSServiceRoleForEC2Spot",
        Path="/aws-service-role/spot.amazonaws.com/",
        AssumeRolePolicyDocument=ANYONE,
    )
    assert yard.find_ids("job", job_id, "--dwell", "1s") == ["BY014"]


@pytest.mark.slow
def test_spot_by_best_fit_with_a_role_that_cannot_tag(yard: Yard) -> None:
    yard.iam.create_role(RoleName="fleet", AssumeRolePolicyDocument=ANYONE)
    environment = yard.environment(
        type="SPOT",
        allocationStrategy="BEST_FIT",
        spotIamFleetRole="arn:aws:iam::123456789012:role/fleet",
    )
    assert "it may not tag instances" in yard.evidence("BY042", "env", environment)


def test_a_bid_is_compared_with_the_prices_of_now(yard: Yard) -> None:
    spot = {
        "type": "SPOT",
        "allocationStrategy": "SPOT_PRICE_CAPACITY_OPTIMIZED",
        "bidPercentage": 50,
    }
    name = yard.environment(types=("m5.xlarge", "m5.2xlarge"), **spot)
    session = WatchedSession(yard.endpoint)
    prices = Prices({"m5.xlarge": 0.192, "m5.2xlarge": 0.384}, "us-east-1")
    facts = Gatherer(session, lambda: int(time.time() * 1000), MAX_CALLS, prices).environment(name)
    assert isinstance(facts.spot_prices, tuple)
    assert {(p.type, p.on_demand_usd_per_hour, p.elsewhere) for p in facts.spot_prices} == {
        ("m5.xlarge", 0.192, ""),
        ("m5.2xlarge", 0.384, ""),
    }
    right = {kind["id"] for kind in yard.report("env", name)["right"]}
    assert "BY028" in right


@pytest.mark.slow
def test_best_fit_and_a_type_that_is_not_offered_there(yard: Yard) -> None:
    subnet = yard.ec2.create_subnet(
        VpcId=yard.ec2.describe_subnets(SubnetIds=[yard.subnet])["Subnets"][0]["VpcId"],
        CidrBlock="10.1.9.0/24",
        AvailabilityZone="us-east-1e",
    )["Subnet"]["SubnetId"]
    yard.ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": True})
    gateway = next(
        route["GatewayId"]
        for table in yard.ec2.describe_route_tables(
            Filters=[{"Name": "association.subnet-id", "Values": [yard.subnet]}]
        )["RouteTables"]
        for route in table["Routes"]
        if route.get("DestinationCidrBlock") == "0.0.0.0/0"
    )
    table = yard.ec2.create_route_table(
        VpcId=yard.ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"]
    )["RouteTable"]["RouteTableId"]
    yard.ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    yard.ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
    environment = yard.environment(
        types=("g5.xlarge",), subnets=[subnet], allocationStrategy="BEST_FIT"
    )
    assert yard.find_ids("env", environment) == ["BY029", "BY054"]


# -- a shape, an environment, a pipeline -------------------------------------------------------


def test_a_queue_is_asked_about_a_shape(yard: Yard) -> None:
    queue = yard.queue(yard.environment(types=("g5.xlarge", "g5.2xlarge")))
    report = yard.report("queue", queue, "--gpus", "1", "--cpus", "4", "--memory", "15GiB")
    assert report["findings"] == []
    assert re.fullmatch(
        r"the requested shape fits e\d+: g5.xlarge, g5.2xlarge; in us-east-1a",
        report["fits"][0],
    )
    assert yard.find_ids("queue", queue, "--gpus", "2") == ["BY016"]


PIPELINE = """
name: demo
image: demo:latest
steps:
  - name: first
    command: "true"
    cpus: 2
    memory: 2GiB
  - name: second
    needs: [first]
    command: "true"
    gpus: 1
    cpus: 4
    memory: 20GiB
"""


@pytest.fixture
def lab(yard: Yard, tmp_path: Path) -> Path:
    """A folder with a pipeline, and an environment `lab` with a queue for CPUs and one for GPUs."""
    gpu = yard.queue(yard.environment(types=("g5.xlarge",)))
    cpu = yard.queue(yard.environment())
    (tmp_path / ".batchyard").mkdir()
    settings = {"region": "us-east-1", "bucket": "lab", "queues": {"cpu": cpu, "gpu": gpu}}
    (tmp_path / ".batchyard" / "environments.yaml").write_text(
        json.dumps({"environments": {"lab": settings}})
    )
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    return tmp_path


def test_a_pipeline_before_it_is_submitted(yard: Yard, lab: Path) -> None:
    file = str(lab / "pipeline.yaml")
    report = yard.report("pipeline", file, "--env", "lab")
    (finding,) = report["findings"]
    assert (finding["id"], finding["place"]) == ("BY015", "step second")
    assert [line.partition(" fits ")[0] for line in report["fits"]] == ["step first"]
    (lab / "pipeline.yaml").write_text(PIPELINE.replace("20GiB", "14GiB"))
    report = yard.report("pipeline", file, "--env", "lab")
    assert report["state"] == "healthy" and len(report["fits"]) == 2


@pytest.mark.slow
def test_a_list_of_commands_is_examined_as_run_would_submit_it(yard: Yard, lab: Path) -> None:
    (lab / "commands.txt").write_text("true\nfalse\n")
    file = str(lab / "commands.txt")
    flags = (
        "--array",
        "2",
        "--gpus",
        "1",
        "--cpus",
        "4",
        "--image",
        "demo:latest",
        "--retries",
        "2",
        "--timeout",
        "5m",
    )
    report = yard.report("pipeline", file, "--env", "lab", *flags, "--memory", "20GiB")
    (finding,) = report["findings"]
    assert (finding["id"], finding["place"]) == ("BY015", "step commands")
    report = yard.report("pipeline", file, "--env", "lab", *flags, "--memory", "14GiB")
    assert report["state"] == "healthy" and report["fits"][0].startswith("step commands fits ")
    # Without a GPU it goes to the other queue, as with `run --no-gpu`.
    flags = ("--gpus", "1", "--cpus", "2", "--memory", "2GiB", "--image", "demo:latest", "--no-gpu")
    assert "m6i.large" in yard.report("pipeline", file, "--env", "lab", *flags)["fits"][0]


def test_what_run_refuses_is_refused(yard: Yard, lab: Path) -> None:
    (lab / "commands.txt").write_text("true\n")
    for args, words in (
        (("pipeline.yaml", "--array", "2"), "--array: only for a plain list of commands"),
        (("pipeline.yaml", "--gpus", "2"), "are for a list of commands"),
        (("commands.txt", "--set", "a=b"), "--set is only for a pipeline"),
        (("commands.txt",), "image"),
    ):
        done = yard.doctor("pipeline", str(lab / args[0]), *args[1:], "--env", "lab")
        assert done.returncode == 2 and words in done.stderr, done.stderr


def test_only_one_step_is_examined(yard: Yard, lab: Path) -> None:
    args = ("pipeline", str(lab / "pipeline.yaml"), "--env", "lab")
    assert yard.report(*args, "--only", "first")["state"] == "healthy"


def test_a_pipelines_facts_are_saved_and_judged_elsewhere(
    yard: Yard, lab: Path, tmp_path: Path
) -> None:
    saved = str(tmp_path / "facts.json")
    args = ("pipeline", str(lab / "pipeline.yaml"), "--env", "lab")
    first = yard.doctor(*args, "--save", saved, "--all")
    second = yard.doctor("pipeline", "--from", saved, "--all")
    assert (second.returncode, second.stdout) == (1, first.stdout)
    assert yard.doctor("judge", saved, "--all").stdout == first.stdout


def test_a_pipeline_whose_queue_is_not_there(yard: Yard, lab: Path) -> None:
    (lab / "pipeline.yaml").write_text(
        PIPELINE.replace("20GiB", "1GiB").replace("gpus: 1", "queue: nowhere")
    )
    done = yard.doctor("pipeline", str(lab / "pipeline.yaml"), "--env", "lab")
    assert done.returncode == 2 and "no job queue nowhere" in done.stderr


@pytest.mark.slow
def test_a_named_environment_is_all_its_queues(yard: Yard, lab: Path) -> None:
    home = ("--home", str(lab / ".batchyard"))
    assert yard.report("env", "lab", *home)["state"] == "healthy"
    # A shape is asked about where a step like that would go.
    (fits,) = yard.report("env", "lab", *home, "--cpus", "2")["fits"]
    assert "m6i.large" in fits
    report = yard.report("env", "lab", *home, "--gpus", "1")
    assert report["state"] == "healthy" and "g5.xlarge" in report["fits"][0]
    assert yard.find_ids("env", "lab", *home, "--gpus", "2") == ["BY016"]
    settings = {
        "environments": {"lab": {"region": "us-east-1", "bucket": "lab", "queues": {"cpu": "q"}}}
    }
    (lab / ".batchyard" / "environments.yaml").write_text(json.dumps(settings))
    done = yard.doctor("env", "lab", *home, "--gpus", "1")
    assert done.returncode == 2 and "has no gpu queue" in done.stderr


# -- saved facts, --dwell, --fix -----------------------------------------------------------------


def test_facts_are_saved_masked_and_judged_the_same(yard: Yard, tmp_path: Path) -> None:
    job_id = yard.submit_blocked(yard.queue(yard.environment()), asks={"gpus": 1})
    saved = tmp_path / "facts.json"
    first = yard.doctor("job", job_id, "--save", str(saved), "--all")
    assert "123456789012" not in saved.read_text()
    assert yard.doctor("job", "--from", str(saved), "--all").stdout == first.stdout


def test_a_short_wait_is_waiting(yard: Yard) -> None:
    queue = yard.queue(yard.environment(vcpus=2, types=("m6i.large",)))
    first = yard.submit(queue, "sleep", "600", asks={"vcpus": 2})
    yard.endpoint.wait(first, "RUNNING")
    job_id = yard.submit_and_wait(queue)
    report = yard.report("job", job_id)
    assert report["state"] == "waiting" and report["waiting"].startswith("RUNNABLE for ")
    yard.endpoint.batch.terminate_job(jobId=first, reason="done")


def test_a_job_queue_or_environment_that_is_not_there(yard: Yard) -> None:
    for args in (("job", "no-such-job"), ("queue", "nowhere"), ("env", "nowhere")):
        done = yard.doctor(*args)
        assert done.returncode == 2 and "could not examine: AWS Batch" in done.stdout
    done = yard.doctor("job")
    assert done.returncode == 2 and "JOB_ID is missing" in done.stderr


def test_a_queue_with_almost_that_name_is_named(yard: Yard) -> None:
    yard.endpoint.queue("reconstruction", yard.environment())
    done = yard.doctor("queue", "reconstuction")
    assert (
        done.returncode == 2
        and "no job queue reconstuction here; did you mean reconstruction?" in done.stdout
    )
    done = yard.doctor("queue", "zzz")
    assert done.returncode == 2 and "no job queue zzz here\n" in done.stdout


def test_the_id_of_a_run_is_no_id_of_a_job(yard: Yard) -> None:
    done = yard.doctor("job", "last")
    assert done.returncode == 2 and "the job last: it takes the id of a job" in done.stdout


@pytest.mark.slow
def test_nothing_is_fixed_unless_the_user_says_yes(yard: Yard) -> None:
    environment = yard.environment()
    queue = yard.queue(environment)
    yard.endpoint.batch.update_compute_environment(computeEnvironment=environment, state="DISABLED")
    yard.endpoint.batch.update_job_queue(jobQueue=queue, state="DISABLED")
    for stdin in ("", "n\nn\n"):
        done = yard.doctor("queue", queue, "--fix", stdin=stdin)
        assert done.returncode == 1 and f"enable the queue {queue}?" in done.stderr
        assert sorted(yard.find_ids("queue", queue)) == ["BY002", "BY004"]
    done = yard.doctor("queue", queue, "--fix", stdin="y\ny\n")
    assert f"update-job-queue --job-queue {queue} --state DISABLED" in done.stderr
    assert yard.find_ids("queue", queue) == []


def test_a_job_that_can_never_start_is_cancelled(yard: Yard) -> None:
    job_id = yard.submit_blocked(yard.queue(yard.environment()), asks={"gpus": 1})
    yard.doctor("job", job_id, "--fix", stdin="y\n")
    job = yard.endpoint.wait(job_id)
    assert job["status"] == "FAILED" and "batchyard doctor: BY017" in job["statusReason"]


def test_a_healthy_queue_has_no_fix(yard: Yard) -> None:
    done = yard.doctor("queue", yard.queue(yard.environment()), "--fix", stdin="y\n")
    assert done.returncode == 0 and "no automatic fix is available" in done.stderr


def test_nobody_answers(yard: Yard) -> None:
    environ = {
        **yard.endpoint.environ,
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_MAX_ATTEMPTS": "1",
    }
    environ = {name: value for name, value in environ.items() if not name.startswith("AWS_ACCESS")}
    environ |= {"AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    done = prestarted.run(
        [BATCHYARD, "doctor", "job", "x"], env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 2 and "no usable AWS credentials" in done.stdout, done.stderr


def test_the_facts_of_an_environment_are_as_aws_gave_them(yard: Yard) -> None:
    template = launch_template(yard, "facts", HEALTHY_USER_DATA)
    name = yard.environment(vcpus=32, launchTemplate={"launchTemplateId": template})
    facts, _ = gather(yard, lambda gatherer: gatherer.environment(name))
    assert isinstance(facts.environments, tuple)
    (environment,) = facts.environments
    assert isinstance(environment, Environment)
    assert (environment.max_vcpus, environment.instance_types) == (32, ("m6i.large", "m6i.xlarge"))
    assert environment.launch_template is not None and "prefer-cached" in str(
        environment.launch_template
    )
    assert isinstance(facts.subnets, tuple) and str(facts.subnets[0].default_route).startswith(
        "igw-"
    )
    assert facts.subnets[0].zone == "us-east-1a" and facts.subnets[0].free_addresses > 200
