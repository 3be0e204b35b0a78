"""`deploy`, `diff`, `outputs` and `environments` by the real command, on the localhost endpoint.

Every result is read back with describe calls of the service that owns it: a stack's status proves
nothing here. What the endpoint cannot show, and this does not show either: the effect of roles
and policies (nobody is refused anything); nodes, their user data, and what launch templates do;
public addresses of subnets, scanning and lifecycles of images, which moto drops; replacements in
a change set; changes that are in progress for a while (they are in
tests/unit/infra/test_stack_following.py); EC2 Image Builder (passed over); Spot Fleets by launch
templates (refused).
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from emulator_endpoint import until
from site_of_stacks import CORE, Site

import prestarted

PIPELINE = """
name: hello
image: busybox
steps:
  - name: one
    command: echo first
  - name: many
    needs: [one]
    command: echo child $AWS_BATCH_JOB_ARRAY_INDEX in $AWS_BATCH_JQ_NAME
    array: 3
"""


def test_the_core_is_what_the_templates_say(site: Site) -> None:
    done = site.about("deploy", "--yes")
    assert site.stacks() == {f"{site.env}-{name}": "CREATE_COMPLETE" for name in CORE}
    # In order, with what was done, and IAM marked.
    heads = [line.partition(":")[0] for line in done.stderr.splitlines() if " added" in line]
    assert heads == [f"{site.env}-{name}" for name in CORE]
    assert "created    Vpc (AWS::EC2::VPC)" in done.stderr
    assert "+ JobRole              AWS::IAM::Role  [IAM]" in done.stderr
    assert "NatSubnet" not in done.stderr, "what a condition keeps out is not added"
    assert "account 123456789012, region us-east-1" in done.stderr
    outputs = site.outputs()
    _look_at_network(site, outputs)
    _look_at_storage(site, outputs)
    _look_at_registry_and_roles(site, outputs)
    _look_at_batch(site, outputs)


def _look_at_network(site: Site, outputs: dict[str, str]) -> None:
    ec2 = site.endpoint.client("ec2")
    ids = outputs["Subnets"].split(",")
    subnets = ec2.describe_subnets(SubnetIds=ids)["Subnets"]
    assert {one["VpcId"] for one in subnets} == {outputs["Vpc"]}
    assert len({one["AvailabilityZone"] for one in subnets}) == 3
    tags = {tag["Key"]: tag["Value"] for tag in subnets[0]["Tags"]}
    assert tags["batchyard:environment"] == site.env
    tables = ec2.describe_route_tables(Filters=[{"Name": "association.subnet-id", "Values": ids}])[
        "RouteTables"
    ]
    assert any(
        route.get("GatewayId", "").startswith("igw-")
        for table in tables
        for route in table["Routes"]
    )
    (endpoint,) = ec2.describe_vpc_endpoints(
        Filters=[{"Name": "vpc-id", "Values": [outputs["Vpc"]]}]
    )["VpcEndpoints"]
    assert endpoint["ServiceName"] == "com.amazonaws.us-east-1.s3"
    (group,) = ec2.describe_security_groups(GroupIds=[outputs["SecurityGroup"]])["SecurityGroups"]
    assert group["IpPermissions"] == [] and group["IpPermissionsEgress"]


def _look_at_storage(site: Site, outputs: dict[str, str]) -> None:
    s3 = site.endpoint.client("s3")
    bucket = outputs["Bucket"]
    (rule,) = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    (statement,) = json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"]
    assert (statement["Effect"], statement["Sid"]) == ("Deny", "TlsOnly")
    groups = site.endpoint.logs.describe_log_groups(logGroupNamePrefix=outputs["LogGroup"])[
        "logGroups"
    ]
    assert [(one["logGroupName"], one.get("retentionInDays")) for one in groups] == [
        (f"/batchyard/{site.env}/jobs", 30)
    ]


def _look_at_registry_and_roles(site: Site, outputs: dict[str, str]) -> None:
    ecr, iam = site.endpoint.client("ecr"), site.endpoint.client("iam")
    names = [f"{site.env}/pipelines", f"{site.env}/benchmark"]
    found = ecr.describe_repositories(repositoryNames=names)["repositories"]
    assert outputs["Repository"] in {one["repositoryUri"] for one in found}
    roles = {one["Arn"]: one["RoleName"] for one in iam.list_roles()["Roles"]}
    attached = iam.list_attached_role_policies(RoleName=roles[outputs["ExecutionRoleArn"]])[
        "AttachedPolicies"
    ]
    assert [one["PolicyName"] for one in attached] == ["AmazonECSTaskExecutionRolePolicy"]
    job = iam.get_role_policy(RoleName=roles[outputs["JobRoleArn"]], PolicyName="runs")[
        "PolicyDocument"
    ]
    assert job["Statement"][1]["Resource"] == f"arn:aws:s3:::{outputs['Bucket']}/runs/*"
    policy = iam.get_policy(PolicyArn=outputs["SubmitterPolicyArn"])["Policy"]
    assert policy["Description"] == f"Run, watch and stop pipelines in {site.env}"


def _look_at_batch(site: Site, outputs: dict[str, str]) -> None:
    spot, on_demand = (
        site.compute_environment("cpu-spot"),
        site.compute_environment("cpu-on-demand"),
    )
    resources = spot["computeResources"]
    assert (resources["maxvCpus"], resources["type"]) == (256, "SPOT")
    assert resources["allocationStrategy"] == "SPOT_PRICE_CAPACITY_OPTIMIZED"
    assert resources["subnets"] == outputs["Subnets"].split(",")
    assert resources["securityGroupIds"] == [outputs["SecurityGroup"]]
    assert resources["instanceRole"] == outputs["InstanceProfileArn"]
    queues = site.endpoint.batch.describe_job_queues(
        jobQueues=[outputs["CpuQueue"], outputs["CpuOnDemandQueue"]]
    )
    first, second = sorted(queues["jobQueues"], key=lambda queue: queue["priority"])
    assert (first["jobQueueName"], first["state"]) == (f"{site.env}-cpu", "ENABLED")
    order = [
        one["computeEnvironment"]
        for one in sorted(first["computeEnvironmentOrder"], key=lambda o: o["order"])
    ]
    assert order == [spot["computeEnvironmentArn"], on_demand["computeEnvironmentArn"]]
    assert [one["computeEnvironment"] for one in second["computeEnvironmentOrder"]] == order[1:]
    (definition,) = site.endpoint.batch.describe_job_definitions(
        jobDefinitions=[outputs["GpuJobDefinition"]]
    )["jobDefinitions"]
    assert definition["containerProperties"]["jobRoleArn"] == outputs["JobRoleArn"]


@pytest.mark.slow
def test_a_pipeline_runs_on_the_queues_that_were_made(site: Site) -> None:
    site.about("deploy", "--yes")
    (site.folder / "pipeline.yaml").write_text(PIPELINE)
    run = json.loads(site.about("run", "pipeline.yaml", "--engine", "aws", "--json").stdout)
    assert (run["state"], [step["succeeded"] for step in run["steps"]]) == ("SUCCEEDED", [1, 3])
    log = site("logs", "last").stdout
    assert "first" in log and f"child 2 in {site.env}-cpu" in log
    jobs = site.endpoint.batch.list_jobs(jobQueue=f"{site.env}-cpu", jobStatus="SUCCEEDED")[
        "jobSummaryList"
    ]
    assert len(jobs) == 2
    parts = site.endpoint.batch.describe_jobs(jobs=[job["jobId"] for job in jobs])["jobs"]
    outputs = site.outputs()
    assert {job["jobDefinition"].rpartition("/")[2].partition("-")[0] for job in parts} == {
        f"{site.env}_step"
    }
    assert {job["container"]["jobRoleArn"] for job in parts} == {outputs["JobRoleArn"]}
    options = {job["container"]["logConfiguration"]["options"]["awslogs-group"] for job in parts}
    assert options == {outputs["LogGroup"]}
    keys = site.endpoint.client("s3").list_objects_v2(Bucket=outputs["Bucket"])["Contents"]
    assert all(one["Key"].startswith("runs/") for one in keys)


@pytest.mark.slow
def test_public_nodes_become_private_ones_and_public_again(site: Site) -> None:
    site.about("deploy", "network", "--yes")
    ec2, ids = site.endpoint.client("ec2"), site.outputs()["Subnets"].split(",")

    def ways_out() -> list[dict[str, Any]]:
        tables = ec2.describe_route_tables(
            Filters=[{"Name": "association.subnet-id", "Values": ids}]
        )["RouteTables"]
        routes = [route for table in tables for route in table["Routes"]]
        return [route for route in routes if route.get("DestinationCidrBlock") == "0.0.0.0/0"]

    def have_addresses() -> set[bool]:
        return {
            one["MapPublicIpOnLaunch"] for one in ec2.describe_subnets(SubnetIds=ids)["Subnets"]
        }

    (out,) = ways_out()
    assert out["GatewayId"].startswith("igw-") and have_addresses() == {True}
    site.about("deploy", "network", "--yes", "--set", "Placement=private")
    (out,) = ways_out()
    assert out["NatGatewayId"].startswith("nat-") and have_addresses() == {False}
    site.about("deploy", "network", "--yes", "--set", "Placement=public")
    (out,) = ways_out()
    assert out["GatewayId"].startswith("igw-") and have_addresses() == {True}


def test_nodes_without_a_way_out_have_endpoints(site: Site) -> None:
    site.about("deploy", "network", "--yes", "--set", "Placement=endpoints", "--set", "Zones=2")
    ec2, outputs = site.endpoint.client("ec2"), site.outputs()
    endpoints = ec2.describe_vpc_endpoints(
        Filters=[{"Name": "vpc-id", "Values": [outputs["Vpc"]]}]
    )["VpcEndpoints"]
    assert len(endpoints) == 8
    tables = ec2.describe_route_tables(
        Filters=[{"Name": "association.subnet-id", "Values": outputs["Subnets"].split(",")}]
    )["RouteTables"]
    routes = [route for table in tables for route in table["Routes"]]
    assert [route for route in routes if route.get("DestinationCidrBlock") == "0.0.0.0/0"] == []
    done = site.about("deploy", "network", "--yes", "--set", "Placement=public")
    assert "- EcsEndpoint" in done.stderr and "+ RouteOut" in done.stderr


@pytest.mark.slow
def test_zones_are_added_while_stacks_use_the_subnets_and_none_is_taken_away(site: Site) -> None:
    site.about("deploy", "--yes", "--set", "Zones=2")
    arn = site.compute_environment("cpu-spot")["computeEnvironmentArn"]
    done = site.about("deploy", "--yes", "--set", "Zones=4")
    assert "+ SubnetD" in done.stderr and "~ CpuSpot" in done.stderr
    spot = site.compute_environment("cpu-spot")
    assert spot["computeResources"]["subnets"] == site.outputs()["Subnets"].split(",")
    assert len(spot["computeResources"]["subnets"]) == 4
    assert spot["computeEnvironmentArn"] == arn, "nothing is built anew"
    refused = site.about("deploy", "network", "--yes", "--set", "Zones=3", code=2).stderr
    assert f"{site.env}-network: SubnetD may have nodes of {site.env}-batch" in refused
    assert site.stacks()[f"{site.env}-network"] == "UPDATE_COMPLETE", "nothing was begun"


@pytest.mark.slow
def test_an_export_that_others_use_is_not_tried_to_be_changed(site: Site) -> None:
    site.about("deploy", "network", "--yes", "--set", "Zones=2")
    body = {
        "Resources": {
            "L": {
                "Type": "AWS::Logs::LogGroup",
                "Properties": {
                    "LogGroupName": {
                        "Fn::Join": [
                            "-",
                            {"Fn::Split": [",", {"Fn::ImportValue": f"{site.env}-subnets"}]},
                        ]
                    }
                },
            }
        }
    }
    user = f"notebooks-{site.env}"
    aws = site.endpoint.client("cloudformation")
    aws.create_stack(StackName=user, TemplateBody=json.dumps(body))
    words = f"{site.env}-network: AWS does not change {site.env}-subnets while {user} uses it"
    assert words in site.about("diff", "network", "--set", "Zones=3", code=None).stderr
    refused = site.about("deploy", "network", "--yes", "--set", "Zones=3", code=2).stderr
    assert words in refused and "batchyard destroy" in refused
    assert site.stacks()[f"{site.env}-network"] == "CREATE_COMPLETE", "nothing was begun"
    # Where nobody uses it any more, it is changed.
    aws.delete_stack(StackName=user)
    site.about("deploy", "network", "--yes", "--set", "Zones=3")
    assert len(site.outputs()["Subnets"].split(",")) == 3


@pytest.mark.slow
def test_a_new_image_reaches_the_self_managed_nodes(site: Site) -> None:
    site.about("deploy", "--yes")
    ssm, name = site.endpoint.client("ssm"), f"/{site.env}/gpu-image"
    ssm.put_parameter(Name=name, Value="ami-0a", Type="String")
    site.about("deploy", "batch-unmanaged", "--yes", "--set", f"ImageId={name}")
    assert "nothing to do" in site.about("deploy", "batch-unmanaged", "--yes").stderr
    ssm.put_parameter(Name=name, Value="ami-0b", Type="String", Overwrite=True)
    done = site.about("deploy", "batch-unmanaged", "--yes")
    assert "~ LaunchTemplate" in done.stderr
    # The group has the new version of the launch template.
    assert "changed    Nodes (AWS::AutoScaling::AutoScalingGroup)" in done.stderr


@pytest.mark.slow
def test_tags_and_parameters_from_a_file(site: Site) -> None:
    (site.folder / "lab.yaml").write_text(
        "parameters:\n  Zones: 2\n  TeamQueues: true\ntags:\n  team: vision\n"
    )
    words = ("deploy", "network", "--yes", "--params", "lab.yaml")
    site.about(*words, "--tag", "cost-centre=17")
    outputs, aws = site.outputs(), site.endpoint.client("cloudformation")
    assert len(outputs["Subnets"].split(",")) == 2

    def tags() -> dict[str, str]:
        (stack,) = aws.describe_stacks(StackName=f"{site.env}-network")["Stacks"]
        return {tag["Key"]: tag["Value"] for tag in stack["Tags"]}

    expected = {"team": "vision", "cost-centre": "17", "batchyard:environment": site.env}
    assert tags() == expected
    (vpc,) = site.endpoint.client("ec2").describe_vpcs(VpcIds=[outputs["Vpc"]])["Vpcs"]
    assert expected.items() <= {tag["Key"]: tag["Value"] for tag in vpc["Tags"]}.items()
    # Earlier tags stay, and without a change there is nothing to do.
    assert "nothing to do" in site.about("deploy", "network", "--yes").stdout
    site.about("deploy", "network", "--yes", "--tag", "team=audio")
    assert tags() == {**expected, "team": "audio"}


def test_mistakes_in_a_parameter_file_have_line_and_column(site: Site) -> None:
    (site.folder / "lab.yaml").write_text(
        "parameters:\n  Zone: 2\n  Zones: 9\n  Env: x\ntags:\n  aws:x: y\nparms: {}\n"
    )
    done = site.about("diff", "--params", "lab.yaml", code=2)
    assert 'lab.yaml:2:3: no template has a parameter "Zone"; did you mean "Zones"?' in done.stderr
    assert "lab.yaml:3:10: Zones: it must be one of 2, 3, 4" in done.stderr
    assert "lab.yaml:4:3: the name of the environment is no parameter" in done.stderr
    assert 'lab.yaml:6:3: the tag "aws:x": names that begin with aws:' in done.stderr
    assert 'lab.yaml:7:1: unknown key "parms"' in done.stderr
    assert "none.yaml" in site.about("diff", "--params", "none.yaml", code=2).stderr
    assert "--tag 'team' is not of the form" in site.about("diff", "--tag", "team", code=2).stderr


def test_profile_and_region_are_flags(site: Site) -> None:
    config = site.folder / "config"
    config.write_text("[profile lab]\naws_access_key_id = x\naws_secret_access_key = x\n")
    environ = {**site.endpoint.environ, "AWS_CONFIG_FILE": str(config)}
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        environ.pop(name, None)
    done = site.about(
        "diff", "storage", "--region", "us-east-1", "--profile", "lab", environ=environ
    )
    assert "region us-east-1" in done.stderr
    wrong = site.about("diff", "--region", "us-east-1", "--profile", "no", environ=environ, code=2)
    assert "The config profile (no) could not be found" in wrong.stderr


def test_a_newer_image_of_ones_own_reaches_the_nodes_by_its_version(site: Site) -> None:
    ssm, name = site.endpoint.client("ssm"), f"/{site.env}/gpu-image"
    ssm.put_parameter(Name=name, Value="ami-0a", Type="String")
    site.about("deploy", "--yes", "--set", f"GpuImageParameter={name}")

    def image() -> str:
        (one,) = site.compute_environment("gpu-spot")["computeResources"]["ec2Configuration"]
        return str(one["imageIdOverride"])

    assert image() == "ami-0a"
    version = ssm.put_parameter(Name=name, Value="ami-0b", Type="String", Overwrite=True)["Version"]
    site.about("deploy", "batch", "--yes", "--set", f"GpuImageVersion={version}")
    assert image() == "ami-0b"


@pytest.mark.slow
def test_an_update_changes_in_place_and_stays(site: Site) -> None:
    site.about("deploy", "--yes")
    before = site.compute_environment("cpu-spot")
    done = site.about("deploy", "batch", "--set", "CpuSpotMaxvCpus=300", answers="y\n")
    assert "CpuSpotMaxvCpus: 256 -> 300" in done.stderr
    assert "~ CpuSpot  AWS::Batch::ComputeEnvironment" in done.stderr
    assert "make this change" in done.stderr and "UPDATE_COMPLETE after" in done.stderr
    after = site.compute_environment("cpu-spot")
    assert after["computeResources"]["maxvCpus"] == 300
    assert after["computeEnvironmentArn"] == before["computeEnvironmentArn"]
    assert site.compute_environment("cpu-on-demand")["computeResources"]["maxvCpus"] == 128
    # What was set once stays set, and there is nothing to ask.
    again = site.about("deploy")
    assert again.stdout == f"environment {site.env} is up to date: nothing to do\n"
    assert again.stderr.count("nothing to do") == len(CORE)
    assert site.compute_environment("cpu-spot")["computeResources"]["maxvCpus"] == 300


@pytest.mark.slow
def test_team_queues_come_and_go_with_their_parameter(site: Site) -> None:
    site.about("deploy", "--yes", "--set", "TeamQueues=true")
    batch = site.endpoint.batch
    queue = f"{site.env}-team-cpu"
    (found,) = batch.describe_job_queues(jobQueues=[queue])["jobQueues"]
    policies = batch.describe_scheduling_policies(arns=[found["schedulingPolicyArn"]])[
        "schedulingPolicies"
    ]
    assert [one["name"] for one in policies] == [f"{site.env}-fair-share"]
    done = site.about("deploy", "batch", "--yes", "--set", "TeamQueues=false")
    assert "- TeamCpuQueue  AWS::Batch::JobQueue" in done.stderr and "- FairShare" in done.stderr
    until(
        lambda: [
            one["status"] for one in batch.describe_job_queues(jobQueues=[queue])["jobQueues"]
        ],
        lambda states: states in ([], ["DELETED"]),
    )
    assert (
        batch.describe_scheduling_policies(arns=[found["schedulingPolicyArn"]])[
            "schedulingPolicies"
        ]
        == []
    )


# -- questions -----------------------------------------------------------------------------------


def test_no_stops_before_anything_is_made(site: Site) -> None:
    done = site.about("deploy", answers="n\n", code=130)
    assert f"{site.env}-network is left as it is" in done.stderr
    assert site.stacks() == {}


def test_without_an_answer_nothing_is_made(site: Site) -> None:
    done = site.about("deploy", code=2)
    assert "--yes answers every question" in done.stderr
    assert site.stacks() == {}


@pytest.mark.slow
def test_yes_and_no_and_then_it_goes_on(site: Site) -> None:
    site.about("deploy", answers="y\ny\nn\n", code=130)
    assert sorted(site.stacks()) == [f"{site.env}-network", f"{site.env}-storage"]
    vpc = site.outputs()["Vpc"]
    # Two are there; one answer is for all that follow.
    done = site.about("deploy", answers="a\n")
    assert done.stderr.count("nothing to do") == 2 and done.stderr.count("make this change") == 1
    assert len(site.stacks()) == len(CORE) and site.outputs()["Vpc"] == vpc


def test_what_an_interrupted_attempt_left_does_not_matter(site: Site) -> None:
    from batchyard.infra import read_template

    site.endpoint.client("cloudformation").create_change_set(
        StackName=f"{site.env}-network",
        ChangeSetName="batchyard-left-behind",
        ChangeSetType="CREATE",
        TemplateBody=read_template("network"),
        Parameters=[{"ParameterKey": "Env", "ParameterValue": site.env}],
    )
    assert site.stacks() == {f"{site.env}-network": "REVIEW_IN_PROGRESS"}
    site.about("deploy", "network", "--yes")
    assert site.stacks() == {f"{site.env}-network": "CREATE_COMPLETE"}
    site.endpoint.client("ec2").describe_vpcs(VpcIds=[site.outputs()["Vpc"]])


@pytest.mark.slow
def test_killed_again_and_again_it_goes_on(site: Site) -> None:
    # On a busy machine a kill comes late, and the next command finds more done than was meant.
    site.killed("deploy", "--yes", at="-network: 1")  # the change is shown, and not begun
    site.killed("deploy", "--yes", at="created    Vpc", or_at="-network: nothing to do")
    vpc = site.outputs()["Vpc"]
    done_before = "-storage: nothing to do"
    site.killed("deploy", "--yes", at="-storage: CREATE_COMPLETE", or_at=done_before)
    site.killed("deploy", "--yes", at="created    JobRole", or_at="-iam: nothing to do")
    done = site.about("deploy", "--yes")
    assert site.stacks() == {f"{site.env}-{name}": "CREATE_COMPLETE" for name in CORE}
    assert site.outputs()["Vpc"] == vpc, "what was there has not been made anew"
    assert f"{site.env}-network: nothing to do" in done.stderr
    assert "nothing to do" in site.about("deploy").stdout
    # And so does its opposite.
    site.killed("destroy", "--yes", at="-batch: DELETE_COMPLETE")
    site.about("destroy", "--yes")
    assert site.stacks() == {}


@pytest.mark.slow
def test_rights_change_with_a_parameter(site: Site) -> None:
    def attached() -> set[str]:
        found = iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
        return {one["PolicyName"] for one in found}

    site.about("deploy", "storage", "registry", "iam", "--yes")
    iam = site.endpoint.client("iam")
    profile = site.outputs()["InstanceProfileArn"].rpartition("/")[2]
    (one,) = iam.get_instance_profile(InstanceProfileName=profile)["InstanceProfile"]["Roles"]
    role = one["RoleName"]
    assert attached() == {"AmazonEC2ContainerServiceforEC2Role"}
    done = site.about("deploy", "iam", "--set", "SessionManager=true", "--yes")
    assert "~ InstanceRole  AWS::IAM::Role  [IAM]" in done.stderr
    assert attached() == {"AmazonEC2ContainerServiceforEC2Role", "AmazonSSMManagedInstanceCore"}
    site.about("deploy", "iam", "--set", "SessionManager=false", "--yes")
    assert attached() == {"AmazonEC2ContainerServiceforEC2Role"}


# -- before anything is made ---------------------------------------------------------------------


def test_what_cannot_work_with_what_is_deployed_is_refused(site: Site) -> None:
    site.about("deploy", "--yes")
    site.about("deploy", "image", "--yes", "--set", "VolumeGiB=200")
    own_image = f"GpuImageParameter=/{site.env}/gpu-image"
    refused = site.about("deploy", "batch", "--yes", "--set", own_image, code=2)
    assert f"the image of {site.env}-image has 200 GiB" in refused.stderr
    assert "--set GpuVolumeGiB=200" in refused.stderr


def test_zones_quotas_and_fixed_costs_are_told_first(site: Site) -> None:
    done = site.about("diff", "--set", "Placement=private", "--set", "Zones=4")
    lines = done.stderr.splitlines()
    assert "  NAT gateway with its address: $36.50" in lines
    assert any(line.startswith("fixed cost: $36.50 a month") for line in lines)
    assert any("us-east-1" in line and "2026-06-01" in line for line in lines)
    # moto knows no quotas of EC2: what could not be read is said.
    assert any(line.startswith("quotas were not read (L-") for line in lines)


# -- failures ------------------------------------------------------------------------------------


def test_a_failure_is_told_by_its_cause_and_the_next_deploy_makes_it_anew(site: Site) -> None:
    ecr = site.endpoint.client("ecr")
    ecr.create_repository(repositoryName=f"{site.env}/benchmark")
    done = site.about("deploy", "registry", "--yes", code=3)
    last, hint = done.stderr.splitlines()[-2:]
    assert last.startswith(
        f"batchyard: {site.env}-registry: BenchmarkImages (AWS::ECR::Repository) could not "
        f"be created"
    )
    assert "already exists" in last and "belongs to no stack" in hint
    assert site.stacks() == {f"{site.env}-registry": "ROLLBACK_COMPLETE"}
    names = [one["repositoryName"] for one in ecr.describe_repositories()["repositories"]]
    assert f"{site.env}/pipelines" not in names, "what was made is undone"
    ecr.delete_repository(repositoryName=f"{site.env}/benchmark")

    refused = site.about("deploy", "registry", answers="n\n", code=130)
    assert "an earlier attempt failed" in refused.stderr and "already exists" in refused.stderr
    site.about("deploy", "registry", answers="y\ny\n")
    assert site.stacks() == {f"{site.env}-registry": "CREATE_COMPLETE"}
    ecr.describe_repositories(repositoryNames=[f"{site.env}/pipelines", f"{site.env}/benchmark"])


def test_a_stack_of_somebody_else_is_left_alone(site: Site) -> None:
    body = {"Description": "shop", "Resources": {"B": {"Type": "AWS::S3::Bucket"}}}
    site.endpoint.client("cloudformation").create_stack(
        StackName=f"{site.env}-storage", TemplateBody=json.dumps(body)
    )
    assert "not batchyard's" in site.about("deploy", "storage", "--yes", code=2).stderr
    assert "not batchyard's" in site.about("destroy", "--yes", code=2).stderr
    assert site.stacks() == {f"{site.env}-storage": "CREATE_COMPLETE"}


def test_a_template_alone_names_what_it_needs(site: Site) -> None:
    done = site.about("deploy", "batch", "--yes", code=2)
    assert "batch needs what iam, network, storage would make" in done.stderr
    assert f"`batchyard deploy network storage registry iam batch --env {site.env}`" in done.stderr
    assert site.stacks() == {}


# -- looking -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_diff_changes_nothing(site: Site) -> None:
    planned = _added(site.about("diff").stdout)
    assert site.stacks() == {}
    deployed = _added(site.about("deploy", "--yes").stderr)
    assert planned == deployed, "what `deploy` makes, and nothing else"
    assert "NatSubnet" not in planned[f"{site.env}-network"]
    done = site.about("diff", "--set", "CpuSpotMaxvCpus=1000")
    assert done.stdout.splitlines() == [
        f"{site.env}-batch: 1 changed",
        "  CpuSpotMaxvCpus: 256 -> 1000",
        "  ~ CpuSpot  AWS::Batch::ComputeEnvironment",
    ]
    assert done.stderr.count("nothing to do") == len(CORE) - 1
    assert site.compute_environment("cpu-spot")["computeResources"]["maxvCpus"] == 256
    assert set(site.stacks().values()) == {"CREATE_COMPLETE"}
    left: Any = site.endpoint.client("cloudformation").list_change_sets(
        StackName=f"{site.env}-batch"
    )["Summaries"]
    assert [
        one
        for one in left
        if one["StackName"] == f"{site.env}-batch" and one["ExecutionStatus"] == "AVAILABLE"
    ] == []


def _added(text: str) -> dict[str, set[str]]:
    """Return stack -> the resources that are listed as added."""
    added: dict[str, set[str]] = {}
    for line in text.splitlines():
        if " added" in line:
            stack = line.partition(":")[0]
            added[stack] = set()
        elif line.startswith("  + "):
            added[stack].add(line.split()[1])
    return added


def test_two_first_deploys_at_once_both_end_right(site: Site) -> None:
    command = [sys.executable, "-m", "batchyard", "deploy", "network", "storage", "--yes"]
    processes = [
        prestarted.Popen(
            [*command, "--env", site.env],
            cwd=site.folder,
            env=site.endpoint.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        _, stderr = process.communicate(timeout=300)
        assert process.returncode == 0, stderr
    assert site.stacks() == {
        f"{site.env}-{name}": "CREATE_COMPLETE" for name in ("network", "storage")
    }


def test_a_plan_is_obsolete_after_another_was_executed(site: Site) -> None:
    from batchyard.infra import read_template

    aws, stack = site.endpoint.client("cloudformation"), f"{site.env}-storage"
    ids = [
        aws.create_change_set(
            StackName=stack,
            ChangeSetName=name,
            ChangeSetType="CREATE",
            TemplateBody=read_template("storage"),
            Parameters=[{"ParameterKey": "Env", "ParameterValue": site.env}],
        )["Id"]
        for name in ("first", "second")
    ]
    aws.execute_change_set(ChangeSetName=ids[0])
    with pytest.raises(aws.exceptions.InvalidChangeSetStatusException):
        aws.execute_change_set(ChangeSetName=ids[1])
    other = aws.list_change_sets(StackName=f"{site.env}-other")["Summaries"]
    assert (len(aws.list_change_sets(StackName=stack)["Summaries"]), other) == (2, [])


def test_outputs_and_environments(site: Site) -> None:
    assert "nothing of environment" in site.about("outputs", code=2).stderr
    site.about("deploy", "network", "storage", "--yes")
    table = site.about("outputs").stdout
    assert "template  output" in table and site.outputs()["Bucket"] in table
    (site.folder / ".batchyard").mkdir()
    (site.folder / ".batchyard/environments.yaml").write_text(
        "environments:\n  lab:\n    region: eu-central-1\n    bucket: lab-runs\n"
        "    queues: {cpu: lab-cpu}\n"
    )
    listed = {one["name"]: one for one in json.loads(site("environments", "--json").stdout)}
    assert (listed["lab"]["source"], listed["lab"]["region"]) == ("file", "eu-central-1")
    ours = listed[site.env]
    assert (ours["source"], ours["region"], ours["templates"]) == (
        "deployed",
        "us-east-1",
        ["network", "storage"],
    )
    assert ours["missing"] == ["iam", "registry", "batch"]
    shown = site("environments").stdout
    assert f"{site.env}" in shown and "in part only: iam, registry, batch missing" in shown
    assert [
        one["name"] for one in json.loads(site("environments", "--local", "--json").stdout)
    ] == ["lab"]


@pytest.mark.parametrize("name", ["network", "batch-unmanaged", "spotfleet", "gpu-batch-benchmark"])
def test_a_template_is_printed_as_it_is(site: Site, name: str) -> None:
    from batchyard.infra import read_template

    assert site("template", name).stdout == read_template(name)


def test_the_templates_are_listed(site: Site) -> None:
    names = [line.split()[0] for line in site("template").stdout.splitlines()[1:]]
    assert set(CORE) < set(names) and names.index("batch") > names.index("iam")
    assert "did you mean batch?" in site("template", "bach", code=2).stderr


@pytest.mark.slow
def test_clusters_and_unmanaged_nodes(site: Site) -> None:
    site.about("deploy", "--yes")
    site.about("deploy", "ecs", "batch-unmanaged", "--yes")
    outputs = site.outputs()
    found = site.endpoint.batch.describe_job_queues(jobQueues=[outputs["UnmanagedGpuQueue"]])[
        "jobQueues"
    ]
    assert [one["jobQueueName"] for one in found] == [f"{site.env}-unmanaged-gpu"]
    (cluster,) = site.endpoint.client("ecs").describe_clusters(clusters=[f"{site.env}-ecs"])[
        "clusters"
    ]
    assert cluster["status"] == "ACTIVE" and cluster["capacityProviders"]
    groups = site.endpoint.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert len([one for one in groups if one["AutoScalingGroupName"].startswith(site.env)]) == 2
