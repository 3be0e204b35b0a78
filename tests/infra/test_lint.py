"""The templates under cfn-lint, and .ci/lint-templates, which must not let a bad one pass."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import cfn
import pytest

SCRIPT = cfn.REPOSITORY / ".ci/lint-templates"
REQUIRED = os.environ.get("BATCHYARD_REQUIRE_LINT") == "1"


def lint(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script without installing anything: that takes minutes and is the caller's task."""
    tools = [path.parent for path in (cfn.REPOSITORY / ".cache/lint").glob("*/.installed")]
    if len(tools) < 3:
        refuse = pytest.fail if REQUIRED else pytest.skip
        refuse("cfn-lint, sam and checkov are not there; .ci/lint-templates installs them")
    return subprocess.run([str(SCRIPT), *arguments], capture_output=True, text=True)


@pytest.mark.outside
def test_the_templates_pass() -> None:
    done = lint()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is a valid SAM Template" in done.stdout


@pytest.mark.outside
def test_to_install_checks_nothing() -> None:
    done = lint("install")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.outside
@pytest.mark.parametrize(
    ("name", "right", "wrong", "finding"),
    [
        ("batch", "MaxvCpus: !Ref CpuSpot", "MaxVCpus: !Ref CpuSpot", "E3002"),
        ("storage", "        BlockPublicAcls: true\n", "", "CKV_AWS_53"),
        ("registry", "  KeepImages:", "  KeepImagez:", "E1019"),
        ("network", "  Zones:\n", "  Unused:\n    Type: String\n  Zones:\n", "W2001"),
    ],
    ids=["casing", "open bucket", "unknown name", "warning"],
)
def test_a_bad_template_does_not_pass(
    name: str, right: str, wrong: str, finding: str, tmp_path: Path
) -> None:
    text = cfn.text(name)
    assert right in text
    path = tmp_path / "bad.yaml"
    path.write_text(text.replace(right, wrong, 1))
    done = lint(str(path))
    assert done.returncode != 0
    assert finding in done.stdout + done.stderr
