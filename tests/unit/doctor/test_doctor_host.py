"""`doctor host`: facts from recorded output, and access to the real machine."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from batchyard.doctor.facts import Missing
from batchyard.doctor.host import deadlock, parse
from batchyard.doctor.host.facts import (
    Agent,
    CloudInit,
    Docker,
    Gpu,
    Job,
    Metadata,
    NodeCheck,
    Process,
    Unit,
)
from batchyard.doctor.host.gather import gather
from batchyard.doctor.host.judge import judge
from batchyard.doctor.host.machine import Output, ThisMachine

UUID = "GPU-7f6a1b2c-1111-2222-3333-444455556666"
SHOW = """Id=ecs.service
LoadState=loaded
ActiveState=inactive
After=basic.target cloud-final.service docker.service system.slice

Id=docker.service
LoadState=loaded
ActiveState=active
After=network-online.target containerd.service

Id=cloud-final.service
LoadState=loaded
ActiveState=activating
After=cloud-config.service multi-user.target
"""
JOBS = """ 103 ecs.service         start waiting
  88 cloud-init.target   start waiting
  87 cloud-final.service start running
"""
PS = """    1     0 /usr/lib/systemd/systemd
  812     1 /usr/bin/python3 -s /usr/bin/cloud-init modules --mode=final
  911   812 /bin/bash /var/lib/cloud/instance/scripts/part-001
  933   911 systemctl restart ecs
  950     1 sshd: root
"""


class RecordedMachine:
    """A machine that answers from tables, and records the commands that were run."""

    def __init__(
        self, outputs: dict[str, str | Output | None], files: dict[str, str], urls: dict[str, str]
    ) -> None:
        self.outputs, self.files, self.urls = outputs, files, urls
        self.commands: list[tuple[str, ...]] = []

    def run(self, words: Sequence[str], timeout_s: float = 10) -> Output | None:
        self.commands.append(tuple(words))
        output = self.outputs.get(" ".join(words[:2]), self.outputs.get(words[0]))
        return Output(0, output) if isinstance(output, str) else output

    def read(self, path: str) -> str | None:
        if self.files.get(path) == "denied":
            raise PermissionError(13, "Permission denied")
        return self.files.get(path)

    def names(self, pattern: str) -> list[str]:
        return sorted(path for path in self.files if Path(path).match(pattern))

    def ask(
        self, url: str, method: str = "GET", headers: dict[str, str] | None = None
    ) -> str | None:
        return self.urls.get(f"{method} {url}")

    def disk(self, path: str) -> tuple[int, int] | None:
        return 100 * 2**30, 60 * 2**30

    def now_ms(self) -> int:
        return 1

    def host_name(self) -> str:
        return "node"


def gpu_node() -> RecordedMachine:
    info = {
        "ServerVersion": "25.0.8",
        "DefaultRuntime": "runc",
        "Runtimes": {"runc": {}, "nvidia": {}},
    }
    return RecordedMachine(
        {
            "nvidia-smi": f"GPU 0: NVIDIA A10G (UUID: {UUID})\n",
            "docker info": json.dumps(info),
            "systemctl show": SHOW.replace("inactive", "active").replace("activating", "active"),
            "systemctl list-jobs": "No jobs running.\n",
            "ps": PS.replace("  933   911 systemctl restart ecs\n", ""),
            "cloud-init": "status: done\n",
            "timedatectl": "yes\n",
            "dmesg": "[ 1.0] nvidia: loading out-of-tree module\n",
        },
        {
            "/proc/uptime": "3600.12 100.0\n",
            "/dev/nvidia0": "",
            "/dev/nvidiactl": "",
            "/dev/nvidia-uvm": "",
            "/sys/bus/pci/devices/0000:00:1e.0/vendor": "0x10de\n",
            "/sys/bus/pci/devices/0000:00:1e.0/class": "0x030200\n",
            "/sys/bus/pci/devices/0000:00:1f.0/vendor": "0x1d0f\n",
            "/sys/bus/pci/devices/0000:00:1f.0/class": "0x010802\n",
            "/etc/ecs/ecs.config": "ECS_CLUSTER=c\n",
            "/var/lib/ecs/ecs.config": "ECS_ENABLE_GPU_SUPPORT=true\n",
            "/var/lib/ecs/gpu/nvidia-gpu-info.json": json.dumps({"GPUIDs": [UUID]}),
        },
        {
            "GET http://127.0.0.1:51678/v1/metadata": json.dumps(
                {
                    "Cluster": "c",
                    "ContainerInstanceArn": "arn:x",
                    "Version": "Amazon ECS Agent - v1.98.0",
                }
            ),
            "PUT http://169.254.169.254/latest/api/token": "token",
            "GET http://169.254.169.254/latest/meta-data/instance-id": "i-1",
            "GET http://169.254.169.254/latest/meta-data/instance-type": "g5.xlarge",
            "GET http://169.254.169.254/latest/meta-data/ami-id": "ami-1",
        },
    )


# -- from recorded output to a verdict ---------------------------------------------------------


def test_a_healthy_gpu_node_is_gathered_and_found_healthy() -> None:
    facts = gather(gpu_node())
    assert facts.gpus == (Gpu(UUID, "NVIDIA A10G"),)
    assert facts.bus_gpus == 1
    assert facts.uptime_s == 3600.12
    assert facts.docker == Docker("25.0.8", "runc", ("nvidia", "runc"))
    assert facts.agent == Agent("c", "arn:x", "Amazon ECS Agent - v1.98.0")
    assert facts.agent_gpus == (UUID,)
    assert facts.metadata == Metadata("i-1", "g5.xlarge", "ami-1")
    assert facts.is_clock_synchronized is True
    report = judge(facts)
    assert (report.findings, report.unseen) == ((), ())


def test_what_our_own_nodes_write_down_is_read() -> None:
    machine = gpu_node()
    assert gather(machine).node_check is None and gather(machine).node_log is None
    verdict = {
        "ok": False,
        "stage": "docker",
        "reason": "Docker does not answer: no such socket",
        "time": "t",
    }
    log = "".join(f"{i} batchyard: x\n" for i in range(100)) + "z batchyard: user data ends\n"
    machine.files |= {
        "/var/lib/batchyard/gpu-check.json": json.dumps(verdict),
        "/var/log/batchyard-node.log": log,
    }
    facts = gather(machine)
    assert facts.node_check == NodeCheck(
        False, "docker", "Docker does not answer: no such socket", "t"
    )
    assert facts.node_log is not None and len(facts.node_log) == 40  # type: ignore[arg-type]
    (finding,) = judge(facts).findings
    assert finding.id == "BY319" and "Docker does not answer: no such socket" in finding.evidence


@pytest.mark.parametrize("text", ["", "{", "[]", '{"ok": "yes"}', "denied"])
def test_a_verdict_that_cannot_be_read_is_said_to_be_so(text: str) -> None:
    machine = gpu_node()
    machine.files["/var/lib/batchyard/gpu-check.json"] = text
    report = judge(gather(machine))
    (unseen,) = report.unseen
    assert (unseen.kind.id, report.findings) == ("BY319", ())
    assert ("run as root" if text == "denied" else "holds no verdict") in unseen.reason


def test_the_deadlock_of_a_booted_node_is_named() -> None:
    machine = gpu_node()
    machine.outputs |= {
        "systemctl show": SHOW,
        "systemctl list-jobs": JOBS,
        "ps": PS,
        "cloud-init": "status: running\n",
    }
    del machine.urls["GET http://127.0.0.1:51678/v1/metadata"]
    report = judge(gather(machine))
    first = report.findings[0]
    assert first.id == "BY301"
    assert first.cause == (
        "ecs.service waits for cloud-final.service, which runs a script that waits for ecs.service"
    )
    assert first.evidence[0] == "ecs.service -> cloud-final.service -> process 933 -> ecs.service"
    assert first.remedy[0].startswith("kill 933")


def test_only_reading_commands_are_run() -> None:
    machine = gpu_node()
    gather(machine)
    allowed = {
        "nvidia-smi -L",
        "docker info",
        "systemctl show",
        "systemctl list-jobs",
        "ps -eo",
        "cloud-init status",
    }
    allowed |= {"timedatectl show", "dmesg"}
    assert {" ".join(words[:2]) for words in machine.commands} == allowed


def test_a_container_is_run_only_where_one_is_asked_for() -> None:
    machine = gpu_node()
    machine.outputs["docker run"] = Output(125, "", "could not select device driver")
    facts = gather(machine, gpu_container="cuda:12")
    assert (
        "docker",
        "run",
        "--rm",
        "--network",
        "none",
        "--gpus",
        "all",
        "--entrypoint",
        "nvidia-smi",
        "cuda:12",
        "-L",
    ) in (machine.commands)
    assert [f.id for f in judge(facts).findings] == ["BY315"]


def test_a_machine_with_nothing_on_it_is_no_reason_to_complain() -> None:
    report = judge(gather(RecordedMachine({}, {}, {})))
    assert [f.id for f in report.findings] == []
    assert {u.kind.id for u in report.unseen} >= {"BY301", "BY313"}


def test_a_file_that_may_not_be_read_is_said_to_be_so() -> None:
    machine = gpu_node()
    machine.files["/etc/ecs/ecs.config"] = "denied"
    facts = gather(machine)
    assert facts.ecs_config == Missing("/etc/ecs/ecs.config: Permission denied; run as root")
    assert "BY309" in {u.kind.id for u in judge(facts).unseen}


def test_a_command_that_fails_says_why() -> None:
    machine = gpu_node()
    machine.outputs["nvidia-smi"] = Output(
        9, "NVIDIA-SMI has failed because it couldn't communicate with the driver.\n"
    )
    facts = gather(machine)
    assert isinstance(facts.gpus, Missing) and "couldn't communicate" in facts.gpus.reason


# -- the deadlock ------------------------------------------------------------------------------

UNITS = (
    Unit("ecs.service", after=("docker.service", "cloud-final.service")),
    Unit("docker.service", after=("network-online.target",)),
    Unit("cloud-final.service", active="activating"),
)
RUNS = Job("cloud-final.service", state="running")


def test_a_unit_that_waits_over_another_is_found_with_its_whole_path() -> None:
    units = (
        Unit("ecs.service", after=("docker.service",)),
        Unit("docker.service", after=("cloud-final.service",)),
        UNITS[2],
    )
    jobs = (Job("ecs.service"), Job("docker.service"), RUNS)
    deadlocks = deadlock.find_deadlocks(jobs, units, [Process(9, 1, "systemctl start ecs.service")])
    assert [d.path for d in deadlocks] == [("ecs.service", "docker.service", "cloud-final.service")]


@pytest.mark.parametrize(
    "command",
    [
        "systemctl start --no-block ecs",
        "systemctl status ecs",
        "sleep 100",
        "systemctl start sshd",
        "'",
    ],
)
def test_a_process_that_does_not_wait_for_it_makes_no_circle(command: str) -> None:
    assert (
        deadlock.find_deadlocks((Job("ecs.service"), RUNS), UNITS, [Process(9, 1, command)]) == []
    )


def test_a_job_that_runs_is_not_waiting() -> None:
    assert (
        deadlock.find_deadlocks(
            (Job("ecs.service", state="running"), RUNS),
            UNITS,
            [Process(9, 1, "systemctl start ecs")],
        )
        == []
    )


def test_units_that_are_ordered_in_a_ring_do_not_loop_the_search() -> None:
    units = (Unit("a.service", after=("b.service",)), Unit("b.service", after=("a.service",)))
    jobs = (Job("a.service"), Job("b.service"))
    assert deadlock.find_deadlocks(jobs, units, [Process(9, 1, "systemctl start a")]) == []


@pytest.mark.parametrize(
    ("command", "units"),
    [
        ("systemctl restart docker ecs", ("docker.service", "ecs.service")),
        ("/usr/bin/systemctl enable --now ecs", ("ecs.service",)),
        ("systemctl enable ecs", ()),
        ("/bin/sh /sbin/service docker restart", ("docker.service",)),
        ("sudo systemctl start multi-user.target", ("multi-user.target",)),
        ("vim systemctl", ()),
    ],
)
def test_what_a_process_waits_for_is_read_from_its_command(
    command: str, units: tuple[str, ...]
) -> None:
    assert deadlock.units_waited_for(command) == units


# -- reading outputs ---------------------------------------------------------------------------


def test_cloud_inits_status_is_read_in_both_forms() -> None:
    old = "status: error\ntime: x\ndetail:\n('scripts-user', RuntimeError('1 failures'))\n"
    new = "status: done\nextended_status: degraded done\ndetail: DataSourceEc2Local\n"
    assert parse.parse_cloud_init(old) == CloudInit(
        "error", "('scripts-user', RuntimeError('1 failures'))"
    )
    assert parse.parse_cloud_init(new) == CloudInit("degraded done", "DataSourceEc2Local")
    assert parse.parse_cloud_init("nonsense") is None


def test_the_last_setting_of_an_ecs_config_counts() -> None:
    text = "# ECS_CLUSTER=no\nECS_CLUSTER=a\nexport ECS_CLUSTER='b'\n"
    assert parse.find_setting(text, "ECS_CLUSTER") == "b"
    assert parse.find_setting(text, "OTHER") is None
    assert parse.find_setting(None, "OTHER") is None


def test_errors_of_the_gpu_driver_are_picked_from_the_kernels_log() -> None:
    error = "[2] NVRM: Xid (PCI:0000:00:1e): 79, GPU has fallen off the bus."
    assert parse.parse_gpu_errors(f"[1] usb 1\n{error}\n[3] NVRM: loading\n") == (error,)


# -- the real machine --------------------------------------------------------------------------


@pytest.fixture
def address() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.headers.get("Key") or self.path == "/open" else 401)
            self.end_headers()
            self.wfile.write(b"answer")

        def do_PUT(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"token")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_real_machine_reads_files_below_its_root(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    (tmp_path / "etc").write_bytes(b"a\xff")
    machine = ThisMachine(str(tmp_path))
    assert machine.names("/dev/nvidia*") == ["/dev/nvidia0"]
    assert machine.read("/etc") == "a\ufffd"
    assert (
        machine.read("/nowhere") is None
        and machine.read("/etc/below") is None
        and machine.read("/dev") is None
    )
    total, free = machine.disk("/") or (0, 0)
    assert total >= free > 0


def test_the_real_machine_runs_commands_and_knows_those_that_are_missing() -> None:
    machine = ThisMachine()
    assert machine.run(["sh", "-c", "echo out; echo err >&2; exit 3"]) == Output(
        3, "out\n", "err\n"
    )
    assert machine.run(["batchyard-no-such-program"]) is None
    slow = machine.run(["sleep", "5"], timeout_s=0.1)
    assert slow is not None and slow.exit_code == 124


def test_the_real_machine_asks_local_addresses(address: str) -> None:
    machine = ThisMachine(timeout_s=30)
    assert machine.ask(f"{address}/open") == "answer"
    assert machine.ask(f"{address}/closed") is None
    assert machine.ask(f"{address}/closed", headers={"Key": "1"}) == "answer"
    assert machine.ask(f"{address}/x", "PUT") == "token"
    assert machine.ask("http://127.0.0.1:1/") is None


def test_this_very_machine_can_be_gathered(address: str) -> None:
    facts = gather(ThisMachine(), agent_url=f"{address}/closed", metadata_url="http://127.0.0.1:1")
    assert isinstance(facts.agent, Missing) and isinstance(facts.metadata, Missing)
    assert judge(facts).exit_code in (0, 1)
