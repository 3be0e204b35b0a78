"""A reset, as moto has it: jobs are ended, and nothing is left of all resources."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable

from emulator_endpoint import Endpoint, is_running, until


def reset(endpoint: Endpoint) -> None:
    request = urllib.request.Request(f"{endpoint.url}/moto-api/reset", method="POST")
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer) == {"status": "ok"}


def test_a_reset_ends_jobs_and_forgets_all(start: Callable[..., Endpoint]) -> None:
    endpoint = start("--cpus", "2")
    endpoint.queue("queue", endpoint.environment("cpu"))
    endpoint.client("s3").create_bucket(Bucket="bucket")
    endpoint.wait(endpoint.run("echo", "ended"))
    running = endpoint.run("sh", "-c", "echo $$; trap '' TERM; sleep 600 & wait; sleep 600")
    waiting = endpoint.run("true", arrayProperties={"size": 50}, dependsOn=[{"jobId": running}])
    endpoint.wait(running, "RUNNING")
    (pid,) = until(lambda: endpoint.output(running), bool)
    reset(endpoint)
    assert not is_running(int(pid))
    assert endpoint.batch.describe_jobs(jobs=[running, waiting])["jobs"] == []
    assert endpoint.batch.describe_job_queues()["jobQueues"] == []
    assert endpoint.batch.describe_compute_environments()["computeEnvironments"] == []
    assert endpoint.batch.describe_job_definitions()["jobDefinitions"] == []
    assert endpoint.client("s3").list_buckets()["Buckets"] == []
    reset(endpoint)

    # The same names can be used again, also after a restart.
    endpoint.queue("queue", endpoint.environment("cpu"))
    job_id = endpoint.run("echo", "new")
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"
    assert endpoint.output(job_id) == ["new"]
    endpoint.stop()
    again = start("--cpus", "2")
    assert again.job(job_id)["status"] == "SUCCEEDED" and again.output(job_id) == ["new"]
    filters = [{"name": "AFTER_CREATED_AT", "values": ["0"]}]
    assert len(again.batch.list_jobs(jobQueue="queue", filters=filters)["jobSummaryList"]) == 1
