"""A file with parameters and tags: what is read, and where its mistakes are."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchyard.errors import PipelineFileError
from batchyard.infra import catalogue, parameter_file


def read(tmp_path: Path, text: str) -> parameter_file.ParameterFile:
    path = tmp_path / "lab.yaml"
    path.write_text(text, encoding="utf-8")
    return parameter_file.read(path)


def test_numbers_words_and_lists_are_read_as_cloudformation_takes_them(tmp_path: Path) -> None:
    content = read(
        tmp_path,
        "parameters:\n  Zones: 3\n  TeamQueues: true\n  GpuImageParameter: ''\n"
        "  GpuInstanceTypes: [g5.xlarge, g6.xlarge]\n  FavouredWeight: 0.50\n"
        "tags: {team: vision}\n",
    )
    assert content.parameters == {
        "Zones": "3",
        "TeamQueues": "true",
        "GpuImageParameter": "",
        "GpuInstanceTypes": "g5.xlarge,g6.xlarge",
        "FavouredWeight": "0.50",
    }
    assert content.tags == {"team": "vision"}
    assert read(tmp_path, "parameters:\ntags:\n") == parameter_file.ParameterFile()


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("parameters:\n  Zone: 2\n", 'lab.yaml:2:3: no template has a parameter "Zone"'),
        ("parameters:\n  Zones: 9\n", "lab.yaml:2:10: Zones: it must be one of 2, 3, 4"),
        ("parameters:\n  Zones:\n", "lab.yaml:2:9: Zones needs a value"),
        ("parameters:\n  Zones: {a: 1}\n", "lab.yaml:2:10: Zones needs a value"),
        ("parameters: [Zones]\n", "lab.yaml:1:13: parameters must be names with values"),
        ("tags:\n  batchyard:environment: x\n", "lab.yaml:2:3: the tag"),
        ("tags:\n  team: [a, b]\n", 'lab.yaml:2:9: the tag "team" needs one value'),
        ("params: {}\n", 'lab.yaml:1:1: unknown key "params"; did you mean "parameters"?'),
        ("- Zones\n", "lab.yaml:1:1: the file has no parameters"),
        ("", "lab.yaml: the file has no parameters"),
        ("parameters: {Zones: 2\n", "lab.yaml:1:13: not YAML: this bracket is never closed"),
    ],
)
def test_a_mistake_has_its_place(tmp_path: Path, text: str, mistake: str) -> None:
    with pytest.raises(PipelineFileError) as caught:
        read(tmp_path, text)
    assert mistake in str(caught.value)


def test_parameters_of_other_templates_are_left_out_unless_they_were_set(tmp_path: Path) -> None:
    storage = [catalogue.load_template("storage")]
    settings = {"Zones": "3", "RunRetentionDays": "7", "TeamQueues": "true"}
    assert catalogue.drop_foreign(settings, {"Zones", "RunRetentionDays"}, storage) == {
        "RunRetentionDays": "7",
        "TeamQueues": "true",
    }
