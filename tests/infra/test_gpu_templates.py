"""The parts of the image, spotfleet and ecs templates that decide whether GPUs can be used.

CloudFormation accepts each template without these parts: a fault would show up only on a node.
"""

from __future__ import annotations

from typing import Any

import cfn
import pytest
import yaml

from batchyard import ec2_types
from batchyard.infra import TEMPLATES, catalogue, read_template
from batchyard.infra.instance_choices import GPU_TYPE_PARAMETERS, list_types

GPU_IMAGE_PARAMETER = "/${Env}/gpu-image"
MANAGED_POLICIES = "arn:${AWS::Partition}:iam::aws:policy"


def only_resource(name: str, kind: str) -> dict[str, Any]:
    """Return the properties of a template's single resource of this type."""
    (properties,) = cfn.resources(name, kind).values()
    return dict(properties)


def component_document(logical_id: str) -> Any:
    """Return the Image Builder document of a component, as a value."""
    component = cfn.resources("image", "AWS::ImageBuilder::Component")[logical_id]
    return yaml.safe_load(component["Data"]["Fn::Sub"])


def commands_of_phase(logical_id: str, phase_name: str) -> list[str]:
    """Return the shell commands of one phase of a component."""
    phases = {phase["name"]: phase for phase in component_document(logical_id)["phases"]}
    return [
        command for step in phases[phase_name]["steps"] for command in step["inputs"]["commands"]
    ]


# -- image: an image is published only after a test on a machine that was started from it --------


def test_the_image_recipe_has_the_node_component_and_then_its_test() -> None:
    recipe = only_resource("image", "AWS::ImageBuilder::ImageRecipe")
    assert recipe["Components"] == [
        {"ComponentArn": {"Ref": "NodeComponent"}},
        {"ComponentArn": {"Ref": "TestComponent"}},
    ]


def test_the_image_pipeline_builds_that_recipe_and_runs_its_tests() -> None:
    pipeline = only_resource("image", "AWS::ImageBuilder::ImagePipeline")
    assert pipeline["ImageRecipeArn"] == {"Ref": "Recipe"}
    assert pipeline["DistributionConfigurationArn"] == {"Ref": "Distribution"}
    assert pipeline["InfrastructureConfigurationArn"] == {"Ref": "Machine"}
    assert pipeline["ExecutionRole"] == {"Fn::GetAtt": ["PipelineRole", "Arn"]}
    assert pipeline["ImageTestsConfiguration"]["ImageTestsEnabled"] is True
    assert pipeline["Status"] == "ENABLED"


def test_the_test_component_starts_a_container_that_must_see_the_gpus() -> None:
    commands = commands_of_phase("TestComponent", "test")
    assert any("Default Runtime: nvidia" in command for command in commands)
    (container,) = [command for command in commands if command.startswith("docker run ")]
    (waiting,) = [command for command in commands if "until docker info" in command]
    assert waiting.startswith("timeout ")
    assert commands.index(waiting) < commands.index(container), "Docker may still be starting"
    assert "${TestImage} nvidia-smi -L | grep '^GPU '" in container
    # No --gpus and no --runtime: jobs that rely on the default runtime give neither.
    assert "--gpus" not in container and "--runtime" not in container


@pytest.mark.parametrize("logical_id", ["NodeComponent", "TestComponent"])
def test_the_commands_of_a_component_are_text(logical_id: str) -> None:
    """YAML reads a command with `: ` in it as a mapping unless it is quoted."""
    commands = [
        command
        for phase in component_document(logical_id)["phases"]
        for step in phase["steps"]
        for command in step["inputs"]["commands"]
    ]
    assert commands and all(isinstance(command, str) for command in commands)


def test_the_node_component_makes_nvidia_the_default_runtime_and_checks_the_driver() -> None:
    build = "\n".join(commands_of_phase("NodeComponent", "build"))
    assert 'config["default-runtime"] = "nvidia"' in build
    # The agent's state of the build machine must not be part of the image.
    assert "rm -rf /var/lib/ecs/data/*" in build
    assert commands_of_phase("NodeComponent", "validate") == ["nvidia-smi -L | grep '^GPU '"]


# -- image: the id of a new image is found under one name ----------------------------------------


def test_the_image_is_published_under_the_name_that_the_role_may_write_and_the_output_gives() -> (
    None
):
    distribution = only_resource("image", "AWS::ImageBuilder::DistributionConfiguration")
    (target,) = distribution["Distributions"]
    assert target["SsmParameterConfigurations"] == [
        {"ParameterName": {"Fn::Sub": GPU_IMAGE_PARAMETER}, "DataType": "aws:ec2:image"}
    ]
    output = cfn.template("image")["Outputs"]["GpuImageParameter"]
    assert output["Value"] == {"Fn::Sub": GPU_IMAGE_PARAMETER}
    role = cfn.resources("image", "AWS::IAM::Role")["PipelineRole"]
    statements = [
        statement
        for policy in role["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
    ]
    (write,) = [each for each in statements if each["Action"] == "ssm:PutParameter"]
    assert write["Resource"]["Fn::Sub"].endswith(f":parameter{GPU_IMAGE_PARAMETER}")


def test_the_image_is_built_on_amazons_gpu_image_by_default() -> None:
    recipe = only_resource("image", "AWS::ImageBuilder::ImageRecipe")
    assert recipe["ParentImage"] == {"Fn::Sub": "ssm:${ParentImageParameter}"}
    parameter = cfn.template("image")["Parameters"]["ParentImageParameter"]
    assert parameter["Default"] == (
        "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id"
    )


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_description_that_names_the_published_parameter_names_it_right(name: str) -> None:
    parameters = cfn.template(name)["Parameters"].values()
    named = [text for each in parameters if "gpu-image" in (text := str(each["Description"]))]
    assert all("/<env>/gpu-image" in text for text in named)


def test_old_images_go_with_their_snapshots() -> None:
    policy = only_resource("image", "AWS::ImageBuilder::LifecyclePolicy")
    (details,) = policy["PolicyDetails"]
    assert details["Action"] == {
        "Type": "DELETE",
        "IncludeResources": {"Amis": True, "Snapshots": True},
    }
    assert details["Filter"] == {"Type": "COUNT", "Value": {"Ref": "KeepImages"}}
    assert policy["Status"] == "ENABLED"
    # The images are found by the tags that the pipeline gives them.
    pipeline = only_resource("image", "AWS::ImageBuilder::ImagePipeline")
    assert policy["ResourceSelection"] == {"TagMap": pipeline["ImageTags"]}
    assert policy["ExecutionRole"] == {"Fn::GetAtt": ["LifecycleRole", "Arn"]}
    role = cfn.resources("image", "AWS::IAM::Role")["LifecycleRole"]
    assert role["ManagedPolicyArns"] == [
        {"Fn::Sub": f"{MANAGED_POLICIES}/service-role/EC2ImageBuilderLifecycleExecutionPolicy"}
    ]


# -- spotfleet: the fleet can shrink -------------------------------------------------------------


def test_the_spot_fleet_has_the_tagging_role() -> None:
    """With the older AmazonEC2SpotFleetRole a fleet cannot terminate or tag its instances."""
    roles = cfn.resources("spotfleet", "AWS::IAM::Role")
    assert roles["FleetRole"]["ManagedPolicyArns"] == [
        {"Fn::Sub": f"{MANAGED_POLICIES}/service-role/AmazonEC2SpotFleetTaggingRole"}
    ]
    (statement,) = roles["FleetRole"]["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "spotfleet.amazonaws.com"}
    fleet = only_resource("spotfleet", "AWS::EC2::SpotFleet")["SpotFleetRequestConfigData"]
    assert fleet["IamFleetRole"] == {"Fn::GetAtt": ["FleetRole", "Arn"]}


# -- ecs: a task is placed on a GPU --------------------------------------------------------------


def test_the_ecs_task_asks_for_gpus() -> None:
    (container,) = only_resource("ecs", "AWS::ECS::TaskDefinition")["ContainerDefinitions"]
    assert container["ResourceRequirements"] == [{"Type": "GPU", "Value": {"Ref": "TaskGpus"}}]
    parameter = cfn.template("ecs")["Parameters"]["TaskGpus"]
    assert int(parameter["Default"]) >= 1 and int(parameter["MinValue"]) >= 1


def test_the_ecs_service_runs_that_task_on_the_capacity_with_gpus() -> None:
    service = only_resource("ecs", "AWS::ECS::Service")
    assert service["TaskDefinition"] == {"Ref": "Task"}
    assert service["CapacityProviderStrategy"] == [
        {"CapacityProvider": {"Ref": "Capacity"}, "Weight": 1}
    ]


# -- which types a small job can start -----------------------------------------------------------


@pytest.mark.parametrize(("template", "parameter"), GPU_TYPE_PARAMETERS.items())
def test_a_job_with_one_gpu_starts_no_host_with_several(template: str, parameter: str) -> None:
    """AWS Batch takes what is cheapest per vCPU: a family has hosts with four GPUs in it."""
    default = catalogue.parse(template, read_template(template)).parameters[parameter].default
    hosts = ec2_types.expand(list_types(str(default)))
    assert hosts and {host.gpus for host in hosts} == {1}
