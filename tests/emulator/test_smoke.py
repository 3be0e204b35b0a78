"""One job and one array through the real endpoint: the shortest way through everything."""

from __future__ import annotations

from emulator_endpoint import Endpoint


def test_a_job_runs_and_its_output_is_in_the_logs(endpoint: Endpoint) -> None:
    job = endpoint.wait(endpoint.run("echo", "hello", "Ref::who", parameters={"who": "you"}))
    assert job["status"] == "SUCCEEDED"
    assert endpoint.output(job["jobId"]) == ["hello you"]


def test_an_array_knows_its_indices(endpoint: Endpoint) -> None:
    job_id = endpoint.run(
        "sh", "-c", "echo $AWS_BATCH_JOB_ARRAY_INDEX", arrayProperties={"size": 5}
    )
    assert endpoint.wait(job_id)["arrayProperties"]["statusSummary"]["SUCCEEDED"] == 5
    assert [endpoint.output(f"{job_id}:{index}") for index in range(5)] == [
        [str(index)] for index in range(5)
    ]
