"""SubmitJob, once for each request. SubmitJob has no idempotency token of its own.

If an answer is lost, AWS may have accepted the job. ListJobs and DescribeJobs show a new job some
time after SubmitJob. So the job is looked for during that time, and only then submitted again.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Protocol

from batchyard.aws.batch import Batch
from batchyard.aws.session import THROTTLED, AwsSession, from_client_error, naming_errors
from batchyard.errors import InputError, OperationalError

#: Tag of a job: a text that differs for each SubmitJob call.
SUBMISSION_TAG = "batchyard:submission"
#: Environment variable with the seconds after which AWS shows a new job.
LAG_VARIABLE = "BATCHYARD_AWS_LAG_S"
#: AWS documents no limit; seconds are usual.
_DEFAULT_LAG_S = 30.0
#: Seconds of pauses in all after which a submission is given up.
_PATIENCE_S = 300.0
_FIRST_DELAY_S, _MAX_DELAY_S = 0.1, 10.0
_FIRST_LOOK_S, _MAX_LOOK_S, _LOOK_GROWTH = 0.2, 5.0, 1.5


def read_lag_s(environ: Mapping[str, str]) -> float:
    """Return the seconds after which AWS shows a new job. Raises InputError."""
    text = environ.get(LAG_VARIABLE, "")
    try:
        lag_s = float(text) if text else _DEFAULT_LAG_S
    except ValueError:
        lag_s = -1.0
    if not 0 <= lag_s <= 3600:
        raise InputError(
            f"{LAG_VARIABLE} is {text!r}", hint="write a number of seconds, 0 to 3600, or unset it"
        )
    return lag_s


def make_look_delays(total_s: float) -> Iterator[float]:
    """Yield growing pauses between looks at AWS; together they are ``total_s`` seconds."""
    delay_s, left_s = _FIRST_LOOK_S, total_s
    while left_s > 0:
        yield min(delay_s, left_s)
        left_s -= delay_s
        delay_s = min(_MAX_LOOK_S, delay_s * _LOOK_GROWTH)


class RecordAttempt(Protocol):
    """Called before each SubmitJob call."""

    def __call__(self, token: str, *, is_repeat: bool) -> None:
        """``is_repeat``: whether an earlier call may have made a job that was not found."""


def record_nothing(token: str, *, is_repeat: bool) -> None:
    """Do nothing: for callers that keep no journal."""


class JobSubmitter:
    def __init__(
        self,
        session: AwsSession,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
        lag_s: float | None = None,
    ) -> None:
        """``lag_s``: seconds after which AWS shows a new job; None: as the environment says."""
        self._session = session
        self._batch = Batch(session)
        self._sleep = sleep
        self._jitter = jitter
        self.lag_s = read_lag_s(os.environ) if lag_s is None else lag_s

    def submit(
        self,
        request: Mapping[str, Any],
        *,
        older_ids: Container[str] = (),
        record_attempt: RecordAttempt = record_nothing,
        is_repeat: bool = False,
    ) -> str:
        """Submit a job once, and return its id.

        ``older_ids``: jobs that had the same name before. ``is_repeat``: whether an earlier process
        may have submitted the job. A request with tags gets a further one for each call, by which
        its job is recognised. Raises OperationalError, AwsRefusedError.
        """
        with naming_errors(f"submit {request['jobName']}"):
            return self._submit(request, older_ids, record_attempt, is_repeat)

    def _submit(
        self,
        request: Mapping[str, Any],
        older_ids: Container[str],
        record_attempt: RecordAttempt,
        is_repeat: bool,
    ) -> str:
        from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

        doing, tokens = f"submit {request['jobName']}", []
        slept_s = 0.0
        for attempt in count():
            tokens.append(uuid.uuid4().hex)
            record_attempt(tokens[-1], is_repeat=is_repeat)
            try:
                client = self._session.client("batch", repeats=False)
                return str(client.submit_job(**_add_token(request, tokens[-1]))["jobId"])
            except (ClientError, HTTPClientError, ConnectionError) as exc:
                problem = exc
            if _may_have_made_job(problem, doing):
                job_id = self._await_job(request, older_ids, tokens)
                if job_id is not None:
                    return job_id
                is_repeat = True
                slept_s += self.lag_s
            delay_s = self._delay_s(attempt)
            slept_s += delay_s
            if slept_s > _PATIENCE_S:
                break
            self._sleep(delay_s)
        raise OperationalError(f"could not {doing}: {problem}", hint="try again in a few minutes")

    def _await_job(
        self, request: Mapping[str, Any], older_ids: Container[str], tokens: Sequence[str]
    ) -> str | None:
        """Return the id of the job that one of the calls made, as soon as AWS shows it."""
        for delay_s in make_look_delays(self.lag_s):
            self._sleep(delay_s)
            job_ids = self._batch.find_by_name(request["jobQueue"], request["jobName"])
            new_ids = [job_id for job_id in job_ids if job_id not in older_ids]
            if not request.get("tags"):
                own_ids = new_ids
            else:
                jobs = self._batch.describe(new_ids) if new_ids else {}
                own_ids = [job_id for job_id in new_ids if _token_of(jobs.get(job_id)) in tokens]
            if own_ids:
                return own_ids[-1]
        return None

    def _delay_s(self, attempt: int) -> float:
        max_delay_s: float = min(_MAX_DELAY_S, _FIRST_DELAY_S * 2 ** min(attempt, 10))
        return max_delay_s * (0.5 + self._jitter() / 2)


def _add_token(request: Mapping[str, Any], token: str) -> dict[str, Any]:
    """Return the request with its token.

    A request without tags stays as it is: the user may not be permitted to set any.
    """
    tags = request.get("tags")
    return {**request, "tags": {**tags, SUBMISSION_TAG: token}} if tags else dict(request)


def _token_of(job: Mapping[str, Any] | None) -> str | None:
    return None if job is None else job.get("tags", {}).get(SUBMISSION_TAG)


def _may_have_made_job(problem: Exception, doing: str) -> bool:
    """Return whether AWS may have made a job in spite of the error.

    Raises our error where it is useless to repeat the call.
    """
    from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError

    if not isinstance(problem, ClientError):
        # These two are about connections that were never made.
        return not isinstance(problem, EndpointConnectionError | ConnectTimeoutError)
    status = problem.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    if problem.response.get("Error", {}).get("Code") in THROTTLED or status == 429:
        return False
    if status < 500:
        raise from_client_error(problem, doing) from problem
    return True
