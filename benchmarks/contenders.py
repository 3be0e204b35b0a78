"""The contenders: one function each, which times a whole command and then checks its work."""

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

#: variables that `make bench` sets for a make below it, its job server included
_MAKE_VARIABLES = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")
_HELLO = b"hello\n"


@dataclass(frozen=True, slots=True)
class Yard:
    """Where the contenders run.

    One folder for the whole benchmark, in which nothing is deleted until the end: after a mass
    deletion, ext4 creates files many times slower for minutes.
    """

    folder: Path
    slots: int
    #: the batchyard to measure, and flags for its run if it must not use all CPUs
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
        """Return the path of a file, which the first call writes, outside of any timing."""
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
        # The number of failed children is a better message than the exit code.
        if self.exit_code and not problem:
            last_line = self.stderr.decode(errors="replace").strip().splitlines()[-1:]
            problem = f"exit code {self.exit_code}: {''.join(last_line) or 'no message'}"
        usage = (self.wall_s, self.cpu_s, self.max_rss_mb, self.others_cpus)
        return Timing(contender, workload, round, children, *usage, problem)


Contender = Callable[[Yard, Workload, int, int], Timing]


def time_command(
    yard: Yard,
    argv: Sequence[str],
    *,
    stdin: Path | None = None,
    cwd: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Finished:
    """Run a command with its output in files, so that no reader of it uses a CPU."""
    out, err = yard.folder / "stdout", yard.folder / "stderr"
    with (
        (stdin or Path(os.devnull)).open("rb") as source,
        out.open("wb") as stdout,
        err.open("wb") as stderr,
    ):
        begin, busy_start_s = time.perf_counter(), machine.busy_s()
        process = subprocess.Popen(
            argv,
            stdin=source,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd or yard.folder,
            env=without_make(environ),
        )
        # wait4, because Popen.wait drops the resource usage. A new process starts with the peak
        # memory of its parent, so this process must stay small.
        _, status, usage = os.wait4(process.pid, 0)
        wall_s, busy_s = time.perf_counter() - begin, machine.busy_s() - busy_start_s
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu_s = usage.ru_utime + usage.ru_stime
    # Both are counted in ticks, so that the difference may be negative for a short command.
    others_cpus = max(0.0, busy_s - cpu_s) / wall_s
    max_rss_mb = usage.ru_maxrss * 1024 / 1e6
    outputs = (out.read_bytes(), err.read_bytes())
    return Finished(process.returncode, wall_s, cpu_s, max_rss_mb, others_cpus, *outputs)


def floor(yard: Yard, workload: Workload, children: int, round: int) -> Timing:
    """Time a bare loop in C."""
    logs = yard.new_folder() if workload is Workload.ECHO else None
    argv = [
        str(_compile_floor(yard)),
        str(children),
        str(yard.slots),
        str(logs or "-"),
        *workload.split(),
    ]
    finished = time_command(yard, argv)
    return finished.timing("C floor", workload, round, children, _log_problem(logs, children))


def xargs(yard: Yard, workload: Workload, children: int, round: int) -> Timing:
    numbers = yard.file(f"numbers-{children}", lambda: "".join(f"{n}\n" for n in range(children)))
    logs = yard.new_folder() if workload is Workload.ECHO else None
    # xargs has no output files: a shell for each child must open them.
    command = ["sh", "-c", f'{workload} > "$0.log"'] if logs else [workload]
    finished = time_command(
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
    finished = time_command(
        yard, ["make", f"-j{yard.slots}", "-rR", "-f", str(makefile), "all"], cwd=logs
    )
    return finished.timing("make -j", workload, round, children, _log_problem(logs, children))


def parallel(yard: Yard, workload: Workload, children: int, round: int) -> Timing:
    """Time GNU parallel, which separates the outputs of children and prints them."""
    commands = command_list(yard, workload, children)
    finished = time_command(
        yard, ["parallel", "--will-cite", "-j", str(yard.slots)], stdin=commands
    )
    problem = _output_problem(finished.stdout, workload, children)
    return finished.timing("GNU parallel", workload, round, children, problem)


def batchyard(yard: Yard, workload: Workload, children: int, round: int) -> Timing:
    """Time batchyard as users run it, then check its work with `batchyard status` and `logs`."""
    commands = command_list(yard, workload, children)
    flags = ["--array", str(children), "--home", str(yard.home), *yard.flags]
    finished = ours(yard, "run", str(commands), *flags)
    problem = _state_problem(yard, children) or _output_problem(
        _ask(yard, "logs"), workload, children
    )
    return finished.timing("batchyard", workload, round, children, problem)


def ours(yard: Yard, *arguments: str) -> Finished:
    """Time a command of batchyard; from the second command on, its bytecode is cached."""
    environ = with_bytecode(os.environ, yard.folder / "bytecode")
    return time_command(yard, [*yard.batchyard, *arguments], environ=environ)


def command_list(yard: Yard, workload: Workload, children: int) -> Path:
    return yard.file(f"{workload.name.lower()}-{children}.txt", lambda: f"{workload}\n" * children)


def is_installed(program: str) -> bool:
    return shutil.which(program) is not None


def _compile_floor(yard: Yard) -> Path:
    binary = yard.folder / "floor"
    if not binary.exists():
        source = Path(__file__).with_name("floor.c")
        subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-o", binary, source], check=True)
    return binary


def without_make(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in _MAKE_VARIABLES}


def with_bytecode(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment in which Python writes bytecode to ``folder``.

    An installed package has its bytecode. A checkout with PYTHONDONTWRITEBYTECODE has none, and
    would spend most of a start on compiling.
    """
    variables = {
        name: value for name, value in environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    return {**variables, "PYTHONPYCACHEPREFIX": str(folder)}


# -- checks of the work --


def _log_problem(logs: Path | None, children: int) -> str:
    """Return a problem unless each child has left a file with its output."""
    if logs is None:
        return ""
    with os.scandir(logs) as entries:
        complete = sum(entry.stat().st_size == len(_HELLO) for entry in entries)
    return "" if complete == children else f"{complete:,} of {children:,} log files hold the output"


def _output_problem(output: bytes, workload: Workload, children: int) -> str:
    expected = children if workload is Workload.ECHO else 0
    count = output.splitlines(keepends=True).count(_HELLO)
    return "" if count == expected else f"{count:,} of {expected:,} outputs are there"


def _state_problem(yard: Yard, children: int) -> str:
    steps = json.loads(_ask(yard, "status", "--json"))["steps"]
    succeeded = sum(step["succeeded"] for step in steps)
    failed = children - succeeded
    return f"{failed:,} of {children:,} children did not succeed" if failed else ""


def _ask(yard: Yard, command: str, *flags: str) -> bytes:
    argv = [*yard.batchyard, command, "last", "--home", str(yard.home), *flags]
    return subprocess.run(argv, capture_output=True, check=True).stdout
