"""Many ways to write the same mistake in a script, and healthy scripts that look like it.

They are in `ways/BYnnn.sick.txt` and `ways/BYnnn.healthy.txt`, separated by lines of `===`.
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest

from batchyard.doctor.userdata.examine import examine

HERE = Path(__file__).parent / "userdata" / "ways"
KINDS = sorted({path.name.partition(".")[0] for path in HERE.iterdir()})


def ways(how: str) -> list[tuple[str, str]]:
    found = [
        (kind, way)
        for kind in KINDS
        for way in (HERE / f"{kind}.{how}.txt").read_text().split("\n===\n")
    ]
    return [(kind, way.rstrip("\n")) for kind, way in found]


def mime(*parts: tuple[str, str]) -> bytes:
    head = 'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="==B=="\n\n'
    inside = "".join(f"--==B==\nContent-Type: {kind}\n\n{text}\n\n" for kind, text in parts)
    return f"{head}{inside}--==B==--\n".encode()


def found(data: bytes) -> set[str]:
    return {finding.id for finding in examine(data, "x").findings}


@pytest.mark.parametrize(("kind", "way"), ways("sick"))
def test_every_way_is_found(kind: str, way: str) -> None:
    assert kind in found(mime(("text/x-shellscript", f"#!/bin/bash\n{way}")))


@pytest.mark.parametrize(("kind", "way"), ways("healthy"))
def test_what_only_looks_like_it_is_not(kind: str, way: str) -> None:
    assert kind not in found(mime(("text/x-shellscript", f"#!/bin/bash\n{way}")))


def test_the_ways_are_many() -> None:
    assert len(ways("sick")) > 200 and len(ways("healthy")) > 130


PROGRAMS = (
    "curl|wget|curl -o|aws|aws s3 cp|find|find -exec|dd|read|mapfile|set|set --|printf -v|xargs"
    "|xargs -I|sg|script -c|env -S|awk|awk -f|perl -e|python3 -c|run-parts|parallel :::|trap --"
    "|tr|sed|base64 -d|systemctl"
    "|systemctl kill -s|rpm|dnf|shutdown|bash -c|bash -s --|sudo -u|source|eval|coproc|coproc X"
    "|for ((;;|case|[[|[[ a|((|$((|wait"
)


@pytest.mark.parametrize("program", PROGRAMS.split("|"))
def test_a_program_without_its_words_is_no_trouble(program: str) -> None:
    assert "BY101" in found(
        mime(("text/x-shellscript", f"#!/bin/bash\nservice ecs start\n{program}\n"))
    )


# -- scripts in other languages -------------------------------------------------------------------

SUBPROCESS = 'import subprocess\nsubprocess.run([\n  "systemctl",\n  "restart",\n  "ecs",\n])\n'


def command_checks_done(data: bytes) -> tuple[bool, set[str]]:
    """Return whether "nothing blocks" is called right, and why it could not be checked."""
    report = examine(data, "x")
    assert report.findings == () and report.exit_code == 0
    assert "BY109" in {kind.id for kind in report.passed}
    return "BY101" in {kind.id for kind in report.passed}, {
        unseen.reason for unseen in report.unseen
    }


@pytest.mark.parametrize(
    ("script", "line", "interpreter"),
    [
        (f"#!/usr/bin/env python3\n{SUBPROCESS}", 7, "python3"),
        ('#!/usr/bin/perl -w\nsystem("systemctl", "restart", "ecs");', 7, "perl"),
        ("#!/usr/bin/fish\nsystemctl restart ecs", 7, "fish"),
        (f"#!/bin/bash\npython3 - <<'END'\n{SUBPROCESS}END", 8, "python3"),
        ("#!/bin/bash\n\npython3 -c 'import os; os.system(\"x\")'", 9, "python3"),
        ("#!/bin/bash\nawk 'BEGIN { system(\"x\") }'", 8, "awk"),
        (f"#!/bin/bash\ncat > /opt/x <<'END'\n#!/bin/python\n{SUBPROCESS}END\n/opt/x", 9, "python"),
        (f"#!/bin/bash\ncat > x.py <<'END'\n{SUBPROCESS}END\npython3 x.py", 16, "python3"),
    ],
)
def test_a_script_in_another_language_is_not_followed_and_nothing_is_called_right(
    script: str, line: int, interpreter: str
) -> None:
    why = f"x:{line} runs a script for {interpreter}, which is not followed"
    assert command_checks_done(mime(("text/x-shellscript", script))) == (False, {why})


@pytest.mark.parametrize(
    "command",
    [
        "curl https://example.org | python3 -c 'import json, sys; print(json.load(sys.stdin))'",
        "awk '{ print $3 }' /etc/hosts",
        "perl -pi -e 's/a/b/' /etc/hosts",
        "cat > x.py <<'END'\nimport subprocess\nEND",
    ],
)
def test_a_one_liner_that_starts_no_program_leaves_the_checks_right(command: str) -> None:
    script = f"#!/bin/bash\n{command}"
    assert command_checks_done(mime(("text/x-shellscript", script))) == (True, set())


# -- cloud-config ---------------------------------------------------------------------------------

SCRIPT = b"#!/bin/bash\nsystemctl restart ecs\n"
PACKED = base64.b64encode(gzip.compress(SCRIPT, mtime=0)).decode()
PLAIN = base64.b64encode(SCRIPT).decode()


@pytest.mark.parametrize(
    "entry",
    [
        f"encoding: gz+b64\n  content: {PACKED}",
        f"encoding: gzip+base64\n  content: {PACKED}",
        f"encoding: gzip\n  content: !!binary |\n    {PACKED}",
        f"content: !!binary {PLAIN}",
        f"encoding: b64\n  content: {PLAIN}",
    ],
)
def test_a_packed_file_is_unpacked_and_followed_where_it_is_run(entry: str) -> None:
    config = f"#cloud-config\nwrite_files:\n- path: /tmp/x.sh\n  {entry}\n"
    assert found(mime(("text/cloud-config", config))) == set()
    assert found(mime(("text/cloud-config", f"{config}runcmd:\n- bash /tmp/x.sh"))) == {"BY101"}


def test_the_file_of_a_unit_is_followed() -> None:
    unit = json.dumps("[Service]\nType=oneshot\nExecStart=/usr/bin/systemctl restart ecs\n")
    config = (
        f"#cloud-config\nwrite_files:\n- path: /etc/systemd/system/a.service\n  content: {unit}\n"
    )
    assert found(mime(("text/cloud-config", config))) == set()
    assert found(mime(("text/cloud-config", f"{config}runcmd:\n- systemctl start a"))) == {"BY101"}


def test_a_quoted_printable_part_is_decoded() -> None:
    kind = "text/x-shellscript\nContent-Transfer-Encoding: quoted-printable"
    assert found(mime((kind, "#!/bin/bash\nSVC=3Decs\nsystemctl restart $SVC"))) == {"BY101"}
    assert found(mime((kind, "#!/bin/bash\nSVC=3Dsshd\nsystemctl restart $SVC"))) == set()


@pytest.mark.parametrize(
    ("path", "value"), [("/runcmd", ["service ecs start"]), ("/runcmd/-", "service ecs start")]
)
def test_a_json_patch_of_the_cloud_config_is_read(path: str, value: object) -> None:
    patch = json.dumps([{"op": "add", "path": path, "value": value}])
    assert found(mime(("text/cloud-config-jsonp", f"#cloud-config-jsonp\n{patch}"))) == {"BY101"}
    other = patch.replace('"add"', '"test"')
    assert found(mime(("text/cloud-config-jsonp", f"#cloud-config-jsonp\n{other}"))) == set()


def test_a_reboot_whose_condition_is_false_is_none() -> None:
    config = "#cloud-config\npower_state: {mode: reboot, condition: %s}"
    assert found(mime(("text/cloud-config", config % "False"))) == set()
    assert found(mime(("text/cloud-config", config % "True"))) == {"BY111"}


def test_the_evidence_names_the_order_of_a_unit() -> None:
    unit = (
        "cat > /etc/systemd/system/fix.service <<'EOF'\n[Unit]\nAfter=ecs.service\nEOF\n"
        "systemctl start fix\n"
    )
    first = examine(f"#!/bin/bash\n{unit}".encode(), "x", "ecs").findings[0]
    assert first.place == "x:6" and "fix.service is ordered After=ecs.service" in first.evidence
