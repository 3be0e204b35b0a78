"""What the templates promise one another and the tool, and what AWS would refuse or deadlock on
today.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import cfn
import pytest

from batchyard.infra import EVERY, STANDALONE, TEMPLATES
from batchyard.infra.fixed_costs import INTERFACE_ENDPOINTS

#: what the tool looks up in an environment's stacks: template -> outputs
LOOKED_UP = {
    "batch": {"CpuQueue", "GpuQueue", "CpuOnDemandQueue", "GpuOnDemandQueue", "DefinitionPrefix"},
    "storage": {"Bucket", "LogGroup"},
    "iam": {"JobRoleArn", "ExecutionRoleArn"},
    "registry": {"Repository"},
}
#: template or file size that CloudFormation takes without a bucket in between
LARGEST_BODY_BYTES = 51_200


def test_every_template_is_in_the_list() -> None:
    folder = cfn.REPOSITORY / "src/batchyard/infra/templates"
    assert {path.stem for path in folder.glob("*.yaml")} == set(TEMPLATES)


@pytest.mark.outside
def test_the_wheel_has_the_templates_and_the_user_data(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(tmp_path),
    ]
    subprocess.run([*command, str(cfn.REPOSITORY)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    infra = cfn.REPOSITORY / "src/batchyard/infra"
    wanted = {f"batchyard/infra/templates/{name}.yaml" for name in EVERY}
    wanted |= {f"batchyard/infra/userdata/{path.name}" for path in (infra / "userdata").iterdir()}
    there = zipfile.ZipFile(wheel)
    assert wanted <= set(there.namelist())
    # It lies at the root, and is put among the others when a wheel is built.
    packed = there.read(f"batchyard/infra/templates/{STANDALONE}.yaml").decode()
    assert packed == (cfn.REPOSITORY / f"{STANDALONE}.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", EVERY)
def test_a_template_explains_itself_and_fits_into_a_request(name: str) -> None:
    template = cfn.template(name)
    assert template["Description"].startswith("batchyard: ")
    for kind in ("Parameters", "Outputs"):
        assert [key for key, entry in template[kind].items() if not entry.get("Description")] == []
    assert len(cfn.text(name).encode()) < LARGEST_BODY_BYTES


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_belongs_to_an_environment(name: str) -> None:
    env = cfn.template(name)["Parameters"]["Env"]
    pattern = re.compile(env["AllowedPattern"])
    assert pattern.fullmatch("dev-2")
    # The underscore that ends the environment's part of a job definition's name must not be in it.
    assert not pattern.fullmatch("dev_2")
    # SSM refuses parameters, and ECS capacity providers, with such names.
    assert not any(
        pattern.fullmatch(name) for name in ("aws", "aws-lab", "ssm1", "ecs", "ecs-lab", "fargate")
    )
    assert all(export.startswith("ENV-") for export in cfn.exports(name))


def test_what_a_template_imports_is_exported_by_an_earlier_one() -> None:
    there: set[str] = set()
    for name in TEMPLATES:
        assert cfn.imports(name) - there == set(), (
            f"{name} imports what no template before it exports"
        )
        assert cfn.exports(name) & there == set(), f"{name} exports a name that is taken"
        there |= cfn.exports(name)


def test_the_benchmark_stands_alone() -> None:
    assert cfn.imports(STANDALONE) == cfn.exports(STANDALONE) == set()
    # CAPABILITY_IAM is enough only while no role has a name of its own.
    assert all(
        "RoleName" not in role for role in cfn.resources(STANDALONE, "AWS::IAM::Role").values()
    )
    # sam deploy takes an output for the parameter of its name, and breaks off.
    assert (
        set(cfn.template(STANDALONE)["Outputs"]) & set(cfn.template(STANDALONE)["Parameters"])
        == set()
    )


def test_the_benchmark_is_the_same_on_both_devices() -> None:
    cpu, gpu = (
        cfn.resources(STANDALONE, "AWS::Batch::JobDefinition")[f"{kind}Benchmark"]
        for kind in ("Cpu", "Gpu")
    )
    assert cpu["ContainerProperties"]["Command"] == gpu["ContainerProperties"]["Command"]
    for key in ("RetryStrategy", "Timeout"):
        assert cpu[key] == gpu[key]


@pytest.mark.parametrize("name", LOOKED_UP)
def test_the_tool_finds_what_it_looks_up(name: str) -> None:
    assert LOOKED_UP[name] <= set(cfn.template(name)["Outputs"])


@pytest.mark.parametrize("name", EVERY)
def test_nothing_of_2018_is_left(name: str) -> None:
    text = cfn.text(name)
    assert "LaunchConfiguration" not in text
    assert not re.search(
        r"amazon-linux-2/|ECS_AL2\b|ECS_AL2_NVIDIA|\bBEST_FIT$", text, re.MULTILINE
    )
    types = [
        str(parameter["Default"])
        for key, parameter in cfn.template(name)["Parameters"].items()
        if key.endswith("InstanceTypes")
    ]
    assert not re.search(r"\b(p2|p3|p3dn|g3|g3s|m3)\b", ",".join(types))


@pytest.mark.parametrize("name", EVERY)
def test_a_skipped_check_has_a_reason(name: str) -> None:
    lists = [
        node["skip"]
        for node in cfn.nodes(cfn.template(name))
        if isinstance(node, dict) and "skip" in node
    ]
    assert all(len(skip["comment"].split()) > 4 for skips in lists for skip in skips)


# -- AWS Batch -----------------------------------------------------------------------------------

MANAGED = [
    (name, key)
    for name in ("batch", "gpu-batch-benchmark")
    for key in cfn.resources(name, "AWS::Batch::ComputeEnvironment")
]


@pytest.mark.parametrize(("name", "key"), MANAGED)
def test_a_compute_environment_can_be_changed_in_place(name: str, key: str) -> None:
    environment = cfn.resources(name, "AWS::Batch::ComputeEnvironment")[key]
    assert environment["ReplaceComputeEnvironment"] is False
    assert (
        "ServiceRole" not in environment
    )  # the service-linked role, or in-place changes are refused
    assert "ComputeEnvironmentName" not in environment
    computing = environment["ComputeResources"]
    assert "DesiredvCpus" not in computing  # AWS Batch's own dial
    assert "Fn::GetAtt" in computing["LaunchTemplate"]["Version"]
    strategy = computing["AllocationStrategy"]
    known = {"SPOT": "SPOT_PRICE_CAPACITY_OPTIMIZED", "EC2": "BEST_FIT_PROGRESSIVE"}
    if isinstance(strategy, str):
        assert strategy == known[computing["Type"]]
    else:
        assert strategy["Fn::If"][1:] == [known[kind] for kind in computing["Type"]["Fn::If"][1:]]


@pytest.mark.parametrize(("name", "key"), MANAGED)
def test_gpu_nodes_have_the_nvidia_image_and_gpu_types_only(name: str, key: str) -> None:
    computing = cfn.resources(name, "AWS::Batch::ComputeEnvironment")[key]["ComputeResources"]
    (image,) = computing["Ec2Configuration"]
    device = computing["InstanceTypes"]["Ref"].removesuffix("InstanceTypes")
    assert image["ImageType"] == {"Gpu": "ECS_AL2023_NVIDIA", "Cpu": "ECS_AL2023"}[device]
    assert computing["LaunchTemplate"]["LaunchTemplateId"] == {"Ref": f"{device}LaunchTemplate"}


def test_gpu_types_are_families_that_batch_schedules_gpus_on() -> None:
    for name in EVERY:
        for key, parameter in cfn.template(name)["Parameters"].items():
            if key in ("GpuInstanceTypes", "InstanceTypes"):
                families = {kind.split(".")[0] for kind in parameter["Default"].split(",")}
                assert families <= {"g4dn", "g5", "g6"}, name


def test_spot_comes_first_and_on_demand_second() -> None:
    queues = cfn.resources("batch", "AWS::Batch::JobQueue")
    order = {
        key: [
            entry["ComputeEnvironment"]["Ref"]
            for entry in sorted(queue["ComputeEnvironmentOrder"], key=by_order)
        ]
        for key, queue in queues.items()
    }
    assert order == {
        "CpuQueue": ["CpuSpot", "CpuOnDemand"],
        "GpuQueue": ["GpuSpot", "GpuOnDemand"],
        "CpuOnDemandQueue": ["CpuOnDemand"],
        "GpuOnDemandQueue": ["GpuOnDemand"],
        "TeamCpuQueue": ["CpuSpot", "CpuOnDemand"],
        "TeamGpuQueue": ["GpuSpot", "GpuOnDemand"],
    }


def by_order(entry: dict[str, Any]) -> int:
    return int(entry["Order"])


def test_what_blocks_a_queue_is_cancelled_for_reasons_that_aws_knows() -> None:
    reasons = {
        "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT",
        "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE",
        "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY",
    }
    for name in ("batch", "gpu-batch-benchmark"):
        for queue in cfn.resources(name, "AWS::Batch::JobQueue").values():
            actions = queue["JobStateTimeLimitActions"]
            assert {action["Reason"] for action in actions} == reasons
            assert {(action["State"], action["Action"]) for action in actions} == {
                ("RUNNABLE", "CANCEL")
            }


def test_queues_of_teams_have_the_policy_and_others_have_none() -> None:
    for key, queue in cfn.resources("batch", "AWS::Batch::JobQueue").items():
        assert ("SchedulingPolicyArn" in queue) == key.startswith("Team")


@pytest.mark.parametrize("name", ["batch", "gpu-batch-benchmark"])
def test_a_job_definition_fits_the_smallest_node_and_retries_reclaims_only(name: str) -> None:
    for key, job in cfn.resources(name, "AWS::Batch::JobDefinition").items():
        requirements = {
            entry["Type"]: entry["Value"]
            for entry in job["ContainerProperties"]["ResourceRequirements"]
        }
        assert all(isinstance(value, str) for value in requirements.values()), "AWS takes strings"
        assert ("GPU" in requirements) == key.startswith("Gpu")
        if "GPU" in requirements:  # a g4dn.xlarge has 4 vCPUs and 16 GiB, of which it keeps some
            assert int(requirements["VCPU"]) <= 4
            assert int(requirements["MEMORY"]) <= 0.9 * 16 * 1024
        rules = job["RetryStrategy"]["EvaluateOnExit"]
        assert rules == [
            {"Action": "RETRY", "OnStatusReason": "Host EC2*"},
            {"Action": "EXIT", "OnReason": "*"},
        ]
        assert "Privileged" not in job["ContainerProperties"]


def test_the_self_managed_environment_has_a_role_of_its_own() -> None:
    (environment,) = cfn.resources("batch-unmanaged", "AWS::Batch::ComputeEnvironment").values()
    assert environment["Type"] == "UNMANAGED"
    assert environment["ServiceRole"] == {"Fn::GetAtt": ["BatchRole", "Arn"]}
    assert "ComputeResources" not in environment


@pytest.mark.parametrize("name", EVERY)
def test_tags_of_batch_are_maps(name: str) -> None:
    for resource in cfn.template(name)["Resources"].values():
        if resource["Type"].startswith("AWS::Batch::"):
            assert isinstance(resource["Properties"].get("Tags", {}), dict)


# -- machines and data ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name for name in EVERY if cfn.resources(name, "AWS::EC2::LaunchTemplate")]
)
def test_nodes_ask_for_tokens_and_encrypt_their_disks(name: str) -> None:
    for launch in cfn.resources(name, "AWS::EC2::LaunchTemplate").values():
        data = launch["LaunchTemplateData"]
        assert data["MetadataOptions"] == {"HttpTokens": "required", "HttpPutResponseHopLimit": 2}
        (disk,) = data["BlockDeviceMappings"]
        assert (disk["DeviceName"], disk["Ebs"]["Encrypted"]) == ("/dev/xvda", True)
        assert "InstanceMarketOptions" not in data
        # Auto Scaling and AWS Batch do not take it in a launch template.
        assert "InstanceInitiatedShutdownBehavior" not in data


@pytest.mark.parametrize("name", [name for name in EVERY if cfn.resources(name, "AWS::S3::Bucket")])
def test_buckets_are_private_encrypted_and_tls_only(name: str) -> None:
    policies = cfn.resources(name, "AWS::S3::BucketPolicy").values()
    guarded = {policy["Bucket"]["Ref"] for policy in policies}
    for key, bucket in cfn.resources(name, "AWS::S3::Bucket").items():
        assert key in guarded
        assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
        assert bucket["BucketEncryption"]
    for policy in policies:
        (statement,) = policy["PolicyDocument"]["Statement"]
        assert statement["Effect"] == "Deny"
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_ecs_scales_and_drains_its_nodes() -> None:
    (provider,) = cfn.resources("ecs", "AWS::ECS::CapacityProvider").values()
    scaling = provider["AutoScalingGroupProvider"]
    assert scaling["ManagedScaling"]["Status"] == scaling["ManagedDraining"] == "ENABLED"
    (group,) = cfn.resources("ecs", "AWS::AutoScaling::AutoScalingGroup").values()
    assert (
        group["NewInstancesProtectedFromScaleIn"] is True
    )  # or managed termination protection is refused
    assert "DesiredCapacity" not in group
    overrides = group["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"]
    assert all("WeightedCapacity" not in override for override in overrides)


def test_nodes_reach_the_internet_by_at_most_one_way() -> None:
    """One route for both ways: CloudFormation could not exchange two of the same destination."""
    routes = [
        resource
        for resource in cfn.template("network")["Resources"].values()
        if resource["Type"] == "AWS::EC2::Route"
        and resource["Properties"]["RouteTableId"] == {"Ref": "Routes"}
    ]
    (route,) = routes
    nothing = {"Ref": "AWS::NoValue"}
    properties = route["Properties"]
    assert properties["GatewayId"] == {"Fn::If": ["IsPublic", {"Ref": "Gateway"}, nothing]}
    assert properties["NatGatewayId"] == {"Fn::If": ["IsPublic", nothing, {"Ref": "Nat"}]}
    assert route["Condition"] == "HasRouteOut"


def test_nothing_is_let_in_except_tls_from_nodes_to_vpc_endpoints() -> None:
    for name in EVERY:
        for key, group in cfn.resources(name, "AWS::EC2::SecurityGroup").items():
            if key != "EndpointSecurityGroup":
                assert "SecurityGroupIngress" not in group
        assert cfn.resources(name, "AWS::EC2::SecurityGroupIngress") == {}
    (rule,) = cfn.resources("network", "AWS::EC2::SecurityGroup")["EndpointSecurityGroup"][
        "SecurityGroupIngress"
    ]
    assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 443, 443)
    assert rule["SourceSecurityGroupId"] == {"Ref": "NodeSecurityGroup"}


def test_the_vpc_endpoints_are_what_nodes_call_and_what_the_cost_counts() -> None:
    endpoints = cfn.resources("network", "AWS::EC2::VPCEndpoint")
    services = {
        endpoint["ServiceName"]["Fn::Sub"].removeprefix("com.amazonaws.${AWS::Region}."): endpoint
        for endpoint in endpoints.values()
    }
    assert set(services) == {"s3", *INTERFACE_ENDPOINTS}
    assert services["s3"]["VpcEndpointType"] == "Gateway"
    for service in INTERFACE_ENDPOINTS:
        assert services[service]["VpcEndpointType"] == "Interface"
        assert services[service]["PrivateDnsEnabled"] is True
        assert services[service]["SubnetIds"][:2] == [{"Ref": "SubnetA"}, {"Ref": "SubnetB"}]


# -- zones, images, tags -------------------------------------------------------------------------


def test_three_zones_by_default_and_the_list_of_subnets_can_grow() -> None:
    assert cfn.template("network")["Parameters"]["Zones"]["Default"] == "3"
    # No stack imports the list: AWS does not change an export that is in use.
    for name in TEMPLATES:
        assert "ENV-subnets" not in cfn.imports(name)
    (parameter,) = cfn.resources("network", "AWS::SSM::Parameter").values()
    assert (parameter["Type"], parameter["Name"]) == ("StringList", {"Fn::Sub": "/${Env}/subnets"})
    assert parameter["Value"] == cfn.template("network")["Outputs"]["Subnets"]["Value"]
    for name in ("batch", "ecs", "batch-unmanaged"):
        kind = cfn.template(name)["Parameters"]["Subnets"]["Type"]
        assert kind == "AWS::SSM::Parameter::Value<List<AWS::EC2::Subnet::Id>>"


def test_a_new_image_replaces_the_self_managed_nodes_one_by_one() -> None:
    (group,) = [
        resource
        for resource in cfn.template("batch-unmanaged")["Resources"].values()
        if resource["Type"] == "AWS::AutoScaling::AutoScalingGroup"
    ]
    update = group["UpdatePolicy"]["AutoScalingRollingUpdate"]
    assert (update["MinInstancesInService"], update["MaxBatchSize"]) == (0, 1)
    launch = group["Properties"]["MixedInstancesPolicy"]["LaunchTemplate"]
    assert launch["LaunchTemplateSpecification"]["Version"] == {
        "Fn::GetAtt": ["LaunchTemplate", "LatestVersionNumber"]
    }


#: types that have no tags in CloudFormation
UNTAGGED = {
    "AWS::EC2::Route",
    "AWS::EC2::SubnetRouteTableAssociation",
    "AWS::EC2::VPCGatewayAttachment",
    "AWS::ECS::ClusterCapacityProviderAssociations",
    "AWS::IAM::InstanceProfile",
    "AWS::IAM::ManagedPolicy",
    "AWS::Lambda::Permission",
    "AWS::S3::BucketPolicy",
}


@pytest.mark.parametrize("name", EVERY)
def test_everything_that_can_have_tags_has_the_environments(name: str) -> None:
    value = {"Ref": "AWS::StackName" if name == STANDALONE else "Env"}
    for key, resource in cfn.template(name)["Resources"].items():
        if resource["Type"] not in UNTAGGED:
            assert value in tag_values(resource["Properties"]), f"{name} {key}"


@pytest.mark.parametrize("name", EVERY)
def test_disks_of_nodes_have_the_tag_of_the_environment(name: str) -> None:
    """Cost Explorer shows disks by their own tags, and not by those of their instances."""
    value = {"Ref": "AWS::StackName" if name == STANDALONE else "Env"}
    for key, resource in cfn.template(name)["Resources"].items():
        if resource["Type"] == "AWS::EC2::LaunchTemplate":
            specifications = resource["Properties"]["LaunchTemplateData"]["TagSpecifications"]
            volumes = [each for each in specifications if each["ResourceType"] == "volume"]
            tag = {"Key": "batchyard:environment", "Value": value}
            assert [each["Tags"] for each in volumes] == [[tag]], f"{name} {key}"


def tag_values(properties: dict[str, Any]) -> list[Any]:
    """The values of the tag batchyard:environment, of the resource and of what it starts."""
    tags = properties.get("Tags", properties.get("ResourceTags", []))
    if isinstance(tags, dict):
        return [tags.get("batchyard:environment")]
    specifications = [
        *properties.get("TagSpecifications", []),
        *properties.get("SpotFleetRequestConfigData", {}).get("TagSpecifications", []),
    ]
    tags = [*tags, *(tag for each in specifications for tag in each["Tags"])]
    return [tag["Value"] for tag in tags if tag["Key"] == "batchyard:environment"]
