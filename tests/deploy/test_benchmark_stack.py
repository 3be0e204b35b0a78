"""gpu-batch-benchmark.yaml as people use it: deployed in three ways, the code put into its bucket, both jobs run, their
results in the bucket. What the endpoint cannot show: GPUs (one is pretended), the default images, pip in them."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from emulator_endpoint import Endpoint
from site_of_stacks import Site

REPOSITORY = Path(__file__).parents[2]
FILE = "gpu-batch-benchmark.yaml"
#: run.sh of a benchmark that is quickly done
RUN = """\
echo "on $BENCHMARK_DEVICE with $(cat beside.txt)"
echo measured >"$BENCHMARK_OUT/$BENCHMARK_DEVICE-benchmark.txt"
mkdir "$BENCHMARK_OUT/raw" && echo "$BENCHMARK_ARGS" >"$BENCHMARK_OUT/raw/args"
exit "${EXIT_CODE:-0}"
"""


@pytest.fixture(scope="module")
def large_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """With room for a job that takes a whole c6i.4xlarge; jobs find the python3 of the tests, which has boto3."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    sizes = ("--cpus", "24", "--memory", "48GiB", "--gpus", "1")
    it = Endpoint(tmp_path_factory.mktemp("endpoint"), *sizes, environ={"PATH": path})
    try:
        yield it
    finally:
        it.stop()


@pytest.fixture
def large_site(large_endpoint: Endpoint, tmp_path: Path) -> Site:
    return Site(large_endpoint, tmp_path)


def outputs_of(endpoint: Endpoint, stack: str) -> dict[str, str]:
    (found,) = endpoint.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
    assert found["StackStatus"] in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
    return {one["OutputKey"]: one["OutputValue"] for one in found["Outputs"]}


def upload_code(endpoint: Endpoint, outputs: dict[str, str]) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, text in (("run.sh", RUN), ("beside.txt", "what lies beside it")):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    address = outputs["CodeLocation"].removeprefix(f"s3://{outputs['Bucket']}/")
    endpoint.client("s3").put_object(Bucket=outputs["Bucket"], Key=address, Body=archive.getvalue())


def ran(endpoint: Endpoint, outputs: dict[str, str], device: str, **environ: str) -> Any:
    """The job of one device, once it is over."""
    kind = device.capitalize()
    overrides = {"environment": [{"name": name, "value": value} for name, value in environ.items()]}
    definition, queue = outputs[f"{kind}JobDefinition"], outputs[f"{kind}Queue"]
    return endpoint.wait(endpoint.submit(definition, queue, containerOverrides=overrides))


def results_of(endpoint: Endpoint, outputs: dict[str, str], device: str, job: Any) -> dict[str, str]:
    s3, prefix = endpoint.client("s3"), f"results/{device}/{job['jobId']}/"
    found = s3.list_objects_v2(Bucket=outputs["Bucket"], Prefix=prefix).get("Contents", [])
    return {
        one["Key"].removeprefix(prefix): s3.get_object(Bucket=outputs["Bucket"], Key=one["Key"])["Body"].read().decode()
        for one in found
    }


def check_both_devices(endpoint: Endpoint, outputs: dict[str, str]) -> None:
    upload_code(endpoint, outputs)
    for device in ("cpu", "gpu"):
        job = ran(endpoint, outputs, device, BENCHMARK_ARGS="--quick")
        said = endpoint.output(job["jobId"], outputs["LogGroup"])
        assert job["status"] == "SUCCEEDED", said
        assert said[0] == f"on {device} with what lies beside it"
        found = results_of(endpoint, outputs, device, job)
        assert found == {f"{device}-benchmark.txt": "measured\n", "raw/args": "--quick\n"}


def test_deployed_by_hand_it_runs_the_code_of_its_bucket_on_both_devices(large_endpoint: Endpoint) -> None:
    stack = ("--stack-name", "by-hand", "--template-file", str(REPOSITORY / FILE))
    done = large_endpoint.aws("cloudformation", "deploy", *stack, "--capabilities", "CAPABILITY_IAM", check=False)
    assert done.returncode == 0, done.stderr
    outputs = outputs_of(large_endpoint, "by-hand")

    early = ran(large_endpoint, outputs, "cpu")
    said = "\n".join(large_endpoint.output(early["jobId"], outputs["LogGroup"]))
    assert early["status"] == "FAILED"
    assert f"cannot be read from {outputs['CodeLocation']}" in said and "was it put there?" in said

    check_both_devices(large_endpoint, outputs)
    assert (outputs["CpuTypes"], outputs["GpuTypes"]) == ("c6i.4xlarge", "g4dn.xlarge")


def test_what_was_measured_is_kept_where_the_benchmark_fails(large_site: Site) -> None:
    large_site.about("deploy", "gpu-batch-benchmark", "--yes")
    endpoint, outputs = large_site.endpoint, large_site.outputs()
    upload_code(endpoint, outputs)
    job = ran(endpoint, outputs, "cpu", EXIT_CODE="7")
    assert (job["status"], job["container"]["exitCode"], len(job["attempts"])) == ("FAILED", 7, 1)
    assert results_of(endpoint, outputs, "cpu", job)["cpu-benchmark.txt"] == "measured\n"


def test_code_in_the_images_is_not_fetched(large_site: Site) -> None:
    large_site.about("deploy", "gpu-batch-benchmark", "--set", "Code=image", "--yes")
    outputs = large_site.outputs()
    assert outputs["CodeLocation"] == "/benchmark"
    # Jobs are processes here and have no image, so another folder stands for the image's.
    folder = large_site.folder / "in the image"
    folder.mkdir()
    (folder / "run.sh").write_text(RUN)
    (folder / "beside.txt").write_text("the image")
    job = ran(large_site.endpoint, outputs, "gpu", BENCHMARK_CODE=str(folder), BENCHMARK_ARGS="")
    assert large_site.endpoint.output(job["jobId"], outputs["LogGroup"])[0] == "on gpu with the image"
    assert set(results_of(large_site.endpoint, outputs, "gpu", job)) == {"gpu-benchmark.txt", "raw/args"}


def test_batchyards_own_commands_take_it_for_a_stack_of_the_environment(large_site: Site) -> None:
    large_site.about("deploy", "gpu-batch-benchmark", "--set", "Purchase=spot", "--yes")
    name = f"{large_site.env}-gpu-batch-benchmark"
    assert large_site.stacks() == {name: "CREATE_COMPLETE"}
    resources = large_site.compute_environment("gpu-batch-benchmark-gpu")["computeResources"]
    assert (resources["type"], resources["allocationStrategy"]) == ("SPOT", "SPOT_PRICE_CAPACITY_OPTIMIZED")
    assert "nothing to do" in large_site.about("diff", "gpu-batch-benchmark").stderr
    upload_code(large_site.endpoint, large_site.outputs())
    assert "is not empty: --empty-buckets" in large_site.about("destroy", "--yes", code=2).stderr
    large_site.about("destroy", "--empty-buckets", "--yes")
    assert large_site.stacks() == {}
    queues = large_site.endpoint.batch.describe_job_queues()["jobQueues"]
    assert [one for one in queues if one["jobQueueName"].startswith(name)] == []


@pytest.mark.slow
def test_sam_deploys_it_as_it_stands_from_the_repositorys_root(large_endpoint: Endpoint, tmp_path: Path) -> None:
    tools = sorted((REPOSITORY / ".cache/lint").glob("aws-sam-cli-*/bin/sam"))
    if not tools:
        refuse = pytest.fail if os.environ.get("BATCHYARD_REQUIRE_LINT") == "1" else pytest.skip
        refuse("sam is not there; .ci/lint-templates installs it")
    command = f"deploy --template-file {FILE} --stack-name gpu-benchmark --capabilities CAPABILITY_IAM"
    # What it keeps about itself is no business of this machine's user.
    environ = {**large_endpoint.environ, "SAM_CLI_TELEMETRY": "0", "HOME": str(tmp_path)}
    done = subprocess.run(
        [tools[-1], *command.split()], cwd=REPOSITORY, env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    check_both_devices(large_endpoint, outputs_of(large_endpoint, "gpu-benchmark"))
