"""Who may do what, seen on calls that were made: a developer's working day by the real command,
on deployed stacks.

Between the command and the endpoint stands a gate that does what IAM would: it passes on what the
deployed policy allows and refuses the rest. So whatever works here works with the policy; and
what the policy grants beyond the calls that were made is found as well. The jobs' own calls go
through a gate with their role's policy, and a deployer's through a third.

Not to be seen here: what Docker asks of ECR, which the endpoint cannot answer; what
CloudFormation does on a deployer's behalf with his rights; and whether AWS reads a policy as
`policies.py` does.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aws_requests import Request
from emulator_endpoint import Endpoint, until
from policies import Call, actions_of, allows, as_list
from rights_gate import Gate, standing_before
from site_of_stacks import Site

#: the days take half a minute each
pytestmark = pytest.mark.slow
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
#: a file that boto3 sends and fetches in parts
LARGE_BYTES = 20 * 1024 * 1024

PIPELINE = """\
name: day
image: busybox
defaults: {{memory: 256MiB}}
env: {{AWS_ENDPOINT_URL: "{jobs}"}}
steps:
  - name: cut
    commands: [mkdir -p cut && cp raw/large cut/large, echo second]
    array: 2
    max_running: 1
    inputs: ["raw/**"]
    outputs: ["cut/**"]
    checkpoint: ["state/**"]
  - name: look
    needs: [cut]
    gpus: 1
    array: 2
    command: echo looked; test $AWS_BATCH_JOB_ARRAY_INDEX = 0 || test -e {flag}
"""
SLEEPER = """\
name: sleeper
image: busybox
steps:
  - name: sleep
    memory: 256MiB
    array: 2
    max_running: 1
    command: echo asleep; exec sleep 600
"""
#: a `docker` that has every image and pushes it
DOCKER = """#!/bin/sh
case $1 in
    version) echo 27.0.0 ;;
    push) echo "latest: digest: sha256:%s size: 1" ;;
esac
exit 0
""" % ("a" * 64)

QUEUES = ("cpu", "gpu", "cpu-on-demand", "gpu-on-demand", "team-cpu", "team-gpu", "unmanaged-gpu")
#: granted, and not to be seen in a day that goes well
JOB_UNSEEN = {
    "s3:AbortMultipartUpload": "boto3 gives up an upload in parts only where a part cannot be sent",
}
SUBMITTER_UNSEEN = {
    **JOB_UNSEEN,
    "ec2:DescribeVolumes": "the hosts of AWS Batch on the endpoint have no disks",
    "ec2:DescribeSpotPriceHistory": "an endpoint that is not AWS is not asked for prices",
    "pricing:GetProducts": "an endpoint that is not AWS is not asked for prices",
}
PUSHER_UNSEEN = {
    "ecr:BatchCheckLayerAvailability": "docker push asks ECR itself",
    "ecr:BatchGetImage": "docker push and pull ask ECR itself",
    "ecr:CompleteLayerUpload": "docker push asks ECR itself",
    "ecr:GetDownloadUrlForLayer": "docker pull asks ECR itself",
    "ecr:InitiateLayerUpload": "docker push asks ECR itself",
    "ecr:PutImage": "docker push asks ECR itself",
    "ecr:UploadLayerPart": "docker push asks ECR itself",
}
#: the doctor looks at these where it may, and says what it could not see; who runs pipelines may
#: not
ONLY_FOR_DOCTORS = {"ec2", "iam", "ecs", "autoscaling", "servicequotas"}


@dataclass
class Day:
    site: Site
    developer: Gate
    jobs: Gate
    #: refused while these commands ran
    refused: dict[str, list[tuple[Request, Call]]] = field(default_factory=dict)

    def __call__(self, *words: str, code: int | None = 0, **more: Any) -> str:
        """What a command says, run as the developer."""
        before = len(self.developer.refused)
        environ = {
            **self.site.endpoint.environ,
            "AWS_ENDPOINT_URL": self.developer.url,
            "PATH": PATH,
        }
        done = self.site(*words, code=code, environ=environ, **more)
        self.refused.setdefault(" ".join(words[:2]), []).extend(self.developer.refused[before:])
        return done.stdout


def statements_of(endpoint: Endpoint, arn: str) -> list[dict[str, Any]]:
    """Of a policy as it is deployed."""
    iam = endpoint.client("iam")
    version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
    found = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
    statements: list[dict[str, Any]] = found["Statement"]
    return statements


def statements_of_role(endpoint: Endpoint, arn: str) -> list[dict[str, Any]]:
    iam, name = endpoint.client("iam"), arn.rpartition("/")[2]
    policies = iam.list_role_policies(RoleName=name)["PolicyNames"]
    documents = [
        iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
        for policy in policies
    ]
    return [statement for document in documents for statement in document["Statement"]]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    sizes = ("--cpus", "8", "--memory", "16GiB", "--gpus", "1")
    endpoint = Endpoint(tmp_path_factory.mktemp("endpoint"), *sizes, environ={"PATH": PATH})
    try:
        site = Site(endpoint, tmp_path_factory.mktemp("site"))
        site.about("deploy", "--set", "TeamQueues=true", "--yes")
        site.about("deploy", "batch-unmanaged", "ecs", "--yes")
        yield site
    finally:
        endpoint.stop()


@pytest.fixture(scope="module")
def day(deployed: Site) -> Iterator[Day]:
    """A developer's day, once: everything that a person does who runs pipelines."""
    endpoint, outputs = deployed.endpoint, deployed.outputs()
    with ExitStack() as stack:
        policy = statements_of(endpoint, outputs["SubmitterPolicyArn"])
        developer = stack.enter_context(standing_before(endpoint.url, policy))
        role = statements_of_role(endpoint, outputs["JobRoleArn"])
        jobs = stack.enter_context(standing_before(endpoint.url, role))
        it = Day(deployed, developer, jobs)
        spend(it)
        yield it


def spend(day: Day) -> None:
    env, folder = ("--env", day.site.env), day.site.folder
    (folder / "raw").mkdir()
    (folder / "raw/large").write_bytes(os.urandom(LARGE_BYTES))
    flag = folder / "mended"
    (folder / "day.yaml").write_text(PIPELINE.format(jobs=day.jobs.url, flag=flag))
    (folder / "sleeper.yaml").write_text(SLEEPER)

    # The environment, a run that fails in one child, what it said, what it made.
    day("environments")
    day("outputs", *env)
    day("doctor", "pipeline", "day.yaml", *env, code=None)
    day("run", "day.yaml", "--engine", "aws", *env, code=1)
    run = json.loads(day("runs", "--json"))[0]["run"]
    day("status", run)
    assert "looked" in day("logs", run)
    assert "looked" in day("logs", run, "look:1")
    day("logs", run, "--failed")
    day("report", run)
    day("fetch", run, "--to", "results")
    assert (folder / "results/cut/large").read_bytes() == (folder / "raw/large").read_bytes()
    # Mended, it is run again as far as it failed.
    flag.touch()
    day("retry", run)
    day("runs", *env)

    # One that is stopped, after somebody has asked why its second child waits.
    asleep = day("run", "sleeper.yaml", "--engine", "aws", *env, "--on-demand", "--detach").strip()
    until(
        lambda: day("status", asleep, "--json"),
        lambda said: json.loads(said)["steps"][0]["state"] == "RUNNING",
    )
    day("doctor", "job", f"{job_of(day, asleep)}:{waiting_child(day, asleep)}", *env, code=None)
    day("stop", asleep)
    assert "asleep" in day("logs", asleep, "-f", code=None)
    day("resume", asleep, code=None)
    # From another machine the run is known by its bucket.
    day("status", run, *env, "--home", str(folder / "another"))
    day("logs", run, *env, "--home", str(folder / "another"))

    # The benchmark, on both kinds of queue.
    small = ("--quick", "--only", "matmul", "--sizes", "64", "--out", "benchmark")
    assert "stand-in" in day("bench", "submit", *env, *small, "--image", "with-numpy")

    # Jobs in AWS's own words, to every queue; one that can never start, and the doctor who
    # cancels it.
    submit_to_all_queues(day, env)
    day("doctor", "queue", f"{day.site.env}-gpu", *env, code=None)


def waiting_child(day: Day, run: str) -> int:
    """The child that is not running."""
    jobs = day.site.endpoint.batch.list_jobs(arrayJobId=job_of(day, run), jobStatus="RUNNABLE")[
        "jobSummaryList"
    ]
    return int(jobs[0]["arrayProperties"]["index"])


def job_of(day: Day, run: str) -> str:
    """The job of a run's only step."""
    jobs = day.site.endpoint.batch.list_jobs(
        jobQueue=f"{day.site.env}-cpu-on-demand",
        filters=[{"name": "JOB_NAME", "values": [f"{run}*"]}],
    )["jobSummaryList"]
    return str(jobs[0]["jobId"])


def submit_to_all_queues(day: Day, env: tuple[str, str]) -> None:
    requests: list[dict[str, Any]] = [
        {
            "jobName": f"to-{queue}",
            "jobQueue": f"{day.site.env}-{queue}",
            "jobDefinition": f"{day.site.env}_{'gpu' if 'gpu' in queue else 'cpu'}",
            "containerOverrides": {"command": ["true"]},
            **({"shareIdentifier": "lab"} if "team" in queue else {}),
        }
        for queue in QUEUES
    ]
    watched, waiting = requests[:1], requests[1:]
    (day.site.folder / "one.json").write_text(json.dumps(watched[0]))
    day("submit", "one.json", *env, "--watch")
    misfit = next(one for one in waiting if one["jobName"] == "to-team-cpu")
    misfit["containerOverrides"]["resourceRequirements"] = [{"type": "VCPU", "value": "4000"}]
    (day.site.folder / "jobs.json").write_text(json.dumps({"jobs": waiting}))
    submitted = {
        one["jobName"]: one["jobId"]
        for one in json.loads(day("submit", "jobs.json", *env, "--json"))
    }
    day("doctor", "job", submitted["to-team-cpu"], *env, "--fix", code=None, answers="y\n")


# -- the submitter -------------------------------------------------------------------------------


def test_a_developer_is_refused_nothing_that_running_watching_and_stopping_needs(day: Day) -> None:
    beyond = [
        (command, right.action, right.resource)
        for command, refusals in day.refused.items()
        for _, right in refusals
        if not (command.startswith("doctor") and right.action.split(":")[0] in ONLY_FOR_DOCTORS)
    ]
    assert beyond == []
    assert len(day.developer.passed) > 100


def test_a_developer_has_no_right_that_the_day_did_not_need(day: Day) -> None:
    statements = day.developer.statements
    seen = {right.action for right in day.developer.used}
    assert actions_of(statements) - seen == set(SUBMITTER_UNSEEN)
    assert all("*" not in action for action in actions_of(statements))
    unneeded = [
        (statement["Sid"], action, resource)
        for statement, action, resource in single_grants(statements)
        if action not in SUBMITTER_UNSEEN
        and not any(
            allows({**statement, "Action": action, "Resource": resource}, one)
            for one in day.developer.used
        )
    ]
    assert unneeded == []


def single_grants(statements: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str, str]]:
    for statement in statements:
        for action in as_list(statement["Action"]):
            for resource in as_list(statement["Resource"]):
                yield statement, action, resource


# -- tasks of ECS --------------------------------------------------------------------------------

#: granted, and not to be seen at the endpoint
TASK_SUBMITTER_UNSEEN = {
    "ec2:DescribeLaunchTemplateVersions": "for groups that name no types, unlike those of `ecs`",
    "ecs:ListContainerInstances": "for clusters without capacity providers, as of `spotfleet`",
    "ssm:StartSession": "the aws command asks Session Manager itself",
}
TASKS = """\
name: tasks
image: busybox
steps:
  - {name: hi, command: echo hi}
  - {name: bad, command: echo no; exit 3}
  - {name: gpu, gpus: 1, command: exec sleep 600}
"""


def test_a_developer_runs_tasks_of_ecs_and_watches_services(deployed: Site, tmp_path: Path) -> None:
    endpoint, outputs = deployed.endpoint, deployed.outputs()
    (tmp_path / "web.yaml").write_text("name: web\nimage: x\ncommand: echo up; exec sleep 600\n")
    (tmp_path / "tasks.yaml").write_text(TASKS)
    site = Site(endpoint, tmp_path, deployed.env)
    site.about("service", "up", "web.yaml", "--yes")
    own = statements_of(endpoint, outputs["TaskSubmitterPolicyArn"])
    both = [*own, *statements_of(endpoint, outputs["SubmitterPolicyArn"])]
    with standing_before(endpoint.url, both) as gate:
        environ = {**endpoint.environ, "AWS_ENDPOINT_URL": gate.url, "PATH": PATH}
        site.about("service", "status", "web", environ=environ)
        assert "up" in site.about("service", "logs", "web", environ=environ).stdout
        refused = site.about("service", "scale", "web", "0", environ=environ, code=3)
        assert "AdministratorPolicyArn" in refused.stderr
        beyond = {right.action for _, right in gate.refused}
        gate.refused.clear()
        words = ("run", "tasks.yaml", "--engine", "ecs", "--detach")
        run = site.about(*words, environ=environ).stdout.strip()
        until(
            lambda: site("status", run, "--json", environ=environ).stdout,
            lambda said: (
                {step["state"] for step in json.loads(said)["steps"]}
                == {"SUCCEEDED", "FAILED", "RUNNING"}
            ),
        )
        assert "hi" in site("logs", run, "hi", environ=environ).stdout
        site("status", run, environ=environ)
        site("report", run, environ=environ)
        site("stop", run, environ=environ)
    assert beyond and not beyond & actions_of(own)
    assert gate.refused == []
    unused = actions_of(own) - {right.action for right in gate.used}
    assert unused == set(TASK_SUBMITTER_UNSEEN)
    site.about("service", "down", "web", "--yes")


# -- jobs, images, deployers ---------------------------------------------------------------------


def test_jobs_have_the_rights_that_they_need_and_no_other(day: Day) -> None:
    assert day.jobs.refused == []
    operations = {request.operation for request, _ in day.jobs.passed}
    assert {"GetObject", "PutObject", "ListObjectsV2", "UploadPart"} <= operations
    assert actions_of(day.jobs.statements) - {right.action for right in day.jobs.used} == set(
        JOB_UNSEEN
    )


def test_who_pushes_images_can_log_in(deployed: Site, tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    statements = statements_of(deployed.endpoint, deployed.outputs()["ImagePusherPolicyArn"])
    # Which repository it is, is read from the stacks, as who submits may.
    stacks = statements_of(deployed.endpoint, deployed.outputs()["SubmitterPolicyArn"])
    with standing_before(deployed.endpoint.url, [*statements, *stacks]) as gate:
        environ = {
            **deployed.endpoint.environ,
            "AWS_ENDPOINT_URL": gate.url,
            "PATH": f"{tmp_path}{os.pathsep}{PATH}",
        }
        deployed("image", "push", "recon:1", "--env", deployed.env, environ=environ)
    assert gate.refused == []
    assert actions_of(statements) - {right.action for right in gate.used} == set(PUSHER_UNSEEN)


def test_who_deploys_may_make_change_and_destroy(deployed: Site, tmp_path: Path) -> None:
    # Of an environment of its own: the policy is the same but for the name.
    site = Site(deployed.endpoint, tmp_path)
    text = json.dumps(
        statements_of(deployed.endpoint, deployed.outputs()["AdministratorPolicyArn"])
    )
    statements = json.loads(text.replace(deployed.env, site.env))
    with standing_before(deployed.endpoint.url, statements) as gate:
        environ = {**deployed.endpoint.environ, "AWS_ENDPOINT_URL": gate.url}
        for words in (
            ("deploy", "--yes"),
            ("deploy", "gpu-batch-benchmark", "--yes"),
            ("deploy", "ecs", "spotfleet", "--yes"),
            ("diff", "--set", "CpuSpotMaxvCpus=8"),
            ("deploy", "batch", "--set", "CpuSpotMaxvCpus=8", "--yes"),
            ("outputs",),
            ("destroy", "--yes", "--empty-buckets", "--delete-images"),
        ):
            site.about(*words, environ=environ)
    assert gate.refused == []
    assert site.stacks() == {}
