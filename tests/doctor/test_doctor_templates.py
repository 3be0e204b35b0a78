"""Templates: a sick and a healthy one of each finding, the forms in which they come, and the
project's own.
"""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path

import pytest

import batchyard
from batchyard.doctor.kinds import BY_ID
from batchyard.doctor.template.checks.table import CHECKS
from batchyard.doctor.template.examine import examine
from batchyard.doctor.userdata.examine import examine as examine_user_data
from batchyard.errors import InputError
from batchyard.infra import inline

HERE = Path(__file__).parent / "templates"
KINDS = sorted(kind.id for check in CHECKS for kind in check.kinds)
MARK = re.compile(r"# <-((?: BY\d{3})+)")

OURS = Path(batchyard.__file__).parent / "infra"
OUR_TEMPLATES = [
    *sorted((OURS / "templates").glob("*.y*ml")),
    Path(__file__).parents[2] / "gpu-batch-benchmark.yaml",
]
OUR_SCRIPTS = sorted((OURS / "userdata").glob("*.sh"))
#: what our own templates do on purpose
ON_PURPOSE = {"spotfleet.yaml": {"BY208"}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_sick_template_gives_its_finding_and_no_other(kind: str) -> None:
    report = examine((HERE / "pairs" / f"{kind}.sick.yaml").read_bytes(), "t.yaml")
    assert {finding.id for finding in report.findings} == {kind}
    assert all(re.match(r"t\.yaml:\d+ \(\w+\)$", finding.place) for finding in report.findings)
    assert report.exit_code == 1


@pytest.mark.parametrize("kind", KINDS)
def test_its_healthy_twin_gives_none(kind: str) -> None:
    report = examine((HERE / "pairs" / f"{kind}.healthy.yaml").read_bytes(), "t.yaml")
    assert [f"{finding.id} {finding.place} {finding.cause}" for finding in report.findings] == []
    assert BY_ID[kind] in report.passed


def marked(text: str) -> set[tuple[str, int]]:
    lines = enumerate(text.split("\n"), 1)
    return {
        (kind, number)
        for number, line in lines
        if (m := MARK.search(line))
        for kind in m[1].split()
    }


@pytest.mark.parametrize("name", ["cloudformation.yaml", "sam.yaml", "cfn-init.yaml"])
def test_findings_stand_on_their_lines(name: str) -> None:
    data = (HERE / "forms" / name).read_bytes()
    found = {(f.id, int(f.place.split(":")[1].split()[0])) for f in examine(data, name).findings}
    assert found == marked(data.decode())


def test_a_synthesized_template_is_read_with_its_joined_user_data() -> None:
    report = examine((HERE / "forms" / "cdk.json").read_bytes(), "cdk.json")
    assert {f.id for f in report.findings} == {"BY101", "BY203"}
    assert any("user data line 3" in f.place for f in report.findings)


def test_a_terraform_plan_is_read_with_modules_and_packed_user_data() -> None:
    report = examine((HERE / "forms" / "terraform-plan.json").read_bytes(), "plan.json")
    found = {(f.id, re.search(r"\(([^ ,)]+)", f.place)[1]) for f in report.findings}  # type: ignore[index]
    environment = "module.batch.aws_batch_compute_environment.gpu[0]"
    assert found == {
        *((kind, environment) for kind in ("BY022", "BY028", "BY054", "BY204", "BY205")),
        ("BY056", "aws_launch_template.nodes"),
        ("BY101", "aws_launch_template.nodes"),
        ("BY101", "module.batch.aws_launch_template.batch"),
        ("BY103", "module.batch.aws_launch_template.batch"),
        ("BY202", "aws_security_group.open"),
        ("BY203", "aws_iam_role_policy.all"),
        ("BY212", "aws_batch_job_definition.train"),
    }


def test_json_that_yaml_does_not_take_is_still_read() -> None:
    text = '{"Resources": {"F": {"Type": "AWS::EC2::SpotFleet", "Properties": {"a": "\\/"}}}}'
    assert [f.id for f in examine(text.encode(), "t.json").findings] == ["BY208"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: [\n", "t:2: it is neither"),
        ("just words", "has no Resources"),
        ("", "has no Resources"),
        ("Resources: [a]", "has no Resources"),
        ("[" * 5000, "neither YAML nor JSON"),
        ("x: &a [*a, *a]", "has no Resources"),
    ],
)
def test_what_is_no_template_is_refused_with_its_place(text: str, what: str) -> None:
    with pytest.raises(InputError) as caught:
        examine(text.encode(), "t")
    assert what in caught.value.message


@pytest.mark.parametrize("path", OUR_TEMPLATES, ids=lambda path: path.name)
def test_our_own_templates_give_no_finding(path: Path) -> None:
    report = examine(path.read_bytes(), path.name)
    found = [f for f in report.findings if f.id not in ON_PURPOSE.get(path.name, ())]
    assert [f"{f.id} {f.place} {f.cause} {f.evidence}" for f in found] == []


@pytest.mark.parametrize("path", OUR_SCRIPTS, ids=lambda path: path.name)
def test_our_own_user_data_gives_no_finding(path: Path) -> None:
    # They are pieces that are put together in the templates: only the first begins with #!, and
    # the check of the GPUs is run by a unit, after Docker.
    ignored = {"BY109"} | ({"BY118"} if path.name == "gpu-check.sh" else set())
    report = examine_user_data(path.read_bytes(), path.name, "ecs")
    assert [f"{f.id} {f.place} {f.cause}" for f in report.findings if f.id not in ignored] == []


@pytest.mark.parametrize("name", inline.USER_DATA)
def test_our_own_user_data_as_a_node_gets_it_gives_no_finding(name: str) -> None:
    data = inline.to_mime(inline.make_script(name)).encode()
    owner = "batch" if name.startswith("batch-") else "ecs"
    assert [
        f"{f.id} {f.place} {f.cause}" for f in examine_user_data(data, name, owner).findings
    ] == []
    if owner == "ecs":  # a cluster of our own is named, which AWS Batch's nodes may not do
        assert {f.id for f in examine_user_data(data, name, "batch").findings} == {"BY102"}


def test_our_own_templates_and_user_data_are_there_to_be_examined() -> None:
    if resources.files("batchyard").joinpath("infra").is_dir():
        assert OUR_TEMPLATES and OUR_SCRIPTS


def cdk_template(*parts: object) -> bytes:
    """Return a template with the user data of CDK's MultipartUserData: base64 in base64."""
    start = 'Content-Type: multipart/mixed; boundary="sep"\nMIME-Version: 1.0\n\n'
    header = "--sep\nContent-Type: text/x-shellscript\nContent-Transfer-Encoding: base64\n\n"
    pieces: list[object] = []
    for at, part in enumerate(parts):
        pieces += [f"{start if at == 0 else chr(10)}{header}", {"Fn::Base64": part}]
    user_data = {"Fn::Base64": {"Fn::Join": ["", [*pieces, "\n--sep--\n"]]}}
    environment = {
        "Type": "MANAGED",
        "ComputeResources": {"LaunchTemplate": {"LaunchTemplateId": {"Ref": "Nodes"}}},
    }
    resources = {
        "Nodes": {
            "Type": "AWS::EC2::LaunchTemplate",
            "Properties": {"LaunchTemplateData": {"UserData": user_data}},
        },
        "Env": {"Type": "AWS::Batch::ComputeEnvironment", "Properties": environment},
    }
    return json.dumps({"Resources": resources}, indent=1).encode()


def findings_of_scripts(template: bytes) -> list[tuple[str, str]]:
    findings = examine(template, "t.json").findings
    return [(f.id, f.place) for f in findings if "BY100" < f.id < "BY200"]


def test_each_part_of_multipart_user_data_of_cdk_is_read() -> None:
    quiet = "#!/bin/bash\necho 'a b' > /etc/motd"
    template = cdk_template(
        quiet,
        {"Fn::Join": ["", ["#!/bin/bash\necho ", {"Ref": "Env"}, "\nservice docker restart"]]},
    )
    (finding,) = findings_of_scripts(template)
    assert finding == ("BY101", "t.json:18 (Nodes, user data line 16)")
    assert findings_of_scripts(cdk_template(quiet, quiet)) == []


def test_multipart_user_data_of_cdk_counts_as_large_as_its_base64() -> None:
    # 12,600 bytes are 16,800 in base64, above the limit of EC2.
    script = "#!/bin/bash\n" + "echo 0123456789\n" * 780
    assert [kind for kind, _ in findings_of_scripts(cdk_template(script))] == ["BY104"]


def test_base64_that_is_no_part_stays_base64() -> None:
    pieces = [
        "#!/bin/bash\necho ",
        {"Fn::Base64": "systemctl restart ecs"},
        " | base64 -d | bash\n",
    ]
    template = {
        "Resources": {
            "C": {"Type": "AWS::ECS::Cluster"},
            "N": {
                "Type": "AWS::EC2::LaunchTemplate",
                "Properties": {
                    "LaunchTemplateData": {"UserData": {"Fn::Base64": {"Fn::Join": ["", pieces]}}}
                },
            },
        }
    }
    assert [kind for kind, _ in findings_of_scripts(json.dumps(template).encode())] == ["BY101"]


def test_a_script_that_a_template_downloads_is_not_called_right() -> None:
    report = examine(cdk_template("#!/bin/bash\ncurl -s https://example.org/x | bash"), "t.json")
    reasons = {check.kind.id: check.reason for check in report.unseen}
    assert "runs commands that another program prints" in reasons["BY101"]
    assert "BY101" not in {kind.id for kind in report.passed}
