"""A misspelled environment without a region to search in; a list of commands without an image."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from cloud_lab import Lab

STACK = {
    "Description": "batchyard: as far as its name goes",
    "Resources": {"Log": {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": "prod"}}},
    "Outputs": {"CpuQueue": {"Value": "queue", "Export": {"Name": "prod-cpu-queue"}}},
}
NO_REGION = {"AWS_REGION": "", "AWS_CONFIG_FILE": "/dev/null"}


@pytest.fixture(autouse=True)
def pipeline(lab: Lab) -> None:
    lab.write(
        "pipeline.yaml", "name: p\nimage: x\nsteps: [{name: a, memory: 64MiB, command: 'true'}]\n"
    )


@pytest.fixture
def deployed(lab: Lab) -> Iterator[None]:
    """An environment `prod`, as far as its name goes."""
    client = lab.endpoint.client("cloudformation")
    client.create_stack(StackName="prod-batch", TemplateBody=json.dumps(STACK))
    yield
    client.delete_stack(StackName="prod-batch")


@pytest.mark.usefixtures("deployed")
def test_a_name_near_to_a_deployed_one(lab: Lab) -> None:
    for command in (("run", "pipeline.yaml", "--engine", "aws"), ("runs",), ("outputs",)):
        said = lab(*command, "--env", "prodd", code=2).stderr
        assert "did you mean 'prod'?" in said and "batchyard deploy" not in said
        said = lab(*command, "--env", "quite-other", code=2).stderr
        assert "batchyard deploy --env quite-other" in said and "did you mean" not in said


def test_no_region_to_look_in(lab: Lab) -> None:
    lab.environ.pop("AWS_DEFAULT_REGION", None)
    run = ("run", "pipeline.yaml", "--engine", "aws", "--env")
    said = lab(*run, "lap", code=2, environ=NO_REGION).stderr
    assert "there is no environment 'lap' in " in said and "did you mean 'lab'?" in said
    assert (
        "set AWS_REGION" in said
        and "`batchyard emulate` prints" in said
        and "with --env" not in said
    )
    said = lab(*run, "quite-other", code=2, environ=NO_REGION).stderr
    assert "the file has lab." in said and "To look for deployed environments" in said
    said = lab("outputs", "--env", "lab", code=2, environ=NO_REGION).stderr
    assert "no AWS region is set, so the stacks of environment 'lab' cannot be found" in said
    assert (
        "set AWS_REGION" in said
        and "`batchyard emulate` prints" in said
        and "with --env" not in said
    )
    (lab.folder / ".batchyard" / "environments.yaml").unlink()
    assert "the file has none." in lab(*run, "lab", code=2, environ=NO_REGION).stderr


@pytest.mark.slow
def test_a_list_without_an_image(lab: Lab) -> None:
    lab.write("list.txt", "echo a\necho b\n")
    command = ("run", "list.txt", "--engine", "aws", "--env", "lab", "--detach")
    said = lab(*command, code=2).stderr
    assert "no image is named" in said and "--image NAME:TAG" in said and "`image:`" not in said
    assert lab.json("runs") == []
    assert lab.ended(lab(*command, "--image", "busybox").stdout.strip()) == "SUCCEEDED"
