"""What a template says by conditions, maps, overrides, lookups and nested stacks, and what it
leaves open.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from batchyard.cli.doctor import command
from batchyard.cli.doctor_reports import read_nested_template
from batchyard.doctor.finding import Report
from batchyard.doctor.template.conditions import MAX_VARIANTS, make_variants
from batchyard.doctor.template.examine import examine
from batchyard.doctor.template.read import read

NOT_FOR_BATCH = """
  LT:
    Type: AWS::EC2::LaunchTemplate
    Properties:
      LaunchTemplateName: !Sub "${AWS::StackName}-nodes"
      LaunchTemplateData:
        UserData: !Base64 |
          #!/bin/bash
          echo ECS_CLUSTER=mine > /etc/ecs/ecs.config
"""
FOR_BATCH = {"BY102", "BY103", "BY105"}


def look(
    resources: str, head: str = "", files: dict[str, str] | None = None, name: str = "t.yaml"
) -> Report:
    encoded = {path: text.encode() for path, text in (files or {}).items()}
    return examine(f"{head}\nResources:\n{resources}".encode(), name, encoded.get)


def ids(report: Report) -> set[str]:
    return {finding.id for finding in report.findings}


def unseen(report: Report) -> dict[str, str]:
    return {one.kind.id: one.reason for one in report.unseen}


def right(report: Report) -> set[str]:
    return {kind.id for kind in report.passed}


def environment(
    resources: str = "", types: str = "[g5.xlarge, g6.xlarge]", image: str = "ECS_AL2023_NVIDIA"
) -> str:
    return f"""
  CE:
    Type: AWS::Batch::ComputeEnvironment
    Properties:
      Type: MANAGED
      ComputeResources:
        Type: EC2
        AllocationStrategy: BEST_FIT_PROGRESSIVE
        MaxvCpus: 16
        Subnets: [subnet-1]
        InstanceTypes: {types}
        Ec2Configuration: [{{ImageType: {image}}}]
        {resources}
"""


# -- launch templates ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "used",
    [
        (
            "{Overrides: [{LaunchTemplateId: !Ref LT, Version: '1', TargetInstanceTypes: "
            "[g5.xlarge]}]}"
        ),
        (
            "{LaunchTemplateName: x, Overrides: [{LaunchTemplateName: !Sub "
            "'${AWS::StackName}-nodes', Version: '1'}]}"
        ),
        "{LaunchTemplateId: !Sub '${LT}', Version: '1'}",
        "{LaunchTemplateId: !Sub '${LT.LaunchTemplateId}', Version: '1'}",
        "{LaunchTemplateId: !Sub ['${Own}', {Own: !Ref LT}], Version: '1'}",
        "{LaunchTemplateId: !Join ['', [!GetAtt LT.LaunchTemplateId]], Version: '1'}",
        "{LaunchTemplateName: !Join ['-', [!Ref 'AWS::StackName', nodes]], Version: '1'}",
        "{LaunchTemplateId: {'Fn::GetAtt': [LT, LaunchTemplateId]}, Version: '1'}",
    ],
)
def test_a_launch_template_that_batch_uses_is_found_however_it_is_named(used: str) -> None:
    assert ids(look(NOT_FOR_BATCH + environment(f"LaunchTemplate: {used}"))) == FOR_BATCH


@pytest.mark.parametrize(
    "used",
    ["{LaunchTemplateName: other}", "{LaunchTemplateId: !Sub 'lt-${LT}'}", "{Overrides: []}"],
)
def test_one_that_it_does_not_use_keeps_to_the_rules_of_ecs(used: str) -> None:
    assert ids(look(NOT_FOR_BATCH + environment(f"LaunchTemplate: {used}"))) == set()


def test_the_version_of_an_override_is_looked_at_too() -> None:
    used = "LaunchTemplate: {Overrides: [{LaunchTemplateId: !Ref LT, Version: %s}]}"
    own = "\n  LT:\n    Type: AWS::EC2::LaunchTemplate\n"
    assert ids(look(own + environment(used % "$Latest"))) == {"BY206"}
    assert ids(look(own + environment(used % "!GetAtt LT.LatestVersionNumber"))) == set()


# -- maps ----------------------------------------------------------------------------------------

MAPS = """
Parameters:
  Size: {Type: String, Default: old}
  Open: {Type: String}
Mappings:
  M:
    old: {types: [p3.2xlarge], image: ECS_AL2023_NVIDIA}
    new: {types: [g5.xlarge, g6.xlarge], image: ECS_AL2023_NVIDIA}
"""


@pytest.mark.parametrize("key", ["old", "!Ref Size", "!Sub '${Size}'", "!Select [1, [new, old]]"])
def test_a_map_is_looked_up(key: str) -> None:
    found = look(
        environment("", f"!FindInMap [M, {key}, types]", f"!FindInMap [M, {key}, image]"), MAPS
    )
    assert ids(found) == {"BY021"}


def test_its_healthy_twin_is_right() -> None:
    found = look(environment("", "!FindInMap [M, new, types]", "!FindInMap [M, new, image]"), MAPS)
    assert ids(found) == set() and "BY021" in right(found) and found.unseen == ()


def test_a_key_that_is_not_there_may_have_a_default() -> None:
    of_map = "!FindInMap [M, none, types, {DefaultValue: [p3.2xlarge]}]"
    assert ids(look(environment("", of_map), MAPS)) == {"BY021"}


@pytest.mark.parametrize(
    ("types", "why"),
    [
        ("!FindInMap [M, !Ref Open, types]", "the parameter Open has no default"),
        ("!FindInMap [M, none, types]", "its map has no such key"),
        ("[!Ref Open]", "the parameter Open has no default"),
        ("!Split [',', !ImportValue types]", "it is imported from another stack"),
        ("['{{resolve:ssm:/own/types}}']", "it is looked up when the stack is made"),
        ("[!GetAtt Asked.Type]", "Asked says it only when it is made"),
        ("[t9.large]", "t9.large of CE is in no built-in list"),
    ],
)
def test_what_hangs_on_something_open_is_not_called_right(types: str, why: str) -> None:
    found = look(environment("", types) + "\n  Asked:\n    Type: Custom::Asked\n", MAPS)
    assert ids(found) == set()
    assert why in unseen(found)["BY021"]
    assert not {"BY017", "BY018", "BY019", "BY020", "BY021", "BY023"} & right(found)
    assert {"BY054", "BY028", "BY202"} <= right(found)


@pytest.mark.parametrize(
    ("resources", "kind"),
    [
        (environment("BidPercentage: !Ref Open"), "BY028"),
        (environment("InstanceRole: !Ref Open"), "BY204"),
        (environment("ImageId: !Ref Open"), "BY022"),
        (environment("ImageId: ami-1"), "BY022"),
        (environment("", image="!Ref Open"), "BY020"),
        (environment().replace("BEST_FIT_PROGRESSIVE", "!Ref Open"), "BY054"),
        (
            NOT_FOR_BATCH.replace("UserData: !Base64 |", "UserData: !Ref Open\n        Rest: |")
            + environment(),
            "BY101",
        ),
        (
            "\n  I:\n    Type: AWS::EC2::Instance\n    Properties:\n"
            "      UserData: !Base64\n        Fn::Sub: |\n"
            "          #!/bin/bash\n          ${Open}\n          echo done\n",
            "BY101",
        ),
        (
            "\n  G:\n    Type: AWS::EC2::SecurityGroup\n    Properties:\n"
            "      SecurityGroupIngress: [{IpProtocol: tcp, FromPort: 22, ToPort: 22, "
            "CidrIp: !Ref Open}]\n",
            "BY202",
        ),
        (
            "\n  R:\n    Type: AWS::IAM::Role\n    Properties:\n"
            "      ManagedPolicyArns: [!Ref Open]\n",
            "BY203",
        ),
        (
            "\n  D:\n    Type: AWS::Batch::JobDefinition\n    Properties:\n      RetryStrategy:\n"
            "        {Attempts: 2, EvaluateOnExit: [{Action: RETRY, OnReason: !Ref Open}]}\n",
            "BY212",
        ),
        (
            "\n  P:\n    Type: AWS::ECS::CapacityProvider\n    Properties:\n"
            "      AutoScalingGroupProvider:\n"
            "        {AutoScalingGroupArn: !Ref Open, ManagedTerminationProtection: ENABLED}\n",
            "BY211",
        ),
    ],
)
def test_every_check_says_when_it_could_not_be_made(resources: str, kind: str) -> None:
    found = look(resources, MAPS)
    assert ids(found) == set() and kind in unseen(found) and kind not in right(found)
    assert found.exit_code == 0


def test_a_value_in_the_middle_of_a_script_leaves_it_examined() -> None:
    script = (
        "\n  I:\n    Type: AWS::EC2::Instance\n    Properties:\n      UserData: !Base64\n"
        "        Fn::Sub: |\n"
    )
    found = look(
        script
        + "          #!/bin/bash\n          echo ECS_CLUSTER=${Open} >> /etc/ecs/ecs.config\n",
        MAPS,
    )
    assert found.unseen == () and "BY101" in right(found)


def test_types_that_are_known_are_judged_beside_those_that_are_not() -> None:
    assert ids(look(environment("", "[p3.2xlarge, !Ref Open]"), MAPS)) == {"BY021"}
    assert ids(look(environment("", "[p3.2xlarge, t9.large]"), MAPS)) == {"BY021"}


# -- conditions ----------------------------------------------------------------------------------

CHOICE = """
Parameters:
  Kind: {Type: String, Default: cpu, AllowedValues: [cpu, gpu]}
  Extra: {Type: String, Default: ""}
Conditions:
  IsGpu: !Equals [!Ref Kind, gpu]
  IsCpu: !Not [!Condition IsGpu]
  HasExtra: !Not [!Equals [!Ref Extra, ""]]
  Both: !And [{Condition: IsGpu}, {Condition: HasExtra}]
  Never: !And [!Condition IsGpu, !Condition IsCpu]
  Abroad: !Equals [!Ref "AWS::Region", eu-west-1]
  Imported: !Equals [!ImportValue a, b]
"""
PART = """MIME-Version: 1.0
            Content-Type: multipart/mixed; boundary="B"

            --B
            Content-Type: text/x-shellscript

            #!/bin/bash
            %s
            --B--
"""


def two_scripts(condition: str, first: str, second: str) -> str:
    return f"""
  C:
    Type: AWS::ECS::Cluster
  LT:
    Type: AWS::EC2::LaunchTemplate
    Properties:
      LaunchTemplateData:
        UserData: !If
        - {condition}
        - Fn::Base64: |
            {PART % first}
        - Fn::Base64: |
            {PART % second}
"""


@pytest.mark.parametrize(
    "condition", ["IsGpu", "IsCpu", "HasExtra", "Both", "Abroad", "Imported", "Nowhere"]
)
@pytest.mark.parametrize(
    "scripts", [("echo", "systemctl restart ecs"), ("systemctl restart ecs", "echo")]
)
def test_both_branches_are_examined(condition: str, scripts: tuple[str, str]) -> None:
    found = look(two_scripts(condition, *scripts), CHOICE)
    assert ids(found) == {"BY101"} and len(found.findings) == 1
    text = f"{CHOICE}\nResources:\n{two_scripts(condition, *scripts)}".splitlines()
    assert "systemctl" in text[int(found.findings[0].place.split(":")[1].split()[0]) - 1]


def test_what_can_never_come_to_pass_is_not_examined() -> None:
    assert ids(look(two_scripts("Never", "systemctl restart ecs", "echo"), CHOICE)) == set()


def test_branches_that_belong_together_are_judged_together() -> None:
    types, image = (
        "!If [IsGpu, [g5.xlarge, g6.xlarge], [c5.large, m5.large]]",
        "!If [IsGpu, ECS_AL2023_NVIDIA, ECS_AL2023]",
    )
    assert ids(look(environment("", types, image), CHOICE)) == set()
    assert ids(look(environment("", types, image.replace("IsGpu", "IsCpu")), CHOICE)) == {
        "BY017",
        "BY020",
    }


def test_nothing_is_left_where_a_branch_has_no_value() -> None:
    bid = "BidPercentage: !If [IsGpu, 20, !Ref 'AWS::NoValue']"
    spot = environment(bid).replace("Type: EC2", "Type: SPOT")
    assert ids(look(spot, CHOICE)) == {"BY028"}
    types = "[g5.xlarge, g6.xlarge, !If [IsGpu, !Ref 'AWS::NoValue', c5.large]]"
    assert ids(look(environment("", types), CHOICE)) == {"BY018"}
    assert ids(look(environment("", types.replace("IsGpu", "Never")), CHOICE)) == {"BY018"}
    assert (
        ids(
            look(
                environment(
                    "",
                    types.replace(
                        "[IsGpu, !Ref 'AWS::NoValue', c5.large]", "[Never, c5.large, g4dn.xlarge]"
                    ),
                ),
                CHOICE,
            )
        )
        == set()
    )


def test_a_resource_with_a_condition_is_there_only_when_that_holds() -> None:
    job = """
  Job:
    Type: AWS::Batch::JobDefinition
    Condition: %s
    Properties:
      ContainerProperties: {ResourceRequirements: [{Type: GPU, Value: 1}]}
"""
    types, image = (
        "!If [IsGpu, [g5.xlarge, g6.xlarge], [c5.large, m5.large]]",
        "!If [IsGpu, ECS_AL2023_NVIDIA, ECS_AL2023]",
    )
    assert ids(look(environment("", types, image) + job % "IsGpu", CHOICE)) == set()
    assert ids(look(environment("", types, image) + job % "IsCpu", CHOICE)) == {"BY017"}


def test_there_are_never_too_many_variants() -> None:
    names = [f"P{n}" for n in range(60)]
    parameters = "\n".join(f"  {name}: {{Type: String, Default: a}}" for name in names)
    conditions = "\n".join(f"  C{name}: !Equals [!Ref {name}, b]" for name in names)
    resources = "\n".join(
        f"  R{name}:\n    Type: AWS::EC2::SpotFleet\n    Condition: C{name}" for name in names
    )
    text = f"Parameters:\n{parameters}\nConditions:\n{conditions}\nResources:\n{resources}\n"
    assert len(make_variants(read(text.encode(), "t"))) <= MAX_VARIANTS
    assert len(examine(text.encode(), "t").findings) == 60


def test_conditions_that_name_themselves_come_to_an_end() -> None:
    head = "Conditions:\n  A: !Not [!Condition B]\n  B: !Or [!Condition A, !Condition A]\n"
    assert ids(look("\n  F:\n    Type: AWS::EC2::SpotFleet\n    Condition: A\n", head)) <= {"BY208"}


# -- images --------------------------------------------------------------------------------------

SSM = """
Parameters:
  Ami:
    Type: AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>
    Default: /aws/service/ecs/optimized-ami/amazon-linux-2%s/gpu/recommended/image_id
"""
IMAGES = [
    environment("ImageId: !Ref Ami"),
    environment(
        "ImageId: '{{resolve:ssm:/aws/service/ecs/optimized-ami/"
        "amazon-linux-2%s/recommended/image_id}}'"
    ),
    environment().replace("NVIDIA}", "NVIDIA, ImageIdOverride: !Ref Ami}"),
    environment("LaunchTemplate: {LaunchTemplateId: !Ref LT, Version: '1'}")
    + (
        "\n  LT:\n    Type: AWS::EC2::LaunchTemplate\n    Properties: {LaunchTemplateData: "
        "{ImageId: !Ref Ami}}\n"
    ),
    environment()
    + "\n  LT:\n    Type: AWS::EC2::LaunchTemplate\n    Properties: {LaunchTemplateData: {ImageId: "
    "'resolve:ssm:/aws/service/ecs/optimized-ami/amazon-linux-2%s/recommended/image_id'}}\n",
]


@pytest.mark.parametrize("resources", IMAGES)
def test_amazon_linux_2_is_known_by_its_path(resources: str) -> None:
    assert ids(look(resources.replace("%s", ""), SSM % "")) == {"BY022"}
    healthy = look(resources.replace("%s", "023"), SSM % "023")
    assert ids(healthy) == set() and "BY022" in right(healthy)


# -- policies ------------------------------------------------------------------------------------

ROLE = """
  R:
    Type: AWS::IAM::%s
    Properties:
      PolicyDocument:
        Statement: [{Effect: Allow, %s}]
"""


@pytest.mark.parametrize(
    "statement",
    [
        "NotAction: 'iam:*', Resource: '*'",
        "NotAction: ['iam:*', 'sts:*'], Resource: ['*']",
        "Action: '*', NotResource: 'arn:aws:s3:::a'",
        "Action: '*:*', Resource: '*'",
        "Action: ['S3:*'], Resource: ['*', !GetAtt B.Arn]",
        "Action: [!Ref Open, 'ec2:*'], Resource: '*'",
    ],
)
def test_a_policy_that_allows_too_much(statement: str) -> None:
    for kind in ("Policy", "ManagedPolicy", "RolePolicy", "UserPolicy"):
        assert ids(look(ROLE % (kind, statement), MAPS)) == {"BY203"}


@pytest.mark.parametrize(
    "statement",
    [
        "NotAction: 'iam:*', Resource: !GetAtt B.Arn",
        "Action: 's3:Get*', Resource: '*'",
        "Action: 'batch:*', Resource: '*'",
        "Action: 's3:*', Resource: [!GetAtt B.Arn, !Sub '${B.Arn}/*']",
    ],
)
def test_a_policy_that_does_not(statement: str) -> None:
    assert ids(look(ROLE % ("Policy", statement))) == set()
    denied = ROLE.replace("Allow", "Deny") % ("Policy", "NotAction: 'iam:*', Resource: '*'")
    assert ids(look(denied)) == set()


def test_policies_of_a_serverless_function_are_read() -> None:
    function = "\n  F:\n    Type: AWS::Serverless::Function\n    Properties:\n      Policies: %s\n"
    head = "Transform: AWS::Serverless-2016-10-31"
    for sick in (
        "AdministratorAccess",
        "[AdministratorAccess]",
        "[{Statement: [{Effect: Allow, Action: '*', Resource: '*'}]}]",
    ):
        assert ids(look(function % sick, head)) == {"BY203"}
    for healthy in ("AWSLambdaExecute", "[{S3ReadPolicy: {BucketName: b}}]"):
        assert ids(look(function % healthy, head)) == set()


# -- groups --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "is_open"),
    [
        ("IpProtocol: tcp, FromPort: 22, ToPort: 22, CidrIp: 0.0.0.0/0", True),
        ("IpProtocol: tcp, FromPort: 22, ToPort: 22, CidrIpv6: '::0/0'", True),
        ("IpProtocol: tcp, FromPort: 22, ToPort: 22, CidrIp: 10.0.0.0/8, CidrIpv6: '::/0'", True),
        ("IpProtocol: '-1', CidrIp: 1.2.3.4/0", True),
        ("IpProtocol: -1, FromPort: 443, ToPort: 443, CidrIp: 0.0.0.0/0", True),
        ("IpProtocol: tcp, FromPort: 443, ToPort: 443, CidrIp: 0.0.0.0/0", False),
        ("IpProtocol: tcp, FromPort: !Ref Open, ToPort: !Ref Open, CidrIp: 0.0.0.0/0", False),
        ("IpProtocol: tcp, FromPort: 22, ToPort: 22, CidrIp: !GetAtt Vpc.CidrBlock", False),
        ("IpProtocol: icmp, FromPort: 8, ToPort: -1, CidrIp: 0.0.0.0/0", False),
    ],
)
def test_a_rule_is_open_to_the_world_however_that_is_written(rule: str, is_open: bool) -> None:
    wanted = {"BY202"} if is_open else set()
    group = (
        "\n  G:\n    Type: AWS::EC2::SecurityGroup\n    Properties: {SecurityGroupIngress: "
        "[{%s}]}\n"
    )
    alone = "\n  G:\n    Type: AWS::EC2::SecurityGroupIngress\n    Properties: {%s}\n"
    assert ids(look(group % rule, MAPS)) == ids(look(alone % rule, MAPS)) == wanted


# -- nested stacks -------------------------------------------------------------------------------

OUTER = """
  Nodes:
    Type: AWS::CloudFormation::Stack
    Properties:
      TemplateURL: %s
      Parameters:
        Boot: |
          echo first
          systemctl restart ecs
"""
INNER = f"""
Parameters:
  Boot: {{Type: String}}
Resources:
  LT:
    Type: AWS::EC2::LaunchTemplate
    Properties:
      LaunchTemplateData:
        UserData: !Base64
          Fn::Sub: |
            #!/bin/bash
            ${{Boot}}
{environment("LaunchTemplate: {LaunchTemplateId: !Ref LT, Version: '1'}")}
"""


def test_a_nested_template_is_examined_with_what_it_is_given() -> None:
    found = look(
        OUTER % "./inner/nodes.yaml", files={"stacks/inner/nodes.yaml": INNER}, name="stacks/t.yaml"
    )
    assert ids(found) == {"BY101", "BY103"}
    assert all(finding.place.startswith("stacks/inner/nodes.yaml:") for finding in found.findings)
    assert found.unseen == ()


def test_a_nested_template_that_makes_nothing_of_it_is_right() -> None:
    inner = "Parameters:\n  Boot: {Type: String}\nResources:\n  T: {Type: 'AWS::SNS::Topic'}\n"
    found = look(OUTER % "nodes.yaml", files={"nodes.yaml": inner})
    assert found.findings == () and found.unseen == ()


@pytest.mark.parametrize(
    "url", ["https://s3.amazonaws.com/b/nodes.yaml", "gone.yaml", "broken.yaml", "!Ref Open"]
)
def test_what_could_not_be_followed_is_said(url: str) -> None:
    outer = OUTER.replace("          echo first", "          echo ecs") % url
    found = look(outer, MAPS, files={"broken.yaml": "a: ["})
    assert ids(found) == {"BY101"}
    assert "Nodes hands a script on to a template that could not be read" in unseen(found)["BY103"]


def test_a_template_that_nests_itself_comes_to_an_end() -> None:
    text = "Resources:" + OUTER % "t.yaml"
    assert examine(text.encode(), "t.yaml", lambda path: text.encode()).exit_code in (0, 1)


def test_the_command_reads_what_lies_beside_a_template(tmp_path: Path) -> None:
    outer, inner = tmp_path / "t.yaml", tmp_path / "inner" / "nodes.yaml"
    inner.parent.mkdir()
    inner.write_text(INNER)
    outer.write_text("Resources:" + OUTER % "inner/nodes.yaml")
    shown = CliRunner().invoke(command, ["template", str(outer)], standalone_mode=False)
    assert shown.return_value == 1 and "BY103" in shown.output and f"{inner}:" in shown.output
    # Of standard input nobody knows where it lies.
    piped = CliRunner().invoke(
        command, ["template", "-"], input=outer.read_bytes(), standalone_mode=False
    )
    assert "BY103" not in piped.output and "could not run" in piped.output


def test_what_is_no_file_lies_beside_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "gone", tmp_path / "pipe", "\0"):
        assert read_nested_template(str(path)) is None


def test_a_nested_stack_of_the_cdk_lies_where_its_metadata_say() -> None:
    properties = {
        "TemplateURL": {"Fn::Sub": "https://s3.${AWS::Region}.x/y"},
        "Parameters": {"Boot": "start ecs"},
    }
    stack = {
        "Type": "AWS::CloudFormation::Stack",
        "Properties": properties,
        "Metadata": {"aws:asset:path": "N.json"},
    }
    data = json.dumps({"Resources": {"N": stack}}).encode()
    found = examine(data, "cdk.out/t.json", {"cdk.out/N.json": INNER.encode()}.get)
    assert ids(found) == {"BY101", "BY103"}


# -- sick and healthy twins ----------------------------------------------------------------------

JOB = """
  D:
    Type: AWS::Batch::JobDefinition
    Properties:
      %s
"""
CPUS = environment("", "[c5.large, m5.large]", "ECS_AL2023")
ASKS = "ResourceRequirements: [{Type: GPU, Value: '1'}]"
ROLES = "\n  R:\n    Type: AWS::IAM::Role\n  P:\n    Type: AWS::IAM::InstanceProfile\n"
OWN = (
    "\n  LT:\n    Type: AWS::EC2::LaunchTemplate\n    Properties:\n      LaunchTemplateName: mine\n"
)
GROUP = """
  G:
    Type: AWS::AutoScaling::AutoScalingGroup
    Properties: {NewInstancesProtectedFromScaleIn: %s}
  P:
    Type: AWS::ECS::CapacityProvider
    Properties:
      AutoScalingGroupProvider:
        AutoScalingGroupArn: %s
        ManagedTerminationProtection: ENABLED
        ManagedScaling: {Status: ENABLED}
"""


@pytest.mark.parametrize(
    "asks",
    [
        "ContainerProperties: {%s}",
        "EcsProperties: {TaskProperties: [{Containers: [{%s}]}]}",
        "NodeProperties: {NodeRangeProperties: [{Container: {%s}}]}",
        "NodeProperties: {NodeRangeProperties: [{EcsProperties: {TaskProperties: "
        "[{Containers: [{%s}]}]}}]}",
    ],
)
def test_a_job_asks_for_gpus_in_any_form_of_definition(asks: str) -> None:
    assert ids(look(CPUS + JOB % (asks % ASKS))) == {"BY017"}
    assert ids(look(environment() + JOB % (asks % ASKS))) == set()
    assert ids(look(CPUS + JOB % (asks % ASKS.replace("GPU", "VCPU")))) == set()


@pytest.mark.parametrize(
    ("sick", "healthy"),
    [
        ("!GetAtt R.Arn", "!GetAtt P.Arn"),
        ("{'Fn::GetAtt': [R, Arn]}", "{'Fn::GetAtt': [P, Arn]}"),
        ("!Sub '${R.Arn}'", "!Sub '${P.Arn}'"),
        (
            "!Sub 'arn:aws:iam::${AWS::AccountId}:role/x'",
            "!Sub 'arn:aws:iam::${AWS::AccountId}:instance-profile/x'",
        ),
        (
            "!Join [':', [arn, !Ref Open, ':role/x']]",
            "!Join [':', [arn, !Ref Open, ':instance-profile/x']]",
        ),
    ],
)
def test_a_role_is_no_profile(sick: str, healthy: str) -> None:
    assert ids(look(ROLES + environment(f"InstanceRole: {sick}"), MAPS)) == {"BY204"}
    assert ids(look(ROLES + environment(f"InstanceRole: {healthy}"), MAPS)) == set()


@pytest.mark.parametrize(
    ("used", "is_sick"),
    [
        ("LaunchTemplateName: mine, Version: $Latest", True),
        ("LaunchTemplateId: !Ref LT, Version: !GetAtt LT.DefaultVersionNumber", True),
        ("LaunchTemplateId: !Ref LT, Version: {'Fn::GetAtt': [LT, DefaultVersionNumber]}", True),
        ("LaunchTemplateId: !Ref LT, Version: !If [IsGpu, $Latest, '3']", True),
        ("LaunchTemplateId: !Ref LT, Version: {'Fn::GetAtt': [LT, LatestVersionNumber]}", False),
        ("LaunchTemplateId: !Ref LT, Version: !Sub '${LT.LatestVersionNumber}'", False),
        ("LaunchTemplateName: other, Version: $Latest", False),
    ],
)
def test_changes_of_a_launch_template_reach_the_environment(used: str, is_sick: bool) -> None:
    found = look(OWN + environment(f"LaunchTemplate: {{{used}}}"), CHOICE)
    assert ids(found) == ({"BY206"} if is_sick else set())


@pytest.mark.parametrize("arn", ["!Ref G", "!GetAtt G.AutoScalingGroupARN", "!Sub '${G}'"])
def test_protection_of_a_group(arn: str) -> None:
    assert (
        ids(look(GROUP % ("false", arn)))
        == ids(look(GROUP % ("!If [IsGpu, true, false]", arn), CHOICE))
        == {"BY211"}
    )
    assert ids(look(GROUP % ("true", arn))) == ids(look(GROUP % ("!Ref Open", arn), MAPS)) == set()


@pytest.mark.parametrize(
    ("resources", "wanted"),
    [
        (
            JOB
            % (
                "RetryStrategy: {Attempts: 3, EvaluateOnExit: [{Action: RETRY, OnStatusReason: "
                "'*EC2*'}]}"
            ),
            "BY212",
        ),
        (
            JOB
            % (
                "RetryStrategy: {Attempts: 3, EvaluateOnExit: [{Action: RETRY, OnStatusReason: "
                "'Host EC2*'}]}"
            ),
            "",
        ),
        (
            JOB
            % (
                "RetryStrategy: !If [IsGpu, {EvaluateOnExit: [{Action: EXIT, OnReason: '*'}]}, "
                "{Attempts: 1}]"
            ),
            "BY212",
        ),
        (JOB % "Tags: !If [IsGpu, [{Key: a, Value: b}], {a: b}]", "BY210"),
        (JOB % "Tags: !If [IsGpu, {a: b}, !Ref 'AWS::NoValue']", ""),
        (
            OWN
            + (
                "      LaunchTemplateData: {MetadataOptions: {HttpPutResponseHopLimit: !If "
                "[IsGpu, 1, 2]}}"
            ),
            "BY056",
        ),
        (
            OWN
            + (
                "      LaunchTemplateData: {MetadataOptions: {HttpPutResponseHopLimit: !If "
                "[Never, 1, 2]}}"
            ),
            "",
        ),
        (
            OWN
            + (
                "      LaunchTemplateData: {InstanceMarketOptions: !If [IsGpu, {MarketType: "
                "spot}, {}]}"
            ),
            "BY213",
        ),
        (
            OWN
            + (
                "      LaunchTemplateData: {InstanceMarketOptions: !If [Never, {MarketType: "
                "spot}, {}]}"
            ),
            "",
        ),
    ],
)
def test_twins_that_hang_on_a_condition(resources: str, wanted: str) -> None:
    used = environment("LaunchTemplate: {Overrides: [{LaunchTemplateName: mine, Version: '1'}]}")
    assert ids(look(f"{resources}\n{used}", CHOICE)) == ({wanted} if wanted else set())


def test_a_name_that_is_fixed_and_an_environment_that_is_replaced() -> None:
    named = environment().replace(
        "Type: MANAGED", "Type: MANAGED\n      ComputeEnvironmentName: %s"
    )
    replaced = "x\n      ReplaceComputeEnvironment: !If [%s, true, false]"
    assert ids(look(named % "x")) == ids(look(named % (replaced % "IsGpu"), CHOICE)) == {"BY207"}
    assert ids(look(named % (replaced % "Never"), CHOICE)) == set()
    assert ids(look(named % "!If [Never, x, !Ref 'AWS::NoValue']", CHOICE)) == set()
    assert "BY207" in unseen(look(named % "x\n      ReplaceComputeEnvironment: !Ref Open", MAPS))


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        ("AWS::AutoScaling::LaunchConfiguration", "{ImageId: !Ref Ami}"),
        (
            "AWS::EC2::SpotFleet",
            "{SpotFleetRequestConfigData: {LaunchSpecifications: [{ImageId: !Ref Ami}]}}",
        ),
    ],
)
def test_amazon_linux_2_of_other_launches(kind: str, properties: str) -> None:
    nodes = (
        f"\n  C:\n    Type: AWS::ECS::Cluster\n  L:\n    Type: {kind}\n"
        f"    Properties: {properties}\n"
    )
    assert "BY022" in ids(look(nodes, SSM % ""))
    assert "BY022" not in ids(look(nodes, SSM % "023"))


@pytest.mark.parametrize(
    "script",
    [
        "{'Fn::Join': [\"\\n\", {'Fn::Split': ['|', '#!/bin/bash|systemctl restart ecs']}]}",
        "{'Fn::Join': [\"\\n\", !Ref Lines]}",
        "{'Fn::Select': [1, ['#!/bin/bash', \"#!/bin/bash\\nsystemctl restart ecs\"]]}",
        "{'Fn::FindInMap': [M, a, script]}",
        '{"Fn::Sub": ["#!/bin/bash\\nsystemctl restart ${S}", {S: !FindInMap [M, a, unit]}]}',
    ],
)
def test_a_script_that_is_put_together(script: str) -> None:
    head = """
Parameters:
  Lines: {Type: CommaDelimitedList, Default: "#!/bin/bash,systemctl restart ecs"}
Mappings:
  M: {a: {script: "#!/bin/bash\\nsystemctl restart ecs", unit: ecs}}
"""
    nodes = (
        "\n  C: {Type: AWS::ECS::Cluster}\n  LT:\n    Type: AWS::EC2::LaunchTemplate\n"
        "    Properties:\n"
    )
    assert ids(
        look(f"{nodes}      LaunchTemplateData: {{UserData: !Base64 {script}}}\n", head)
    ) == {"BY101"}
    healthy = f"{nodes}      LaunchTemplateData: {{UserData: !Base64 {script}}}\n".replace(
        "ecs", "nginx"
    )
    assert ids(look(healthy, head.replace("ecs", "nginx"))) == set()


@pytest.mark.parametrize(
    "head",
    [
        "Conditions: [a]",
        "Conditions: {A: x}",
        "Conditions: {A: {Condition: [a]}}",
        "Conditions: {A: !Equals [!Ref P]}\nParameters: {P: 3}",
        "Mappings: {M: [a]}",
        "Transform: [AWS::LanguageExtensions]",
    ],
)
def test_sections_of_any_shape_are_examined(head: str) -> None:
    odd = """
  Fn::ForEach::X: 3
  Fn::ForEach::Y: [a, [b], c]
  F:
    Type: AWS::EC2::SpotFleet
    Condition: [A]
    Properties: !If [A, {a: !FindInMap [M, a, b]}, !If [A, 1]]
"""
    assert ids(look(odd, head)) == {"BY208"}


# -- loops ---------------------------------------------------------------------------------------

LOOP = """
  Fn::ForEach::Kinds:
    - Kind
    - %s
    - ${Kind}Spot:
        Type: AWS::Batch::ComputeEnvironment
        Properties:
          ComputeEnvironmentName: !If [Never, !Ref Kind, !Ref "AWS::NoValue"]
          ComputeResources:
            Type: EC2
            AllocationStrategy: BEST_FIT
            InstanceTypes: [!Sub "${Kind}.xlarge", c5.large]
"""


def test_a_loop_is_written_out() -> None:
    extended = "Transform: AWS::LanguageExtensions\n"
    found = look(LOOP % "[g5, c5]", extended + CHOICE)
    assert ids(found) == {"BY018", "BY054"}
    assert {one.place.split("(")[1] for one in found.findings} == {"g5Spot)", "c5Spot)"}
    assert (
        ids(look(LOOP.replace("BEST_FIT", "BEST_FIT_PROGRESSIVE") % "[c5, m5]", extended + CHOICE))
        == set()
    )
    unknown = look(LOOP % "!Ref Open" + environment(), extended + MAPS)
    assert (
        "the list of the loop Kinds is not known" in unseen(unknown)["BY054"]
        and unknown.passed == ()
    )


def test_loops_in_loops_come_to_an_end() -> None:
    names = ",".join(f"n{n}" for n in range(1000))
    inner = (
        f"{{'Fn::ForEach::B': [B, [{names}], {{'${{A}}${{B}}': {{Type: 'AWS::EC2::SpotFleet'}}}}]}}"
    )
    found = look(
        f"\n  Fn::ForEach::A: [A, [{names}], {inner}]\n", "Transform: [AWS::LanguageExtensions]"
    )
    assert "A is not known" in unseen(found)["BY208"]
