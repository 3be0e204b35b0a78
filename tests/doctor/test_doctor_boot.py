"""`doctor host` inside a node that is booted with systemd and cloud-init by tests/infra."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import batchyard
from batchyard.doctor.userdata.examine import examine
from batchyard.infra import inline

# Read here, since the fixtures that every test has clean the environment.
REQUIRED = os.environ.get("BATCHYARD_REQUIRE_BOOT") == "1"
PACKAGE = Path(batchyard.__file__).parent


def _harness() -> Any:
    path = Path(__file__).parents[1] / "infra" / "booting.py"
    spec = importlib.util.spec_from_file_location("doctor_booting", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


booting = _harness()
pytestmark = [pytest.mark.boot, pytest.mark.usefixtures("a_tree_to_boot")]

#: Looks twice a second until the doctor says what is waited for, and writes down all it says. The
#: observer powers off where nothing comes of it. A loop that still waits at the next looks is
#: ended, so that the node can come up.
LOOK = """\
import json, os, re, signal, subprocess, time
from batchyard.doctor import show
from batchyard.doctor.host.judge import judge
from batchyard.doctor.host.gather import gather
from batchyard.doctor.host.machine import ThisMachine

looks_at_loop = 0
while True:
    report = judge(gather(ThisMachine(timeout_s=0.2)))
    with open("/var/lib/observer/doctor.json.new", "w") as file:
        json.dump(show.to_json(report), file)
    os.rename("/var/lib/observer/doctor.json.new", "/var/lib/observer/doctor.json")
    said = {finding.id for finding in report.findings}
    said |= {f"{kind.id} right" for kind in report.passed}
    loops = re.findall("process ([0-9]+)[^\\n]*\\n[^\\n]*in a loop", "\\n".join(
        text for finding in report.findings for text in finding.evidence[1:]))
    looks_at_loop += bool(loops)
    if looks_at_loop == 8:
        os.kill(int(loops[0]), signal.SIGTERM)
        break
    if "%(wanted)s" in said:
        subprocess.run(["systemctl", "poweroff"])
        break
    if "BY301" in said and not loops and not "%(wanted)s":
        break
    time.sleep(0.5)
"""
UNIT = """\
[Unit]
DefaultDependencies=no
[Service]
Environment=PYTHONPATH=/opt/doctor
ExecStart=/usr/bin/python3 /opt/doctor/look.py
"""


@pytest.fixture
def a_tree_to_boot() -> None:
    if (why := booting.missing()) is not None:
        (pytest.fail if REQUIRED else pytest.skip)(why)


def files(wanted: str = "") -> dict[str, str]:
    """The package as it is installed: the doctor of a host needs no library but Python's own.

    ``wanted`` ends the boot.
    """
    sources = [*PACKAGE.glob("**/*.py"), *PACKAGE.glob("*.json")]
    found = {
        f"opt/doctor/batchyard/{path.relative_to(PACKAGE)}": path.read_text(encoding="utf-8")
        for path in sources
    }
    return found | {
        "opt/doctor/look.py": LOOK % {"wanted": wanted},
        "etc/systemd/system/doctor.service": UNIT,
        "etc/systemd/system/observer.service.d/doctor.conf": "[Unit]\nWants=doctor.service\n",
    }


@pytest.mark.parametrize(
    ("command", "unit"),
    [
        ("systemctl start ecs", "ecs.service"),
        ("systemctl restart docker", "docker.service"),
        ("bash -c 'service ecs restart'", "ecs.service"),
    ],
)
def test_the_deadlock_of_a_node_that_really_booted_is_named(command: str, unit: str) -> None:
    script = f"#!/bin/bash\n{command}\nexit 0\n"
    with booting.booted(booting.Scene(script, gpus=0, files=files(), stuck_s=10)) as node:
        found = json.loads(node.read("var/lib/observer/doctor.json"))["findings"]
        first = found[0]
        assert first["id"] == "BY301"
        assert first["evidence"][0].startswith(f"{unit} -> cloud-final.service -> process ")
    # What the host says when it is too late, the user data says before.
    assert [(f.id, f.place) for f in examine(script.encode(), "s", "ecs").findings] == [
        ("BY101", "s:2")
    ]


#: answers 200 as soon as the port is open, as curl -w '%{http_code}' does
CURL = """\
#!/usr/bin/python3
import socket
try:
    socket.create_connection(("127.0.0.1", 51678), 1).close()
    print(200)
except OSError:
    print("000")
"""
#: an agent that opens its port
AGENT = """\
[Unit]
Wants=docker.service
PartOf=docker.service
After=docker.service
After=cloud-final.service
[Service]
ExecStart=/usr/bin/python3 -m http.server 51678
[Install]
WantedBy=multi-user.target
"""
WAITING_FILES = {"opt/bin/curl": CURL, "etc/systemd/system/ecs.service": AGENT}
SET_UP = "#!/bin/bash\nchmod +x /opt/bin/curl\nPATH=/opt/bin:$PATH\n"
ASK_AGENT = "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:51678/v1/metadata"
UP = {"docker.service": "active", "ecs.service": "active"}


@pytest.mark.parametrize(
    ("loop", "unit"),
    [
        (
            "systemctl restart --no-block docker; until docker info; do sleep 0.2; done",
            "docker.service",
        ),
        ("until systemctl is-active docker; do ((n++)); sleep 0.2; done", "docker.service"),
        (f'while [ "$({ASK_AGENT})" -ne 200 ]; do sleep 0.2; done', "ecs.service"),
    ],
    ids=["docker info", "is-active docker", "port of the agent"],
)
def test_a_loop_that_waits_for_what_comes_after_it_is_a_deadlock_when_booted(
    loop: str, unit: str
) -> None:
    script = f"{SET_UP}{loop}\n"
    scene = booting.Scene(script, gpus=0, files=files() | WAITING_FILES, until=UP)
    with booting.booted(scene) as node:
        # The doctor saw the loop eight times, then ended it; only then did the node come up.
        assert node.report["ended"] == "as expected"
        findings = json.loads(node.read("var/lib/observer/doctor.json"))["findings"]
    assert findings[0]["id"] == "BY301"
    assert findings[0]["evidence"][0].startswith(f"{unit} -> cloud-final.service -> process ")
    assert "part-001:4 waits in a loop" in findings[0]["evidence"][2]
    assert [(f.id, f.place) for f in examine(script.encode(), "s", "ecs").findings] == [
        ("BY110", "s:4")
    ]


@pytest.mark.parametrize(
    "loop",
    [
        "n=0; until docker info || ((n++ >= 9)); do sleep 0.2; done",
        "timeout 2 bash -c 'until systemctl is-active docker; do sleep 0.2; done'",
        f'for i in $(seq 9); do [ "$({ASK_AGENT})" -eq 200 ] && break; sleep 0.2; done',
    ],
    ids=["count", "timeout", "for"],
)
def test_a_loop_with_a_bound_lets_the_node_come_up(loop: str) -> None:
    script = f"{SET_UP}{loop}\nexit 0\n"
    scene = booting.Scene(script, gpus=0, files=files() | WAITING_FILES, until=UP)
    with booting.booted(scene) as node:
        assert node.report["ended"] == "as expected"
        findings = json.loads(node.read("var/lib/observer/doctor.json"))["findings"]
        assert "BY301" not in {finding["id"] for finding in findings}
    assert examine(script.encode(), "s", "ecs").findings == ()


def test_a_node_that_booted_well_shows_no_deadlock() -> None:
    script = (
        "#!/bin/bash\nsystemctl restart --no-block docker\n"
        "(sleep 1; systemctl restart ecs) &\nexit 0\n"
    )
    with booting.booted(booting.Scene(script, gpus=0, files=files())) as node:
        found = json.loads(node.read("var/lib/observer/doctor.json"))["findings"]
        assert "BY301" not in {finding["id"] for finding in found}
    assert examine(script.encode(), "s", "ecs").findings == ()


# -- what our own nodes write down ----------------------------------------------------------------

#: how the GPU image of Amazon Linux 2023 gives dockerd the runtime
REGISTERED = {
    "etc/docker-runtimes.d/nvidia": '#!/bin/sh\nexec /usr/bin/nvidia-container-runtime "$@"\n'
}
#: the node is ended by who looks, not by the observer
NEVER = {"ecs.service": "failed"}


def gpu_node(wanted: str, **scene: Any) -> Any:
    """A GPU node of ours that stays when its check fails, so that somebody can look."""
    values = {
        "GpuFailureAction": "none",
        "Cluster": "c",
        "ComputeEnvironment": "e",
        "AWS::Region": "us-east-1",
    }
    data = inline.render_for_host("batch-gpu", values)
    return booting.booted(
        booting.Scene(data, files={**REGISTERED, **files(wanted)}, until=NEVER, **scene)
    )


@pytest.mark.parametrize(
    ("scene", "cause", "words"),
    [
        (
            {"gpus": 4, "container_gpus": 3},
            "a container on it does not see its GPUs",
            "a container sees 3 of 4 GPUs",
        ),
        (
            {"driver_stays_asleep": True},
            "its NVIDIA driver does not answer",
            "nvidia-smi still fails",
        ),
    ],
    ids=["fewer GPUs in a container", "no driver"],
)
def test_why_a_gpu_node_keeps_itself_from_ecs_is_read_from_what_it_wrote(
    scene: dict[str, Any], cause: str, words: str
) -> None:
    with gpu_node("BY319", **scene) as node:
        report = json.loads(node.read("var/lib/observer/doctor.json"))
        assert node.report["ended"] is None, f"nobody found it: {report}"
        found = {finding["id"]: finding for finding in report["findings"]}
    first = found["BY319"]
    assert first["cause"] == f"the node does not join ECS: {cause}"
    assert words in "\n".join(first["evidence"])
    assert not {"BY301", "BY320"} & set(found)
    # The unit that failed is this check: it is not told twice.
    assert not [f for f in found.values() if "batchyard-gpu-check" in f["cause"]]


def test_a_gpu_node_that_passed_its_check_is_right() -> None:
    with gpu_node("BY319 right", gpus=2) as node:
        report = json.loads(node.read("var/lib/observer/doctor.json"))
        assert node.report["ended"] is None, f"nobody found it right: {report}"
    assert not {"BY301", "BY319", "BY320"} & {finding["id"] for finding in report["findings"]}
    assert {"BY319", "BY320"} <= {kind["id"] for kind in report["right"]}
