"""Boots user data for real: a Debian tree with systemd and cloud-init, in a container of
systemd-nspawn.

The tree is .ci/boot-tree's, under an overlay that is thrown away. Stand-ins for Docker, the ECS
agent, the NVIDIA driver and the AWS client are laid into it (standins/), the user data into
cloud-init's seed. An observer inside writes down what becomes of the units and powers off.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STANDINS = Path(__file__).parent / "standins"
REPOSITORY = Path(__file__).parents[2]
PROGRAMS = (
    "docker",
    "dockerd",
    "nvidia-smi",
    "modprobe",
    "nvidia-container-runtime",
    "aws",
    "dnf",
    "observer",
)
UNITS = ("docker.service", "ecs.service", "cloud-final.service", "observer.service")
ALL_UP = {"cloud-final.service": "active", "docker.service": "active", "ecs.service": "active"}
#: only what matters here: the scripts of the user data, in the stage that they are run in
CLOUD_CONFIG = """\
datasource_list: [NoCloud, None]
network: {config: disabled}
cloud_init_modules: [write-files]
cloud_config_modules: []
cloud_final_modules: [scripts-user, final-message]
"""
#: only against a hang: a boot takes a few seconds, on a busy machine several times that
DEADLINE_S = 300


@dataclass(frozen=True)
class Scene:
    """What a node is like before its first boot, and what to wait for."""

    user_data: str
    gpus: int = 1
    #: of those, how many a container gets to see; None: all
    container_gpus: int | None = None
    #: nvidia-smi fails until the modules are loaded anew; or for ever
    driver_sleeps: bool = False
    driver_stays_asleep: bool = False
    #: as on Amazon's own images, where only dnf can bring it
    lacks_aws_client: bool = False
    files: dict[str, str] = field(default_factory=dict)
    until: dict[str, str] = field(default_factory=lambda: dict(ALL_UP))
    stuck_s: float = 8


@dataclass(frozen=True)
class Booted:
    root: Path
    report: dict[str, Any]

    def read(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text(encoding="utf-8")

    def exists(self, path: str) -> bool:
        return (self.root / path.lstrip("/")).exists()

    @property
    def last(self) -> dict[str, str]:
        units: dict[str, str] = self.report["history"][-1]["units"]
        return units

    def ever(self, unit: str, state: str) -> bool:
        return any(moment["units"][unit] == state for moment in self.report["history"])


def missing() -> str | None:
    """Why nothing can be booted here; None where it can."""
    if os.geteuid() != 0:
        return "booting needs root"
    if shutil.which("systemd-nspawn") is None:
        return "there is no systemd-nspawn; .ci/boot-tree installs it"
    if tree() is None:
        return "there is no tree to boot; .ci/boot-tree makes it"
    return None


def tree() -> Path | None:
    found = [
        path
        for path in (REPOSITORY / ".cache").glob("boot-tree-*")
        if path.is_dir() and not path.suffix
    ]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


@contextmanager
def booted(scene: Scene) -> Iterator[Booted]:
    """The tree after the node was booted and has powered off."""
    lower = tree()
    assert lower is not None
    with tempfile.TemporaryDirectory(prefix="batchyard-boot-") as folder:
        upper, work, root = (Path(folder, name) for name in ("upper", "work", "root"))
        for path in (upper, work, root):
            path.mkdir()
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(root)], check=True)
        try:
            _lay_out(root, scene)
            _boot(root, Path(folder).name)
            report = json.loads((root / "var/lib/observer/report.json").read_text())
            yield Booted(root, report)
        finally:
            subprocess.run(["umount", str(root)], check=True)


def _boot(root: Path, name: str) -> None:
    command = [
        "systemd-nspawn",
        "--quiet",
        "--boot",
        "--register=no",
        "--keep-unit",
        "--private-network",
    ]
    command += [
        "--console=pipe",
        f"--machine={re.sub('[^a-z0-9]', '', name)}",
        f"--directory={root}",
    ]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=DEADLINE_S + 60,
    )
    assert done.returncode == 0, (
        f"systemd-nspawn exited {done.returncode}:\n{done.stdout}\n{done.stderr}"
    )


def _lay_out(root: Path, scene: Scene) -> None:
    for program in PROGRAMS:
        _copy(STANDINS / program, root / "usr/local/bin" / program)
    if scene.lacks_aws_client:
        (root / "usr/local/bin/aws").rename(root / "usr/local/share/aws")
    for unit in UNITS:
        _copy(STANDINS / unit, root / "etc/systemd/system" / unit)
    for unit, target in (("docker", "multi-user"), ("ecs", "multi-user"), ("observer", "basic")):
        wants = root / f"etc/systemd/system/{target}.target.wants/{unit}.service"
        wants.parent.mkdir(parents=True, exist_ok=True)
        wants.symlink_to(f"/etc/systemd/system/{unit}.service")
    until = {"until": scene.until, "deadline_s": DEADLINE_S, "stuck_s": scene.stuck_s}
    seen = scene.gpus if scene.container_gpus is None else scene.container_gpus
    files = {
        "var/lib/observer/ready": "",
        "var/lib/cloud/seed/nocloud/meta-data": "instance-id: i-boot\nlocal-hostname: node\n",
        "var/lib/cloud/seed/nocloud/user-data": scene.user_data,
        "etc/cloud/cloud.cfg.d/99-boot.cfg": CLOUD_CONFIG,
        "etc/stand-in/scene.json": json.dumps(until),
        "etc/stand-in/gpus": f"{scene.gpus}\n",
        "etc/stand-in/container-gpus": f"{seen}\n",
        **scene.files,
    }
    if scene.driver_sleeps or scene.driver_stays_asleep:
        files["etc/stand-in/driver-sleeps"] = ""
    if scene.driver_stays_asleep:
        files["etc/stand-in/driver-stays-asleep"] = ""
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
