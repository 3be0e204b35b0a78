"""SubmitJob has no token for repeating it: what broke off is looked for before it is sent again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from batchyard.aws.batch import Batch
from batchyard.aws.session import AccessDeniedError, AwsRefusedError
from batchyard.engines.aws.submission_journal import Journal
from batchyard.errors import OperationalError

REQUEST = {"jobName": "run-step", "jobQueue": "q", "jobDefinition": "d"}


class Service:
    """A Batch that accepts jobs, and has trouble in the order given."""

    def __init__(
        self, *trouble: Callable[[], Exception | None], accepts_first: bool = False
    ) -> None:
        self.jobs: list[str] = []
        self._trouble = list(trouble)
        #: whether what fails was accepted all the same
        self._accepts_first = accepts_first

    def client(self, service: str, *, repeats: bool = True) -> Service:
        return self

    def submit_job(self, **request: Any) -> dict[str, str]:
        problem = self._trouble.pop(0)() if self._trouble else None
        if problem is None or self._accepts_first:
            self.jobs.append(request["jobName"])
        if problem is not None:
            raise problem
        return {"jobId": f"id-{len(self.jobs)}"}

    def list_jobs(self, **request: Any) -> dict[str, Any]:
        (wanted,) = request["filters"][0]["values"]
        found = [
            {"jobId": f"id-{n}", "jobName": name}
            for n, name in enumerate(self.jobs, 1)
            if name == wanted
        ]
        return {"jobSummaryList": found[::-1]}


def answer(code: str, status: int) -> Callable[[], Exception]:
    response = {
        "Error": {"Code": code, "Message": "no"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return lambda: ClientError(response, "SubmitJob")


def reset() -> Exception:
    return EndpointConnectionError(endpoint_url="http://x")


def timeout() -> Exception:
    return ReadTimeoutError(endpoint_url="http://x")


def batch(service: Service) -> Batch:
    return Batch(service, sleep=lambda seconds: None, jitter=lambda: 0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "trouble",
    [answer("TooManyRequestsException", 429), answer("ServerException", 500), reset, timeout],
)
@pytest.mark.parametrize("accepts_first", [False, True])
def test_one_job_however_it_breaks(trouble: Callable[[], Exception], accepts_first: bool) -> None:
    is_throttled = "429" in str(getattr(trouble(), "response", ""))
    service = Service(trouble, trouble, accepts_first=accepts_first and not is_throttled)
    assert batch(service).submit(REQUEST) == "id-1"
    assert service.jobs == ["run-step"]


def test_a_refusal_is_told_at_once() -> None:
    service = Service(answer("ClientException", 400))
    with pytest.raises(AwsRefusedError, match="submit run-step"):
        batch(service).submit(REQUEST)
    with pytest.raises(AccessDeniedError, match="batch:SubmitJob"):
        batch(Service(answer("AccessDeniedException", 403))).submit(REQUEST)


def test_it_gives_up_in_the_end() -> None:
    with pytest.raises(OperationalError, match="could not submit"):
        batch(Service(*[answer("TooManyRequestsException", 429)] * 50)).submit(REQUEST)


def test_a_journal_survives_a_line_that_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.intend("a")
    journal.record_submitted("a", "1", at_s=5.0)
    journal.intend("b")
    path.write_bytes(path.read_bytes()[:-5])
    again = Journal(path)
    assert again.ids == {"a": "1"} and again.intended == {"a"}
    again.intend("b")
    again.record_submitted("b", "2", at_s=6.5)
    third = Journal(path)
    assert third.ids == {"a": "1", "b": "2"} and third.submitted_at == {"a": 5.0, "b": 6.5}
