"""What each step of a plan really needs, from the commands of earlier runs, and which types fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from batchyard import earlier_runs
from batchyard.batch.jobs import JobState, Resources
from batchyard.cost import market
from batchyard.cost.estimate import measure_spread
from batchyard.cost.run_cost import StepPrice, StepUse, sort_prices
from batchyard.engines.base import CommandDetail
from batchyard.errors import BatchyardError
from batchyard.plan import Plan
from batchyard.sampling.samples import SampledUse
from batchyard.units import MAX_MEMORY_MIB, format_memory, pluralize

#: Memory above the largest measured peak.
_HEADROOM = 1.25
#: Amounts to which memory is rounded up: below 1 GiB, and above.
_SMALL_UNIT_MIB, _LARGE_UNIT_MIB = 128, 512
#: A request of this many times what is needed is worth a sentence.
_WASTEFUL_FACTOR = 2
#: CPU time of shorter commands is mostly that of their start.
_MIN_CPU_SECONDS = 0.5
#: Part of a vCPU that is taken as noise.
_CPU_NOISE = 0.15
_MAX_TYPES = 3
_OUT_OF_MEMORY = "OutOfMemoryError"
_KIB_PER_MIB = 1024
_MIB_PER_GIB = 1024

#: Below this mean use, a sentence says that a GPU had little to do.
_IDLE_GPU_PERCENT = 25
#: From this part of a GPU's memory on, a framework may have reserved all of it at its start.
_RESERVED_PART = 0.9
#: Part of a GPU's memory, as its driver shows it, that the GPU has in AWS's list of types: an A10G
#: with 23,028 MiB has 22,888 there.
_LISTED_PART = 0.98

#: Returns the offers for what a child requests, and for the memory in MiB of each of its GPUs.
Find = Callable[[Resources, int], market.Offers]


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """What commands of earlier runs have used."""

    #: commands that succeeded
    commands: int
    #: their seconds, all together
    seconds: float
    #: the largest peak of a command; None if it was not measured
    peak_mib: int | None
    #: vCPUs that were busy, the 95th percentile of all commands; None if it was not measured
    vcpus: float | None
    #: commands that were killed for their memory
    out_of_memory: int = 0
    #: the largest peak of a GPU's memory, and the whole memory of that GPU; None if not measured
    peak_gpu_mib: int | None = None
    gpu_mib: int | None = None
    #: mean use of the GPUs over all commands; None if it was not measured
    gpu_percent: float | None = None
    #: commands have used no more than this, if it is more than the peak: engines here are as large,
    #: so that the system does not show smaller peaks of short commands
    bound_mib: int | None = None
    #: the largest peak of one process; None if it was not measured, as in containers
    process_mib: int | None = None

    @property
    def largest_mib(self) -> int | None:
        """What commands have used at most; None if it was not measured."""
        return self.bound_mib if self.bound_mib is not None else self.peak_mib


@dataclass(frozen=True, slots=True)
class StepAdvice:
    step: str
    requested: Resources
    #: None if no earlier run has executed the step
    use: MeasuredUse | None = None
    #: what a child needs, with some room
    needed: Resources | None = None
    #: memory in MiB that each GPU needs, with some room; 0 if it is not known
    needed_gpu_mib: int = 0
    #: the earlier commands as requested, on the type on which a child is cheapest
    as_requested: StepPrice | None = None
    #: the same commands with what is needed, on the types that fit, cheapest first
    as_needed: tuple[StepPrice, ...] = ()
    #: for the user
    sentences: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        use, cheapest = self.use, next(iter(self.as_needed), None)
        return {
            "step": self.step,
            "earlier_commands": use.commands if use else 0,
            "requested": _resources_to_json(self.requested),
            "needed": _resources_to_json(self.needed),
            "peak_mib": use and use.largest_mib,
            "busy_vcpus": use and use.vcpus,
            "peak_gpu_mib": use and use.peak_gpu_mib,
            "gpu_percent": use and use.gpu_percent,
            "needed_gpu_mib": self.needed_gpu_mib or None,
            "types": [price.offer.type.name for price in self.as_needed if price.offer],
            "requested_usd": _prices_to_json(self.as_requested),
            "needed_usd": _prices_to_json(cheapest),
            "advice": list(self.sentences),
        }


@dataclass(frozen=True, slots=True)
class Advice:
    steps: tuple[StepAdvice, ...]
    #: sentences about where the prices come from
    sources: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "steps": [step.to_json() for step in self.steps],
            "sources": list(self.sources),
        }


def advise(plan: Plan, home: Path, prices: market.Market) -> Advice:
    """Return what the steps of the plan need. ``home``: the folder with the earlier runs."""
    market.check_settings(prices)
    records = earlier_runs.newest_records(plan, home)
    uses = {
        job.step: measure_use(earlier_runs.newest_commands(job.step, records)) for job in plan.jobs
    }
    return advise_steps(
        [(job.step, job.resources, uses[job.step]) for job in plan.jobs],
        lambda needed, gpu_mib: market.price_types(needed, prices, gpu_memory_mib=gpu_mib),
    )


def measure_use(commands: Iterable[CommandDetail]) -> MeasuredUse | None:
    """Return what the commands have used; None if none of them succeeded or ran out of memory."""
    commands = list(commands)
    succeeded = [command for command in commands if command.state is JobState.SUCCEEDED]
    killed = sum(command.reason.startswith(_OUT_OF_MEMORY) for command in commands)
    if not succeeded and not killed:
        return None
    use = MeasuredUse(
        len(succeeded),
        sum(command.duration_s or 0.0 for command in succeeded),
        None,
        _measure_busy_vcpus(succeeded),
        killed,
    )
    use = _add_memory_use(use, succeeded)
    return _add_gpu_use(use, [command.use for command in succeeded if command.use is not None])


def _add_memory_use(use: MeasuredUse, commands: Sequence[CommandDetail]) -> MeasuredUse:
    peak_mib = _find_largest_mib(command.certain_peak_kib for command in commands)
    bound_mib = _find_largest_mib(command.peak_memory_kib for command in commands)
    process_mib = _find_largest_mib(command.max_rss_kib for command in commands)
    return replace(
        use,
        peak_mib=peak_mib,
        bound_mib=None if bound_mib == peak_mib else bound_mib,
        process_mib=process_mib,
    )


def _find_largest_mib(amounts_kib: Iterable[int]) -> int | None:
    """Return the largest amount, rounded up; None if nothing was measured."""
    largest_kib = max(amounts_kib, default=0)
    return math.ceil(largest_kib / _KIB_PER_MIB) if largest_kib else None


def _measure_busy_vcpus(commands: Iterable[CommandDetail]) -> float | None:
    """Return the 95th percentile of the vCPUs that commands kept busy; None if not measured."""
    busy = measure_spread(
        [
            _count_busy_vcpus(command, command.duration_s)
            for command in commands
            if command.cpu_s and command.duration_s and command.duration_s >= _MIN_CPU_SECONDS
        ]
    )
    return None if busy is None else busy.p95_s


def _count_busy_vcpus(command: CommandDetail, seconds: float) -> float:
    recorded_s = command.user_s + command.system_s
    if not recorded_s and command.use is not None:
        # The samples of a container end before the container does.
        return command.use.mean_cpus
    return recorded_s / seconds


def _add_gpu_use(use: MeasuredUse, samples: Iterable[SampledUse]) -> MeasuredUse:
    """Return the use with the peak and the mean of the GPUs; each command counts by its seconds."""
    samples = list(samples)
    peaks = [
        (sample.peak_gpu_memory_mib, sample.gpu_memory_mib)
        for sample in samples
        if sample.peak_gpu_memory_mib is not None
    ]
    peak_mib, whole_mib = max(peaks, key=lambda pair: pair[0], default=(None, None))
    means = [
        (sample.mean_gpu_percent, sample.seconds)
        for sample in samples
        if sample.mean_gpu_percent is not None
    ]
    total_s = sum(seconds for _, seconds in means)
    percent = sum(mean * seconds for mean, seconds in means) / total_s if total_s else None
    return replace(use, peak_gpu_mib=peak_mib, gpu_mib=whole_mib, gpu_percent=percent)


def find_needed_gpu_mib(requested: Resources, use: MeasuredUse) -> int:
    """Return the memory that each GPU needs; 0 if it is not known, or there are no GPUs.

    Never more than the GPU had on which it was measured: there it was enough.
    """
    if not requested.gpus or use.peak_gpu_mib is None:
        return 0
    whole_mib = int((use.gpu_mib or MAX_MEMORY_MIB) * _LISTED_PART)
    return min(math.ceil(use.peak_gpu_mib * _HEADROOM), whole_mib)


def find_needed(requested: Resources, use: MeasuredUse) -> Resources:
    """Return what a child needs: measured use with some room; as requested if not measured."""
    needed = requested
    memory_mib = _add_room(use.peak_mib)
    if use.bound_mib is not None:
        # What is requested was enough, unless a peak is known to be larger.
        memory_mib = max(memory_mib, min(_add_room(use.bound_mib), requested.memory_mib))
    if memory_mib and (not use.out_of_memory or memory_mib > requested.memory_mib):
        needed = replace(needed, memory_mib=memory_mib)
    if use.vcpus is not None:
        needed = replace(needed, vcpus=max(1, math.ceil(use.vcpus - _CPU_NOISE)))
    return needed


def _add_room(peak_mib: int | None) -> int:
    """Return the memory to request for a peak; 0 if there is none."""
    memory_mib = (peak_mib or 0) * _HEADROOM
    unit_mib = _SMALL_UNIT_MIB if memory_mib < _MIB_PER_GIB else _LARGE_UNIT_MIB
    return min(math.ceil(memory_mib / unit_mib) * unit_mib, MAX_MEMORY_MIB)


def advise_steps(steps: Iterable[tuple[str, Resources, MeasuredUse | None]], find: Find) -> Advice:
    """Return the advice for each step: its name, its request, and its measured use.

    ``find`` returns the offers for what a child requests.
    """
    sources: dict[str, None] = {}
    advice = []
    for step, requested, use in steps:
        if use is None:
            sentence = f"{step}: no earlier run in this folder tells what it uses"
            advice.append(StepAdvice(step, requested, sentences=(sentence,)))
            continue
        needed = find_needed(requested, use)
        gpu_mib = find_needed_gpu_mib(requested, use)
        seconds = use.seconds
        as_requested = _price(StepUse(step, requested, seconds), 0, find, sources)
        as_needed = _price(StepUse(step, needed, seconds), gpu_mib, find, sources)
        advice.append(
            StepAdvice(
                step,
                requested,
                use,
                needed,
                gpu_mib,
                next(iter(as_requested), None),
                tuple(as_needed[:_MAX_TYPES]),
                (
                    *_make_sentences(step, requested, needed, use),
                    *_make_gpu_sentences(step, use, gpu_mib, has_gpus=bool(requested.gpus)),
                ),
            )
        )
    return Advice(tuple(advice), tuple(sources))


def _price(use: StepUse, gpu_mib: int, find: Find, sources: dict[str, None]) -> Sequence[StepPrice]:
    """Return the step on all types that fit, cheapest first; none if no price is known."""
    try:
        offers = find(use.requested, gpu_mib)
    except BatchyardError as exc:
        sources[f"{use.step}: {exc}"] = None
        return ()
    sources.update(dict.fromkeys(offers.sources))
    return sort_prices(use, offers)


def _make_sentences(
    step: str, requested: Resources, needed: Resources, use: MeasuredUse
) -> Iterable[str]:
    commands = pluralize(use.commands, "command")
    asked, peak, largest = format_memory(requested.memory_mib), use.peak_mib, use.largest_mib
    if use.out_of_memory:
        killed = pluralize(use.out_of_memory, "command")
        yield f"{step}: {killed} ran out of memory with {asked}: ask for more"
    elif largest is None:
        yield f"{step}: no peak of memory was recorded"
    elif peak is not None and peak > requested.memory_mib:
        verdict = "for which AWS Batch would kill it"
        if use.process_mib is not None and use.process_mib <= requested.memory_mib:
            verdict = "all processes together; if they do not share it, AWS Batch would kill it"
        yield (
            f"{step}: asks for {asked} and used up to {format_memory(peak)}, {verdict}:"
            f" write `memory: {format_memory(needed.memory_mib)}`"
        )
    elif requested.memory_mib >= needed.memory_mib * _WASTEFUL_FACTOR:
        yield (
            f"{step}: asks for {asked} and used at most {format_memory(largest)} in {commands}:"
            f" `memory: {format_memory(needed.memory_mib)}` is enough"
        )
    if use.vcpus is not None and needed.vcpus != requested.vcpus:
        verb = "is enough" if needed.vcpus < requested.vcpus else "lets it run as it did here"
        yield (
            f"{step}: asks for {pluralize(requested.vcpus, 'vCPU')} and kept {use.vcpus:.1f} busy:"
            f" `cpus: {needed.vcpus}` {verb}"
        )


def _make_gpu_sentences(
    step: str, use: MeasuredUse, gpu_mib: int, *, has_gpus: bool
) -> Iterable[str]:
    if not has_gpus:
        return
    if use.peak_gpu_mib is None:
        yield f"{step}: the memory of its GPUs was not sampled; any GPU is taken to fit"
    else:
        peak = format_memory(use.peak_gpu_mib)
        is_reserved = use.gpu_mib and use.peak_gpu_mib >= use.gpu_mib * _RESERVED_PART
        reason = ", which its framework may have reserved at the start" if is_reserved else ""
        yield (
            f"{step}: used up to {peak} of the memory of a GPU{reason}: GPUs with"
            f" {format_memory(gpu_mib)} or more fit"
        )
    if use.gpu_percent is not None and use.gpu_percent < _IDLE_GPU_PERCENT:
        yield (
            f"{step}: its GPUs were busy for {use.gpu_percent:.0f} % of the time: it may cost less"
            " without a GPU, or with several commands on one"
        )


def _resources_to_json(resources: Resources | None) -> dict[str, int] | None:
    if resources is None:
        return None
    return {
        "cpus": resources.vcpus,
        "memory_mib": resources.memory_mib,
        "gpus": resources.gpus,
    }


def _prices_to_json(price: StepPrice | None) -> dict[str, Any] | None:
    if price is None:
        return None
    seconds = price.use.used_s
    return {
        "type": price.offer and price.offer.type.name,
        "share": price.share,
        "on_demand_usd": price.usd(seconds, is_spot=False),
        "spot_usd": price.usd(seconds, is_spot=True),
    }
