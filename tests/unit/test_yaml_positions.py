"""YAML with positions, as the pipeline reader and the doctor use it, and CloudFormation's YAML."""

from __future__ import annotations

import pytest
import yaml

from batchyard import cfn_yaml, yaml_positions
from batchyard.doctor import yaml_tree
from batchyard.yaml_positions import Node, Scalar


def root_of(text: str) -> Node:
    document = yaml_positions.parse(text)
    assert document.root is not None
    return document.root


def test_nodes_carry_positions_of_keys_and_values() -> None:
    script = root_of("a: 1\nscript:\n  |\n  one\n  two\n").get("script")
    assert isinstance(script, Scalar)
    assert (script.key_line, script.line, script.text_line, script.text) == (2, 3, 4, "one\ntwo\n")


def test_an_alias_has_its_own_position_and_the_contents_of_its_anchor() -> None:
    root = root_of("first: &x [a, b]\nsecond: *x\n")
    first, second = root.fields().values()
    assert (first.line, first.key_line, second.line, second.key_line) == (1, 1, 2, 2)
    assert first.items is second.items


def test_merged_keys_give_way_to_written_ones_wherever_they_stand() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {x: 3, <<: [*a, *b]}\n"
    merged = root_of(text).get("c")
    assert merged is not None
    assert {key: node.text for key, node in merged.fields().items()} == {
        "x": "3",
        "y": "1",
        "z": "2",
    }


def test_the_last_of_two_equal_keys_counts_and_is_a_problem() -> None:
    document = yaml_positions.parse("a: 1\na: 2\na: 3\n")
    assert document.root is not None
    assert [node.text for node in document.root.children()] == ["3"]
    assert [(p.at.line, p.text) for p in document.problems] == [
        (2, 'a second "a": the first is at line 1'),
        (3, 'a second "a": the first is at line 1'),
    ]


def test_files_of_other_tools_may_hold_tags_unknown_aliases_and_several_documents() -> None:
    root = yaml_tree.parse("a: !Sub x\nb: *nobody\n---\n: [\n")
    assert [(node.tag, node.text) for node in root.children()] == [("!Sub", "x"), ("", "")]


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: [1,\nb", 3, "did not find expected ',' or ']'"),
        ("\n" + "[" * 81 + "]" * 81, 2, "lists and mappings nested more than 80 deep"),
        ("a: &a [*b]\nb: &b [" + "*a," * 60_000 + "]", 2, "the aliases up to *a stand for more"),
    ],
)
def test_files_of_other_tools_that_cannot_be_read(text: str, line: int, problem: str) -> None:
    with pytest.raises(yaml_tree.NotReadableError) as caught:
        yaml_tree.parse(text)
    assert (caught.value.line, problem in caught.value.problem) == (line, True)


def test_cloudformation_functions_become_their_long_forms_and_dates_stay_text() -> None:
    text = (
        "When: 2010-09-09\nA: !GetAtt Role.Arn.More\nB: !Ref C\nD: !If [E, !Sub '${F}', {G: 1}]\n"
    )
    assert cfn_yaml.load(text) == {
        "When": "2010-09-09",
        "A": {"Fn::GetAtt": ["Role", "Arn.More"]},
        "B": {"Ref": "C"},
        "D": {"Fn::If": ["E", {"Fn::Sub": "${F}"}, {"G": 1}]},
    }


def test_cloudformation_text_that_is_no_yaml_is_refused() -> None:
    with pytest.raises(yaml.YAMLError):
        cfn_yaml.load("a: [")
