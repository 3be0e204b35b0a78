"""The package's templates: their order, what they need of each other, their parameters."""

from __future__ import annotations

import pytest

from batchyard import environments, infra
from batchyard.errors import InputError
from batchyard.infra import catalogue
from batchyard.infra.catalogue import load_template, parse, select_templates

SMALL = """
Description: batchyard, small
Parameters:
  Env: {Type: String}
  Size: {Type: Number, Default: 2, MinValue: 1, MaxValue: 9, Description: how large}
  Kind: {Type: String, Default: a, AllowedValues: [a, b]}
  Folder: {Type: String, Default: "", AllowedPattern: "(/[a-z]+)?", ConstraintDescription: a path}
Resources:
  A:
    Type: T::A
    Condition: Big
    Properties:
      Subnets: !Split [",", {"Fn::ImportValue": !Sub "${Env}-subnets"}]
      More: [{Group: {"Fn::ImportValue": !Sub "${Env}-group"}}, !GetAtt B.Arn]
  B: {Type: T::B}
Outputs:
  Thing: {Value: !Ref A, Export: {Name: !Sub "${Env}-thing"}}
  Other: {Value: x}
"""


def test_a_template_is_read() -> None:
    found = parse("small", SMALL)
    assert found.stack_of("dev") == "dev-small"
    assert found.exports_of("dev") == {"dev-thing"}
    assert found.imports_of("dev") == {"dev-subnets", "dev-group"}
    assert [(one.name, one.condition) for one in found.resources] == [("A", "Big"), ("B", None)]
    size = found.parameters["Size"]
    assert (size.minimum, size.maximum, size.description) == (1, 9, "how large")
    assert found.parameters["Folder"].pattern_description == "a path"
    assert parse("bare", "Resources: {B: {Type: T::B}}").description == ""
    assert size.default == "2" and found.parameters["Env"].default is None


def test_the_core_comes_in_the_order_of_its_imports() -> None:
    names = [one.name for one in select_templates([])]
    assert sorted(names) == sorted(catalogue.CORE)
    for number, name in enumerate(names):
        before = {export for one in names[:number] for export in load_template(one).exports}
        assert load_template(name).imports <= before, f"{name} imports what comes after it"


def test_every_import_of_the_package_has_one_exporter() -> None:
    everything = catalogue.all_templates()
    assert [one.name for one in everything if not one.description.startswith(catalogue.MARK)] == []
    exports = [export for one in everything for export in one.exports]
    assert len(exports) == len(set(exports))
    assert {name for one in everything for name in one.imports} <= set(exports)
    assert len(everything) == len(infra.EVERY)


def test_named_templates_are_ordered_and_not_repeated() -> None:
    assert [one.name for one in select_templates(["batch", "network", "batch"])] == [
        "network",
        "batch",
    ]


def test_what_is_missing_is_named_by_its_template() -> None:
    batch = select_templates(["batch"])
    assert catalogue.find_missing(batch, "dev", frozenset()) == {
        "batch": ["iam", "network", "storage"]
    }
    there = frozenset().union(
        *(load_template(name).exports_of("dev") for name in ("iam", "network", "storage"))
    )
    assert catalogue.find_missing(batch, "dev", there) == {}
    assert "batch" in catalogue.find_missing(batch, "dev-2", there)
    assert catalogue.find_missing(select_templates([]), "dev", frozenset()) == {}


def test_the_outputs_are_those_that_environments_are_read_from() -> None:
    import re

    named = {
        output
        for name in environments.STACKS
        for output in re.findall(
            r"^  (\w+):\n", load_template(name).text.partition("\nOutputs:\n")[2], re.MULTILINE
        )
    }
    wanted = {
        *environments._OUTPUTS,
        *environments._QUEUE_OUTPUTS,
        *environments._ECS_OUTPUTS.values(),
        *environments._SPOT_FLEET_OUTPUTS.values(),
    }
    assert wanted <= named


@pytest.mark.parametrize(
    ("settings", "problem", "hint"),
    [
        (
            {"CpuSpotMaxCpus": "1"},
            "no template of this deployment",
            "did you mean CpuSpotMaxvCpus?",
        ),
        (
            {"cpuspotmaxvcpus": "1"},
            "no template of this deployment",
            "did you mean CpuSpotMaxvCpus?",
        ),
        ({"TaskGpus": "1"}, "no template of this deployment", "the template ecs has it"),
        ({"Env": "x"}, "--env", ""),
        ({"CpuSpotMaxvCpus": "many"}, "must be a number", "vCPUs of CPU spot nodes"),
        ({"CpuSpotMaxvCpus": "-1"}, "at least 0", ""),
        ({"UpdateTimeoutMinutes": "361"}, "at most 360", ""),
        ({"TeamQueues": "yes"}, "one of true, false", ""),
        ({"GpuImageParameter": "gpu"}, "must match", ""),
        ({"GpuImageVersion": "newest"}, "a whole number", ""),
    ],
)
def test_wrong_settings_are_found_before_anything_is_asked_of_aws(
    settings: dict[str, str], problem: str, hint: str
) -> None:
    with pytest.raises(InputError) as found:
        catalogue.check_settings(select_templates([]), settings)
    assert problem in found.value.message
    assert hint in found.value.hint


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("ecs", "g5.xlarge", "exactly three instance types"),
        (
            "batch-unmanaged",
            "g5.xlarge,g6.xlarge,g4dn.xlarge,g6e.xlarge",
            "exactly three instance types",
        ),
        ("spotfleet", "g5.xlarge, g6.xlarge, g4dn.xlarge, g6e.xlarge", "no blanks"),
    ],
)
def test_a_wrong_number_of_instance_types(name: str, value: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        catalogue.check_settings([load_template(name)], {"InstanceTypes": value})


def test_what_an_export_is_made_of() -> None:
    sources = load_template("network").export_sources
    assert sources["${Env}-vpc"] == {"Vpc", "ExistingVpc"}
    assert {"Zones", "ExistingVpc", "ExistingSubnets", "SubnetA", "SubnetD"} <= sources[
        "${Env}-subnets"
    ]
    assert "Placement" not in sources["${Env}-subnets"]
    assert sources["${Env}-security-group"] == {"NodeSecurityGroup"}


def test_what_is_missing_is_found_all_the_way_down() -> None:
    ecs = [load_template("ecs")]
    whole = [one.name for one in catalogue.add_missing(ecs, "dev", frozenset())]
    assert whole[-1] == "ecs" and set(whole) == {"network", "storage", "registry", "iam", "ecs"}
    there = load_template("storage").exports_of("dev") | load_template("registry").exports_of("dev")
    assert [one.name for one in catalogue.add_missing(ecs, "dev", there)] == [
        "network",
        "iam",
        "ecs",
    ]


def test_right_settings() -> None:
    settings = {
        "CpuSpotMaxvCpus": "0",
        "TeamQueues": "true",
        "GpuImageParameter": "/dev/gpu-image",
        "Zones": "3",
    }
    catalogue.check_settings(select_templates([]), settings)


@pytest.mark.parametrize("name", ["Dev", "dev_1", "1dev", "x" * 21, "", "aws-lab", "ecs"])
def test_names_that_no_environment_can_have(name: str) -> None:
    with pytest.raises(InputError, match="lower-case"):
        catalogue.check_environment(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("batc", "did you mean batch?"),
        ("bach", "did you mean batch?"),
        ("gpu-batch", "did you mean gpu-batch-benchmark?"),
        ("batch-un", "did you mean batch-unmanaged?"),
        ("zzz", "there is network, storage"),
        ("", "there is network, storage"),
    ],
)
def test_a_wrong_template(name: str, hint: str) -> None:
    with pytest.raises(InputError) as found:
        load_template(name)
    assert found.value.hint.startswith(hint)


def test_what_was_set_once_stays_set() -> None:
    small = parse("small", SMALL)
    assert catalogue.request_parameters(small, "dev", {"Kind": "b"}, {}) == [
        {"ParameterKey": "Env", "ParameterValue": "dev"},
        {"ParameterKey": "Kind", "ParameterValue": "b"},
    ]
    deployed = {"Env": "dev", "Size": "3", "Kind": "a", "Gone": "x"}
    assert catalogue.request_parameters(small, "dev", {"Kind": "b"}, deployed) == [
        {"ParameterKey": "Env", "ParameterValue": "dev"},
        {"ParameterKey": "Size", "UsePreviousValue": True},
        {"ParameterKey": "Kind", "ParameterValue": "b"},
    ]
    assert catalogue.changed_parameters(small, {"Kind": "b", "Size": "3"}, deployed) == {
        "Kind": ("a", "b")
    }
