"""Terraform's plans and states, as `terraform show -json` prints them: whose user data is whose,
and packed how.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from batchyard.doctor.finding import Report
from batchyard.doctor.template.examine import examine
from batchyard.doctor.template.terraform_references import find_references, remove_indexes
from batchyard.doctor.userdata.examine import CHECKS as USER_DATA_CHECKS

Values = dict[str, Any]

BLOCKING = "#!/bin/bash\necho ECS_CLUSTER=web >> /etc/ecs/ecs.config\nsystemctl restart docker\n"
HEALTHY = "#!/bin/bash\necho ECS_CLUSTER=web >> /etc/ecs/ecs.config\n"


def packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def resource(address: str, values: Values) -> Values:
    kind = remove_indexes(address).split(".")[-2]
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
    found: Values = {
        "format_version": "1.2",
        "terraform_version": "1.9.5",
        "planned_values": {"root_module": root},
    }
    return found | {"configuration": {"root_module": configuration or {}}} | more


def look(document: Values) -> Report:
    return examine(json.dumps(document).encode(), "plan.json")


def found(report: Report) -> set[tuple[str, str]]:
    return {(f.id, f.place.split("(")[1].split(",")[0].rstrip(")")) for f in report.findings}


def environment(address: str, **resources: Any) -> Values:
    given = {
        "type": "EC2",
        "allocation_strategy": "BEST_FIT_PROGRESSIVE",
        "instance_type": ["g5.xlarge"],
    }
    settled = given | {"ec2_configuration": [{"image_type": "ECS_AL2023_NVIDIA"}]} | resources
    return resource(address, {"type": "MANAGED", "compute_resources": [settled]})


def uses(address: str, *names: str) -> Values:
    inner = {"launch_template": [{"launch_template_id": {"references": list(names)}}]}
    return {
        "address": address,
        "type": address.split(".")[0],
        "expressions": {"compute_resources": [inner]},
    }


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
                "web": {
                    "module": {
                        "resources": [{"address": "aws_launch_template.this", "expressions": {}}]
                    }
                },
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
        *(
            (kind, "module.jobs[0].aws_launch_template.this")
            for kind in ("BY101", "BY102", "BY103")
        ),
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
            "module": {
                "resources": [uses("aws_batch_compute_environment.gpu", "var.launch_template")]
            },
        },
    }
    document = plan(
        [
            resource("module.nodes.aws_launch_template.gpu", {"user_data": packed(HEALTHY)}),
            environment("module.jobs.aws_batch_compute_environment.gpu"),
        ],
        {"module_calls": calls},
    )
    assert found(look(document)) == {
        (kind, "module.nodes.aws_launch_template.gpu") for kind in ("BY102", "BY103")
    }


def test_the_nodes_of_an_unmanaged_environment_may_name_their_cluster() -> None:
    unmanaged = resource(
        "aws_batch_compute_environment.own", {"type": "UNMANAGED", "compute_resources": []}
    )
    nodes = resource("aws_launch_template.own", {"user_data": packed(HEALTHY)})
    configuration = {
        "resources": [uses("aws_batch_compute_environment.own", "aws_launch_template.own")]
    }
    assert look(plan([unmanaged, nodes], configuration)).findings == ()


def test_in_a_state_the_launch_template_is_known_by_its_id() -> None:
    nodes = resource(
        "aws_launch_template.gpu", {"id": "lt-1", "name": "gpu", "user_data": packed(HEALTHY)}
    )
    other = resource(
        "aws_launch_template.web", {"id": "lt-2", "name": "web", "user_data": packed(HEALTHY)}
    )
    used = environment(
        "aws_batch_compute_environment.gpu", launch_template=[{"launch_template_id": "lt-1"}]
    )
    document = plan([nodes, other, used])
    state = {"format_version": "1.0", "values": document["planned_values"]}
    assert found(look(state)) == {(kind, "aws_launch_template.gpu") for kind in ("BY102", "BY103")}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("aws_launch_template", {"user_data": packed(BLOCKING)}),
        (
            "aws_launch_template",
            {"user_data": base64.b64encode(gzip.compress(BLOCKING.encode(), mtime=0)).decode()},
        ),
        ("aws_instance", {"user_data": BLOCKING}),
        ("aws_instance", {"user_data_base64": packed(BLOCKING), "user_data": None}),
        ("aws_spot_instance_request", {"user_data": BLOCKING}),
        ("aws_spot_fleet_request", {"launch_specification": [{"user_data": BLOCKING}]}),
        ("aws_launch_configuration", {"user_data": BLOCKING}),
        ("aws_launch_configuration", {"user_data_base64": packed(BLOCKING)}),
    ],
)
def test_user_data_is_found_wherever_and_however_packed(kind: str, values: Values) -> None:
    assert ("BY101", f"{kind}.node") in found(
        look(plan([CLUSTER, resource(f"{kind}.node", values)]))
    )


def test_a_server_that_is_no_node_may_start_docker() -> None:
    build = resource(
        "aws_instance.build", {"user_data": "#!/bin/bash\nsystemctl start docker\nsleep 5 secs\n"}
    )
    assert look(plan([CLUSTER, build])).findings == ()


def test_user_data_that_is_not_known_yet_is_said_not_to_be_seen() -> None:
    change = {
        "address": "aws_launch_template.late",
        "change": {"after": {}, "after_unknown": {"user_data": True}},
    }
    known = {
        "address": "aws_instance.i",
        "change": {"after": {"user_data": "x"}, "after_unknown": {"user_data_base64": True}},
    }
    report = look(
        plan([CLUSTER, resource("aws_launch_template.late", {})], resource_changes=[change, known])
    )
    assert {one.kind for one in report.unseen} == {kind for kind, _, _ in USER_DATA_CHECKS}
    assert {one.reason for one in report.unseen} == {
        "the user data of aws_launch_template.late is known only when the plan is applied"
    }
    assert not {one.kind for one in report.unseen} & set(report.passed) and report.exit_code == 0


def test_a_load_balancer_is_open_on_purpose() -> None:
    open_to_all = {
        "ingress": [
            {"from_port": 8080, "to_port": 8080, "protocol": "tcp", "cidr_blocks": ["0.0.0.0/0"]}
        ]
    }
    rule = {
        "type": "ingress",
        "from_port": 9000,
        "to_port": 9000,
        "protocol": "tcp",
        "cidr_blocks": ["0.0.0.0/0"],
    }
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
                    "expressions": {
                        "security_groups": {"references": ["aws_security_group.web.id"]}
                    },
                },
                {
                    "address": "aws_security_group_rule.web",
                    "expressions": {
                        "security_group_id": {"references": ["aws_security_group.web.id"]}
                    },
                },
                {
                    "address": "aws_security_group_rule.nodes",
                    "expressions": {
                        "security_group_id": {"references": ["aws_security_group.nodes.id"]}
                    },
                },
            ]
        },
    )
    assert found(look(document)) == {
        ("BY202", "aws_security_group.nodes"),
        ("BY202", "aws_security_group_rule.nodes"),
    }


def test_modules_that_point_at_each_other_come_to_an_end() -> None:
    around = {"expression": {"references": ["module.b.x"]}}
    back = {"expression": {"references": ["var.x"]}}
    calls = {
        "a": {
            "module": {
                "outputs": {"x": around},
                "module_calls": {"b": {"module": {"outputs": {"x": back}}}},
            }
        },
    }
    calls["a"]["module"]["module_calls"]["b"]["expressions"] = {"x": {"references": ["module.b.x"]}}  # type: ignore[index]
    configuration = {
        "root_module": {
            "module_calls": calls,
            "resources": [
                {"address": "aws_lb.l", "expressions": {"n": {"references": ["module.a.x"]}}}
            ],
        }
    }
    assert find_references(configuration) == {"aws_lb.l": []}


# -- groups, policies and capacity providers -----------------------------------------------------

SSH = {"from_port": 22, "to_port": 22}


@pytest.mark.parametrize(
    ("address", "values"),
    [
        (
            "aws_security_group_rule.r",
            {"type": "ingress", "protocol": "tcp", "ipv6_cidr_blocks": ["::/0"], **SSH},
        ),
        (
            "aws_security_group_rule.r",
            {
                "type": "ingress",
                "protocol": "tcp",
                "cidr_blocks": ["10.0.0.0/8", "0.0.0.0/0"],
                **SSH,
            },
        ),
        (
            "aws_security_group_rule.r",
            {"type": "ingress", "protocol": "all", "cidr_blocks": ["0.0.0.0/0"]},
        ),
        (
            "aws_vpc_security_group_ingress_rule.r",
            {"ip_protocol": "tcp", "cidr_ipv6": "::/0", **SSH},
        ),
        (
            "aws_default_security_group.r",
            {"ingress": [{"protocol": "-1", "cidr_blocks": ["0.0.0.0/0"]}]},
        ),
        (
            "aws_security_group.r",
            {"ingress": [{"protocol": "tcp", "ipv6_cidr_blocks": ["fc00::/7", "::/0"], **SSH}]},
        ),
    ],
)
def test_a_rule_that_lets_the_world_in(address: str, values: Values) -> None:
    report = look(plan([resource(address, values)]))
    assert found(report) == {("BY202", address)} and len(report.findings) == 1
    closed = json.loads(
        json.dumps(values).replace("::/0", "fc00::/7").replace("0.0.0.0/0", "10.0.0.0/8")
    )
    assert look(plan([resource(address, closed)])).findings == ()


def test_a_rule_that_lets_out_lets_nobody_in() -> None:
    out = {
        "type": "egress",
        "protocol": "-1",
        "cidr_blocks": ["0.0.0.0/0"],
        "ipv6_cidr_blocks": ["::/0"],
    }
    assert look(plan([resource("aws_security_group_rule.out", out)])).findings == ()


EVERYTHING = json.dumps({"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
LITTLE = json.dumps({"Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]})


@pytest.mark.parametrize(
    "kind", ["aws_iam_policy", "aws_iam_role_policy", "aws_iam_user_policy", "aws_iam_group_policy"]
)
def test_a_policy_that_allows_everything(kind: str) -> None:
    assert found(look(plan([resource(f"{kind}.p", {"policy": EVERYTHING})]))) == {
        ("BY203", f"{kind}.p")
    }
    assert look(plan([resource(f"{kind}.p", {"policy": LITTLE})])).findings == ()


@pytest.mark.parametrize(
    "whose",
    ["aws_iam_policy", "aws_iam_role_policy", "aws_iam_user_policy", "aws_iam_group_policy"],
)
def test_an_attachment_of_one(whose: str) -> None:
    arn, address = "arn:aws:iam::aws:policy/", f"{whose}_attachment.a"
    assert found(look(plan([resource(address, {"policy_arn": arn + "AdministratorAccess"})]))) == {
        ("BY203", address)
    }
    assert look(plan([resource(address, {"policy_arn": arn + "ReadOnlyAccess"})])).findings == ()


def provider(**more: Any) -> Values:
    given = {
        "managed_termination_protection": "ENABLED",
        "managed_scaling": [{"status": "ENABLED"}],
    }
    return resource("aws_ecs_capacity_provider.p", {"auto_scaling_group_provider": [given | more]})


def of_group(protects: bool, **more: Any) -> Values:
    return resource("aws_autoscaling_group.g", {"protect_from_scale_in": protects, **more})


POINTS_AT_GROUP = {
    "resources": [
        {
            "address": "aws_ecs_capacity_provider.p",
            "expressions": {
                "auto_scaling_group_provider": [
                    {
                        "auto_scaling_group_arn": {
                            "references": ["aws_autoscaling_group.g.arn", "aws_autoscaling_group.g"]
                        }
                    }
                ]
            },
        }
    ]
}


@pytest.mark.parametrize("is_state", [False, True])
def test_termination_protection_needs_a_group_that_protects(is_state: bool) -> None:
    """In a plan the group is named by the configuration, in a state by its ARN."""
    arn = {"arn": "arn:aws:autoscaling:::g"} if is_state else {}
    given = provider(auto_scaling_group_arn=arn["arn"]) if is_state else provider()
    configuration = None if is_state else POINTS_AT_GROUP
    sick = look(plan([given, of_group(False, **arn)], configuration))
    assert found(sick) == {("BY211", "aws_ecs_capacity_provider.p")}
    assert look(plan([given, of_group(True, **arn)], configuration)).findings == ()


def test_termination_protection_needs_managed_scaling() -> None:
    disabled = provider(managed_scaling=[{"status": "DISABLED"}])
    assert found(look(plan([disabled, of_group(True)], POINTS_AT_GROUP))) == {
        ("BY211", "aws_ecs_capacity_provider.p")
    }


# -- what is known only when the plan is applied -------------------------------------------------


@pytest.mark.parametrize(
    ("one", "unknown", "kind"),
    [
        (
            environment("aws_batch_compute_environment.c", instance_type=None),
            {"compute_resources": [{"instance_type": True, "desired_vcpus": True}]},
            "BY021",
        ),
        (
            environment("aws_batch_compute_environment.c"),
            {"compute_resources": [{"instance_role": True}]},
            "BY204",
        ),
        (
            environment("aws_batch_compute_environment.c"),
            {"compute_resources": [{"image_id": True}]},
            "BY022",
        ),
        (resource("aws_iam_role_policy.p", {}), {"policy": True, "id": True}, "BY203"),
        (resource("aws_iam_role_policy_attachment.p", {}), {"policy_arn": True}, "BY203"),
        (
            resource("aws_security_group_rule.r", {"type": "ingress", "protocol": "-1"}),
            {"cidr_blocks": True},
            "BY202",
        ),
    ],
)
def test_what_is_not_known_yet_is_not_called_right(one: Values, unknown: Values, kind: str) -> None:
    change = {"address": one["address"], "change": {"after": {}, "after_unknown": unknown}}
    report = look(plan([one], resource_changes=[change]))
    assert report.findings == ()
    whys = {each.kind.id: each.reason for each in report.unseen}
    assert "known only when the plan is applied" in whys[kind] and kind not in {
        each.id for each in report.passed
    }
    assert kind in {each.id for each in look(plan([one])).passed} or kind == "BY021"


ROLE_UNKNOWN = {
    "address": "aws_batch_compute_environment.c",
    "change": {"after": {}, "after_unknown": {"compute_resources": [{"instance_role": True}]}},
}


def test_a_role_that_does_not_exist_yet_is_known_by_what_it_is() -> None:
    def with_role(name: str) -> Report:
        inner = {"compute_resources": [{"instance_role": {"references": [f"{name}.arn", name]}}]}
        service = {
            "service_role": {"references": ["aws_iam_role.service.arn", "aws_iam_role.service"]}
        }
        one = {"address": "aws_batch_compute_environment.c", "expressions": inner | service}
        these = [
            environment("aws_batch_compute_environment.c"),
            resource("aws_iam_role.nodes[0]", {}),
        ]
        return look(plan(these, {"resources": [one]}, resource_changes=[ROLE_UNKNOWN]))

    assert found(with_role("aws_iam_role.nodes")) == {("BY204", "aws_batch_compute_environment.c")}
    healthy = with_role("aws_iam_instance_profile.nodes")
    assert healthy.findings == () and "BY204" in {kind.id for kind in healthy.passed}


@pytest.mark.parametrize(("system", "kinds"), [("2", {"BY022"}), ("2023", set())])
def test_an_image_is_known_by_the_path_where_it_is_looked_up(system: str, kinds: set[str]) -> None:
    name = f"/aws/service/ecs/optimized-ami/amazon-linux-{system}/recommended/image_id"
    data = {"address": "data.aws_ssm_parameter.image", "mode": "data", "type": "aws_ssm_parameter"}
    prior = {"values": {"root_module": {"resources": [data | {"values": {"name": name}}]}}}
    image = {"references": ["data.aws_ssm_parameter.image.value", "data.aws_ssm_parameter.image"]}
    template = {"address": "aws_launch_template.n", "expressions": {"image_id": image}}
    own = {
        "address": "aws_batch_compute_environment.c",
        "expressions": {
            "compute_resources": [{"ec2_configuration": [{"image_id_override": image}]}]
        },
    }
    these = [
        resource("aws_launch_template.n", {"image_id": "ami-1"}),
        environment("aws_batch_compute_environment.c"),
    ]
    report = look(plan(these, {"resources": [template, own]}, prior_state=prior))
    assert {kind for kind, _ in found(report)} == kinds and len(found(report)) == 2 * len(kinds)


def test_a_state_has_a_strategy_that_nobody_asked_for() -> None:
    spread = {
        "on_demand_percentage_above_base_capacity": 100,
        "spot_allocation_strategy": "lowest-price",
    }
    group = resource(
        "aws_autoscaling_group.g",
        {"mixed_instances_policy": [{"instances_distribution": [spread]}]},
    )
    assert found(look(plan([group]))) == {("BY209", "aws_autoscaling_group.g")}
    state = {"format_version": "1.0", "values": {"root_module": {"resources": [group]}}}
    assert look(state).findings == ()
    spread["spot_max_price"] = "0.1"
    assert found(look(state)) == {("BY209", "aws_autoscaling_group.g")}


def test_a_job_asks_for_gpus_in_any_form_of_definition() -> None:
    cpus = {
        "instance_type": ["c5.large", "m5.large"],
        "ec2_configuration": [{"image_type": "ECS_AL2023"}],
    }
    container = {"resourceRequirements": [{"type": "GPU", "value": "1"}]}
    for key, value in {
        "container_properties": container,
        "ecs_properties": {"taskProperties": [{"containers": [container]}]},
        "node_properties": {"nodeRangeProperties": [{"container": container}]},
    }.items():
        job = resource("aws_batch_job_definition.j", {key: json.dumps(value)})
        sick = plan([environment("aws_batch_compute_environment.c", **cpus), job])
        assert found(look(sick)) == {("BY017", "aws_batch_job_definition.j")}
        assert look(plan([environment("aws_batch_compute_environment.c"), job])).findings == ()
