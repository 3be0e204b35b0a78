"""What a retry or resume of a run on AWS cannot change."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchyard.engines.aws import ENGINE
from batchyard.engines.base import RetryRequest, RunRecord, say_nothing
from batchyard.errors import InputError
from batchyard.folder import RunFolder
from batchyard.plan import Plan


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (RetryRequest(cpus=2), "--limit-cpus and --limit-memory are about this machine"),
        (RetryRequest(memory_mib=64), "--limit-cpus and --limit-memory are about this machine"),
        (RetryRequest(workspace="."), "--workspace is about runs on this machine"),
    ],
)
def test_settings_of_this_machine_are_refused(
    request_: RetryRequest, message: str, tmp_path: Path
) -> None:
    folder = RunFolder(tmp_path / "p-20250131-abcdef")
    record = RunRecord(folder, Plan("p", ()), ENGINE, settings=None, created_ms=0)
    with pytest.raises(InputError, match=message):
        ENGINE.prepare_retry(record, request_, say_nothing)
    with pytest.raises(InputError, match=message):
        ENGINE.prepare_resume(record, request_, detached=False)
