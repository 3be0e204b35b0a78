"""Random input does not crash the doctor: bytes, near-shell, near-templates, near-facts."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from batchyard.doctor import facts_json, masking, show
from batchyard.doctor.host import parse as host_parse
from batchyard.doctor.host.facts import HostFacts
from batchyard.doctor.host.judge import judge as judge_host
from batchyard.doctor.judge import judge
from batchyard.doctor.shell.parse import parse
from batchyard.doctor.template.examine import examine as examine_template
from batchyard.doctor.userdata.examine import examine
from batchyard.errors import InputError

often = settings(suppress_health_check=list(HealthCheck))

SHELL = st.sampled_from(
    "if then fi else elif for in do done while until case esac function { } ( ) (( )) $( ` \" ' ; "
    ";; & && | || ! < > >> << <<- <<EOF EOF <<< 2>&1 \n \t \\ \\\n # #! $ ${ } ${x:-y} $x $@ $1 "
    "$(( )) = a= a=( [ ] [[ ]] * {a,b} x y/z ecs docker "
    "systemctl restart start service enable --now --no-block bash -c eval sudo trap EXIT source . "
    "cat tee echo printf /etc/ecs/ecs.config ECS_CLUSTER=x curl 169.254.169.254 51678 wait xargs "
    "timeout é \x00 \r\n".split(" ")
)
NEAR_SHELL = st.lists(st.tuples(SHELL, st.sampled_from(["", " ", " ", "\n"])), max_size=60).map(
    lambda pairs: "".join(word + gap for word, gap in pairs)
)
MULTIPART = 'Content-Type: multipart/mixed; boundary="b"\n\n--b\n'
HEADS = st.sampled_from(
    [
        "",
        "#!/bin/bash\n",
        "#cloud-config\n",
        "#cloud-boothook\n",
        "MIME-Version: 1.0\n",
        f"{MULTIPART}Content-Type: text/x-shellscript\n\n#!/bin/sh\n",
        f"{MULTIPART}Content-Type: text/cloud-config\n\nruncmd:\n  - ",
        "#cloud-config\nwrite_files:\n  - path: /etc/ecs/ecs.config\n    content: ",
        "## template: jinja\n",
    ]
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=12,
)
NAMES = st.sampled_from(
    "Resources Type Properties ComputeResources InstanceTypes LaunchTemplateData UserData "
    "Fn::Base64 Fn::Sub Fn::Join Fn::If Ref Fn::GetAtt "
    "AWS::Batch::ComputeEnvironment AWS::EC2::LaunchTemplate AWS::IAM::Role Policies "
    "PolicyDocument Statement Action Resource Ec2Configuration ImageType "
    "Parameters Default Transform SecurityGroupIngress CidrIp Tags".split()
)
NEAR_TEMPLATE = st.recursive(
    NAMES | st.text(max_size=8) | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=25,
)
RESOURCE_TYPES = st.sampled_from(
    [
        "AWS::Batch::ComputeEnvironment",
        "AWS::Batch::JobDefinition",
        "AWS::EC2::LaunchTemplate",
        "AWS::EC2::Instance",
        "AWS::IAM::Role",
        "AWS::EC2::SecurityGroup",
        "AWS::ECS::CapacityProvider",
        "AWS::AutoScaling::AutoScalingGroup",
    ]
)
TERRAFORM_TYPES = st.sampled_from(
    [
        "aws_batch_compute_environment",
        "aws_batch_job_definition",
        "aws_launch_template",
        "aws_instance",
        "aws_security_group",
        "aws_security_group_rule",
        "aws_iam_role",
        "aws_iam_role_policy",
        "aws_iam_role_policy_attachment",
        "aws_autoscaling_group",
    ]
)
TERRAFORM_VALUES = st.dictionaries(
    st.sampled_from(
        "compute_resources type instance_type launch_template user_data ingress policy "
        "inline_policy policy_arn retry_strategy container_properties mixed_instances_policy "
        "cidr_blocks metadata_options".split()
    ),
    PLAIN
    | st.lists(
        st.dictionaries(st.sampled_from(["instance_type", "cidr_blocks", "version"]), PLAIN),
        max_size=2,
    ),
)


@often
@given(st.binary(max_size=3000))
@example(b"\x1f\x8b" + b"\x00" * 20)
@example(b"#!/bin/bash\n" + b"f() " * 5000)
@example(b"((" * 5000)
@example(b"$(" * 5000)
@example(b'"${' * 5000)
def test_any_bytes_are_user_data(data: bytes) -> None:
    report = examine(data, "x")
    assert report.exit_code in (0, 1, 2)
    json.dumps(show.to_json(report))
    assert all(line.isprintable() for line in show.to_lines(report, with_all=True))


@often
@given(HEADS, NEAR_SHELL)
def test_anything_near_shell_is_followed(head: str, text: str) -> None:
    report = examine((head + text).encode(), "x")
    assert all(finding.kind.id in finding.page for finding in report.findings)


@often
@given(NEAR_SHELL)
def test_what_follows_whole_lines_of_any_text_is_still_seen_unless_it_is_inside_something(
    text: str,
) -> None:
    """A script that ends cleanly before it: the parser has come back to the top."""
    clean = "".join(c for c in text if c not in "'\"`$(){}<\\")
    opening = {"if", "for", "while", "until", "case", "function", "select", "EOF"}
    words = [w for w in clean.split() if not opening & set(re.split(r"[;&|!]+", w))]
    report = examine(
        ("#!/bin/sh\n: " + " ".join(words) + "\n\nsystemctl restart ecs\n").encode(), "x", "ecs"
    )
    assert any(f.id == "BY101" and f.place == "x:4" for f in report.findings)


@often
@given(st.text(max_size=500))
def test_any_text_is_parsed_to_its_end(text: str) -> None:
    parse(text)
    masking.mask_text(text)
    (
        host_parse.parse_jobs(text),
        host_parse.parse_units(text),
        host_parse.parse_processes(text),
        host_parse.parse_cloud_init(text),
    )
    (
        host_parse.parse_docker(text),
        host_parse.parse_agent(text),
        host_parse.parse_gpus(text),
        host_parse.find_setting(text, "A"),
    )


@often
@given(st.binary(max_size=1000) | PLAIN.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_template_or_refused_in_words(data: bytes) -> None:
    with suppress(InputError):
        examine_template(data, "x")


@often
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=5), st.tuples(RESOURCE_TYPES, NEAR_TEMPLATE), max_size=4
    ),
    NEAR_TEMPLATE,
)
def test_any_properties_of_known_resources_are_examined(
    given_resources: dict[str, Any], parameters: Any
) -> None:
    resources = {
        name: {"Type": kind, "Properties": value} for name, (kind, value) in given_resources.items()
    }
    text = json.dumps({"Resources": resources, "Parameters": parameters})
    examine_template(text.encode(), "x")


@often
@given(st.lists(st.tuples(TERRAFORM_TYPES, TERRAFORM_VALUES | PLAIN), max_size=5), PLAIN)
def test_any_plan_of_terraform_is_examined(
    resources: list[tuple[str, Any]], configuration: Any
) -> None:
    planned = [{"address": f"{kind}.x", "type": kind, "values": value} for kind, value in resources]
    plan = {
        "format_version": "1.2",
        "planned_values": {"root_module": {"resources": planned}},
        "configuration": configuration,
    }
    examine_template(json.dumps(plan).encode(), "x")


@often
@given(PLAIN, st.sampled_from(["aws", "host", "other"]))
def test_any_facts_are_judged_or_refused_in_words(value: Any, about: str) -> None:
    text = json.dumps({"batchyard_facts": 1, "about": about, "facts": value})
    with suppress(InputError):
        facts = facts_json.load(text)
        judge_host(facts) if isinstance(facts, HostFacts) else judge(facts)
