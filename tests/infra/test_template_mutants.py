"""The facts of the templates are held: each mutant of a template fails at least one check.

The checks are all tests of the modules below that need no fixture.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import cfn
import pytest
import test_gpu_templates
import test_iam
import test_template_facts
import test_templates

MODULES = (test_templates, test_template_facts, test_gpu_templates, test_iam)

#: (template, what is right in it, what is wrong)
MUTANTS = [
    # Nodes that cost more, or cannot be used.
    ("batch", "Default: g4dn.xlarge,g4dn.2xlarge", "Default: g4dn.xlarge,g4dn.12xlarge"),
    ("batch", "ImageType: ECS_AL2023_NVIDIA", "ImageType: ECS_AL2023"),
    ("batch", "AllocationStrategy: SPOT_PRICE_CAPACITY_OPTIMIZED", "AllocationStrategy: BEST_FIT"),
    ("batch", "Id: !Ref GpuLaunchTemplate", "Id: !Ref CpuLaunchTemplate"),
    ("batch", "HttpPutResponseHopLimit: 2", "HttpPutResponseHopLimit: 1"),
    ("batch", "Encrypted: true", "Encrypted: false"),
    ("batch", "MinvCpus: !Ref GpuMinvCpus", "MinvCpus: 4"),
    ("batch", "TerminateJobsOnUpdate: false", "TerminateJobsOnUpdate: true"),
    ("batch", "MaxvCpus: !Ref GpuSpotMaxvCpus", "MaxvCpus: !Ref CpuSpotMaxvCpus"),
    # Queues and jobs.
    ("batch", "Order: 1, ComputeEnvironment: !Ref Gpu", "Order: 3, ComputeEnvironment: !Ref Gpu"),
    ("batch", "MaxTimeSeconds: !Ref CapacitySeconds", "MaxTimeSeconds: !Ref MisfitSeconds"),
    ("batch", "MinValue: 600\n    MaxValue: 86400\n", "MinValue: 60\n    MaxValue: 86400\n"),
    ("batch", 'OnStatusReason: "Host EC2*"', 'OnStatusReason: "*"'),
    ("batch", "SharedMemorySize: 4096", "SharedMemorySize: 64"),
    ("batch", "PropagateTags: true", "PropagateTags: false"),
    # Data.
    ("storage", "            Prefix: runs/\n", ""),
    ("storage", '"aws:SecureTransport": "false"', '"aws:SecureTransport": "true"'),
    ("storage", "      RetentionInDays: !Ref LogRetentionDays\n", ""),
    ("storage", "BlockPublicPolicy: true", "BlockPublicPolicy: false"),
    ("registry", "ScanOnPush: true", "ScanOnPush: false"),
    ("registry", '"tagStatus": "untagged"', '"tagStatus": "tagged"'),
    # Permissions.
    ("iam", "                      - /runs/*", "                      - /*"),
    ("iam", '"batch:Privileged": "false"', '"batch:Privileged": "true"'),
    ("iam", '"iam:PassedToService": ecs-tasks.', '"iam:PassedToService": ec2.'),
    ("iam", "secret:${Env}/*", "secret:*"),
    # The network.
    ("network", "MapPublicIpOnLaunch: !If [IsPublic, true, false]", "MapPublicIpOnLaunch: false"),
    ("network", "RouteTableId: !Ref Routes}", "RouteTableId: !Ref NatRoutes}"),
    ("network", "RouteTableIds: [!Ref Routes]", "RouteTableIds: []"),
    ("network", 'Default: "3"', 'Default: "2"'),
    ("network", "AvailabilityZone: !Select [1, !GetAZs", "AvailabilityZone: !Select [0, !GetAZs"),
    ("network", "PrivateDnsEnabled: true", "PrivateDnsEnabled: false"),
    # The optional stacks.
    ("image", "ImageTestsEnabled: true", "ImageTestsEnabled: false"),
    ("image", "until docker info", "while docker info"),
    ("spotfleet", "AmazonEC2SpotFleetTaggingRole", "AmazonEC2SpotFleetRole"),
    ("spotfleet", "Type: maintain", "Type: request"),
    ("batch-unmanaged", "MaxBatchSize: 1", "MaxBatchSize: 4"),
    ("ecs", "NewInstancesProtectedFromScaleIn: true", "NewInstancesProtectedFromScaleIn: false"),
    ("ecs", "MinimumHealthyPercent: 0", "MinimumHealthyPercent: 100"),
    ("gpu-batch-benchmark", '{Type: VCPU, Value: "16"}', '{Type: VCPU, Value: "2"}'),
]


def is_check(function: Callable[..., Any]) -> bool:
    names = {mark.name for mark in getattr(function, "pytestmark", [])}
    return function.__name__.startswith("test_") and "outside" not in names


def list_checks(module: ModuleType) -> Iterator[Callable[[], None]]:
    """The tests of a module, once for each of their parameters; those with fixtures left out."""
    for function in filter(inspect.isfunction, vars(module).values()):
        if not is_check(function):
            continue
        marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "parametrize"]
        named = [list(_arguments(mark)) for mark in marks]
        parameters = set(inspect.signature(function).parameters)
        for combination in itertools.product(*named):
            arguments = {key: value for part in combination for key, value in part.items()}
            if set(arguments) == parameters:
                yield partial(function, **arguments)


def _arguments(mark: Any) -> Iterator[dict[str, Any]]:
    names, values = mark.args[:2]
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    for value in values:
        row = getattr(value, "values", None) or (value if len(names) > 1 else (value,))
        yield dict(zip(names, row() if callable(row) else row, strict=True))


CHECKS = [check for module in MODULES for check in list_checks(module)]


def fails(check: Callable[[], None]) -> bool:
    try:
        check()
    except Exception:
        return True
    return False


def test_no_check_fails_on_the_templates_themselves() -> None:
    assert len(CHECKS) > 100
    assert [check for check in CHECKS if fails(check)] == []


@pytest.mark.parametrize(("name", "right", "wrong"), MUTANTS)
def test_a_mutant_is_noticed(name: str, right: str, wrong: str) -> None:
    with cfn.mutated(name, right, wrong):
        assert any(fails(check) for check in CHECKS), "no check notices it"
