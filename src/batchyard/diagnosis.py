"""The doctor's answer for children of a run that wait for a host."""

from __future__ import annotations

import time
from collections.abc import Sequence

from batchyard.engines.base import RunRecord, Wait
from batchyard.errors import InputError


def explain_wait(record: RunRecord, step: str) -> list[str]:
    """Return why children of a step wait for a host, as lines of the doctor's report.

    Sends at most as many requests as `batchyard doctor job`. Raises InputError if none waits.
    """
    engine = record.open()
    try:
        waits: Sequence[Wait] = engine.waits(engine.overview().jobs) or ()
        environment = engine.setup().environment
    finally:
        engine.close()
    wait = next((wait for wait in waits if wait.step == step), None)
    if wait is None or environment is None:
        raise InputError(f"no child of {step!r} waits for a host")
    from batchyard.aws.session import AwsSession
    from batchyard.doctor import judge, show
    from batchyard.doctor.gather.subjects import MAX_CALLS, Gatherer
    from batchyard.ec2_prices import load_prices

    session = AwsSession(environment.region, environment.profile)
    gatherer = Gatherer(session, lambda: int(time.time() * 1000), MAX_CALLS, load_prices())
    return show.to_lines(judge.judge(gatherer.job(wait.job_id)))
