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
from batchyard.ec2_types import TYPES
from batchyard.embedded.store import AttemptRow, Store
from batchyard.engines.base import CommandDetail, Offer, RunRequest
from batchyard.errors import OperationalError
from batchyard.pipeline import Pipeline, Step
from batchyard.sampling.samples import SampledUse

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


def find_offers(needed: Resources, gpu_mib: int) -> Offers:
    return price_types(needed, NoAws(), gpu_memory_mib=gpu_mib)


def make_command(
    *,
    seconds: float = 10.0,
    cpu_s: float = 5.0,
    peak_kib: int = 0,
    reason: str = "",
    use: SampledUse | None = None,
    floor_kib: int = 0,
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
        use=use,
        memory_floor_kib=floor_kib,
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
    assert use == MeasuredUse(3, pytest.approx(20.01), 2048, pytest.approx(1.95), process_mib=2048)
    assert measure_use([]) is None
    assert measure_use(commands[3:]) is None
    killed = measure_use([make_command(reason="OutOfMemoryError: Container killed")])
    assert killed == MeasuredUse(0, 0.0, None, None, 1)


def test_a_container_was_as_busy_after_its_last_sample() -> None:
    sampled = SampledUse(1, 2.0, 2.0, 2.0, 1024)
    use = measure_use([make_command(seconds=3.9, cpu_s=0.0, use=sampled)])
    assert use is not None and use.vcpus == 2.0


def test_a_peak_that_may_be_the_engine_s_is_only_a_bound() -> None:
    short = make_command(peak_kib=300 * 1024, floor_kib=GIB_KIB)
    use = measure_use([short])
    assert use is not None and (use.peak_mib, use.bound_mib) == (None, 300)
    # A sample of the command, and a peak far above the engine's, are of the command itself.
    sampled = make_command(
        peak_kib=300 * 1024, floor_kib=GIB_KIB, use=SampledUse(1, 2.0, 1.0, 1.0, 90 * 1024)
    )
    use = measure_use([short, sampled])
    assert use is not None and (use.peak_mib, use.bound_mib) == (90, 300)
    use = measure_use([short, make_command(peak_kib=2 * GIB_KIB, floor_kib=GIB_KIB)])
    assert use is not None and (use.peak_mib, use.bound_mib) == (2048, None)


@pytest.mark.parametrize(
    ("requested_mib", "peak_mib", "needed_mib", "sentence"),
    [
        (256, None, 256, None),
        (4096, None, 384, "used at most 300MiB in 9 commands: `memory: 384MiB` is enough"),
        (256, 90, 256, None),
        (64, 90, 128, "asks for 64MiB and used up to 90MiB, for which AWS Batch would kill it"),
    ],
)
def test_a_bound_never_makes_a_step_ask_for_more(
    requested_mib: int, peak_mib: int | None, needed_mib: int, sentence: str | None
) -> None:
    use = MeasuredUse(9, 90, peak_mib, None, bound_mib=300)
    (step,) = advise_steps([("a", Resources(1, requested_mib), use)], find_offers).steps
    assert step.needed == Resources(1, needed_mib)
    assert len(step.sentences) == (sentence is not None)
    assert (sentence or "") in "".join(step.sentences)
    assert step.to_json()["peak_mib"] == 300


def test_a_command_that_is_smaller_than_the_engine_fits_in_what_it_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in NOBODY.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "p.yaml"
    file.write_text("name: p\nsteps:\n  - {name: train, command: 'true', memory: 5MiB}\n")
    pipeline = PythonPipeline.load(file)
    pipeline.run().wait()
    (step,) = pipeline.advise()["steps"]
    assert step["needed"]["memory_mib"] == 5 < step["peak_mib"]
    assert step["advice"] == []


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
        "a: the memory of its GPUs was not sampled; any GPU is taken to fit",
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
    assert trained.use == MeasuredUse(2, 150, 2048, pytest.approx(0.99, abs=0.01), process_mib=2048)
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


# -- GPUs ------------------------------------------------------------------------------------------


def gpu_use(
    peak_mib: int, *, whole_mib: int = 22_888, percent: float = 80.0, memory_kib: int = GIB_KIB
) -> SampledUse:
    """Return samples of a command on a GPU with so much memory."""
    return SampledUse(
        *(5, 10.0, 1.0, 2.0, memory_kib, percent, 100.0),
        peak_gpu_memory_mib=peak_mib,
        gpu_memory_mib=whole_mib,
    )


def advise_gpu(*uses: SampledUse | None) -> Any:
    use = measure_use([make_command(peak_kib=GIB_KIB, use=sample) for sample in uses])
    (step,) = advise_steps([("train", Resources(4, 8192, 1), use)], find_offers).steps
    return step


def test_types_whose_gpus_have_the_measured_memory_are_named() -> None:
    step = advise_gpu(gpu_use(9000), gpu_use(16_000), None)
    assert step.use.peak_gpu_mib == 16_000 and step.needed_gpu_mib == 20_000
    types = [price.offer.type for price in step.as_needed]
    # A T4 has 16 GiB, an A10G 22.4 GiB, an L4 as much.
    assert types and all(listed.gpu_memory_mib >= 20_000 for listed in types)
    assert step.as_requested.offer.type.gpu == "T4"
    assert "train: used up to 15.6GiB of the memory of a GPU: GPUs with 19.5GiB or more fit" in (
        step.sentences
    )
    document = step.to_json()
    assert (document["peak_gpu_mib"], document["needed_gpu_mib"]) == (16_000, 20_000)
    small = advise_gpu(gpu_use(2000))
    assert small.as_needed[0].offer.type.gpu == "T4"


@pytest.mark.parametrize(
    ("gpu", "whole_mib"), [("T4", 15_360), ("A10G", 23_028), ("L4", 23_034), ("L40S", 46_068)]
)
def test_a_framework_that_takes_the_whole_gpu_needs_no_larger_one(gpu: str, whole_mib: int) -> None:
    """``whole_mib``: as the driver shows it, which is not what AWS lists."""
    step = advise_gpu(gpu_use(whole_mib - 500, whole_mib=whole_mib))
    types = [listed for listed in TYPES.values() if listed.gpu == gpu and listed.gpus]
    assert types and all(listed.gpu_memory_mib >= step.needed_gpu_mib for listed in types)
    assert step.needed_gpu_mib > 0.95 * whole_mib
    assert any("which its framework may have reserved" in text for text in step.sentences)


def test_a_gpu_with_little_to_do_is_named() -> None:
    idle = advise_gpu(gpu_use(2000, percent=4.0), gpu_use(2000, percent=8.0))
    assert any("busy for 6 % of the time" in text for text in idle.sentences)
    assert not any("busy for" in text for text in advise_gpu(gpu_use(2000)).sentences)


def test_without_samples_any_gpu_is_taken_to_fit() -> None:
    step = advise_gpu(None)
    assert step.needed_gpu_mib == 0 and step.use.gpu_percent is None
    assert any("was not sampled" in text for text in step.sentences)


def test_samples_have_the_memory_of_all_processes_together() -> None:
    use = measure_use([make_command(peak_kib=GIB_KIB, use=gpu_use(1, memory_kib=3 * GIB_KIB))])
    assert use is not None and use.peak_mib == 3072
    (step,) = advise_steps([("a", Resources(1, 2048), use)], find_offers).steps
    # Forks share pages, which count for each of them.
    assert (
        "3GiB, all processes together; if they do not share it, AWS Batch would kill it"
        in (step.sentences[0])
    )
    (step,) = advise_steps([("a", Resources(1, 512), use)], find_offers).steps
    assert "used up to 3GiB, for which AWS Batch would kill it" in step.sentences[0]
