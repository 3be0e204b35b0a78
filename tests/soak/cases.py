"""One pipeline of a soak: its commands, kills and stops, and the facts for its judge."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloud_lab
import oracle
import random_pipelines
from disturbers import MARK, MortalEndpoint, find_processes, read_jobs

import prestarted

#: Longest time of one command, and of all runs of a pipeline. Only what hangs takes so long.
_COMMAND_S = 300
_CASE_S = 900
_MAX_RUNS = 8
#: Time in which `resume` has ended the processes that a killed engine left behind.
_ORPHANS_S = 10
_OVER = ("SUCCEEDED", "FAILED", "STOPPED")


class ViolationError(Exception):
    """Something is not as it must be; its text says what."""


@dataclass(slots=True)
class Soak:
    """What all cases of a soak share."""

    seed: int
    folder: Path
    endpoint: MortalEndpoint
    s3: MortalEndpoint
    #: By kind: runs, commands, kills...
    counts: Counter[str] = field(default_factory=Counter)
    #: (job id, attempt) of SIGKILLs of workers and commands.
    worker_kills: set[tuple[str, int]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def mark(self) -> str:
        return f"{self.seed}-{self.folder.name}"

    def count(self, name: str, number: int = 1) -> None:
        with self.lock:
            self.counts[name] += number


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens to a pipeline, drawn before it starts."""

    engine: str
    on_demand: bool
    is_detached: bool
    #: Seconds until each SIGKILL of a client that runs or resumes; None for no more kills.
    client_kills_s: tuple[float, ...]
    #: Seconds until `batchyard stop`; None for no stop.
    stop_after_s: float | None

    @classmethod
    def draw(cls, dice: random.Random) -> Scenario:
        engine = dice.choice(("local", "aws", "aws", "aws"))
        kills = dice.choice((0, 0, 0, 1, 1, 2))
        return cls(
            engine=engine,
            on_demand=engine == "aws" and dice.random() < 0.15,
            is_detached=engine == "aws" and dice.random() < 0.4,
            client_kills_s=tuple(dice.uniform(0.05, 4.0) for _ in range(kills)),
            stop_after_s=dice.uniform(0.0, 4.0) if dice.random() < 0.15 else None,
        )


class Case:
    def __init__(self, soak: Soak, number: int) -> None:
        self.soak = soak
        self.number = number
        self.dice = random.Random(f"{soak.seed}/{number}")
        self.folder = soak.folder / f"case-{number}"
        self.steps = random_pipelines.make_pipeline(self.dice)
        self.scenario = Scenario.draw(self.dice)
        self._kills_s = list(self.scenario.client_kills_s)
        data = f"the input of case {number}\n".encode()
        self.expectation = random_pipelines.expect(self.steps, data)
        self.runs: list[str] = []
        self.stopped_runs: set[str] = set()
        #: Whether `retry` said that all commands have succeeded, although a job was ended.
        self.has_nothing_to_retry = False
        #: SIGKILLs of local engines, and their next starts.
        self.engine_kills: list[tuple[float, float]] = []
        self._deadline_s = time.monotonic() + _CASE_S
        env = {MARK: soak.mark, "SOAK_CASE": str(number)}
        if self.is_on_aws:
            # moto keeps S3 in memory, so it has an endpoint of its own, which is never killed.
            env["AWS_ENDPOINT_URL_S3"] = soak.s3.url
        self.folder.mkdir()
        random_pipelines.write_case(self.folder, f"case-{number}", self.steps, data, env)
        (self.folder / ".batchyard").mkdir()
        (self.folder / ".batchyard" / "environments.yaml").write_text(cloud_lab.ENVIRONMENTS)
        self._log = (self.folder / "commands.log").open("a")

    @property
    def is_on_aws(self) -> bool:
        return self.scenario.engine == "aws"

    def execute(self) -> list[str]:
        """Run the pipeline to its end, whatever happens, and return all violations."""
        return oracle.judge_safely(self._execute)

    def _execute(self) -> list[str]:
        try:
            self._start(*self._run_arguments())
            if self.scenario.stop_after_s is not None:
                time.sleep(self.scenario.stop_after_s)
                self._stop()
            while self._needs_retry(self._follow()) and self._retry():
                pass
            return self._judge()
        except ViolationError as violation:
            return [str(violation)]
        finally:
            self.soak.count("runs", len(self.runs))
            self.soak.count(f"runs on {self.scenario.engine}", len(self.runs))
            self._log.close()

    def delete_files(self) -> None:
        shutil.rmtree(self.folder)

    # -- commands ---------------------------------------------------------------------------------

    def _run_arguments(self) -> list[str]:
        arguments = ["run", "pipeline.json", "--engine", self.scenario.engine]
        arguments += ["--env", "lab"] if self.is_on_aws else []
        arguments += ["--on-demand"] if self.scenario.on_demand else []
        return arguments + (["--detach"] if self.scenario.is_detached else [])

    def _start(self, *arguments: str) -> None:
        """Begin a run by `run` or `retry`, again where the client was killed before it had one."""
        for _ in range(20):
            before = self._find_runs()
            self._command(*arguments, may_be_killed=True)
            runs = self._find_runs() - before
            if len(runs) > 1:
                raise ViolationError(f"{arguments[0]} made several runs: {sorted(runs)}")
            if runs:
                self.runs.append(runs.pop())
                return
            if self.has_nothing_to_retry:
                return
        raise ViolationError(f"batchyard {' '.join(arguments)} began no run in 20 trials")

    def _retry(self) -> bool:
        """Begin a run of what is missing. Returns whether there is such a run."""
        if len(self.runs) == _MAX_RUNS:
            raise ViolationError(f"{_MAX_RUNS} runs were not enough")
        on_demand = ["--on-demand"] if self.is_on_aws and len(self.runs) > 2 else []
        self._start("retry", self.runs[-1], *on_demand)
        return not self.has_nothing_to_retry

    def _find_runs(self) -> set[str]:
        # A run that was killed before it became one is a draft, whose name begins with a dot.
        return {path.name for path in (self.folder / ".batchyard").glob("runs/[!.]*")}

    def _stop(self) -> None:
        self.stopped_runs.add(self.runs[-1])
        self.soak.count("stops")
        while self._command("stop", self.runs[-1]).returncode == 3:
            pass

    def _follow(self) -> str:
        """Watch the last run until it is over, and resume it where it was interrupted.

        Returns the state in which it ends.
        """
        run = self.runs[-1]
        while True:
            if time.monotonic() > self._deadline_s:
                raise ViolationError(f"{run} is not over after {_CASE_S} s")
            status = self._read_status(run)
            if status is None:
                continue
            if status["state"] in _OVER:
                return str(status["state"])
            if status["interrupted"]:
                self.soak.count("resumes")
                if self.engine_kills:
                    self.engine_kills[-1] = (self.engine_kills[-1][0], time.time() + _ORPHANS_S)
                self._command("resume", run, may_be_killed=True)
            else:
                self._command(*self.dice.choice((["status", run, "--watch"], ["logs", run, "-f"])))

    def _read_status(self, run: str) -> Any:
        done = self._command("status", run, "--json")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def _command(
        self, *arguments: str, may_be_killed: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, which may be killed at the next moment that was drawn."""
        kill_after_s = self._kills_s.pop(0) if may_be_killed and self._kills_s else None
        began_s = time.time()
        process = prestarted.Popen(
            [sys.executable, "-m", "batchyard", *arguments],
            cwd=self.folder,
            env=self._environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        was_killed = False
        try:
            output, errors = process.communicate(timeout=kill_after_s or _COMMAND_S)
        except subprocess.TimeoutExpired:
            was_killed = kill_after_s is not None
            # Before the signal: whatever ends after it is not on disk for sure.
            killed_s = time.time()
            process.send_signal(signal.SIGKILL)
            output, errors = process.communicate()
            self._note_kill(was_killed, killed_s)
        self._log_command(arguments, began_s, process.returncode, output, errors)
        self.soak.count(f"`{arguments[0]}` commands")
        words = " ".join(arguments)
        if kill_after_s is None and process.returncode == -signal.SIGKILL:
            raise ViolationError(f"batchyard {words} hung for {_COMMAND_S} s")
        self._check_end(words, began_s, process.returncode, errors)
        return subprocess.CompletedProcess(arguments, process.returncode, output, errors)

    def _note_kill(self, was_killed: bool, killed_s: float) -> None:
        if was_killed:
            self.soak.count("kills of clients")
            if not self.is_on_aws:
                self.engine_kills.append((killed_s, float("inf")))

    def _environ(self) -> dict[str, str]:
        environ: dict[str, str] = {
            **self.soak.endpoint.current.environ,
            "AWS_ENDPOINT_URL_S3": self.soak.s3.url,
            "PATH": cloud_lab.PATH,
            # The endpoint shows jobs up to 1.5 s late, and the machine may be slow.
            "BATCHYARD_AWS_LAG_S": "5",
        }
        return environ

    def _log_command(
        self, arguments: tuple[str, ...], began_s: float, code: int, output: str, errors: str
    ) -> None:
        moment = time.strftime("%H:%M:%S", time.gmtime(began_s))
        self._log.write(f"$ batchyard {' '.join(arguments)}  # {moment}, exit {code}\n")
        self._log.write(f"{output}{errors}\n")
        self._log.flush()

    def _check_end(self, words: str, began_s: float, code: int, errors: str) -> None:
        if "Traceback" in errors or "a bug in batchyard" in errors:
            raise ViolationError(f"batchyard {words} met a bug:\n{errors}")
        if code == 2 and "nothing to retry: all its commands succeeded" in errors:
            self.soak.count("runs that were ended after their last success")
            self.has_nothing_to_retry = True
            return
        if code not in (0, 1, 130, -signal.SIGKILL):
            # A machine that starts the endpoint slowly needs some time after it, too.
            if code == 3 and self.soak.endpoint.was_absent(began_s, time.time()):
                self.soak.count("commands that met no endpoint")
                time.sleep(0.5)
                return
            raise ViolationError(f"batchyard {words} exited with {code}:\n{errors}")

    # -- the end ----------------------------------------------------------------------------------

    def _events(self) -> list[oracle.Event]:
        return oracle.parse_events((self.folder / "events").read_text())

    def _needs_retry(self, state: str) -> bool:
        """Return whether the last run is not the end, for a reason that the soak has made."""
        run = self.runs[-1]
        missing = oracle.missing_commands(self.expectation, self._events())
        if state == self.expectation.state and not missing:
            return False
        if state == "STOPPED" and run not in self.stopped_runs:
            raise ViolationError(f"{run} is STOPPED, and nobody has stopped it")
        if run in self.stopped_runs or self._was_disturbed(run):
            self.soak.count("retries after disturbances")
            return True
        raise ViolationError(f"{run} is {state} without a disturbance; missing: {sorted(missing)}")

    def _was_disturbed(self, run: str) -> bool:
        if not self.is_on_aws:
            places = {(event.job_id, event.attempt) for event in self._events()}
            return bool(self.engine_kills or places & self.soak.worker_kills)
        return any(
            code in oracle.DISTURBED_CODES
            for job in self._jobs([run])
            if job.state == "FAILED"
            for code in job.exit_codes
        )

    def _jobs(self, runs: list[str]) -> list[oracle.BatchJob]:
        batch = cloud_lab.Lab.patient(self._lab(), "batch")
        return [_to_job(job) for run in runs for job in read_jobs(batch, run)]

    def _lab(self) -> Any:
        """Return what `Lab.patient` needs."""
        from types import SimpleNamespace

        return SimpleNamespace(endpoint=self.soak.endpoint.current)

    def _judge(self) -> list[str]:
        status = self._final_status()
        jobs = self._jobs(self.runs) if self.is_on_aws else []
        events = self._events()
        self._count_attempts(jobs, events)
        kills = self.engine_kills
        if self.is_on_aws:
            kills = self.soak.endpoint.absences
        facts = oracle.CaseFacts(
            expectation=self.expectation,
            events=events,
            state=self.expectation.state if self.has_nothing_to_retry else status["state"],
            jobs=jobs,
            disturbances=oracle.Disturbances(
                tuple(kills), frozenset(self.stopped_runs), frozenset(self.soak.worker_kills)
            ),
            outputs=self._fetch(),
        )
        violations = oracle.find_violations(facts) + self._check_logs(events)
        return violations + self._check_processes()

    def _final_status(self) -> Any:
        while (status := self._read_status(self.runs[-1])) is None:
            time.sleep(0.5)
        return status

    def _count_attempts(self, jobs: list[oracle.BatchJob], events: list[oracle.Event]) -> None:
        attempts = sum(len(job.exit_codes) for job in jobs)
        if not self.is_on_aws:
            attempts = len({(event.job_id, event.attempt) for event in events})
        self.soak.count("attempts", attempts)
        self.soak.count("jobs and children", len(jobs))
        self.soak.count("commands executed", sum(event.kind == "start" for event in events))
        self.soak.count(
            "attempts whose host was reclaimed",
            sum(code is None for job in jobs for code in job.exit_codes),
        )

    def _fetch(self) -> dict[str, bytes]:
        """Return the outputs of all runs, from S3 if they are there."""
        folder = self.folder
        if self.is_on_aws:
            folder = self.folder / "fetched"
            for run in self.runs:
                while self._command("fetch", run, "--to", "fetched").returncode == 3:
                    pass
        return {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("out/*/*.txt")
        }

    def _check_logs(self, events: list[oracle.Event]) -> list[str]:
        """Compare the logs of a pipeline that one run without repetitions has finished."""
        starts = [event.key for event in events if event.kind == "start"]
        if len(self.runs) > 1 or len(set(starts)) < len(starts):
            return []
        while (done := self._command("logs", self.runs[0])).returncode == 3:
            pass
        kills = self.soak.endpoint.absences if self.is_on_aws else ()
        return oracle.check_logs(self.expectation, events, done.stdout, kills)

    def _check_processes(self) -> list[str]:
        """All runs are over: no process of theirs may be left."""
        deadline_s = time.monotonic() + 20
        while processes := [
            (pid, arguments)
            for pid, arguments, variables in find_processes(self.soak.mark)
            if variables.get("SOAK_CASE") == str(self.number)
        ]:
            if time.monotonic() > deadline_s:
                return [f"processes are left: {processes}"]
            time.sleep(0.1)
        return []


def _to_job(job: dict[str, Any]) -> oracle.BatchJob:
    position = job["jobId"].partition(":")[2]
    return oracle.BatchJob(
        job_id=job["jobId"],
        name=job["jobName"] + (f":{position}" if position else ""),
        state=job["status"],
        reason=job.get("statusReason", ""),
        exit_codes=tuple(
            attempt.get("container", {}).get("exitCode") for attempt in job.get("attempts", ())
        ),
    )
