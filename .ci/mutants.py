"""Tries a random sample of mutants of batch/, engines/ and infra/ and prints the score.

    python .ci/mutants.py [COUNT [SEED]]      600 mutants unless given, seed 12

mutmut (its settings are in pyproject.toml) writes all mutants to mutants/ and finds out which tests
reach which function; the sample is then tried. What survives is listed with the command that shows
it. Functions that no in-process test reaches are counted by themselves: the end-to-end tests, which
start processes, are not part of this.
"""

from __future__ import annotations

import collections
import os
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: an environment of its own: mutmut 3.8 works with no newer pytest
ENVIRONMENT = ROOT / ".cache/mutants-venv"
PACKAGES = ("mutmut==3.8.0", "pytest==8.4.2")
MUTMUT = ENVIRONMENT / "bin/mutmut"
#: mutmut draws a spinner, which fills a file or a log with thousands of lines
LOG = ROOT / ".cache/mutants.log"
MAX_S = 3600


def install() -> None:
    if MUTMUT.exists():
        return
    subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
    pip = (ENVIRONMENT / "bin/pip", "install", "--quiet", "--disable-pip-version-check")
    subprocess.run([*pip, "-e", ".[dev]", *PACKAGES], cwd=ROOT, check=True)


def run_mutmut(*names: str) -> None:
    """Try these mutants, for at most MAX_S seconds."""
    environ = {**os.environ, "BATCHYARD_TESTS_REAL_START": "1"}
    with LOG.open("ab") as log:
        try:
            subprocess.run(
                [MUTMUT, "run", *names], cwd=ROOT, env=environ, stdout=log, timeout=MAX_S
            )
        except subprocess.TimeoutExpired:
            print(f"mutants: stopped after {MAX_S} s")


def results() -> dict[str, str]:
    """Return every mutant with its state, like `survived` or `not checked`."""
    done = subprocess.run(
        [MUTMUT, "results", "--all", "true"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = (line.strip().partition(": ") for line in done.stdout.splitlines())
    return {name: state for name, colon, state in lines if colon}


def main(count: int, seed: int) -> None:
    install()
    # No mutant has this name: mutants are written and the tests are measured, nothing is tried.
    run_mutmut("none")
    names = sorted(results())
    if not names:
        sys.exit(f"mutants: mutmut has made none; its output is in {LOG}")
    sample = random.Random(seed).sample(names, min(count, len(names)))
    run_mutmut(*sample)
    states = {name: state for name, state in results().items() if name in set(sample)}
    show(states, len(names))


def show(states: dict[str, str], total: int) -> None:
    counts = collections.Counter(states.values())
    for name, state in sorted(states.items()):
        if state == "survived":
            print(f"survived: {MUTMUT.relative_to(ROOT)} show {name}")
    killed = counts["killed"] + counts["timeout"]
    tried = killed + counts["survived"] + counts["suspicious"]
    print(f"{total} mutants, {len(states)} in the sample: {dict(counts)}")
    if tried:
        print(f"score: {killed} of {tried} killed, {100 * killed / tried:.1f} %")


if __name__ == "__main__":
    words = [int(word) for word in sys.argv[1:]]
    main(*words, *(600, 12)[len(words) :])
