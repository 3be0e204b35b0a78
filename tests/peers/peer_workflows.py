"""Functions that configure each client and start its workflow of this folder."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from peer_clients import QUEUE, Peer

WORKFLOWS = Path(__file__).parent / "workflows"
REDUN_SETTINGS = """\
[executors.default]
type = local

[executors.batch]
type = aws_batch
image = {image}
queue = {queue}
s3_scratch = s3://peers/redun/
memory = 1
"""
ROLE = "arn:aws:iam::123456789012:role/peers"


def prepare_redun(peer: Peer, image: str, **settings: object) -> None:
    """``settings``: of the executor, beside the least that it needs."""
    shutil.copy(WORKFLOWS / "redun_workflow.py", peer.folder / "workflow.py")
    file = peer.folder / ".redun" / "redun.ini"
    file.parent.mkdir()
    more = "".join(f"{name} = {value}\n" for name, value in settings.items())
    file.write_text(REDUN_SETTINGS.format(image=image, queue=QUEUE) + more)


def run_redun(peer: Peer, task: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return peer.run("redun", "run", "workflow.py", task, *arguments)


def prepare_metaflow(peer: Peer, image: str) -> dict[str, str]:
    """The variables that it is told everything by."""
    shutil.copy(WORKFLOWS / "metaflow_flow.py", peer.folder / "flow.py")
    return {
        "METAFLOW_DEFAULT_DATASTORE": "s3",
        "METAFLOW_DATASTORE_SYSROOT_S3": "s3://peers/metaflow",
        "METAFLOW_DEFAULT_METADATA": "local",
        "METAFLOW_BATCH_JOB_QUEUE": QUEUE,
        "METAFLOW_BATCH_CONTAINER_IMAGE": image,
        "METAFLOW_ECS_S3_ACCESS_IAM_ROLE": ROLE,
        "METAFLOW_CLIENT_CACHE_PATH": str(peer.folder / "cache"),
        "METAFLOW_USER": "peers",
    }


def run_metaflow(
    peer: Peer, settings: dict[str, str], *more: str, memory_mib: int = 1024
) -> subprocess.CompletedProcess[str]:
    flags = ("--with", f"batch:cpu=1,memory={memory_mib}", "--run-id-file", "run_id")
    return peer.run("python", "flow.py", "run", *flags, *more, **settings)


def prepare_snakemake(peer: Peer) -> None:
    shutil.copy(WORKFLOWS / "Snakefile", peer.folder)


def run_snakemake(peer: Peer, *arguments: str, jobs: int = 2) -> subprocess.CompletedProcess[str]:
    """Run Snakemake; each job is a process, which --precommand moves to a separate folder."""
    queue = peer.endpoint.batch.describe_job_queues(jobQueues=[QUEUE])["jobQueues"][0][
        "jobQueueArn"
    ]
    return peer.run(
        "snakemake",
        *(
            "--executor",
            "aws-batch",
            "--aws-batch-region",
            "us-east-1",
            "--aws-batch-job-role",
            ROLE,
        ),
        *("--aws-batch-job-queue", queue, "--jobs", str(jobs)),
        *("--precommand", 'cd "$(mktemp -d)"'),
        *("--default-storage-provider", "s3", "--default-storage-prefix", "s3://peers/snakemake"),
        *arguments,
    )
