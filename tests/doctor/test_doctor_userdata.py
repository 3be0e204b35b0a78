"""User data: a sick and a healthy sample of each finding, and forms of blocking commands.

In `forms/` every line that must be found is marked with `# <- BYnnn`; no other may be found.
"""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from batchyard.doctor.kinds import BY_ID
from batchyard.doctor.userdata.examine import examine

HERE = Path(__file__).parent / "userdata"
PAIRS = sorted(kind for kind in BY_ID if "BY100" < kind < "BY200")
FORMS = sorted(path.name for path in (HERE / "forms").iterdir())
MARK = re.compile(r"# <- (BY\d{3})")


@pytest.mark.parametrize("kind", PAIRS)
def test_a_sick_sample_gives_its_finding_and_no_other(kind: str) -> None:
    report = examine((HERE / "pairs" / f"{kind}.sick.txt").read_bytes(), "user data")
    assert {finding.id for finding in report.findings} == {kind}
    assert report.exit_code == 1


@pytest.mark.parametrize("kind", PAIRS)
def test_its_healthy_twin_gives_none(kind: str) -> None:
    report = examine((HERE / "pairs" / f"{kind}.healthy.txt").read_bytes(), "user data")
    assert [finding.cause for finding in report.findings] == []
    assert report.exit_code == 0


def marked(text: str) -> set[tuple[str, int]]:
    return {
        (m[1], number)
        for number, line in enumerate(text.split("\n"), 1)
        if (m := MARK.search(line))
    }


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_found_on_its_line_and_nothing_else(name: str) -> None:
    data = (HERE / "forms" / name).read_bytes()
    owner = name.partition("-")[0]
    report = examine(data, name, owner)
    found = {(finding.id, int(finding.place.rpartition(":")[2])) for finding in report.findings}
    assert found == marked(data.decode())


def test_the_forms_are_many() -> None:
    marks = [mark for name in FORMS for mark in marked((HERE / "forms" / name).read_text())]
    assert len(marks) > 80


def test_a_command_over_several_lines_is_found_where_it_begins() -> None:
    script = b"#!/bin/bash\nsudo \\\n  systemctl \\\n  restart docker\n"
    assert [f.place for f in examine(script, "s", "ecs").findings] == ["s:2"]


@pytest.mark.parametrize(
    "pack", [base64.b64encode, gzip.compress, lambda data: base64.b64encode(gzip.compress(data))]
)
def test_packed_user_data_is_unpacked(pack: Callable[[bytes], bytes]) -> None:
    data = (HERE / "pairs" / "BY101.sick.txt").read_bytes()
    assert [f.id for f in examine(pack(data), "packed").findings] == ["BY101"]


def test_windows_line_ends_change_nothing() -> None:
    data = (HERE / "pairs" / "BY101.sick.txt").read_bytes().replace(b"\n", b"\r\n")
    assert [f.id for f in examine(data, "crlf").findings] == ["BY101"]


def test_for_a_node_of_ecs_the_cluster_may_be_set_in_a_plain_script() -> None:
    script = b"#!/bin/bash\necho ECS_CLUSTER=web > /etc/ecs/ecs.config\n"
    assert examine(script, "script", "ecs").findings == ()
    assert {f.id for f in examine(script, "script", "batch").findings} == {
        "BY102",
        "BY103",
        "BY105",
    }


def test_user_data_for_windows_is_not_judged() -> None:
    report = examine(b"<powershell>\nStart-Service ecs\n</powershell>\n", "windows", "ecs")
    assert report.findings == () and report.exit_code == 2


def test_empty_user_data_is_healthy() -> None:
    assert examine(b"", "nothing").exit_code == 0


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "\n\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b--\n",
            "blank lines are before",
        ),
        ("Content-Type: multipart/mixed\n\n--b\n", "has no boundary"),
        ("Content-Type: multipart/mixed; boundary=b\n\nnothing\n", "no line is the boundary"),
        (
            "Content-Type: multipart/mixed; boundary=b\n\n--b\n\n#!/bin/sh\n:\n--b--\n",
            "no Content-Type header",
        ),
        ("Content-Type: text/x-shellscript\n\n#!/bin/sh\n:\n", "not multipart/mixed"),
    ],
)
def test_what_is_malformed_in_mime_is_said(text: str, what: str) -> None:
    found = [f for f in examine(text.encode(), "mime").findings if f.id == "BY108"]
    assert any(what in f.evidence[0] for f in found)


def test_evidence_says_how_the_command_is_reached() -> None:
    script = b"#!/bin/bash\ngo() { systemctl restart ecs; }\nbash -c go\n"
    found = examine(script, "script", "ecs").findings
    assert found[0].evidence[0] == "runs `systemctl restart ecs`, reached through bash -c > go"


def test_a_secret_is_never_repeated() -> None:
    script = b"#!/bin/bash\nexport API_KEY=abcdef123456789\n"
    found = examine(script, "script", "ecs").findings
    assert [f.id for f in found] == ["BY113"]
    assert "abcdef" not in str(found)


@pytest.mark.parametrize(
    "line",
    [
        "VAULT_PASSWORD_FILE=vault-password",
        "run --vault-password-file=./vault-password",
        "secretName: node-certificates",
        "ssh_private_key=#{ssh_private_key}",
        'export DB="mysql://${USER}:${PASSWORD}@db.example.org/x"',
        "API_TOKEN={{ vault_api_token }}",
        'DB_PASSWORD="@DatabasePassword@"',
        "# trust_password: password that new clients need",
        "# then creds is: consumer_key:token_key:token_secret",
        'echo "  -p PASSWORD : Password for the user (none if not given)"',
        "sed -i 's/^passwd:.*/passwd: files sss/' /etc/nsswitch.conf",
        "UPDATE mysql.user SET password = password('${MYSQL_ROOT_PW}')",
        "ECS_ENGINE_AUTH_TYPE=dockercfg",
        "GPG_KEY=0D96DF4D4110E5C43FBFB17F2D347EA6AA65421D",
        "arn=arn:aws:secretsmanager:us-east-1:aws:secret:db-AbCdEf1234",
        "aws ec2 run-instances --metadata-options HttpTokens=required",
        "aws ecr get-login-password | docker login --username AWS --password-stdin "
        "123456789012.dkr.ecr.us-east-1.amazonaws.com",
        "helm install db postgresql --set auth.existingSecret=database-credentials-1",
        "helm install db postgresql --set global.imagePullSecrets=registry-credentials-1",
    ],
)
def test_what_only_sounds_like_a_secret_is_none(line: str) -> None:
    assert examine(f"#!/bin/bash\n{line}\n".encode(), "script", "ecs").findings == ()


@pytest.mark.parametrize(
    "line",
    [
        "export DB_PASSWORD=cromwell1999",
        'DB="mysql://root:hunter2hunter2@db.example.org/x"',
        "# API_KEY=abcdef123456789",
        "token_secret: 24uysdfx1w4",
        "echo DB_PASSWORD=cromwell1999 >> /etc/environment",
        "docker login -u me -p cromwell1999 registry.example.org",
        "mysql -uroot -pcromwell1999",
        "echo root:cromwell1999 | chpasswd",
        "echo cromwell1999 | docker login --username me --password-stdin registry.example.org",
        "export AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE",
        "echo ZXhwb3J0IERCX1BBU1NXT1JEPWNyb213ZWxsMTk5OQ== | base64 -d > /etc/profile.d/db.sh",
    ],
)
def test_what_is_a_secret_is_found_in_comments_and_urls_too(line: str) -> None:
    assert [f.id for f in examine(f"#!/bin/bash\n{line}\n".encode(), "script", "ecs").findings] == [
        "BY113"
    ]


def test_a_module_that_has_nothing_to_do_with_gpus_may_be_built() -> None:
    script = b"#!/bin/bash\ndkms install -m ena -v 2.13\ndkms install -m nvidia -v 550\n"
    assert [(f.id, f.place) for f in examine(script, "s", "ecs").findings] == [("BY107", "s:3")]


def test_functions_that_call_each_other_without_end_hide_nothing_below_them() -> None:
    names = [f"f{i}" for i in range(12)]
    functions = "".join(f"{name}() {{ {'; '.join(names * 2)}; }}\n" for name in names)
    script = f"#!/bin/bash\n{functions}f0\nf1\nsystemctl restart docker\n"
    assert [f.place for f in examine(script.encode(), "s", "ecs").findings] == ["s:16"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("systemctl start ecs", ["certain: ecs.service is ordered After=cloud-final.service"]),
        (
            "systemctl restart docker",
            ["certain: ecs.service is PartOf=docker.service", "on AWS's word: docker.service"],
        ),
        ("until docker info; do sleep 1; done", ["on AWS's word: docker.service"]),
    ],
)
def test_a_deadlock_says_what_is_certain_and_what_rests_on_the_word_of_aws(
    command: str, words: list[str]
) -> None:
    (finding,) = examine(f"#!/bin/bash\n{command}\n".encode(), "s", "ecs").findings
    assert len(finding.evidence) == 1 + len(words)
    assert all(map(str.startswith, finding.evidence[1:], words))


@pytest.mark.parametrize(
    ("part", "what"),
    [
        (
            "Content-Type: text/cloud-config\nruncmd:\n - reboot\n\n",
            "'runcmd:' is read as a header",
        ),
        ("Content-Type: text/x-shellscript\n#!/bin/bash\necho\n", "there is no blank line"),
        (
            "Content-Type: text/x-shellscript\nContent-Transfer-Encoding: base64\n\n#!/bin/sh\n:\n",
            "says that it is in base64",
        ),
    ],
)
def test_a_part_that_cloud_init_cannot_read_is_named_once(part: str, what: str) -> None:
    text = f"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n--B\n{part}--B--\n"
    (finding,) = examine(text.encode(), "s", "ecs").findings
    assert finding.id == "BY108" and what in finding.evidence[0]


@pytest.mark.parametrize(
    "line",
    [
        "curl -fsSL https://example.org/install.sh | bash",
        "wget -qO- https://example.org/install.sh | sudo sh -s -- --yes",
        "bash <(curl -s https://example.org/install.sh)",
        'bash -c "$(curl -fsSL https://example.org/install.sh)"',
        'eval "$(curl -fsSL https://example.org/settings)"',
        "curl -o /tmp/install.sh https://example.org/install.sh; bash /tmp/install.sh",
        "aws s3 cp s3://bucket/boot /opt/boot; chmod +x /opt/boot; /opt/boot",
        "aws s3 cp s3://bucket/env.sh /tmp/env.sh; . /tmp/env.sh",
        "/opt/vendor/setup.sh --fast",
    ],
)
def test_a_script_that_is_not_in_the_user_data_leaves_its_checks_open(line: str) -> None:
    report = examine(f"#!/bin/bash\n{line}\n".encode(), "s", "ecs")
    assert report.findings == ()
    unseen = {check.kind.id: check.reason for check in report.unseen}
    assert {"BY101", "BY110", "BY112"} <= set(unseen)
    assert unseen["BY101"].startswith("s:2 runs ")
    assert "BY101" not in {kind.id for kind in report.passed}
    # The form of the user data, and secrets in it, are seen all the same.
    assert {"BY104", "BY108", "BY113"} <= {kind.id for kind in report.passed}


@pytest.mark.parametrize(
    "line",
    [
        "curl -s https://example.org/list | grep -c x",
        "echo 'echo hello' | bash",
        "bash -c 'echo hello'",
        ". /etc/os-release",
        "cat > /tmp/a.sh <<'END'\necho hello\nEND\nbash /tmp/a.sh",
    ],
)
def test_what_is_seen_whole_leaves_no_check_open(line: str) -> None:
    assert examine(f"#!/bin/bash\n{line}\n".encode(), "s", "ecs").unseen == ()
