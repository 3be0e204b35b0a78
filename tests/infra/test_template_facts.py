"""Facts of the templates that CloudFormation does not check, and that a change could break."""

from __future__ import annotations

import json
from typing import Any

import cfn
import pytest

from batchyard import ec2_types as types
from batchyard.infra import instance_choices


@pytest.mark.parametrize("name", instance_choices.GPU_TYPE_PARAMETERS)
def test_the_default_gpu_types_have_one_gpu(name: str) -> None:
    """Else AWS Batch may start four GPUs for a job with one: it takes the cheapest per vCPU."""
    parameter = cfn.template(name)["Parameters"][instance_choices.GPU_TYPE_PARAMETERS[name]]
    names = instance_choices.list_types(parameter["Default"])
    assert [types.TYPES[each].gpus for each in names] == [1] * len(names)


# -- AWS Batch -----------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["Cpu", "Gpu"])
def test_the_sizes_of_compute_environments_are_their_parameters(device: str) -> None:
    environments = cfn.resources("batch", "AWS::Batch::ComputeEnvironment")
    spot = environments[f"{device}Spot"]["ComputeResources"]
    on_demand = environments[f"{device}OnDemand"]["ComputeResources"]
    assert (spot["MinvCpus"], spot["MaxvCpus"]) == (0, {"Ref": f"{device}SpotMaxvCpus"})
    assert on_demand["MinvCpus"] == {"Ref": f"{device}MinvCpus"}
    assert on_demand["MaxvCpus"] == {"Ref": f"{device}OnDemandMaxvCpus"}


def test_an_update_of_compute_environments_ends_no_jobs_at_once() -> None:
    for environment in cfn.resources("batch", "AWS::Batch::ComputeEnvironment").values():
        assert environment["UpdatePolicy"] == {
            "TerminateJobsOnUpdate": False,
            "JobExecutionTimeoutMinutes": {"Ref": "UpdateTimeoutMinutes"},
        }


def test_a_job_without_capacity_waits_longer_than_one_that_never_fits() -> None:
    for queue in cfn.resources("batch", "AWS::Batch::JobQueue").values():
        for action in queue["JobStateTimeLimitActions"]:
            is_capacity = action["Reason"].startswith("CAPACITY")
            name = "CapacitySeconds" if is_capacity else "MisfitSeconds"
            assert action["MaxTimeSeconds"] == {"Ref": name}


def test_time_limits_of_queues_are_those_that_aws_accepts() -> None:
    parameters = cfn.template("batch")["Parameters"]
    for name in ("MisfitSeconds", "CapacitySeconds"):
        assert (parameters[name]["MinValue"], parameters[name]["MaxValue"]) == (600, 86400)


def test_ready_jobs_pass_their_tags_on_and_gpu_jobs_have_shared_memory() -> None:
    jobs = cfn.resources("batch", "AWS::Batch::JobDefinition")
    assert all(job["PropagateTags"] is True for job in jobs.values())
    shared_mib = jobs["GpuJob"]["ContainerProperties"]["LinuxParameters"]["SharedMemorySize"]
    assert shared_mib >= 1024, "Docker's 64 MiB are too little for data loaders"


def test_a_benchmark_takes_a_whole_machine() -> None:
    for device in ("Cpu", "Gpu"):
        template = cfn.template("gpu-batch-benchmark")
        (name,) = template["Parameters"][f"{device}InstanceTypes"]["Default"].split(",")
        job = template["Resources"][f"{device}Benchmark"]["Properties"]["ContainerProperties"]
        needs = {entry["Type"]: int(entry["Value"]) for entry in job["ResourceRequirements"]}
        node = types.TYPES[name]
        assert needs["VCPU"] == node.vcpus
        assert 0.8 * node.memory_mib <= needs["MEMORY"] < 0.95 * node.memory_mib


# -- data ----------------------------------------------------------------------------------------


def test_only_runs_expire_and_logs_do_not_stay_for_ever() -> None:
    (bucket,) = cfn.resources("storage", "AWS::S3::Bucket").values()
    rules = {rule["Id"]: rule for rule in bucket["LifecycleConfiguration"]["Rules"]}
    assert rules["runs-expire"]["Prefix"] == "runs/"
    assert [key for key, rule in rules.items() if "ExpirationInDays" in rule] == ["runs-expire"]
    (group,) = cfn.resources("storage", "AWS::Logs::LogGroup").values()
    assert group["RetentionInDays"] == {"Ref": "LogRetentionDays"}


def test_images_are_scanned_and_untagged_ones_go() -> None:
    for repository in cfn.resources("registry", "AWS::ECR::Repository").values():
        assert repository["ImageScanningConfiguration"] == {"ScanOnPush": True}
        text = repository["LifecyclePolicy"]["LifecyclePolicyText"]["Fn::Sub"]
        rules = json.loads(cfn.substitute(text, {"KeepUntaggedDays": "7", "KeepImages": "50"}))
        assert [
            (rule["selection"]["tagStatus"], rule["selection"]["countNumber"])
            for rule in rules["rules"]
        ] == [("untagged", 7), ("any", 50)]


# -- permissions ---------------------------------------------------------------------------------


def statements_of(policy: Any) -> dict[str, Any]:
    return {each.get("Sid", ""): each for each in policy["PolicyDocument"]["Statement"]}


def test_jobs_and_submitters_reach_the_files_of_runs_only() -> None:
    role = cfn.resources("iam", "AWS::IAM::Role")["JobRole"]["Policies"][0]
    submitter = cfn.resources("iam", "AWS::IAM::ManagedPolicy")["SubmitterPolicy"]
    for policy in (role, submitter):
        files = statements_of(policy)["FilesOfRuns"]["Resource"]["Fn::Join"][1]
        assert files[1:] == ["/runs/*"]
    conditions = {name: each.get("Condition") for name, each in statements_of(submitter).items()}
    assert conditions["Define"] == {"BoolIfExists": {"batch:Privileged": "false"}}
    passed_to = {"StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}}
    assert conditions["PassRoles"] == passed_to


def test_jobs_get_secrets_of_their_environment_only() -> None:
    (policy,) = cfn.resources("iam", "AWS::IAM::Role")["ExecutionRole"]["Policies"]
    for statement in policy["PolicyDocument"]["Statement"]:
        assert statement["Resource"]["Fn::Sub"].endswith(
            (":secret:${Env}/*", ":parameter/${Env}/*")
        )


# -- the network ---------------------------------------------------------------------------------


def test_each_subnet_is_in_a_zone_of_its_own_and_has_the_nodes_routes() -> None:
    subnets = cfn.resources("network", "AWS::EC2::Subnet")
    associations = {
        each["SubnetId"]["Ref"]: each["RouteTableId"]["Ref"]
        for each in cfn.resources("network", "AWS::EC2::SubnetRouteTableAssociation").values()
    }
    for number, letter in enumerate("ABCD"):
        subnet = subnets[f"Subnet{letter}"]
        assert subnet["AvailabilityZone"] == {"Fn::Select": [number, {"Fn::GetAZs": ""}]}
        assert subnet["MapPublicIpOnLaunch"] == {"Fn::If": ["IsPublic", True, False]}
        assert associations[f"Subnet{letter}"] == "Routes"
    endpoint = cfn.resources("network", "AWS::EC2::VPCEndpoint")["S3Endpoint"]
    assert endpoint["RouteTableIds"] == [{"Ref": "Routes"}]


# -- optional stacks -----------------------------------------------------------------------------


def test_a_spot_fleet_replaces_its_nodes() -> None:
    (fleet,) = cfn.resources("spotfleet", "AWS::EC2::SpotFleet").values()
    config = fleet["SpotFleetRequestConfigData"]
    assert config["Type"] == "maintain"
    assert config["ReplaceUnhealthyInstances"] is config["TerminateInstancesWithExpiration"] is True


def test_a_service_ends_a_task_before_it_starts_another_on_the_same_gpu() -> None:
    (service,) = cfn.resources("ecs", "AWS::ECS::Service").values()
    deployment = service["DeploymentConfiguration"]
    assert (deployment["MinimumHealthyPercent"], deployment["MaximumPercent"]) == (0, 100)
