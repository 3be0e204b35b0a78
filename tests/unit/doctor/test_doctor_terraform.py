"""Terraform's plans and states, as `terraform show -json` prints them: whose user data is whose, and packed how."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from batchyard.doctor.finding import Report
from batchyard.doctor.template.examine import examine
from batchyard.doctor.template.references import bare, references

Values = dict[str, Any]

BLOCKING = "#!/bin/bash\necho ECS_CLUSTER=web >> /etc/ecs/ecs.config\nsystemctl restart docker\n"
HEALTHY = "#!/bin/bash\necho ECS_CLUSTER=web >> /etc/ecs/ecs.config\n"


def packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def resource(address: str, values: Values) -> Values:
    kind = bare(address).split(".")[-2]
    return {"address": address, "mode": "managed", "type": kind, "values": values}


def plan(resources: list[Values], configuration: Values | None = None, **more: Any) -> Values:
    """With the modules of a real one: each resource in the module that its address names."""
    root: Values = {"resources": []}
    children: dict[str, Values] = {}
    for one in resources:
        path = one["address"].rsplit(".", 2)[0] if one["address"].startswith("module.") else ""
        module = children.setdefault(path, {"address": path, "resources": []}) if path else root
        module["resources"].append(one)
    root["child_modules"] = list(children.values())
    found: Values = {"format_version": "1.2", "terraform_version": "1.9.5", "planned_values": {"root_module": root}}
    return found | {"configuration": {"root_module": configuration or {}}} | more


def look(document: Values) -> Report:
    return examine(json.dumps(document).encode(), "plan.json")


def found(report: Report) -> set[tuple[str, str]]:
    return {(f.id, f.place.split("(")[1].split(",")[0].rstrip(")")) for f in report.findings}


def environment(address: str, **resources: Any) -> Values:
    given = {"type": "EC2", "allocation_strategy": "BEST_FIT_PROGRESSIVE", "instance_type": ["g5.xlarge"]}
    settled = given | {"ec2_configuration": [{"image_type": "ECS_AL2023_NVIDIA"}]} | resources
    return resource(address, {"type": "MANAGED", "compute_resources": [settled]})


def uses(address: str, *names: str) -> Values:
    inner = {"launch_template": [{"launch_template_id": {"references": list(names)}}]}
    return {"address": address, "type": address.split(".")[0], "expressions": {"compute_resources": [inner]}}


CLUSTER = resource("aws_ecs_cluster.web", {"name": "web"})


def test_modules_with_the_same_names_are_told_apart() -> None:
    template = {"name": "", "user_data": packed(BLOCKING)}
    document = plan(
        [
            resource("module.web.aws_launch_template.this", dict(template)),
            resource("module.jobs[0].aws_launch_template.this", dict(template)),
            environment("module.jobs[0].aws_batch_compute_environment.this"),
        ],
        {
            "module_calls": {
                "web": {"module": {"resources": [{"address": "aws_launch_template.this", "expressions": {}}]}},
                "jobs": {
                    "module": {
                        "resources": [
                            uses(
                                "aws_batch_compute_environment.this",
                                "aws_launch_template.this.id",
                                "aws_launch_template.this",
                            )
                        ]
                    }
                },
            }
        },
    )
    assert found(look(document)) == {
        ("BY101", "module.web.aws_launch_template.this"),
        *((kind, "module.jobs[0].aws_launch_template.this") for kind in ("BY101", "BY102", "BY103")),
    }


def test_a_launch_template_is_followed_through_a_variable_and_an_output() -> None:
    calls = {
        "nodes": {
            "module": {
                "outputs": {"id": {"expression": {"references": ["aws_launch_template.gpu.id"]}}},
                "resources": [{"address": "aws_launch_template.gpu", "expressions": {}}],
            }
        },
        "jobs": {
            "expressions": {"launch_template": {"references": ["module.nodes.id", "module.nodes"]}},
            "module": {"resources": [uses("aws_batch_compute_environment.gpu", "var.launch_template")]},
        },
    }
    document = plan(
        [
            resource("module.nodes.aws_launch_template.gpu", {"user_data": packed(HEALTHY)}),
            environment("module.jobs.aws_batch_compute_environment.gpu"),
        ],
        {"module_calls": calls},
    )
    assert found(look(document)) == {(kind, "module.nodes.aws_launch_template.gpu") for kind in ("BY102", "BY103")}


def test_the_nodes_of_an_unmanaged_environment_may_name_their_cluster() -> None:
    unmanaged = resource("aws_batch_compute_environment.own", {"type": "UNMANAGED", "compute_resources": []})
    nodes = resource("aws_launch_template.own", {"user_data": packed(HEALTHY)})
    configuration = {"resources": [uses("aws_batch_compute_environment.own", "aws_launch_template.own")]}
    assert look(plan([unmanaged, nodes], configuration)).findings == ()


def test_in_a_state_the_launch_template_is_known_by_its_id() -> None:
    nodes = resource("aws_launch_template.gpu", {"id": "lt-1", "name": "gpu", "user_data": packed(HEALTHY)})
    other = resource("aws_launch_template.web", {"id": "lt-2", "name": "web", "user_data": packed(HEALTHY)})
    used = environment("aws_batch_compute_environment.gpu", launch_template=[{"launch_template_id": "lt-1"}])
    document = plan([nodes, other, used])
    state = {"format_version": "1.0", "values": document["planned_values"]}
    assert found(look(state)) == {(kind, "aws_launch_template.gpu") for kind in ("BY102", "BY103")}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("aws_launch_template", {"user_data": packed(BLOCKING)}),
        ("aws_launch_template", {"user_data": base64.b64encode(gzip.compress(BLOCKING.encode())).decode()}),
        ("aws_instance", {"user_data": BLOCKING}),
        ("aws_instance", {"user_data_base64": packed(BLOCKING), "user_data": None}),
        ("aws_spot_instance_request", {"user_data": BLOCKING}),
        ("aws_spot_fleet_request", {"launch_specification": [{"user_data": BLOCKING}]}),
        ("aws_launch_configuration", {"user_data": BLOCKING}),
        ("aws_launch_configuration", {"user_data_base64": packed(BLOCKING)}),
    ],
)
def test_user_data_is_found_wherever_and_however_packed(kind: str, values: Values) -> None:
    assert ("BY101", f"{kind}.node") in found(look(plan([CLUSTER, resource(f"{kind}.node", values)])))


def test_a_server_that_is_no_node_may_start_docker() -> None:
    build = resource("aws_instance.build", {"user_data": "#!/bin/bash\nsystemctl start docker\nsleep 5 secs\n"})
    assert look(plan([CLUSTER, build])).findings == ()


def test_user_data_that_is_not_known_yet_is_said_not_to_be_seen() -> None:
    change = {"address": "aws_launch_template.late", "change": {"after": {}, "after_unknown": {"user_data": True}}}
    known = {
        "address": "aws_instance.i",
        "change": {"after": {"user_data": "x"}, "after_unknown": {"user_data_base64": True}},
    }
    report = look(plan([CLUSTER, resource("aws_launch_template.late", {})], resource_changes=[change, known]))
    assert [(one.kind.id, one.why) for one in report.unseen] == [
        ("BY101", "the user data of aws_launch_template.late is known only when the plan is applied")
    ]
    assert "BY101" not in {kind.id for kind in report.right} and report.exit_code == 0


def test_a_load_balancer_is_open_on_purpose() -> None:
    open_to_all = {"ingress": [{"from_port": 8080, "to_port": 8080, "protocol": "tcp", "cidr_blocks": ["0.0.0.0/0"]}]}
    rule = {"type": "ingress", "from_port": 9000, "to_port": 9000, "protocol": "tcp", "cidr_blocks": ["0.0.0.0/0"]}
    document = plan(
        [
            resource("aws_lb.web", {}),
            resource("aws_security_group.web", dict(open_to_all)),
            resource("aws_security_group_rule.web", dict(rule)),
            resource("aws_security_group.nodes", dict(open_to_all)),
            resource("aws_security_group_rule.nodes", dict(rule)),
        ],
        {
            "resources": [
                {
                    "address": "aws_lb.web",
                    "expressions": {"security_groups": {"references": ["aws_security_group.web.id"]}},
                },
                {
                    "address": "aws_security_group_rule.web",
                    "expressions": {"security_group_id": {"references": ["aws_security_group.web.id"]}},
                },
                {
                    "address": "aws_security_group_rule.nodes",
                    "expressions": {"security_group_id": {"references": ["aws_security_group.nodes.id"]}},
                },
            ]
        },
    )
    assert found(look(document)) == {("BY202", "aws_security_group.nodes"), ("BY202", "aws_security_group_rule.nodes")}


def test_modules_that_point_at_each_other_come_to_an_end() -> None:
    around = {"expression": {"references": ["module.b.x"]}}
    back = {"expression": {"references": ["var.x"]}}
    calls = {
        "a": {"module": {"outputs": {"x": around}, "module_calls": {"b": {"module": {"outputs": {"x": back}}}}}},
    }
    calls["a"]["module"]["module_calls"]["b"]["expressions"] = {"x": {"references": ["module.b.x"]}}  # type: ignore[index]
    configuration = {
        "root_module": {
            "module_calls": calls,
            "resources": [{"address": "aws_lb.l", "expressions": {"n": {"references": ["module.a.x"]}}}],
        }
    }
    assert references(configuration) == {"aws_lb.l": []}
