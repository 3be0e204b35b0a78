"""A real `batchyard emulate` in a process of its own, and its clients: boto3 and the real `aws`
command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

import prestarted
from pauses import pause

BATCHYARD = Path(sys.executable).with_name("batchyard")
AWS = Path(sys.executable).with_name("aws")
#: The same for callers that start it themselves: in a folder with a space in its name, the first
#: line of the script that pip has written names no program.
AWS_WORDS = (sys.executable, str(AWS))
#: Faults of the endpoint for tests of its clients.
UNKIND = ("--faults", "unkind,seed=1")
TERMINAL = ("SUCCEEDED", "FAILED")


class Endpoint:
    """One endpoint, started and stopped by the test."""

    def __init__(
        self, folder: Path, *arguments: str, environ: dict[str, str] | None = None
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.said = folder / "stderr.txt"
        base = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "BATCHYARD_"))
        }
        with self.said.open("ab") as stderr:
            self.process = prestarted.Popen(
                [BATCHYARD, "emulate", "--port", "0", "--home", str(folder / "home"), *arguments],
                cwd=folder,
                env={**base, **(environ or {})},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert self.process.stdout is not None
        self.variables: dict[str, str] = {}
        for _ in range(5):
            line = self.process.stdout.readline()
            assert line.startswith("export "), f"it said {line!r} and {self.said.read_text()}"
            name, _, value = line.removeprefix("export ").strip().partition("=")
            self.variables[name] = value
        self.url = self.variables["AWS_ENDPOINT_URL"]
        #: Clients of the tests themselves meet no faults where the endpoint is unkind. An endpoint
        #: with a token knows no other key.
        is_unkind = any(words.startswith("unkind") for words in arguments)
        self.observer_key = "observer" if is_unkind else self.variables["AWS_ACCESS_KEY_ID"]
        #: for the `aws` command and other people's programs
        self.environ = {**base, **self.variables, "AWS_PAGER": "", "AWS_CONFIG_FILE": "/dev/null"}
        self.batch: Any = self.client("batch")
        self.logs: Any = self.client("logs")

    def client(self, service: str, region: str = "") -> Any:
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=region or self.variables["AWS_REGION"],
            aws_access_key_id=self.observer_key,
            aws_secret_access_key=self.variables["AWS_SECRET_ACCESS_KEY"],
            config=Config(retries={"total_max_attempts": 1}),
        )

    def aws(self, *arguments: str, check: bool = True) -> Any:
        """The real `aws` command: its answer as JSON, or where it may fail, the completed
        process."""
        done = prestarted.run(
            [AWS, *arguments],
            env=self.environ,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if not check:
            return done
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() else None

    def stop(self, signum: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signum)
        code = self.process.wait(300)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    # -- what most tests need ---------------------------------------------------------------------

    def environment(
        self,
        name: str,
        vcpus: int = 256,
        types: tuple[str, ...] = ("m3.medium", "m6i"),
        **members: Any,
    ) -> str:
        resources = {
            "type": "EC2",
            "minvCpus": 0,
            "maxvCpus": vcpus,
            "subnets": ["subnet-0a"],
            "securityGroupIds": ["sg-0a"],
            "instanceRole": "ecsInstanceRole",
            "instanceTypes": list(types),
        }
        self.batch.create_compute_environment(
            computeEnvironmentName=name, type="MANAGED", computeResources={**resources, **members}
        )
        return name

    def queue(self, name: str, *environments: str, priority: int = 1, **members: Any) -> str:
        order = [
            {"order": n, "computeEnvironment": environment}
            for n, environment in enumerate(environments, 1)
        ]
        self.batch.create_job_queue(
            jobQueueName=name, priority=priority, computeEnvironmentOrder=order, **members
        )
        return name

    def definition(
        self,
        name: str,
        *command: str,
        vcpus: int = 1,
        memory_mib: int = 64,
        gpus: int = 0,
        **members: Any,
    ) -> str:
        """Registers one; `more` is for the definition, or, as `container={...}`, for its
        container."""
        requirements = [
            {"type": "VCPU", "value": str(vcpus)},
            {"type": "MEMORY", "value": str(memory_mib)},
        ]
        requirements += [{"type": "GPU", "value": str(gpus)}] if gpus else []
        container = {
            "image": "busybox",
            "command": list(command),
            "resourceRequirements": requirements,
        }
        container |= members.pop("container", {})
        answer = self.batch.register_job_definition(
            jobDefinitionName=name, type="container", containerProperties=container, **members
        )
        return f"{name}:{answer['revision']}"

    def submit(
        self, definition: str, queue: str = "queue", name: str = "job", **members: Any
    ) -> str:
        answer = self.batch.submit_job(
            jobName=name, jobQueue=queue, jobDefinition=definition, **members
        )
        return str(answer["jobId"])

    def run(self, *command: str, queue: str = "queue", **members: Any) -> str:
        """Submits a job with this command."""
        return self.submit(self.definition("any", *command), queue, **members)

    def job(self, job_id: str) -> Any:
        return self.batch.describe_jobs(jobs=[job_id])["jobs"][0]

    def wait(self, job_id: str, *states: str, within_s: float = 300) -> Any:
        """The job, once it is in one of the states (by default: over)."""
        return until(
            lambda: self.job(job_id), lambda job: job["status"] in (states or TERMINAL), within_s
        )

    def output(self, job_id: str, group: str = "/aws/batch/job") -> list[str]:
        """The lines of a job's or child's last attempt."""
        job = self.job(job_id)
        if "ecsProperties" in job:
            stream = job["ecsProperties"]["taskProperties"][0]["containers"][0]["logStreamName"]
        else:
            stream = job["container"]["logStreamName"]
        events = self.logs.get_log_events(
            logGroupName=group, logStreamName=stream, startFromHead=True
        )["events"]
        return [event["message"] for event in events]


def is_running(pid: int) -> bool:
    """Return whether the process exists. One that has ended may wait to be reaped for ever.

    Its parent may be the process of the tests: it adopts orphans if a test of it runs children.
    """
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def until(look: Callable[[], Any], is_so: Callable[[Any], bool], within_s: float = 300) -> Any:
    """What `look` finds, once `is_so` holds for it."""
    began = time.monotonic()
    while not is_so(value := look()):
        assert time.monotonic() < began + within_s, f"still {value}"
        pause(began)
    return value
