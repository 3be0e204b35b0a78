"""moto's own tests of AWS Batch, run against the endpoint."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from emulator_endpoint import Endpoint
from moto_suite_verdicts import VERDICTS

from batchyard.emulator.moto_adapter import MOTO_VERSION

ROOT = Path(__file__).parents[2]
#: The region of most of moto's tests.
REGION = "eu-central-1"
#: Tests of the suite. A smaller number means that some were not collected.
TESTS = 111
#: The whole suite, on a busy machine.
WITHIN_S = 1200

pytestmark = [pytest.mark.slow, pytest.mark.outside]


@pytest.fixture(scope="module")
def suite() -> Path:
    """The folder of moto's tests, downloaded if it is not there."""
    done = subprocess.run(
        [ROOT / ".ci" / "moto-suite", MOTO_VERSION], capture_output=True, text=True, cwd=ROOT
    )
    if done.returncode:
        assert not os.environ.get("BATCHYARD_REQUIRE_WILD"), done.stderr
        pytest.skip(f"moto's tests cannot be downloaded: {done.stderr.strip()}")
    return Path(done.stdout.strip())


def run_suite(endpoint: Endpoint, suite: Path, report: Path) -> None:
    words = (sys.executable, "-m", "pytest", "tests/test_batch", "-q", "-p", "no:cacheprovider")
    subprocess.run(
        [*words, "--junitxml", str(report)],
        cwd=suite,
        env={
            **endpoint.environ,
            "TEST_SERVER_MODE": "true",
            "TEST_SERVER_MODE_ENDPOINT": endpoint.url,
        },
        stdout=subprocess.DEVNULL,
        timeout=WITHIN_S,
    )


def read_results(report: Path) -> dict[str, bool]:
    """Return file::test -> whether the test passed; skipped tests are left out."""
    results = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.attrib['classname'].rpartition('.')[2]}::{case.attrib['name']}"
        outcomes = {child.tag for child in case}
        if "skipped" not in outcomes:
            results[name] = outcomes.isdisjoint({"failure", "error"})
    return results


def test_motos_suite_passes_except_for_the_judged_tests(suite: Path, tmp_path: Path) -> None:
    endpoint = Endpoint(tmp_path, "--region", REGION, "--cpus", "8", "--memory", "64GiB")
    try:
        run_suite(endpoint, suite, tmp_path / "report.xml")
    finally:
        endpoint.stop()
    results = read_results(tmp_path / "report.xml")
    assert len(results) >= TESTS - 1, "one test of the suite is skipped in server mode"
    failed = {name for name, has_passed in results.items() if not has_passed}
    assert sorted(failed - set(VERDICTS)) == [], "fails without a verdict"
    must_fail = {name for name, verdict in VERDICTS.items() if not verdict.is_gap}
    assert sorted(must_fail - failed) == [], "passes, so its verdict is out of date"


def test_every_verdict_has_a_source() -> None:
    for name, verdict in VERDICTS.items():
        assert verdict.reason and verdict.source, name
