"""`environments` lists also what is there in part, says what is missing, and how to go on."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from site_of_stacks import CORE, Site

from batchyard.infra import read_template


def listed(site: Site) -> Any:
    """As JSON; None where it is not there."""
    found = {one["name"]: one for one in json.loads(site("environments", "--json").stdout)}
    return found.get(site.env)


def line(site: Site) -> str:
    (found,) = [
        line for line in site("environments").stdout.splitlines() if line.startswith(f"{site.env} ")
    ]
    return found


def command_in(text: str) -> list[str]:
    """What stands there to be typed."""
    return shlex.split(text.partition("`batchyard ")[2].partition("`")[0])


@pytest.mark.slow
def test_a_first_stack_that_could_not_be_made(site: Site) -> None:
    """It exports nothing, and what is left of it has to be mended all the same."""
    ecr = site.endpoint.client("ecr")
    ecr.create_repository(repositoryName=f"{site.env}/benchmark")
    site.about("deploy", "registry", "--yes", code=3)
    assert listed(site) == {
        "name": site.env,
        "source": "deployed",
        "region": "us-east-1",
        "templates": [],
        "missing": ["network", "storage", "iam", "registry", "batch"],
        "unfinished": {"registry": "ROLLBACK_COMPLETE"},
    }
    shown = line(site)
    assert (
        "in part only: registry is ROLLBACK_COMPLETE; network, storage, iam, batch missing" in shown
    )
    # The command that it names makes it whole.
    assert command_in(shown) == ["deploy", "--env", site.env]
    ecr.delete_repository(repositoryName=f"{site.env}/benchmark")
    site(*command_in(shown), "--yes")
    assert (listed(site)["missing"], listed(site)["unfinished"]) == ([], {})
    assert "in part" not in line(site)


@pytest.mark.slow
def test_a_deployment_that_was_interrupted(site: Site) -> None:
    site.killed("deploy", "--yes", at="-storage: CREATE_COMPLETE")
    shown = line(site)
    assert "network, storage" in shown and "registry, batch missing" in shown
    site(*command_in(shown), "--yes")
    assert listed(site)["templates"] == list(CORE)
    site.killed("destroy", "--yes", at="-batch: DELETE_COMPLETE")
    assert "batch missing" in line(site)


def test_what_is_not_ours_or_was_never_begun_is_not_listed(site: Site) -> None:
    cloudformation = site.endpoint.client("cloudformation")
    bucket = json.dumps(
        {"Description": "a shop", "Resources": {"Bucket": {"Type": "AWS::S3::Bucket"}}}
    )
    cloudformation.create_stack(StackName=f"{site.env}-storage", TemplateBody=bucket)
    cloudformation.create_change_set(
        StackName=f"{site.env}-network",
        ChangeSetName="batchyard-left-behind",
        ChangeSetType="CREATE",
        TemplateBody=read_template("network"),
        Parameters=[{"ParameterKey": "Env", "ParameterValue": site.env}],
    )
    assert listed(site) is None


def test_a_name_near_to_one_that_is_there_in_part_is_offered(site: Site) -> None:
    ecr = site.endpoint.client("ecr")
    ecr.create_repository(repositoryName=f"{site.env}/benchmark")
    site.about("deploy", "registry", "--yes", code=3)
    said = site("outputs", "--env", f"{site.env}x", code=2).stderr
    assert f"did you mean '{site.env}'?" in said
