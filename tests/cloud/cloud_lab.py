"""A folder of pipelines in which tests run the real command against an emulated AWS Batch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from emulator_endpoint import UNKIND, Endpoint

import prestarted
from pauses import pause

BUCKET = "lab-runs"
#: what jobs find: the `batchyard-worker` and the `python` under test
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
ENVIRONMENTS = """\
environments:
  lab:
    region: us-east-1
    bucket: lab-runs
    prefix: team
    queues: {cpu: spot, gpu: spot, cpu_on_demand: steady}
"""
#: The environment of runs on ECS, on the cluster that `add_cluster` makes.
TASKS = "  tasks: {region: us-east-1, bucket: lab-runs, prefix: team, cluster: default}\n"


def opened(folder: Path, *arguments: str) -> Endpoint:
    """An unkind endpoint with the queues `spot` and `steady`, and the bucket."""
    faults = () if "--faults" in arguments else UNKIND
    it = Endpoint(folder, *faults, *arguments, environ={"PATH": PATH})
    it.queue("spot", it.environment("spot-fleet"))
    it.queue("steady", it.environment("steady-fleet"))
    it.client("s3").create_bucket(Bucket=BUCKET)
    return it


def add_cluster(endpoint: Endpoint) -> None:
    """The cluster `default`, with this machine as its host."""
    ecs = endpoint.client("ecs")
    ecs.create_cluster()
    ecs.register_container_instance()


def set_faults(endpoint: Endpoint, text: str) -> None:
    """Replace the faults of an endpoint, in the words of `--faults`; an empty text for none."""
    body = json.dumps({"faults": text}).encode()
    with urllib.request.urlopen(f"{endpoint.url}/_batchyard/faults", body):
        pass


def calls(endpoint: Endpoint) -> Counter[str]:
    """What has been asked of the endpoint so far."""
    with urllib.request.urlopen(f"{endpoint.url}/_batchyard/calls") as answer:
        return Counter(json.load(answer))


def batch_calls(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Those of AWS Batch between two looks."""
    more = Counter(after)
    more.subtract(before)
    return {name: count for name, count in more.items() if name.startswith("batch:") and count}


def run_of(done: subprocess.CompletedProcess[str]) -> str:
    """The id that a command has said on stderr."""
    found = re.search(r"^run ([a-z0-9-]+-\d{8}-[0-9a-f]{6})$", done.stderr, re.MULTILINE)
    assert found, done.stderr
    return found[1]


class Lab:
    def __init__(self, folder: Path, endpoint: Endpoint) -> None:
        self.folder = folder
        self.endpoint = endpoint
        # Where a job must not have been made, commands wait that long for it.
        self.environ = {**endpoint.environ, "PATH": PATH, "BATCHYARD_AWS_LAG_S": "1"}
        self.started: list[subprocess.Popen[bytes]] = []
        self.write(".batchyard/environments.yaml", ENVIRONMENTS)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def __call__(
        self,
        *arguments: str,
        code: int | None = 0,
        environ: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Runs the command to its end; fails unless it exits with ``code`` (None: any)."""
        done = prestarted.run(
            self.command(*arguments),
            cwd=self.folder,
            env={**self.environ, **(environ or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
        )
        said = (
            f"batchyard {' '.join(arguments)} exited {done.returncode}:\n"
            f"{done.stdout}\n{done.stderr}"
        )
        assert code is None or done.returncode == code, said
        assert "Traceback" not in done.stderr and "a bug in batchyard" not in done.stderr, said
        return done

    def run(self, *arguments: str, file: str = "pipeline.yaml", code: int | None = 0) -> str:
        """The id of a run that was followed to its end, or with --detach, submitted."""
        done = self("run", file, "--engine", "aws", "--env", "lab", *arguments, code=code)
        return run_of(done)

    def run_tasks(self, *arguments: str, file: str = "pipeline.yaml", code: int | None = 0) -> str:
        """The id of a run on the cluster, with a host that `add_cluster` made."""
        done = self("run", file, "--engine", "ecs", "--env", "tasks", *arguments, code=code)
        return run_of(done)

    def tasks_of(self, run: str, cluster: str = "default") -> list[Any]:
        """Every task of a run, by ECS's word."""
        ecs = self.patient("ecs")
        arns = [
            arn
            for status in ("RUNNING", "STOPPED")
            for page in ecs.get_paginator("list_tasks").paginate(
                cluster=cluster, startedBy=f"batchyard/{run}", desiredStatus=status
            )
            for arn in page["taskArns"]
        ]
        chunks = [arns[first : first + 100] for first in range(0, len(arns), 100)]
        answers = [ecs.describe_tasks(cluster=cluster, tasks=chunk) for chunk in chunks]
        return [task for answer in answers for task in answer["tasks"]]

    def start(self, *arguments: str, output: Any = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        process = prestarted.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        self.started.append(process)
        return process

    def json(self, *arguments: str, code: int | None = 0, stdin: str = "") -> Any:
        return json.loads(self(*arguments, "--json", code=code, stdin=stdin).stdout)

    def status(self, run: str) -> Any:
        return self.json("status", run)

    def ended(self, run: str) -> str:
        """The state in which a run ends."""
        return str(until(lambda: self.status(run)["state"], lambda state: state != "RUNNING"))

    def jobs_of(self, run: str) -> dict[str, str]:
        """Name -> state of the run's jobs on spot instances, by AWS's word."""
        pages = self.patient("batch").get_paginator("list_jobs")
        asked = pages.paginate(
            jobQueue="spot", filters=[{"name": "JOB_NAME", "values": [f"{run}*"]}]
        )
        return {job["jobName"]: job["status"] for page in asked for job in page["jobSummaryList"]}

    def job_names(self, *queues: str) -> Counter[str]:
        """Every job that the queues were ever given, by name."""
        found: Counter[str] = Counter()
        for queue in queues or ("spot", "steady"):
            pages = self.patient("batch").get_paginator("list_jobs")
            for page in pages.paginate(
                jobQueue=queue, filters=[{"name": "AFTER_CREATED_AT", "values": ["0"]}]
            ):
                found.update(job["jobName"] for job in page["jobSummaryList"])
        return found

    def patient(self, service: str) -> Any:
        """A client that lives with trouble at the endpoint."""
        import boto3
        from botocore.config import Config

        given = self.endpoint.variables
        return boto3.client(
            service,
            endpoint_url=self.endpoint.url,
            region_name=given["AWS_REGION"],
            aws_access_key_id=self.endpoint.observer_key,
            aws_secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
            config=Config(retries={"total_max_attempts": 20, "mode": "standard"}),
        )

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "batchyard", *arguments]


def until(
    look: Callable[[], Any], is_so: Callable[[Any], bool] = bool, within_s: float = 300
) -> Any:
    began = time.monotonic()
    while not is_so(found := look()):
        assert time.monotonic() < began + within_s, f"still {found}"
        pause(began)
    return found
