"""Measure other schedulers (`--peers`), which are installed from PyPI into a virtualenv.

They are slow, so they run few children. Their start-up does not count: a peer runs twice, with few
and with more children, and only the time of the additional children counts.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from contenders import Finished, Yard, time_command
from scores import Skipped, Timing, Workload

_FEW = 2
#: additional children that take less than this fraction of the start-up cannot be measured
_MIN_FRACTION = 0.5
_INSTALL_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    package: str
    children: int
    #: (bin folder of the virtualenv, folder to write to, slots, children) -> command
    command: Callable[[Path, Path, int, int], list[str]]


def parsl(bin: Path, folder: Path, slots: int, children: int) -> list[str]:
    script = f"""
import parsl
from parsl.config import Config
from parsl.executors import ThreadPoolExecutor
executors = [ThreadPoolExecutor(max_threads={slots})]
parsl.load(Config(executors=executors, run_dir={str(folder / "parsl")!r}))
child = parsl.bash_app(lambda number: {Workload.TRUE.value!r})
assert [future.result() for future in [child(n) for n in range({children})]] == [0] * {children}
"""
    return [str(bin / "python"), "-c", script]


def dask(bin: Path, folder: Path, slots: int, children: int) -> list[str]:
    script = f"""
import subprocess
from distributed import Client
options = dict(n_workers=1, threads_per_worker={slots}, dashboard_address=None)
with Client(processes=False, **options) as client:
    run = lambda number: subprocess.run([{Workload.TRUE.value!r}]).returncode
    assert client.gather(client.map(run, range({children}), pure=False)) == [0] * {children}
"""
    return [str(bin / "python"), "-c", script]


def luigi(bin: Path, folder: Path, slots: int, children: int) -> list[str]:
    script = f"""
import subprocess, luigi
class Child(luigi.Task):
    number = luigi.IntParameter()
    def run(self):
        subprocess.run([{Workload.TRUE.value!r}], check=True)
tasks = [Child(n) for n in range({children})]
assert luigi.build(tasks, workers={slots}, local_scheduler=True, log_level="ERROR")
"""
    return [str(bin / "python"), "-W", "ignore", "-c", script]


def snakemake(bin: Path, folder: Path, slots: int, children: int) -> list[str]:
    rules = folder / f"Snakefile-{children}"
    rules.write_text(
        f'rule all:\n    input: expand("done-{children}/{{n}}", n=range({children}))\n'
        f'rule child:\n    output: touch("done-{children}/{{n}}")\n    shell: "{Workload.TRUE}"\n'
    )
    return [
        str(bin / "snakemake"),
        "-s",
        str(rules),
        "-d",
        str(folder),
        "-j",
        str(slots),
        "--quiet",
        "all",
    ]


PEERS = (
    Peer("Parsl (threads)", "parsl", 2000, parsl),
    Peer("Dask distributed (threads)", "distributed", 2000, dask),
    Peer("Luigi", "luigi", 500, luigi),
    Peer("Snakemake", "snakemake", 200, snakemake),
)


def measure(yard: Yard, venv: Path, rounds: int) -> tuple[list[Timing], list[Skipped]]:
    """Time all peers round by round; one that cannot be installed or run is skipped."""
    timings: list[Timing] = []
    skips: list[Skipped] = []
    ready = []
    for peer in PEERS:
        problem = _install(venv, peer.package)
        if problem:
            skips.append(Skipped(peer.name, problem))
        else:
            ready.append(peer)
    for round in range(rounds):
        for peer in list(ready):
            timing = _race(yard, venv / "bin", peer, round, peer.children)
            if timing.problem:
                ready.remove(peer)
                skips.append(Skipped(peer.name, timing.problem))
            else:
                timings.append(timing)
    return timings, skips


def _race(yard: Yard, bin: Path, peer: Peer, round: int, children: int) -> Timing:
    def run(count: int) -> Finished:
        folder = yard.new_folder()
        return time_command(yard, peer.command(bin, folder, yard.slots, count), cwd=folder)

    # The first start reads from the disk, so it is not counted.
    run(_FEW)
    few, many = run(_FEW), run(children)
    for finished in (few, many):
        if finished.exit_code:
            return finished.timing(peer.name, Workload.TRUE, round, children)
    wall_s = many.wall_s - few.wall_s
    if wall_s < few.wall_s * _MIN_FRACTION:
        problem = (
            f"{children} children are too few to measure beside a start-up of {few.wall_s:.1f} s"
        )
        return many.timing(peer.name, Workload.TRUE, round, children, problem)
    usage = (wall_s, many.cpu_s - few.cpu_s, many.max_rss_mb, many.others_cpus)
    return Timing(peer.name, Workload.TRUE, round, children - _FEW, *usage)


def _install(venv: Path, package: str) -> str:
    """Install a package. Returns what went wrong, or nothing."""
    python = venv / "bin" / "python"
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", venv], check=True, capture_output=True)
        pip = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            package,
        ]
        subprocess.run(pip, check=True, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S)
    except subprocess.CalledProcessError as exc:
        return f"could not be installed: {str(exc.stderr).strip().splitlines()[-1:]}"
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"could not be installed: {exc}"
    return ""
