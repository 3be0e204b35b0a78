"""`destroy` by the real command, on the localhost endpoint; that things are gone is asked of the
services themselves.

Not shown here, since the endpoint has no such thing: nodes that must end first, protection of
instances, deletions that take their time. A log group that jobs have written to is still listed
afterwards: the endpoint keeps their output.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from emulator_endpoint import until
from site_of_stacks import CORE, Site


@pytest.mark.slow
def test_everything_goes_and_what_holds_data_is_asked_about(site: Site) -> None:
    site.about("deploy", "--yes", "--set", "Placement=private")
    outputs = site.outputs()
    (site.folder / "pipeline.yaml").write_text(
        "name: hello\nimage: x\nsteps:\n  - {name: one, command: echo hi}\n"
    )
    site.about("run", "pipeline.yaml", "--engine", "aws")

    refused = site.about("destroy", "--yes", code=2)
    assert "nothing was deleted" in refused.stderr and "--empty-buckets" in refused.stderr
    declined = site.about("destroy", "--empty-buckets", answers="n\n", code=130)
    assert f"bucket {outputs['Bucket']}" in declined.stderr and "objects" in declined.stderr
    assert len(site.stacks()) == len(CORE)

    done = site.about("destroy", "--empty-buckets", answers="yes\n")
    order = [f"{site.env}-{name}" for name in reversed(CORE)]
    assert done.stdout == f"{', '.join(order)}: deleted\n"
    ended = [
        line.partition(":")[0]
        for line in done.stderr.splitlines()
        if "DELETE_COMPLETE after" in line
    ]
    assert ended == order
    assert "kept" not in done.stderr
    _nothing_is_left(site, outputs)
    assert site.stacks() == {}
    assert site.env not in site("environments").stdout
    # Already gone is as good.
    assert "nothing to do" in site.about("destroy").stdout


def _nothing_is_left(site: Site, outputs: dict[str, str]) -> None:
    ec2, batch = site.endpoint.client("ec2"), site.endpoint.batch
    in_vpc = [{"Name": "vpc-id", "Values": [outputs["Vpc"]]}]
    assert ec2.describe_vpcs(Filters=in_vpc)["Vpcs"] == []
    assert ec2.describe_subnets(Filters=in_vpc)["Subnets"] == []
    assert ec2.describe_route_tables(Filters=in_vpc)["RouteTables"] == []
    assert ec2.describe_security_groups(Filters=in_vpc)["SecurityGroups"] == []
    gateways = ec2.describe_internet_gateways()["InternetGateways"]
    assert not [
        one
        for one in gateways
        if any(tag["Value"] == f"{site.env}-batchyard" for tag in one["Tags"])
    ]
    nats = ec2.describe_nat_gateways(Filters=in_vpc)["NatGateways"]
    assert {one["State"] for one in nats} <= {"deleted"}
    assert not [
        one
        for one in ec2.describe_addresses()["Addresses"]
        if site.env in json.dumps(one.get("Tags", []))
    ]
    templates = ec2.describe_launch_templates()["LaunchTemplates"]
    assert not [one for one in templates if one["LaunchTemplateName"].startswith(site.env)]
    buckets = [one["Name"] for one in site.endpoint.client("s3").list_buckets()["Buckets"]]
    assert outputs["Bucket"] not in buckets
    repositories = site.endpoint.client("ecr").describe_repositories()["repositories"]
    assert not [one for one in repositories if one["repositoryName"].startswith(f"{site.env}/")]
    iam = site.endpoint.client("iam")
    assert not [
        one for one in iam.list_roles()["Roles"] if one["RoleName"].startswith(f"{site.env}-")
    ]
    assert not [
        one
        for one in iam.list_policies(Scope="Local")["Policies"]
        if one["PolicyName"].startswith(site.env)
    ]
    assert not [
        one for one in iam.list_instance_profiles()["InstanceProfiles"] if site.env in one["Arn"]
    ]
    until(
        lambda: [
            one["status"]
            for one in batch.describe_job_queues(jobQueues=[outputs["CpuQueue"]])["jobQueues"]
        ],
        lambda states: states in ([], ["DELETED"]),
    )
    found = batch.describe_compute_environments()["computeEnvironments"]
    of_ours = [one for one in found if one["tags"].get("batchyard:environment") == site.env]
    assert [one["status"] for one in of_ours if one["status"] not in ("DELETED", "DELETING")] == []
    active = batch.get_paginator("describe_job_definitions").paginate(status="ACTIVE")
    names = [one["jobDefinitionName"] for page in active for one in page["jobDefinitions"]]
    assert not [name for name in names if name.startswith(f"{site.env}_")], (
        "those that runs registered go too"
    )


def test_an_environment_of_the_file_is_told_apart_from_one_that_is_deployed(site: Site) -> None:
    assert "environments.yaml" not in site.about("destroy", "--yes").stderr
    (site.folder / ".batchyard").mkdir()
    file = site.folder / ".batchyard/environments.yaml"
    file.write_text(
        f"environments:\n  {site.env}:\n    region: us-east-1\n    bucket: lab-runs\n"
        f"    queues: {{cpu: lab-cpu}}\n"
    )
    done = site.about("destroy", "--yes")
    assert (
        f"{site.env} is an environment of {file}: its resources were not deployed by batchyard,"
        " and are not deleted" in done.stderr
    )
    file.write_text("environments: 3\n")
    assert "nothing to do" in site.about("destroy", "--yes").stdout


@pytest.mark.slow
def test_every_version_in_a_bucket_goes(site: Site) -> None:
    site.about("deploy", "storage", "--yes")
    bucket = site.outputs()["Bucket"]
    s3 = site.endpoint.client("s3")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    for text in (b"a", b"b"):
        s3.put_object(Bucket=bucket, Key="kept/results.txt", Body=text)
    s3.delete_object(Bucket=bucket, Key="kept/results.txt")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
    # Two versions and the mark of a deletion: an empty listing is no empty bucket.
    assert "3 objects" in site.about("destroy", "--yes", code=2).stderr
    done = site.about("destroy", "--yes", "--empty-buckets")
    assert f"3 objects deleted from {bucket}" in done.stderr
    with pytest.raises(ClientError, match=r"404|Not Found"):
        s3.head_bucket(Bucket=bucket)


@pytest.mark.slow
def test_images_are_not_deleted_unless_that_is_said(site: Site) -> None:
    site.about("deploy", "registry", "--yes")
    ecr = site.endpoint.client("ecr")
    name = f"{site.env}/pipelines"
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "layers": [],
    }
    ecr.put_image(repositoryName=name, imageManifest=json.dumps(manifest), imageTag="latest")
    refused = site.about("destroy", "--yes", "--empty-buckets", code=2)
    assert f"repository {name}" in refused.stderr and "1 image," in refused.stderr
    assert "--delete-images" in refused.stderr
    assert len(ecr.describe_images(repositoryName=name)["imageDetails"]) == 1
    site.about("destroy", "--yes", "--delete-images")
    with pytest.raises(ecr.exceptions.RepositoryNotFoundException):
        ecr.describe_repositories(repositoryNames=[name])


@pytest.mark.slow
def test_exports_that_others_use_keep_a_stack(site: Site) -> None:
    site.about("deploy", "network", "--yes")
    subnets = {"Fn::Select": [0, {"Fn::Split": [",", {"Fn::ImportValue": f"{site.env}-subnets"}]}]}
    body: Any = {
        "Resources": {
            "L": {
                "Type": "AWS::Logs::LogGroup",
                "Properties": {"LogGroupName": {"Fn::Sub": ["${S}-x", {"S": subnets}]}},
            }
        }
    }
    cloudformation = site.endpoint.client("cloudformation")
    user = f"notebooks-{site.env}"
    cloudformation.create_stack(StackName=user, TemplateBody=json.dumps(body))
    refused = site.about("destroy", "--yes", code=2)
    assert f"the export {site.env}-subnets is in use by {user}" in refused.stderr
    assert site.stacks() == {f"{site.env}-network": "CREATE_COMPLETE"}
    # Between our own stacks it is said too, before anything is touched.
    site.about("deploy", "--yes")
    refused = site.about("destroy", "storage", "--yes", code=2)
    assert f"in use by {site.env}-batch, {site.env}-iam" in refused.stderr
    cloudformation.delete_stack(StackName=user)
    site.about("destroy", "--yes")
    assert site.stacks() == {}


@pytest.mark.slow
def test_jobs_that_are_not_over_are_named(site: Site) -> None:
    site.about("deploy", "--yes")
    queue = f"{site.env}-cpu"
    site.endpoint.run("sleep", "600", queue=queue)
    done = site.about("destroy", answers="n\n", code=130)
    assert f"queue {queue}" in done.stderr and "1 job that is not over" in done.stderr
    site.about("destroy", "--yes")
    assert site.stacks() == {}


def test_one_stack_of_several(site: Site) -> None:
    site.about("deploy", "network", "storage", "--yes")
    group = site.outputs()["LogGroup"]
    site.about("destroy", "storage", "--yes")
    assert site.endpoint.logs.describe_log_groups(logGroupNamePrefix=group)["logGroups"] == []
    assert site.stacks() == {f"{site.env}-network": "CREATE_COMPLETE"}


def test_a_stack_that_was_never_made_goes_too(site: Site) -> None:
    site.endpoint.client("ecr").create_repository(repositoryName=f"{site.env}/pipelines")
    site.about("deploy", "registry", "--yes", code=3)
    assert site.stacks() == {f"{site.env}-registry": "ROLLBACK_COMPLETE"}
    site.about("destroy", "--yes")
    assert site.stacks() == {}
    # What was there before was never the stack's.
    site.endpoint.client("ecr").describe_repositories(repositoryNames=[f"{site.env}/pipelines"])


@pytest.mark.slow
def test_log_streams_and_services_are_listed(site: Site) -> None:
    site.about("deploy", "--yes")
    # The stack waits for the tasks of its service.
    service = ("ServiceTasks=2", "TaskCommand=sleep,600", "TaskCpuUnits=128", "TaskMemoryMiB=512")
    site.about("deploy", "ecs", "--yes", *(f"--set={value}" for value in service))
    logs, group = site.endpoint.logs, f"/batchyard/{site.env}/ecs"
    # A stream beside those of the two tasks, whose bytes CloudWatch Logs has not counted yet.
    logs.create_log_stream(logGroupName=group, logStreamName="task/main/1")
    done = site.about("destroy", answers="n\n", code=130)
    rows = [" ".join(line.split()) for line in done.stderr.splitlines()]
    assert f"{site.env}-ecs log group {group} 3 log streams" in rows
    assert f"{site.env}-ecs service {site.env}-gpu-service 2 tasks that it keeps running" in rows
    # Other tests use this endpoint too.
    site.endpoint.client("ecs").delete_service(
        cluster=f"{site.env}-ecs", service=f"{site.env}-gpu-service", force=True
    )
