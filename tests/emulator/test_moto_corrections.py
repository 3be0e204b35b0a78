"""Each correction of moto's CloudFormation is needed by the moto that is installed.

A test that fails here after an upgrade of moto names a correction that can be removed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("moto")

from batchyard.emulator import moto_adapter
from batchyard.emulator.moto_cloudformation import corrected_resources, missing_resources
from batchyard.emulator.moto_cloudformation.deletions import DELETIONS

#: prints what moto does by itself: no correction is installed in its process
SCRIPT = """
import importlib.metadata, json, sys
from moto.cloudformation import parsing, responses

class Resources(dict):
    cross_stack_resources = {}

def resolve(value):
    resources = Resources({"AWS::Region": "eu-west-1", "AWS::NoValue": None, "Index": 1})
    try:
        return parsing.clean_json(value, resources)
    except Exception as exc:
        return type(exc).__name__

def has(model, method):
    return not hasattr(getattr(model, f"{method}_from_cloudformation_json"), "__isabstractmethod__")

models = parsing.get_model_map()
values = json.loads(sys.argv[1])
print(json.dumps({
    "version": importlib.metadata.version("moto"),
    "types": list(models),
    "deleted": [name for name, model in models.items() if has(model, "delete")],
    "updated": [name for name, model in models.items() if has(model, "update")],
    "operations": dir(responses.CloudFormationResponse),
    "resolved": [resolve(value) for value in values],
}))
"""
#: value -> what AWS makes of it
FUNCTIONS: list[tuple[Any, Any]] = [
    ({"Fn::Cidr": ["10.0.0.0/16", 2, 8]}, ["10.0.0.0/24", "10.0.1.0/24"]),
    ({"Fn::Length": [1, 2, 3]}, 3),
    ({"Fn::GetAZs": {"Ref": "AWS::Region"}}, ["eu-west-1a", "eu-west-1b", "eu-west-1c"]),
    ({"Fn::Select": [{"Ref": "Index"}, ["a", "b"]]}, "b"),
    (["a", {"Ref": "AWS::NoValue"}], ["a"]),
]


@pytest.fixture(scope="module")
def moto() -> dict[str, Any]:
    values = json.dumps([value for value, _ in FUNCTIONS])
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, values], capture_output=True, text=True, check=True
    )
    facts: dict[str, Any] = json.loads(answer.stdout)
    return facts


def test_the_corrections_are_for_the_moto_that_is_installed(moto: dict[str, Any]) -> None:
    assert moto["version"] == moto_adapter.MOTO_VERSION


def test_moto_deletes_none_of_the_types_that_we_delete(moto: dict[str, Any]) -> None:
    # moto deletes a group with its protected instances, which AWS refuses.
    refused = ["AWS::AutoScaling::AutoScalingGroup"]
    assert [kind for kind in DELETIONS if kind in moto["deleted"]] == refused
    assert [kind for kind in DELETIONS if kind not in moto["types"]] == []


def test_moto_lacks_the_types_that_we_add(moto: dict[str, Any]) -> None:
    added = [model.TYPE for model in missing_resources.MODELS]
    assert [kind for kind in added if kind in moto["types"]] == []


def test_moto_does_not_update_subnets_and_routes(moto: dict[str, Any]) -> None:
    corrected = {model.cloudformation_type() for model in corrected_resources.MODELS}
    # Of these, moto updates only a part.
    assert corrected & set(moto["updated"]) == {"AWS::IAM::Role", "AWS::SSM::Parameter"}


def test_moto_has_no_list_imports(moto: dict[str, Any]) -> None:
    assert "list_imports" not in moto["operations"]


@pytest.mark.parametrize("number", range(len(FUNCTIONS)), ids=lambda n: str(FUNCTIONS[n][0])[:20])
def test_moto_does_not_resolve_the_functions_that_we_resolve(
    moto: dict[str, Any], number: int
) -> None:
    assert moto["resolved"][number] != FUNCTIONS[number][1]
