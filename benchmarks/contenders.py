"""Those who start processes: one function each, that times one whole command and then checks what it did."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import machine
from scores import Timing, Workload

#: what `make bench` itself tells a make below it, a job server included
_MAKE_VARIABLES = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")
_HELLO = b"hello\n"


@dataclass(frozen=True, slots=True)
class Yard:
    """Where the contenders run.

    One folder for the whole benchmark, in which nothing is deleted until the end: ext4 creates files many times
    slower for minutes after a mass deletion.
    """

    folder: Path
    slots: int
    #: the batchyard to measure, and what to add to its run where it should not use every CPU
    batchyard: Sequence[str]
    flags: Sequence[str]
    _numbers: Iterator[int] = field(default_factory=itertools.count, init=False)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def new_folder(self) -> Path:
        path = self.folder / f"logs-{next(self._numbers)}"
        path.mkdir()
        return path

    def file(self, name: str, text: Callable[[], str]) -> Path:
        """Written when it is first asked for, outside of any timing."""
        path = self.folder / name
        if not path.exists():
            path.write_text(text())
        return path


@dataclass(frozen=True, slots=True)
class Finished:
    exit_code: int
    wall_s: float
    cpu_s: float
    max_rss_mb: float
    others_cpus: float
    stdout: bytes
    stderr: bytes

    def timing(
        self, contender: str, workload: str, round: int, children: int = 1, problem: str = ""
    ) -> Timing:
        # How many children failed says more than that the exit code was 1.
        if self.exit_code and not problem:
            said = self.stderr.decode(errors="replace").strip().splitlines()[-1:]
            problem = f"exit code {self.exit_code}: {''.join(said) or 'no message'}"
        usage = (self.wall_s, self.cpu_s, self.max_rss_mb, self.others_cpus)
        return Timing(contender, workload, round, children, *usage, problem)


Contender = Callable[[Yard, Workload, int, int], Timing]


def timed(
    yard: Yard,
    argv: Sequence[str],
    *,
    stdin: Path | None = None,
    cwd: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Finished:
    """Runs the command with its output in files, so that no reader of ours takes a CPU away from it."""
    out, err = yard.folder / "stdout", yard.folder / "stderr"
    with (
        (stdin or Path(os.devnull)).open("rb") as source,
        out.open("wb") as stdout,
        err.open("wb") as stderr,
    ):
        begin, busy_before = time.perf_counter(), machine.busy_s()
        process = subprocess.Popen(
            argv,
            stdin=source,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd or yard.folder,
            env=without_make(environ),
        )
        # Its usage, which Popen.wait would throw away. A new process begins with the peak memory of the one
        # that started it, so ours must stay small.
        _, status, usage = os.wait4(process.pid, 0)
        wall_s, busy_s = time.perf_counter() - begin, machine.busy_s() - busy_before
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu_s = usage.ru_utime + usage.ru_stime
    # Both are counted in ticks, so that a short command may seem to leave less than nothing to the others.
    others_cpus = max(0.0, busy_s - cpu_s) / wall_s
    max_rss_mb = usage.ru_maxrss * 1024 / 1e6
    said = (out.read_bytes(), err.read_bytes())
    return Finished(process.returncode, wall_s, cpu_s, max_rss_mb, others_cpus, *said)


def floor(yard: Yard, workload: Workload, children: int, round: int) -> Timing:
    """A bare loop in C."""
    logs = yard.new_folder() if workload is Workload.ECHO else None
    argv = [
        str(_compiled(yard)),
        str(children),
        str(yard.slots),
        str(logs or "-"),
        *workload.split(),
    ]
    finished = timed(yard, argv)
    return finished.timing("C floor", workload, round, children, _log_problem(logs, children))


def xargs(yard: Yard, workload: Workload, children: int, round: int) -> Timing:
    numbers = yard.file(f"numbers-{children}", lambda: "".join(f"{n}\n" for n in range(children)))
    logs = yard.new_folder() if workload is Workload.ECHO else None
    # xargs has no output files: a shell for each child must open them.
    command = ["sh", "-c", f'{workload} > "$0.log"'] if logs else [workload]
    finished = timed(
        yard, ["xargs", "-P", str(yard.slots), "-n", "1", *command], stdin=numbers, cwd=logs
    )
    return finished.timing("xargs -P", workload, round, children, _log_problem(logs, children))


def make(yard: Yard, workload: Workload, children: int, round: int) -> Timing:
    redirect = " > $@.log" if workload is Workload.ECHO else ""
    targets = " ".join(f"t{n}" for n in range(children))
    rule = f"$(TARGETS): ; @{workload}{redirect}"
    text = f"TARGETS := {targets}\n.PHONY: all $(TARGETS)\nall: $(TARGETS)\n{rule}\n"
    makefile = yard.file(f"{workload.name}-{children}.mk", lambda: text)
    logs = yard.new_folder() if redirect else None
    finished = timed(yard, ["make", f"-j{yard.slots}", "-rR", "-f", str(makefile), "all"], cwd=logs)
    return finished.timing("make -j", workload, round, children, _log_problem(logs, children))


def parallel(yard: Yard, workload: Workload, children: int, round: int) -> Timing:
    """GNU parallel. It keeps the outputs apart by itself, and prints them."""
    commands = command_list(yard, workload, children)
    finished = timed(yard, ["parallel", "--will-cite", "-j", str(yard.slots)], stdin=commands)
    problem = _output_problem(finished.stdout, workload, children)
    return finished.timing("GNU parallel", workload, round, children, problem)


def batchyard(yard: Yard, workload: Workload, children: int, round: int) -> Timing:
    """Ours, as a user runs it. What it did is asked of it afterwards, with a user's commands."""
    commands = command_list(yard, workload, children)
    flags = ["--array", str(children), "--home", str(yard.home), *yard.flags]
    finished = ours(yard, "run", str(commands), *flags)
    problem = _state_problem(yard, children) or _output_problem(
        _ask(yard, "logs"), workload, children
    )
    return finished.timing("batchyard", workload, round, children, problem)


def ours(yard: Yard, *arguments: str) -> Finished:
    """Any of our commands; the bytecode is there from the second one on."""
    environ = with_bytecode(os.environ, yard.folder / "bytecode")
    return timed(yard, [*yard.batchyard, *arguments], environ=environ)


def command_list(yard: Yard, workload: Workload, children: int) -> Path:
    return yard.file(f"{workload.name.lower()}-{children}.txt", lambda: f"{workload}\n" * children)


def is_installed(program: str) -> bool:
    return shutil.which(program) is not None


def _compiled(yard: Yard) -> Path:
    binary = yard.folder / "floor"
    if not binary.exists():
        source = Path(__file__).with_name("floor.c")
        subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-o", binary, source], check=True)
    return binary


def without_make(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in _MAKE_VARIABLES}


def with_bytecode(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Python may keep what it compiled, in a folder of ours.

    An installed package has its bytecode. A checkout where PYTHONDONTWRITEBYTECODE is set has none, and would spend
    most of a start on compiling.
    """
    kept = {name: value for name, value in environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder)}


# -- did it do the work? --------------------------------------------------------------------------------


def _log_problem(logs: Path | None, children: int) -> str:
    """Each child must have left a file with its output."""
    if logs is None:
        return ""
    with os.scandir(logs) as entries:
        whole = sum(entry.stat().st_size == len(_HELLO) for entry in entries)
    return "" if whole == children else f"{whole:,} of {children:,} log files hold the output"


def _output_problem(output: bytes, workload: Workload, children: int) -> str:
    expected = children if workload is Workload.ECHO else 0
    found = output.splitlines(keepends=True).count(_HELLO)
    return "" if found == expected else f"{found:,} outputs are there, of {expected:,}"


def _state_problem(yard: Yard, children: int) -> str:
    steps = json.loads(_ask(yard, "status", "--json"))["steps"]
    succeeded = sum(step["succeeded"] for step in steps)
    failed = children - succeeded
    return f"{failed:,} of {children:,} children did not succeed" if failed else ""


def _ask(yard: Yard, command: str, *flags: str) -> bytes:
    argv = [*yard.batchyard, command, "last", "--home", str(yard.home), *flags]
    return subprocess.run(argv, capture_output=True, check=True).stdout
