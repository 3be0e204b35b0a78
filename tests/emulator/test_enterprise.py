"""examples/enterprise as its page has it: with the real `aws` command and the two scripts, at a
real endpoint.

The page's fenced blocks are what is run. `sh` ones are typed into one shell, from the top to the
bottom of the page; the one called `sh endpoint` says how the endpoint is started, the one called
`sh account` how the files are made ready for an account.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import validate_parameters
from emulator_endpoint import AWS, Endpoint

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "enterprise"
PAGE = (EXAMPLE / "README.md").read_text(encoding="utf-8")
FILES = sorted(file.relative_to(EXAMPLE) for file in EXAMPLE.rglob("*.json"))
#: folder -> the operation whose request its files are, and the member that is its name
KINDS = {
    "environments": ("CreateComputeEnvironment", "computeEnvironmentName"),
    "policies": ("CreateSchedulingPolicy", "name"),
    "queues": ("CreateJobQueue", "jobQueueName"),
    "definitions": ("RegisterJobDefinition", "jobDefinitionName"),
    "jobs": ("SubmitJob", "jobName"),
}
OTHER_ACCOUNT = {
    "123456789012": "210987654321",
    "us-east-1": "eu-central-1",
    "subnet-0a1b2c3d4e5f60718": "subnet-99",
    "sg-0a1b2c3d4e5f60718": "sg-99",
    "ecsInstanceRole": "ourInstances",
    "service-role/AWSBatchServiceRole": "ourService",
}


def blocks(words: str) -> list[str]:
    """The page's blocks whose fence has these words."""
    return re.findall(rf"(?ms)^```{words}\n(.*?)^```$", PAGE)


def read(file: Path) -> Any:
    return json.loads((EXAMPLE / file).read_text(encoding="utf-8"))


def kind_of(file: Path) -> str:
    return file.parts[1] if file.parts[0] == "platform" else "jobs"


def files_of(kind: str) -> list[Any]:
    return [read(file) for file in FILES if kind_of(file) == kind]


@dataclass
class Company:
    """A copy of the folder, and an endpoint."""

    folder: Path
    endpoint: Endpoint

    def sh(self, script: str) -> str:
        """What a shell prints that is given the script in the folder; it must end well."""
        environ = {**self.endpoint.environ, "PATH": f"{AWS.parent}:{self.endpoint.environ['PATH']}"}
        done = subprocess.run(
            ["sh", "-eu", "-c", script],
            cwd=self.folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=1200,
        )
        assert done.returncode == 0, (
            f"{script}\nexited {done.returncode}:\n{done.stdout}{done.stderr}"
        )
        return done.stdout

    def jobs(self, queue: str) -> dict[str, Any]:
        """Name -> the newest job of that name."""
        batch = self.endpoint.batch
        summaries = batch.list_jobs(
            jobQueue=queue, filters=[{"name": "AFTER_CREATED_AT", "values": ["0"]}]
        )
        ids = [summary["jobId"] for summary in summaries["jobSummaryList"]]
        return (
            {job["jobName"]: job for job in reversed(batch.describe_jobs(jobs=ids)["jobs"])}
            if ids
            else {}
        )

    def every_job(self) -> dict[str, Any]:
        queues = [
            queue["jobQueueName"]
            for queue in self.endpoint.batch.describe_job_queues()["jobQueues"]
        ]
        return {name: job for queue in queues for name, job in self.jobs(queue).items()}

    def printed(self, job: Any) -> list[list[str]]:
        """The output of a job, or of each child."""
        size = job.get("arrayProperties", {}).get("size")
        ids = (
            [job["jobId"]] if size is None else [f"{job['jobId']}:{index}" for index in range(size)]
        )
        return [self.endpoint.output(job_id) for job_id in ids]


Start = Callable[..., Company]


@pytest.fixture(scope="module")
def start_company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    started: list[Endpoint] = []

    def begin(*flags: str) -> Company:
        folder = tmp_path_factory.mktemp("company")
        shutil.copytree(EXAMPLE, folder / "enterprise")
        (command,) = blocks("sh endpoint")
        program, verb, *as_on_the_page = command.split()
        assert (program, verb) == ("batchyard", "emulate")
        started.append(Endpoint(folder / "endpoint", *as_on_the_page, *flags))
        return Company(folder / "enterprise", started[-1])

    yield begin
    for endpoint in started:
        endpoint.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def read_through(start_company: Start) -> Company:
    """Somebody has typed the whole page."""
    company = start_company()
    company.sh("\n".join(blocks("sh")))
    return company


# -- the page -------------------------------------------------------------------------------------


def test_what_the_platform_files_describe_is_there(read_through: Company) -> None:
    batch = read_through.endpoint.batch
    resources = {
        "environments": batch.describe_compute_environments()["computeEnvironments"],
        "queues": batch.describe_job_queues()["jobQueues"],
        "definitions": batch.describe_job_definitions(status="ACTIVE")["jobDefinitions"],
        "policies": batch.describe_scheduling_policies(
            arns=[
                policy["arn"] for policy in batch.list_scheduling_policies()["schedulingPolicies"]
            ]
        )["schedulingPolicies"],
    }
    changed_on_the_page = {("cpu", "maxvCpus"): 96, ("vision-lab", "priority"): 2}
    for kind, documents in resources.items():
        member = KINDS[kind][1]
        described = {
            document[member]: document
            for document in sorted(documents, key=lambda d: d.get("revision", 0))
        }
        files = files_of(kind)
        assert sorted(described) == sorted(file[member] for file in files)
        for file in files:
            document = described[file[member]]
            assert document.get("status", "VALID") in ("VALID", "ACTIVE")
            assert_in(file, document, file[member], changed_on_the_page)


def assert_in(expected: Any, actual: Any, name: str, changed: dict[tuple[str, str], int]) -> None:
    """Everything of a request is in its description; names may have become ARNs."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            assert_in(changed.get((name, key), value), actual[key], name, changed)
    elif isinstance(expected, list):
        assert len(expected) == len(actual)
        for expected_entry, other in zip(expected, actual, strict=True):
            assert_in(expected_entry, other, name, changed)
    else:
        action = (
            str(actual).upper() == expected
        )  # of evaluateOnExit, which AWS gives back in lower case
        assert actual == expected or action or str(actual).endswith(f"/{expected}")


def test_the_two_teams_share_and_the_lab_does_not(read_through: Company) -> None:
    queues = {
        queue["jobQueueName"]: queue
        for queue in read_through.endpoint.batch.describe_job_queues()["jobQueues"]
    }
    policies = {
        name: queue.get("schedulingPolicyArn", "/").rpartition("/")[2]
        for name, queue in queues.items()
    }
    assert policies == {
        "shared-cpu": "teams",
        "shared-gpu": "teams",
        "genomics-spot": "people",
        "vision-lab": "",
    }
    jobs = read_through.every_job()
    assert jobs["train"]["shareIdentifier"] == "vision"
    assert jobs["merge"]["shareIdentifier"] == "genomics"
    assert jobs["align"]["shareIdentifier"] == "ada"
    assert "shareIdentifier" not in jobs["look"]


def test_every_job_of_the_files_was_submitted_and_succeeded(read_through: Company) -> None:
    jobs = read_through.every_job()
    assert sorted(jobs) == sorted(request["jobName"] for request in files_of("jobs"))
    assert {name: job["status"] for name, job in jobs.items() if job["status"] != "SUCCEEDED"} == {}


def test_what_the_jobs_printed(read_through: Company) -> None:
    jobs = read_through.every_job()
    assert {name: read_through.printed(job) for name, job in jobs.items() if name != "train"} == {
        "hello": [["hello vision"]],
        "frames": [[f"frames of film {index}"] for index in range(4)],
        "look": [["pictures for the screen in the lab"]],
        "align": [[f"sample {index} aligned, attempt 1"] for index in range(6)],
        "call": [[f"variants of sample {index}"] for index in range(6)],
        "merge": [["one table of all samples"]],
    }
    for index, (line,) in enumerate(read_through.printed(jobs["train"])):
        assert re.fullmatch(rf"epoch {index} on GPU [01]", line)


def test_names_in_depends_on_became_ids(read_through: Company) -> None:
    jobs = read_through.every_job()
    ids = {name: job["jobId"] for name, job in jobs.items()}
    assert jobs["train"]["dependsOn"] == [{"jobId": ids["frames"]}, {"type": "SEQUENTIAL"}]
    assert jobs["look"]["dependsOn"] == [{"jobId": ids["train"]}]
    assert jobs["call"]["dependsOn"] == [{"jobId": ids["align"], "type": "N_TO_N"}]
    assert jobs["merge"]["dependsOn"] == [{"jobId": ids["call"]}]


def test_what_has_to_wait_began_after_what_it_waits_for(read_through: Company) -> None:
    jobs = read_through.every_job()

    def child(name: str, index: int) -> Any:
        return read_through.endpoint.job(f"{jobs[name]['jobId']}:{index}")

    epochs = [child("train", index) for index in range(3)]
    assert jobs["frames"]["stoppedAt"] <= epochs[0]["startedAt"]
    assert all(earlier["stoppedAt"] <= later["startedAt"] for earlier, later in pairwise(epochs))
    for index in range(6):
        assert child("align", index)["stoppedAt"] <= child("call", index)["startedAt"]
    assert jobs["call"]["stoppedAt"] <= jobs["merge"]["startedAt"]


def test_the_definitions_of_the_script_are_the_second_revisions(read_through: Company) -> None:
    definitions = read_through.endpoint.batch.describe_job_definitions(status="ACTIVE")[
        "jobDefinitions"
    ]
    revisions = {
        (definition["jobDefinitionName"], definition["revision"], "cksum" in definition["tags"])
        for definition in definitions
    }
    names = ("cpu-job", "gpu-job", "spot-job")
    assert revisions == {(name, 1, False) for name in names} | {(name, 2, True) for name in names}


# -- the scripts alone, and an account of one's own -----------------------------------------------


@pytest.fixture(scope="module")
def elsewhere(start_company: Start) -> Company:
    """A company in another account and region: account.sed is filled in and applied, nothing is
    registered yet."""
    company = start_company("--region", OTHER_ACCOUNT["us-east-1"])
    script = company.folder / "account.sed"
    text = script.read_text()
    for ours, theirs in OTHER_ACCOUNT.items():
        slash = "|" if "/" in ours else "/"
        line = slash.join(["s", ours, ours, "\n"])
        assert line in text, f"account.sed has no line for {ours}"
        text = text.replace(line, slash.join(["s", ours, theirs, "\n"]))
    script.write_text(text)
    company.sh("\n".join(blocks("sh account")))
    return company


def test_the_account_s_own_values_are_all_in_account_sed(elsewhere: Company) -> None:
    texts = {file: (elsewhere.folder / file).read_text() for file in FILES}
    unchanged = [
        (file, ours) for file, text in texts.items() for ours in OTHER_ACCOUNT if ours in text
    ]
    assert unchanged == []
    all_text = "\n".join(texts.values())
    assert [theirs for theirs in OTHER_ACCOUNT.values() if theirs not in all_text] == []
    # What an account has are roles, networks and policies; nothing else in the files may look like
    # one of them.
    arns = set(re.findall(r"arn:[^\"]*", all_text))
    assert arns and all(f":{OTHER_ACCOUNT['123456789012']}:" in arn for arn in arns)


@pytest.fixture(scope="module")
def registered(elsewhere: Company) -> list[str]:
    """What register.sh said when it was run there for the first time."""
    # The endpoint has one account, and refuses ARNs of others.
    account = "123456789012"
    elsewhere.sh(f"sed -i 's/{OTHER_ACCOUNT[account]}/{account}/' platform/*/*.json")
    return elsewhere.sh("./register.sh").splitlines()


def test_register_makes_everything(elsewhere: Company, registered: list[str]) -> None:
    platform = [str(file.relative_to("platform")) for file in FILES if file.parts[0] == "platform"]
    assert sorted(line.partition(":")[0] for line in registered) == platform
    assert {line.partition(": ")[2] for line in registered} == {"created", "revision 1"}
    described = elsewhere.endpoint.batch.describe_compute_environments(computeEnvironments=["gpu"])
    (environment,) = described["computeEnvironments"]
    assert environment["computeResources"]["subnets"] == [OTHER_ACCOUNT["subnet-0a1b2c3d4e5f60718"]]


def test_submit_submits_in_order_and_puts_ids_for_names(
    elsewhere: Company, registered: list[str]
) -> None:
    printed = elsewhere.sh("./submit.sh jobs/hello.json jobs/vision/*.json jobs/genomics/*.json")
    ids = dict(line.split("\t") for line in printed.splitlines())
    assert list(ids) == ["hello", "frames", "train", "look", "align", "call", "merge"]
    jobs = {name: elsewhere.endpoint.wait(job_id) for name, job_id in ids.items()}
    assert {name: job["status"] for name, job in jobs.items()} == dict.fromkeys(ids, "SUCCEEDED")
    assert jobs["train"]["dependsOn"] == [{"jobId": ids["frames"]}, {"type": "SEQUENTIAL"}]
    assert jobs["call"]["dependsOn"] == [{"jobId": ids["align"], "type": "N_TO_N"}]
    assert jobs["merge"]["dependsOn"] == [{"jobId": ids["call"]}]


def test_submit_stops_at_a_name_that_it_does_not_know(
    elsewhere: Company, registered: list[str]
) -> None:
    jobs_before = {job["jobId"] for job in elsewhere.every_job().values()}
    with pytest.raises(AssertionError, match=r"(?s)exited 25[245].*ClientException"):
        elsewhere.sh("./submit.sh jobs/vision/3-look.json jobs/hello.json")
    assert {job["jobId"] for job in elsewhere.every_job().values()} == jobs_before


def test_register_repeated_registers_what_has_changed(
    elsewhere: Company, registered: list[str]
) -> None:
    definition = elsewhere.folder / "platform" / "definitions" / "cpu-job.json"
    definition.write_text(definition.read_text().replace('"nobody"', '"somebody"'))
    second_output = elsewhere.sh("./register.sh").splitlines()
    assert [line for line in second_output if not line.endswith(": is there")] == [
        "definitions/cpu-job.json: revision 2"
    ]
    assert len(second_output) == len(registered)


# -- the files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_file_is_one_request_as_aws_describes_it(file: Path) -> None:
    operation, name = KINDS[kind_of(file)]
    shape = (
        botocore.session.get_session()
        .get_service_model("batch")
        .operation_model(operation)
        .input_shape
    )
    request = read(file)
    validate_parameters(request, shape)  # raises for what is missing, of the wrong type, or unknown
    assert re.sub(r"^\d-", "", file.stem) == request[name], "the file has the name of what is in it"


def test_every_file_is_on_the_page() -> None:
    assert [file for file in FILES if file.name not in PAGE] == []


@pytest.mark.parametrize("script", ["register.sh", "submit.sh"])
def test_shellcheck_has_nothing_to_say(script: str) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("no shellcheck here")
    done = subprocess.run(
        ["shellcheck", "--shell=sh", EXAMPLE / script], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
