"""`plan --advise`: what steps need, from the measured use of earlier runs."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from batchyard import Pipeline as PythonPipeline
from batchyard import engines, operations
from batchyard import plan as planning
from batchyard.batch.jobs import JobState, Resources
from batchyard.cli.plan import command
from batchyard.cost.advice import MeasuredUse, advise, advise_steps, find_needed, measure_use
from batchyard.cost.market import Offers, price_types
from batchyard.embedded.store import AttemptRow, Store
from batchyard.engines.base import CommandDetail, Offer, RunRequest
from batchyard.errors import OperationalError
from batchyard.pipeline import Pipeline, Step

GIB_KIB = 1024 * 1024
NOBODY = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_REGION": "us-east-1",
}


class NoAws:
    region = "us-east-1"

    def spot_prices(self, types: object, at_time: datetime) -> list[Any]:
        raise OperationalError("no AWS in a test")

    def linux_products(self, instance_type: str) -> list[str]:
        raise OperationalError("no AWS in a test")


def find_offers(needed: Resources) -> Offers:
    return price_types(needed, NoAws())


def make_command(
    *, seconds: float = 10.0, cpu_s: float = 5.0, peak_kib: int = 0, reason: str = ""
) -> CommandDetail:
    return CommandDetail(
        step="train",
        number=0,
        index=0,
        state=JobState.FAILED if reason else JobState.SUCCEEDED,
        exit_code=137 if reason else 0,
        reason=reason,
        attempts=1,
        started_ms=0,
        ended_ms=round(seconds * 1000),
        user_s=cpu_s,
        system_s=0.0,
        max_rss_kib=peak_kib,
        host="",
        child_attempt=1,
    )


def record_run(home: Path, memory_mib: int, *rows: tuple[float, float, int]) -> None:
    """Record a run of step `train`; each row has seconds, CPU seconds and the peak in KiB."""
    step = Step("train", "true", array=len(rows), memory_mib=memory_mib)
    pipeline = Pipeline("p", (step,), path=home / "p.yaml")
    request = RunRequest(
        planning.make(pipeline), pipeline, home / ".batchyard", Offer(cpus=2, memory_mib=99_999)
    )
    record = operations.begin(engines.load(engines.DEFAULT), request)[0]
    store = Store.open(record.folder.database)
    store.commit(
        attempts=[
            AttemptRow(
                *(0, child, 1, JobState.SUCCEEDED, 0, "", "", 0, round(seconds * 1000)),
                user_s=cpu_s,
                max_rss_kib=peak_kib,
            )
            for child, (seconds, cpu_s, peak_kib) in enumerate(rows)
        ]
    )
    store.close()


def test_use_is_that_of_commands_that_succeeded() -> None:
    commands = [
        make_command(seconds=10, cpu_s=20, peak_kib=2 * GIB_KIB),
        make_command(seconds=10, cpu_s=10, peak_kib=GIB_KIB),
        make_command(seconds=0.01, cpu_s=5, peak_kib=1024),
        make_command(seconds=99, cpu_s=990, peak_kib=9 * GIB_KIB, reason="exit code 1"),
    ]
    use = measure_use(commands)
    assert use == MeasuredUse(3, pytest.approx(20.01), 2048, pytest.approx(1.95))
    assert measure_use([]) is None
    assert measure_use(commands[3:]) is None
    killed = measure_use([make_command(reason="OutOfMemoryError: Container killed")])
    assert killed == MeasuredUse(0, 0.0, None, None, 1)


@pytest.mark.parametrize(
    ("use", "needed"),
    [
        # 2 GiB and a quarter, in steps of 512 MiB; less than one vCPU is one
        (MeasuredUse(9, 90, 2048, 0.4), Resources(1, 2560, 1)),
        (MeasuredUse(9, 90, 100, 3.1), Resources(3, 128, 1)),
        (MeasuredUse(9, 90, 700, 3.2), Resources(4, 896, 1)),
        # what was not measured stays as requested
        (MeasuredUse(9, 90, None, None), Resources(4, 16_384, 1)),
        # memory that was too little is never made less
        (MeasuredUse(9, 90, 2048, None, out_of_memory=2), Resources(4, 16_384, 1)),
        (MeasuredUse(9, 90, 20_000, None, out_of_memory=2), Resources(4, 25_088, 1)),
    ],
)
def test_what_is_needed_has_some_room(use: MeasuredUse, needed: Resources) -> None:
    assert find_needed(Resources(4, 16_384, 1), use) == needed


def test_a_step_that_asked_for_16_gib_and_used_2_is_told_so() -> None:
    use = MeasuredUse(30, 36_000, 2048, 3.9)
    (step,) = advise_steps([("train", Resources(4, 16_384), use)], find_offers).steps
    assert step.needed == Resources(4, 2560)
    assert step.sentences == (
        "train: asks for 16GiB and used at most 2GiB in 30 commands: `memory: 2.5GiB` is enough",
    )
    assert step.as_requested is not None and len(step.as_needed) == 3
    before = step.as_requested.usd(36_000, is_spot=True)
    after = step.as_needed[0].usd(36_000, is_spot=True)
    assert before is not None and after is not None and after <= before


def test_too_much_and_too_little_are_both_said() -> None:
    use = MeasuredUse(1, 60, 3000, 3.6)
    advice = advise_steps([("a", Resources(1, 2048, 1), use)], find_offers)
    assert advice.steps[0].sentences == (
        "a: asks for 2GiB and used up to 2.9GiB, for which AWS Batch would kill it: write"
        " `memory: 4GiB`",
        "a: asks for 1 vCPU and kept 3.6 busy: `cpus: 4` lets it run as it did here",
        "a: the use of its GPUs is not recorded; they stay as requested",
    )
    killed = MeasuredUse(0, 0, None, None, 1)
    (step,) = advise_steps([("a", Resources(1, 2048), killed)], find_offers).steps
    assert step.sentences == ("a: 1 command ran out of memory with 2GiB: ask for more",)
    fitting = MeasuredUse(5, 60, 1500, 0.9)
    (step,) = advise_steps([("a", Resources(1, 2048), fitting)], find_offers).steps
    assert step.sentences == ()


def test_a_step_that_no_type_can_run_has_no_price() -> None:
    advice = advise_steps(
        [("huge", Resources(1, 1024, 99), MeasuredUse(1, 60, 512, 1.0))], find_offers
    )
    assert advice.steps[0].as_requested is None and advice.steps[0].as_needed == ()
    assert "99 GPUs" in advice.sources[0]


def test_advice_comes_from_the_runs_of_the_folder(tmp_path: Path) -> None:
    record_run(tmp_path, 16_384, (100, 99, 2 * GIB_KIB), (50, 49, GIB_KIB))
    steps = (Step("train", "true", memory_mib=16_384), Step("new", "true"))
    plan = planning.make(Pipeline("p", steps, path=tmp_path / "p.yaml"))
    trained, new = advise(plan, tmp_path / ".batchyard", NoAws()).steps
    assert trained.use == MeasuredUse(2, 150, 2048, pytest.approx(0.99, abs=0.01))
    assert trained.needed == Resources(1, 2560)
    assert new.use is None and "no earlier run" in new.sentences[0]


def test_the_command_and_python_show_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("name: p\nsteps:\n  - {name: train, command: 'true', memory: 16GiB}\n")
    record_run(tmp_path, 16_384, (100, 99, 2 * GIB_KIB))
    for name, value in NOBODY.items():
        monkeypatch.setenv(name, value)
    shown = CliRunner().invoke(command, [str(file), "--advise"])
    assert "asks for 16GiB and used at most 2GiB in 1 command" in shown.output, shown.output
    assert "1 vCPUs, 2.5GiB" in shown.output
    document = json.loads(CliRunner().invoke(command, [str(file), "--advise", "--json"]).stdout)[
        "advice"
    ]
    (step,) = document["steps"]
    assert step["peak_mib"] == 2048 and step["needed"]["memory_mib"] == 2560
    assert step["types"] and step["needed_usd"]["spot_usd"] <= step["requested_usd"]["spot_usd"]
    assert PythonPipeline.load(file).advise() == document
