"""Findings for CI and editors: SARIF, and the rules of cfn-lint."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

import batchyard
from batchyard.cli.doctor import command
from batchyard.doctor.sarif import Place, split_place, to_sarif
from batchyard.doctor.template.examine import KINDS, examine
from batchyard.errors import InputError

TEMPLATES = Path(__file__).parent / "templates" / "pairs"
REPOSITORY = Path(__file__).parents[2]
REQUIRED = os.environ.get("BATCHYARD_REQUIRE_LINT") == "1"

TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
#: what SARIF 2.1.0 requires of the parts that we write
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool"],
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "properties": {
                                    "rules": {
                                        "uniqueItems": True,
                                        "items": {
                                            "required": ["id"],
                                            "properties": {"shortDescription": TEXT},
                                        },
                                    }
                                },
                            }
                        },
                    },
                    "invocations": {"items": {"required": ["executionSuccessful"]}},
                    "results": {
                        "items": {
                            "required": ["message", "ruleId", "locations"],
                            "properties": {
                                "message": TEXT,
                                "level": LEVEL,
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "locations": {
                                    "items": {
                                        "properties": {
                                            "physicalLocation": {
                                                "required": ["artifactLocation"],
                                                "properties": {
                                                    "region": {
                                                        "properties": {
                                                            "startLine": {
                                                                "type": "integer",
                                                                "minimum": 1,
                                                            }
                                                        }
                                                    }
                                                },
                                            }
                                        }
                                    }
                                },
                            },
                        }
                    },
                },
            },
        },
    },
}


def doctor(*arguments: str) -> tuple[int, Any]:
    result = CliRunner().invoke(command, arguments, standalone_mode=False)
    if result.exception:
        raise result.exception
    code: Any = result.return_value
    return code, json.loads(result.output)


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.sick.yaml")), ids=lambda path: path.name)
def test_every_finding_of_a_template_is_a_result_with_its_line(path: Path) -> None:
    report = examine(path.read_bytes(), "my stack.yaml")
    log = to_sarif(report, "1")
    jsonschema.validate(log, SARIF)
    (run,) = log["runs"]
    assert len(run["results"]) == len(report.findings)
    for result, finding in zip(run["results"], report.findings, strict=True):
        location = result["locations"][0]["physicalLocation"]
        assert location["artifactLocation"]["uri"] == "my%20stack.yaml"
        assert f":{location['region']['startLine']} (" in finding.place
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == finding.id
        assert finding.cause in result["message"]["text"]


def test_the_commands_print_sarif_and_keep_their_exit_codes(tmp_path: Path) -> None:
    sick = TEMPLATES / "BY054.sick.yaml"
    code, log = doctor("template", str(sick), "--sarif")
    jsonschema.validate(log, SARIF)
    assert code == 1
    location = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == sick.as_uri()
    script = tmp_path / "boot.sh"
    script.write_text("#!/bin/bash\ncurl -s https://example.org/x | bash\n")
    code, log = doctor("userdata", str(script), "--for", "ecs", "--sarif")
    assert code == 0 and log["runs"][0]["results"] == []
    notes = log["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert any("BY101" == note["descriptor"]["id"] for note in notes)


def test_sarif_and_json_exclude_each_other() -> None:
    with pytest.raises(InputError, match="exclude each other"):
        doctor("template", str(TEMPLATES / "BY054.sick.yaml"), "--sarif", "--json")


@pytest.mark.parametrize(
    ("place", "parts"),
    [
        ("a.yaml:12 (Nodes)", Place("a.yaml", 12, "Nodes")),
        ("a.yaml:12 (Nodes, user data line 3)", Place("a.yaml", 12, "Nodes")),
        ("a.yaml (Nodes)", Place("a.yaml", 0, "Nodes")),
        ("C:/x (1).yaml:3", Place("C:/x (1).yaml", 3, "")),
        ("standard input", Place("standard input", 0, "")),
    ],
)
def test_a_place_has_a_file_a_line_and_a_resource(place: str, parts: Place) -> None:
    assert split_place(place) == parts


# -- cfn-lint --------------------------------------------------------------------------------------


def cfn_lint(*arguments: str) -> subprocess.CompletedProcess[str]:
    programs = sorted((REPOSITORY / ".cache/lint").glob("cfn-lint-*/.installed"))
    if not programs:
        refuse = pytest.fail if REQUIRED else pytest.skip
        refuse("cfn-lint is not there; .ci/lint-templates installs it")
    program = programs[-1].parent / "bin/cfn-lint"
    source = str(Path(batchyard.__file__).parents[1])
    return subprocess.run(
        [str(program), "--append-rules", "batchyard.cfn_lint_rules", *arguments],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": source},
    )


@pytest.mark.outside
def test_cfn_lint_shows_the_findings_as_rules_on_their_lines() -> None:
    sick, healthy = (TEMPLATES / f"BY054.{state}.yaml" for state in ("sick", "healthy"))
    (finding,) = examine(sick.read_bytes(), "t").findings
    done = cfn_lint("--format", "json", "--", str(sick))
    rules = {
        match["Rule"]["Id"]: match["Location"]["Start"]["LineNumber"]
        for match in json.loads(done.stdout)
    }
    assert rules["W9054"] == split_place(finding.place).line
    assert "W9054" not in cfn_lint("--format", "json", "--", str(healthy)).stdout


@pytest.mark.outside
def test_cfn_lint_knows_every_check_of_templates() -> None:
    listed = cfn_lint("--list-rules").stdout
    assert [kind.id for kind in KINDS if f"9{kind.id[2:]}: " not in listed] == []
