"""User data: assembled from its files, put into the templates, and what it may never say."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
from pathlib import Path

import cfn
import pytest

from batchyard.infra import EVERY, inline

USERS = [name for name in EVERY if inline.names_in(cfn.text(name))]
VALUES = {
    "GpuFailureAction": "poweroff",
    "Cluster": "dev-ecs",
    "ComputeEnvironment": "arn:aws:batch:us-east-1:123456789012:compute-environment/dev",
    "AWS::Region": "us-east-1",
}
REQUIRED = os.environ.get("BATCHYARD_REQUIRE_BOOT") == "1"


def test_every_user_data_has_a_template_and_every_launch_template_has_user_data() -> None:
    assert {used for name in USERS for used in inline.names_in(cfn.text(name))} == set(
        inline.USER_DATA
    )
    for name in EVERY:
        launched = cfn.resources(name, "AWS::EC2::LaunchTemplate")
        assert len(launched) == len(inline.names_in(cfn.text(name)))


@pytest.mark.parametrize("name", USERS)
def test_the_templates_hold_the_user_data_of_today(name: str) -> None:
    assert inline.inline(cfn.text(name)) == cfn.text(name), "run python -m batchyard.infra.inline"


@pytest.mark.parametrize("name", USERS)
def test_cloudformation_gives_a_node_what_was_written(name: str) -> None:
    launched = cfn.resources(name, "AWS::EC2::LaunchTemplate").values()
    data = [launch["LaunchTemplateData"]["UserData"]["Fn::Base64"] for launch in launched]
    assert [cfn.render(text, VALUES) for text in data] == [
        inline.render_for_host(used, VALUES) for used in inline.names_in(cfn.text(name))
    ]


def test_values_of_the_shell_and_of_the_stack_are_told_apart() -> None:
    assert inline.escape_for_sub('echo "${HOME}" "@Cluster@" "@AWS::Region@" $(date) a@b.c') == (
        'echo "${!HOME}" "${Cluster}" "${AWS::Region}" $(date) a@b.c'
    )


def test_a_template_that_asks_for_unknown_user_data_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="uses the user data nothing"):
        inline.inline("  # user data nothing: x\n  # end of user data\n")


def test_a_file_that_would_end_its_own_here_document_is_a_mistake() -> None:
    files = {
        "common.sh": "",
        "gpu.sh": "#@ write file /etc/file 0644\n",
        "file": "BATCHYARD_FILE\n",
    }
    with pytest.raises(ValueError, match="ends its here-document"):
        inline.make_script("batch-gpu", files.__getitem__)


def test_the_command_rewrites_what_is_between_the_marks_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "template.yaml"
    path.write_text(
        "a: 1\nUserData:\n  # user data batch-cpu: x\n  stale\n  # end of user data\nb: ${Kept}\n"
    )
    inline.main([str(path)])
    after = path.read_text()
    assert after.startswith(
        "a: 1\nUserData:\n  # user data batch-cpu: x\n  Fn::Base64: |\n    MIME-Version: 1.0\n"
    )
    assert after.endswith("  # end of user data\nb: ${Kept}\n")
    assert "stale" not in after
    assert inline.inline(after) == after


@pytest.mark.parametrize("name", inline.USER_DATA)
def test_user_data_is_mime_multipart_of_one_script_and_small(name: str) -> None:
    data = inline.render_for_host(name, VALUES)
    message = email.message_from_string(data)
    assert message.get_content_type() == "multipart/mixed"
    parts = message.get_payload()
    assert isinstance(parts, list)
    (part,) = parts
    assert isinstance(part, email.message.Message)
    assert part.get_content_type() == "text/x-shellscript"
    assert str(part.get_payload()).startswith("#!/bin/bash\n")
    data.encode("ascii")  # as its part says that it is
    # AWS Batch puts a part of its own beside it.
    assert len(data.encode()) < 0.75 * inline.MAX_BYTES
    assert not re.search(r"@[A-Za-z:]+@", data), "a value was left out"


def statements(name: str) -> list[str]:
    return [
        line.strip()
        for line in inline.make_script(name).splitlines()
        if not line.strip().startswith("#")
    ]


@pytest.mark.parametrize("name", inline.USER_DATA)
def test_user_data_never_waits_for_docker_or_ecs_and_never_sleeps(name: str) -> None:
    for line in statements(name):
        if re.search(r"systemctl .*(start|restart|enable --now)\b", line):
            assert "--no-block" in line, line
        assert not re.search(r"systemctl (?!.*mask).*\becs(\.service)?$", line), line
        assert not re.search(r"\bsleep\b", line), line


@pytest.mark.parametrize("name", ["batch-cpu", "batch-gpu"])
def test_what_batch_reserves_is_left_alone(name: str) -> None:
    script = inline.make_script(name)
    assert "ECS_CLUSTER" not in script
    assert "ECS_INSTANCE_ATTRIBUTES" not in script


@pytest.mark.parametrize("name", inline.USER_DATA)
def test_ecs_config_is_only_ever_appended_to(name: str) -> None:
    assert not re.search(r"(?<!>)> ?\"?\$ecs_config", inline.make_script(name))
    assert re.search(r">>\"\$ecs_config\"", inline.make_script(name))


def test_the_reason_is_written_where_the_doctor_looks_and_to_the_console() -> None:
    assert "/var/lib/batchyard/gpu-check.json" in inline.read_userdata("gpu-check.sh")
    assert "StandardOutput=journal+console" in inline.read_userdata("gpu-check.service")


@pytest.mark.outside
@pytest.mark.parametrize("name", [*inline.USER_DATA, "gpu-check.sh", "boot-tree", "lint-templates"])
def test_shellcheck_finds_nothing(name: str, tmp_path: Path) -> None:
    if shutil.which("shellcheck") is None:
        (pytest.fail if REQUIRED else pytest.skip)(
            "there is no shellcheck; .ci/boot-tree installs it"
        )
    if name in inline.USER_DATA:
        text = inline.make_script(name)
    elif name == "gpu-check.sh":
        text = inline.read_userdata(name)
    else:
        text = (cfn.REPOSITORY / ".ci" / name).read_text(encoding="utf-8")
    path = tmp_path / "script.sh"
    path.write_text(text, encoding="utf-8")
    done = subprocess.run(["shellcheck", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
