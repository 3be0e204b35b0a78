"""The NVMe disks of a host, mounted by its user data; stand-ins take the place of disk tools."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

COMMON = Path(__file__).parents[2] / "src/batchyard/infra/userdata/common.sh"
STORE = "/mnt/instance-store"


def run_mount(folder: Path, disks: list[str], failing: tuple[str, ...] = ()) -> tuple[str, str]:
    """Run `mount_instance_store` of the user data; return the calls of disk tools, and the log."""
    text = COMMON.read_text()
    function = text[text.index("mount_instance_store() {") :]
    function = function[: function.index("\n}\n") + 3]
    binaries = folder / "bin"
    binaries.mkdir()
    for name in ("mkdir", "chmod", "mdadm", "mkfs.xfs", "mount", "find"):
        lines = [f"echo {name} $* >> {folder}/calls", f"exit {int(name in failing)}"]
        if name == "find":
            lines = [f"printf '%s\\n' {' '.join(disks)}"] if disks else ["exit 1"]
        (binaries / name).write_text("\n".join(["#!/bin/sh", *lines, ""]))
        (binaries / name).chmod(0o755)
    script = f'node_log={folder}/log; say() {{ echo "$*"; }}\n{function}\nmount_instance_store'
    done = subprocess.run(
        ["bash", "-uo", "pipefail", "-c", script],
        env={"PATH": f"{binaries}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return (folder / "calls").read_text(), done.stdout


@pytest.mark.parametrize(
    ("disks", "failing", "device"),
    [
        (["/dev/nvme1n1"], (), "/dev/nvme1n1"),
        (["/dev/nvme1n1", "/dev/nvme2n1"], (), "/dev/md/instance-store"),
        (["/dev/nvme1n1", "/dev/nvme2n1"], ("mdadm",), "/dev/nvme1n1"),
    ],
    ids=["one disk", "two disks", "two disks that cannot be joined"],
)
def test_the_disks_are_mounted_for_containers(
    tmp_path: Path, disks: list[str], failing: tuple[str, ...], device: str
) -> None:
    calls, log = run_mount(tmp_path, disks, failing)
    assert f"mount -o noatime {device} {STORE}\nchmod 1777 {STORE}\n" in calls
    assert f"instance store: {device} of {len(disks)} disks at {STORE}" in log


def test_without_disks_the_folder_is_on_the_root_disk(tmp_path: Path) -> None:
    calls, log = run_mount(tmp_path, [])
    assert calls == f"mkdir -p {STORE}\nchmod 1777 {STORE}\n"
    assert log == ""


def test_a_disk_that_cannot_be_formatted_is_logged(tmp_path: Path) -> None:
    calls, log = run_mount(tmp_path, ["/dev/nvme1n1"], ("mkfs.xfs",))
    assert "mount -o" not in calls
    assert f"/dev/nvme1n1 cannot be mounted; {STORE} is on the root disk" in log
