"""A soak: random pipelines through the real command, while hosts, clients, workers and the endpoint
are killed and the endpoint is unkind. The end is one table, and exit code 1 if anything was wrong.

    python tests/soak/soak.py [--minutes 30] [--seed N] [--at-once 6] [--case N ...]

docs/reliability.md says what is checked, and has the last table.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "emulator"))
sys.path.insert(0, str(Path(__file__).parents[1] / "cloud"))

import cases
import cloud_lab
from disturbers import MortalEndpoint, find_processes, kill_worker, summarize_memory

ROOT = Path(__file__).parents[2]
#: Growth of the endpoint's memory, beyond what each of its jobs may take, that counts as a leak.
_LEAK_MB = 48.0
_MB_PER_JOB = 0.05
#: Of each worker and command.
_KILLS_PER_SECOND = 0.015
_STRATEGY = "SPOT_PRICE_CAPACITY_OPTIMIZED"


def main() -> int:
    options = _parse_options()
    folder = ROOT / ".cache" / "soak" / time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder.mkdir(parents=True)
    print(f"soak: seed {options.seed}, {options.minutes:g} minutes, {folder}", flush=True)
    dice = random.Random(f"{options.seed}")
    endpoint, s3 = _open_endpoints(folder, options.seed, dice)
    # A busy machine takes long to start them.
    began_s = time.monotonic()
    soak = cases.Soak(options.seed, folder, endpoint, s3)
    is_over = threading.Event()
    deadline_s = began_s + 60 * options.minutes
    disturbers = [
        threading.Thread(target=_kill_workers, args=(soak, is_over, options.seed)),
        threading.Thread(target=_sample_memory, args=(soak, is_over)),
        threading.Thread(
            target=_kill_endpoints, args=(soak, is_over, options.seed, began_s, deadline_s)
        ),
    ]
    for thread in disturbers:
        thread.start()
    try:
        violations = _run_cases(soak, options, deadline_s)
    finally:
        is_over.set()
        for thread in disturbers:
            thread.join()
        endpoint.stop()
        s3.stop()
    left = [pid for pid, *_ in find_processes(soak.mark)]
    if left:
        violations.append(f"processes are left after the end: {left}")
    if not soak.counts["runs"]:
        violations.append("no run has ended, so nothing was checked")
    violations += _check_memory(soak)
    _print_table(soak, time.monotonic() - began_s, violations)
    for violation in violations:
        print(f"soak: {violation}", file=sys.stderr)
    return 1 if violations else 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--at-once", type=int, default=6, help="pipelines that run at once")
    parser.add_argument("--case", type=int, action="append", help="only this case; repeatable")
    return parser.parse_args()


def _open_endpoints(
    folder: Path, seed: int, dice: random.Random
) -> tuple[MortalEndpoint, MortalEndpoint]:
    """Start an endpoint for everything but S3, and one for S3."""
    faults = f"unkind,lose=0.02,cut=0.02,error=0.01,seed={seed}"
    lags = ",".join(
        f"{kind}-lag={dice.uniform(0, 1.5):.2f}" for kind in ("describe", "list", "log")
    )
    endpoint = MortalEndpoint(
        folder / "endpoint",
        *("--faults", f"{faults},{lags}", "--cpus", "16", "--memory", "32GiB"),
        *("--launch-delay", f"{dice.uniform(0, 1.5):.2f}"),
        *("--idle-delay", f"{dice.uniform(0.5, 10):.2f}"),
        *("--reclaims", "2", "--reclaim-notice", f"{dice.uniform(0, 6):.2f}"),
    )
    s3 = MortalEndpoint(folder / "s3", "--faults", faults)
    current = endpoint.current
    current.queue(
        "spot", current.environment("spot-fleet", type="SPOT", allocationStrategy=_STRATEGY)
    )
    current.queue("steady", current.environment("steady-fleet"))
    s3.current.client("s3").create_bucket(Bucket=cloud_lab.BUCKET)
    return endpoint, s3


# -- disturbances ---------------------------------------------------------------------------------


def _kill_workers(soak: cases.Soak, is_over: threading.Event, seed: int) -> None:
    dice = random.Random(f"{seed}/workers")
    while not is_over.wait(1.0):
        place = kill_worker(soak.mark, dice, _KILLS_PER_SECOND)
        if place is not None:
            soak.worker_kills.add(place)
            soak.count("kills of workers")


def _kill_endpoints(
    soak: cases.Soak, is_over: threading.Event, seed: int, began_s: float, deadline_s: float
) -> None:
    """Kill the endpoint in the second half; the first half shows its memory."""
    dice = random.Random(f"{seed}/endpoint")
    is_over.wait((deadline_s - began_s) / 2)
    while time.monotonic() < deadline_s and not is_over.wait(dice.uniform(15, 45)):
        soak.endpoint.kill()
        soak.count("kills of the endpoint")


def _sample_memory(soak: cases.Soak, is_over: threading.Event) -> None:
    while not is_over.wait(1.0):
        soak.endpoint.sample_memory()
        soak.s3.sample_memory()


# -- cases ----------------------------------------------------------------------------------------


def _run_cases(soak: cases.Soak, options: argparse.Namespace, deadline_s: float) -> list[str]:
    numbers = iter(options.case or range(1, 10**6))
    violations: list[str] = []
    running: set[Future[list[str]]] = set()
    with ThreadPoolExecutor(options.at_once) as pool:
        is_open = True
        while running or is_open:
            while is_open and len(running) < options.at_once:
                number = next(numbers, None) if time.monotonic() < deadline_s else None
                if number is None:
                    is_open = False
                else:
                    running.add(pool.submit(_run_case, soak, number))
            if running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                violations += [text for future in done for text in future.result()]
    return violations


def _run_case(soak: cases.Soak, number: int) -> list[str]:
    case = cases.Case(soak, number)
    violations = case.execute()
    soak.count("pipelines")
    if not violations:
        soak.count(f"pipelines that end {case.expectation.state}")
        case.delete_files()
    again = f"--seed {soak.seed} --case {number}"
    described = [f"case {number} ({again}; {case.folder}): {text}" for text in violations]
    for text in described:
        print(f"soak: {text}", file=sys.stderr, flush=True)
    if number % 20 == 0:
        print(f"soak: case {number}: {dict(soak.counts)}", flush=True)
    return described


# -- the end --------------------------------------------------------------------------------------


def _check_memory(soak: cases.Soak) -> list[str]:
    first, _, last, _ = summarize_memory(soak.endpoint.memory_mb)
    allowed = first + _LEAK_MB + _MB_PER_JOB * soak.counts["jobs and children"]
    if last <= allowed:
        return []
    return [f"the memory of the endpoint grew from {first:.0f} to {last:.0f} MB"]


def _print_table(soak: cases.Soak, duration_s: float, violations: list[str]) -> None:
    rows: list[tuple[str, str]] = [
        ("seed", str(soak.seed)),
        ("minutes", f"{duration_s / 60:.1f}"),
    ]
    rows += [(name, f"{count:,}") for name, count in sorted(soak.counts.items())]
    for name, endpoint in (("the endpoint", soak.endpoint), ("S3", soak.s3)):
        rows.append((f"calls of {name}", f"{sum(endpoint.calls.values()):,}"))
        faults = ", ".join(f"{kind} {count:,}" for kind, count in sorted(endpoint.faults.items()))
        rows.append((f"faults of {name}", faults or "none"))
        numbers = summarize_memory(endpoint.memory_mb)
        text = "first {:.0f}, median {:.0f}, last {:.0f}, highest {:.0f} MB".format(*numbers)
        rows.append((f"memory of {name}", text))
    rows.append(("violations", str(len(violations))))
    print("\n| | |\n|-|-|")
    for name, text in rows:
        print(f"| {name} | {text} |")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
