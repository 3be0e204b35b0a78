"""A service as a CloudFormation template. Pure.

Values of the user are plain text in the template: none is inside Fn::Sub.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from batchyard.infra import catalogue
from batchyard.infra.catalogue import Template
from batchyard.infra.instance_choices import UNITS_PER_VCPU
from batchyard.pipeline import Mount
from batchyard.services.service import Service, stack_title, template_name

Document = dict[str, Any]

#: The container of a task.
CONTAINER = "main"
COUNT = "Count"
_LOG_RETENTION_DAYS = 30
#: Where nodes have their NVMe disks: infra/userdata/common.sh mounts them.
_INSTANCE_STORE = "/mnt/instance-store"
#: The default /dev/shm of a service with GPUs is this part of its memory, as that of a step.
_SHM_DIVISOR = 2
#: stack of the cluster -> exports of its cluster, its capacity provider, and the role of tasks
_EXPORTS: dict[str, tuple[str, str | None, str]] = {
    "ecs": ("ecs-cluster", "ecs-capacity-provider", "ecs-task-role"),
    "spotfleet": ("spotfleet-cluster", None, "job-role"),
}


def make_template(service: Service, environment: str, cluster: str, image: str) -> Template:
    """Return the template of a service's stack.

    ``cluster`` is one of service.CLUSTERS; ``image`` is the address to pull.
    """
    is_awsvpc = service.network == "awsvpc"
    resources = {
        "Logs": _make_logs(service, environment),
        "Task": _make_task(service, environment, cluster, image),
        "Service": _make_service(service, environment, cluster),
        **({"SecurityGroup": _make_security_group(service, environment)} if is_awsvpc else {}),
    }
    document = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": stack_title(environment, service.name),
        "Parameters": _make_parameters(is_awsvpc),
        "Resources": resources,
        "Outputs": {
            "Cluster": {"Value": _import(_EXPORTS[cluster][0])},
            "Service": {"Value": {"Fn::GetAtt": ["Service", "Name"]}},
            "LogGroup": {"Value": {"Ref": "Logs"}},
        },
    }
    return parse_template(service.name, json.dumps(document, indent=1))


def parse_template(name: str, text: str) -> Template:
    """Return the template of a service from its text."""
    template = catalogue.parse(template_name(name), text)
    return replace(template, delete_command=f"service down {name}")


def _make_parameters(is_awsvpc: bool) -> Document:
    parameters: Document = {
        "Env": {"Type": "String"},
        COUNT: {"Type": "Number", "Default": 1, "MinValue": 0},
    }
    if is_awsvpc:
        kind = "AWS::SSM::Parameter::Value<List<AWS::EC2::Subnet::Id>>"
        parameters["Subnets"] = {"Type": kind}
    return parameters


def _import(export: str) -> Document:
    return {"Fn::ImportValue": {"Fn::Sub": f"${{Env}}-{export}"}}


def _make_tags(environment: str) -> list[Document]:
    return [{"Key": catalogue.ENVIRONMENT_TAG, "Value": environment}]


def _make_logs(service: Service, environment: str) -> Document:
    return {
        "Type": "AWS::Logs::LogGroup",
        "Properties": {
            "LogGroupName": f"/batchyard/{environment}/service/{service.name}",
            "RetentionInDays": _LOG_RETENTION_DAYS,
            "Tags": _make_tags(environment),
        },
    }


def _make_security_group(service: Service, environment: str) -> Document:
    """Return a group that lets only the nodes in, through which `forward` tunnels."""
    return {
        "Type": "AWS::EC2::SecurityGroup",
        "Properties": {
            "GroupDescription": f"Tasks of the service {service.name}; only nodes may connect",
            "VpcId": _import("vpc"),
            "SecurityGroupIngress": [
                {
                    "IpProtocol": "tcp",
                    "FromPort": port,
                    "ToPort": port,
                    "SourceSecurityGroupId": _import("security-group"),
                    "Description": "From the nodes",
                }
                for port in service.ports
            ],
            "Tags": _make_tags(environment),
        },
    }


# -- the service -----------------------------------------------------------------------------------


def _make_service(service: Service, environment: str, cluster: str) -> Document:
    cluster_export, provider_export, _ = _EXPORTS[cluster]
    properties: Document = {
        "ServiceName": service.name,
        "Cluster": _import(cluster_export),
        "TaskDefinition": {"Ref": "Task"},
        "DesiredCount": {"Ref": COUNT},
        "DeploymentConfiguration": {
            **_make_percentages(service),
            "DeploymentCircuitBreaker": {"Enable": True, "Rollback": True},
        },
        "EnableECSManagedTags": True,
        "PropagateTags": "SERVICE",
        "Tags": _make_tags(environment),
    }
    if provider_export is None:
        properties["LaunchType"] = "EC2"
    else:
        strategy = {"CapacityProvider": _import(provider_export), "Weight": 1}
        properties["CapacityProviderStrategy"] = [strategy]
    if service.network == "awsvpc":
        groups = [{"Fn::GetAtt": ["SecurityGroup", "GroupId"]}]
        configuration = {"Subnets": {"Ref": "Subnets"}, "SecurityGroups": groups}
        properties["NetworkConfiguration"] = {"AwsvpcConfiguration": configuration}
    return {"Type": "AWS::ECS::Service", "Properties": properties}


def _make_percentages(service: Service) -> Document:
    """Return how many tasks run during a deployment.

    A new task may need the GPU, or the port of the node, of the one that it replaces.
    """
    if service.gpus or service.network == "host":
        return {"MinimumHealthyPercent": 0, "MaximumPercent": 100}
    return {"MinimumHealthyPercent": 100, "MaximumPercent": 200}


# -- the task --------------------------------------------------------------------------------------


def _make_task(service: Service, environment: str, cluster: str, image: str) -> Document:
    names = [f"volume{number}" for number in range(len(service.volumes))]
    return {
        "Type": "AWS::ECS::TaskDefinition",
        "Properties": {
            "Family": service.stack_of(environment),
            "RequiresCompatibilities": ["EC2"],
            "NetworkMode": service.network,
            "TaskRoleArn": _import(_EXPORTS[cluster][2]),
            "ExecutionRoleArn": _import("execution-role"),
            "Volumes": [
                {"Name": name, **_make_source(volume)}
                for name, volume in zip(names, service.volumes, strict=True)
            ],
            "ContainerDefinitions": [_make_container(service, image, names)],
            "Tags": _make_tags(environment),
        },
    }


def _make_source(volume: Mount) -> Document:
    if volume.efs is None:
        return {"Host": {"SourcePath": volume.host or _INSTANCE_STORE}}
    configuration: Document = {
        "FilesystemId": volume.efs,
        "RootDirectory": volume.folder,
        "TransitEncryption": "ENABLED",
    }
    if volume.access_point:
        configuration["AuthorizationConfig"] = {"AccessPointId": volume.access_point}
    return {"EFSVolumeConfiguration": configuration}


def _make_container(service: Service, image: str, volume_names: list[str]) -> Document:
    region = {"Ref": "AWS::Region"}
    variables: Document = {"AWS_REGION": region, "AWS_DEFAULT_REGION": region, **service.env}
    container: Document = {
        "Name": CONTAINER,
        "Image": image,
        "Essential": True,
        "Cpu": service.cpus * UNITS_PER_VCPU,
        "Memory": service.memory_mib,
        "Environment": [{"Name": name, "Value": value} for name, value in variables.items()],
        "LinuxParameters": _make_linux_parameters(service),
        "LogConfiguration": {
            "LogDriver": "awslogs",
            "Options": {
                "awslogs-region": region,
                "awslogs-group": {"Ref": "Logs"},
                "awslogs-stream-prefix": service.name,
            },
        },
        "PortMappings": [{"ContainerPort": port, "Protocol": "tcp"} for port in service.ports],
        "MountPoints": [
            {"SourceVolume": name, "ContainerPath": volume.path, "ReadOnly": volume.read_only}
            for name, volume in zip(volume_names, service.volumes, strict=True)
        ],
        "Secrets": [{"Name": name, "ValueFrom": arn} for name, arn in service.secrets.items()],
    }
    if service.command:
        container["Command"] = list(service.command)
    if service.gpus:
        container["ResourceRequirements"] = [{"Type": "GPU", "Value": str(service.gpus)}]
    if service.health is not None:
        container["HealthCheck"] = {
            "Command": ["CMD-SHELL", service.health.command],
            "Interval": service.health.interval_s,
            "Timeout": service.health.timeout_s,
            "Retries": service.health.retries,
            **({"StartPeriod": service.health.start_s} if service.health.start_s else {}),
        }
    return container


def _make_linux_parameters(service: Service) -> Document:
    # Without an init process the command would be process 1, which ignores SIGTERM.
    parameters: Document = {"InitProcessEnabled": True}
    shm_mib = service.shm_mib or (service.memory_mib // _SHM_DIVISOR if service.gpus else None)
    if shm_mib:
        parameters["SharedMemorySize"] = shm_mib
    return parameters
