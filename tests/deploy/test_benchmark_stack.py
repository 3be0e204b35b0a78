"""gpu-batch-benchmark.yaml as people use it: deployed in three ways, the code put into its
bucket, both jobs run, their results in the bucket. What the endpoint cannot show: GPUs (one is
pretended), the default images, pip in them.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from emulator_endpoint import Endpoint, until
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
#: one that measures for ever, and ends when it is told to
ENDLESS = """\
exec python3 -c '
import os, signal, sys, time
def write(name, text):
    with open(os.environ["BENCHMARK_OUT"] + "/" + name, "w") as file:
        file.write(text)
def end(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # at the endpoint it is told twice
    write("end", "in good order")
    sys.exit(130)
signal.signal(signal.SIGTERM, end)
write("cpu-benchmark.txt", "measured")
print("measuring", flush=True)
while True:  # A signal just before a sleep does not end it: its handler runs after the sleep.
    time.sleep(0.05)
'
"""
ENDED = {"cpu-benchmark.txt": "measured", "end": "in good order"}
#: one that does not hear it, as where a library takes long
DEAF = """\
trap '' TERM
echo measured >"$BENCHMARK_OUT/cpu-benchmark.txt"
echo measuring
exec /bin/sleep 600
"""
SHELLS = ("dash", "bash", "busybox sh")


@pytest.fixture(scope="module")
def large_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """With room for a job that takes a whole c6i.4xlarge; jobs find the python3 of the tests,
    which has boto3.
    """
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


def upload_code(endpoint: Endpoint, outputs: dict[str, str], run: str = RUN) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, text in (("run.sh", run), ("beside.txt", "what lies beside it")):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    address = outputs["CodeLocation"].removeprefix(f"s3://{outputs['Bucket']}/")
    endpoint.client("s3").put_object(Bucket=outputs["Bucket"], Key=address, Body=archive.getvalue())


def ran(endpoint: Endpoint, outputs: dict[str, str], device: str, **environ: str) -> Any:
    """The job of one device, once it is over."""
    return endpoint.wait(begun(endpoint, outputs, device, **environ))


def begun(endpoint: Endpoint, outputs: dict[str, str], device: str, **environ: str) -> str:
    kind = device.capitalize()
    overrides = {"environment": [{"name": name, "value": value} for name, value in environ.items()]}
    definition, queue = outputs[f"{kind}JobDefinition"], outputs[f"{kind}Queue"]
    return endpoint.submit(definition, queue, containerOverrides=overrides)


def results_of(
    endpoint: Endpoint, outputs: dict[str, str], device: str, job: Any
) -> dict[str, str]:
    return results_in(endpoint, outputs, f"results/{device}/{job['jobId']}/")


def results_in(endpoint: Endpoint, outputs: dict[str, str], prefix: str) -> dict[str, str]:
    s3 = endpoint.client("s3")
    found = s3.list_objects_v2(Bucket=outputs["Bucket"], Prefix=prefix).get("Contents", [])
    return {
        one["Key"].removeprefix(prefix): s3.get_object(Bucket=outputs["Bucket"], Key=one["Key"])[
            "Body"
        ]
        .read()
        .decode()
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


@pytest.mark.slow
def test_deployed_by_hand_it_runs_the_code_of_its_bucket_on_both_devices(
    large_endpoint: Endpoint,
) -> None:
    stack = ("--stack-name", "by-hand", "--template-file", str(REPOSITORY / FILE))
    done = large_endpoint.aws(
        "cloudformation", "deploy", *stack, "--capabilities", "CAPABILITY_IAM", check=False
    )
    assert done.returncode == 0, done.stderr
    outputs = outputs_of(large_endpoint, "by-hand")

    early = ran(large_endpoint, outputs, "cpu")
    said = "\n".join(large_endpoint.output(early["jobId"], outputs["LogGroup"]))
    assert early["status"] == "FAILED"
    assert f"cannot be read from {outputs['CodeLocation']}" in said and "was it put there?" in said

    check_both_devices(large_endpoint, outputs)
    assert (outputs["CpuTypes"], outputs["GpuTypes"]) == ("c6i.4xlarge", "g4dn.xlarge")


@pytest.mark.slow
def test_what_was_measured_is_kept_where_the_benchmark_fails(large_site: Site) -> None:
    large_site.about("deploy", "gpu-batch-benchmark", "--yes")
    endpoint, outputs = large_site.endpoint, large_site.outputs()
    upload_code(endpoint, outputs)
    job = ran(endpoint, outputs, "cpu", EXIT_CODE="7")
    assert (job["status"], job["container"]["exitCode"], len(job["attempts"])) == ("FAILED", 7, 1)
    assert results_of(endpoint, outputs, "cpu", job)["cpu-benchmark.txt"] == "measured\n"


@pytest.mark.slow
def test_what_was_measured_is_kept_where_the_benchmark_is_stopped(large_site: Site) -> None:
    large_site.about("deploy", "gpu-batch-benchmark", "--yes")
    endpoint, outputs = large_site.endpoint, large_site.outputs()
    upload_code(endpoint, outputs, ENDLESS)
    for device in ("cpu", "gpu"):
        job_id = begun(endpoint, outputs, device)
        endpoint.wait(job_id, "RUNNING")
        until(
            lambda job_id=job_id: said_by(endpoint, job_id, outputs),
            lambda said: "measuring" in said,
        )
        endpoint.batch.terminate_job(jobId=job_id, reason="enough")
        job = endpoint.wait(job_id)
        assert (job["status"], job["container"]["exitCode"]) == ("FAILED", 130)
        assert results_of(endpoint, outputs, device, job) == ENDED


def said_by(endpoint: Endpoint, job_id: str, outputs: dict[str, str]) -> list[str]:
    try:
        return endpoint.output(job_id, outputs["LogGroup"])
    except endpoint.logs.exceptions.ResourceNotFoundException:
        return []  # it has said nothing yet


@pytest.mark.slow
def test_what_was_measured_is_kept_where_only_the_first_process_is_told_to_end(
    large_site: Site,
) -> None:
    """As Docker does; the endpoint tells all processes of a job."""
    large_site.about("deploy", "gpu-batch-benchmark", "--yes")
    outputs, folder = large_site.outputs(), large_site.folder
    (definition,) = large_site.endpoint.batch.describe_job_definitions(
        jobDefinitions=[outputs["CpuJobDefinition"]]
    )["jobDefinitions"]
    *shell, text = definition["containerProperties"]["command"]
    assert shell == ["sh", "-c"]
    found = [name for name in SHELLS if shutil.which(name.split()[0])]
    assert found
    for name in found:
        assert stopped(large_site, outputs, [*name.split(), "-c", text], ENDLESS) == (130, ENDED), (
            name
        )
    # What does not hear it is killed; here it is not waited for so long.
    impatient = folder / "impatient"
    impatient.mkdir()
    (impatient / "sleep").write_text("#!/bin/sh\nexec /bin/sleep 0.2\n")
    (impatient / "sleep").chmod(0o755)
    code, results = stopped(
        large_site, outputs, ["sh", "-c", text], DEAF, f"{impatient}{os.pathsep}"
    )
    assert (code, results) == (137, {"cpu-benchmark.txt": "measured\n"})


def stopped(
    site: Site, outputs: dict[str, str], argv: list[str], run: str, path: str = ""
) -> tuple[int, dict[str, str]]:
    """The exit code and the results of a job's command, of which only the first process was told
    to end.
    """
    folder = Path(tempfile.mkdtemp(dir=site.folder))
    (folder / "run.sh").write_text(run)
    environ = {
        **site.endpoint.environ,
        "PATH": f"{path}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "BENCHMARK_CODE": str(folder),
        "BENCHMARK_BUCKET": outputs["Bucket"],
        "BENCHMARK_DEVICE": "cpu",
        "AWS_BATCH_JOB_ID": folder.name,
    }
    with subprocess.Popen(
        argv, env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "measuring\n"
            process.terminate()
            code = process.wait(300)
        finally:
            with suppress(ProcessLookupError):  # as a container ends with its first process
                os.killpg(process.pid, signal.SIGKILL)
    return code, results_in(site.endpoint, outputs, f"results/cpu/{folder.name}/")


@pytest.mark.slow
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
    assert (
        large_site.endpoint.output(job["jobId"], outputs["LogGroup"])[0] == "on gpu with the image"
    )
    assert set(results_of(large_site.endpoint, outputs, "gpu", job)) == {
        "gpu-benchmark.txt",
        "raw/args",
    }


@pytest.mark.slow
def test_batchyards_own_commands_take_it_for_a_stack_of_the_environment(large_site: Site) -> None:
    large_site.about("deploy", "gpu-batch-benchmark", "--set", "Purchase=spot", "--yes")
    name = f"{large_site.env}-gpu-batch-benchmark"
    assert large_site.stacks() == {name: "CREATE_COMPLETE"}
    resources = large_site.compute_environment("gpu-batch-benchmark-gpu")["computeResources"]
    assert (resources["type"], resources["allocationStrategy"]) == (
        "SPOT",
        "SPOT_PRICE_CAPACITY_OPTIMIZED",
    )
    assert "nothing to do" in large_site.about("diff", "gpu-batch-benchmark").stderr
    upload_code(large_site.endpoint, large_site.outputs())
    assert "is not empty: --empty-buckets" in large_site.about("destroy", "--yes", code=2).stderr
    large_site.about("destroy", "--empty-buckets", "--yes")
    assert large_site.stacks() == {}
    queues = large_site.endpoint.batch.describe_job_queues()["jobQueues"]
    assert [one for one in queues if one["jobQueueName"].startswith(name)] == []


@pytest.mark.outside
def test_sam_deploys_it_as_it_stands_from_the_repositorys_root(
    large_endpoint: Endpoint, tmp_path: Path
) -> None:
    tools = sorted((REPOSITORY / ".cache/lint").glob("aws-sam-cli-*/bin/sam"))
    if not tools:
        refuse = pytest.fail if os.environ.get("BATCHYARD_REQUIRE_LINT") == "1" else pytest.skip
        refuse("sam is not there; .ci/lint-templates installs it")
    command = (
        f"deploy --template-file {FILE} --stack-name gpu-benchmark --capabilities CAPABILITY_IAM"
    )
    # What it keeps about itself is no business of this machine's user.
    environ = {**large_endpoint.environ, "SAM_CLI_TELEMETRY": "0", "HOME": str(tmp_path)}
    done = subprocess.run(
        [tools[-1], *command.split()],
        cwd=REPOSITORY,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    check_both_devices(large_endpoint, outputs_of(large_endpoint, "gpu-benchmark"))


# -- cleaning up ---------------------------------------------------------------------------------


def test_one_command_deletes_the_stack_that_sam_made_and_its_bucket(site: Site) -> None:
    """As run-benchmarks.sh leaves it: the code in the bucket, with which CloudFormation fails."""
    # A name that no environment may have.
    stack = f"Bench-{site.env}"
    cloudformation = site.endpoint.client("cloudformation")
    cloudformation.create_stack(
        StackName=stack,
        TemplateBody=(REPOSITORY / FILE).read_text(encoding="utf-8"),
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
    )
    upload_code(site.endpoint, outputs_of(site.endpoint, stack))
    cloudformation.delete_stack(StackName=stack)
    (failed,) = cloudformation.describe_stacks(StackName=stack)["Stacks"]
    assert failed["StackStatus"] == "DELETE_FAILED"

    command = ("destroy", "gpu-batch-benchmark", "--env", stack, "--yes")
    refused = site(*command, code=2)
    assert "is not empty: --empty-buckets" in refused.stderr
    done = site(*command, "--empty-buckets")
    assert done.stdout == f"{stack}: deleted\n"
    with pytest.raises(cloudformation.exceptions.ClientError, match="does not exist"):
        cloudformation.describe_stacks(StackName=stack)
    assert "nothing to do" in site(*command).stdout


def test_a_stack_of_somebody_else_with_the_name_of_the_environment_stays(site: Site) -> None:
    cloudformation = site.endpoint.client("cloudformation")
    body = '{"Description": "batchyard: other", "Resources": {"B": {"Type": "AWS::S3::Bucket"}}}'
    cloudformation.create_stack(StackName=site.env, TemplateBody=body)
    for words in ((), ("gpu-batch-benchmark",)):
        assert "nothing to do" in site.about("destroy", *words, "--yes").stdout
    (stack,) = cloudformation.describe_stacks(StackName=site.env)["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    assert "no name for a stack" in (
        site("destroy", "gpu-batch-benchmark", "--env", "a b", code=2).stderr
    )
