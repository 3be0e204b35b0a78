"""SubmitJob has no token for repeating it: what broke off is looked for before it is sent again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    ReadTimeoutError,
)

from batchyard.aws import submit_job
from batchyard.aws.session import AccessDeniedError, AwsRefusedError
from batchyard.aws.submit_job import JobSubmitter
from batchyard.engines.aws.submission_journal import Journal
from batchyard.errors import InputError, OperationalError

REQUEST = {"jobName": "run-step", "jobQueue": "q", "jobDefinition": "d"}
TAGGED = {**REQUEST, "tags": {"team": "red"}}


class Service:
    """A Batch that accepts jobs, shows them late, and has trouble in the order given."""

    def __init__(
        self,
        *trouble: Callable[[], Exception | None],
        accepts_first: bool = False,
        shown_after_s: float = 0.0,
    ) -> None:
        #: (name, tags, when it was accepted)
        self.jobs: list[tuple[str, dict[str, str], float]] = []
        self._trouble = list(trouble)
        #: whether what fails was accepted all the same
        self._accepts_first = accepts_first
        self._shown_after_s = shown_after_s
        self.now_s = 0.0

    def client(self, service: str, *, repeats: bool = True) -> Service:
        return self

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def submit_job(self, **request: Any) -> dict[str, str]:
        problem = self._trouble.pop(0)() if self._trouble else None
        if problem is None or self._accepts_first:
            self.jobs.append((request["jobName"], request.get("tags", {}), self.now_s))
        if problem is not None:
            raise problem
        return {"jobId": f"id-{len(self.jobs)}"}

    def list_jobs(self, **request: Any) -> dict[str, Any]:
        (wanted,) = request["filters"][0]["values"]
        summaries = [
            {"jobId": f"id-{number}", "jobName": name}
            for number, (name, _, at_s) in enumerate(self.jobs, 1)
            if name == wanted and self.now_s >= at_s + self._shown_after_s
        ]
        return {"jobSummaryList": summaries[::-1]}

    def describe_jobs(self, jobs: list[str]) -> dict[str, Any]:
        numbers = [int(job_id.removeprefix("id-")) for job_id in jobs]
        return {"jobs": [{"jobId": f"id-{n}", "tags": self.jobs[n - 1][1]} for n in numbers]}


def answer(code: str, status: int) -> Callable[[], Exception]:
    response = {
        "Error": {"Code": code, "Message": "no"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return lambda: ClientError(response, "SubmitJob")


def unreachable() -> Exception:
    return EndpointConnectionError(endpoint_url="http://x")


def closed() -> Exception:
    return ConnectionClosedError(endpoint_url="http://x")


def timeout() -> Exception:
    return ReadTimeoutError(endpoint_url="http://x")


def submitter(service: Service, lag_s: float = 30.0) -> JobSubmitter:
    session: Any = service
    return JobSubmitter(session, sleep=service.sleep, jitter=lambda: 0.5, lag_s=lag_s)


@pytest.mark.parametrize(
    "trouble", [answer("TooManyRequestsException", 429), answer("ServerException", 500), closed]
)
def test_one_job_where_aws_has_made_none(trouble: Callable[[], Exception]) -> None:
    service = Service(trouble, unreachable, trouble)
    assert submitter(service).submit(TAGGED) == "id-1"
    assert len(service.jobs) == 1


@pytest.mark.parametrize("trouble", [answer("ServerException", 500), closed, timeout])
@pytest.mark.parametrize("request_", [REQUEST, TAGGED])
@pytest.mark.parametrize("shown_after_s", [0.0, 0.5, 2.0, 25.0])
def test_one_job_where_its_answer_is_lost_and_aws_shows_it_late(
    trouble: Callable[[], Exception], request_: dict[str, Any], shown_after_s: float
) -> None:
    service = Service(trouble, accepts_first=True, shown_after_s=shown_after_s)
    assert submitter(service).submit(request_) == "id-1"
    assert len(service.jobs) == 1


def test_what_was_never_sent_is_sent_again_without_waiting_for_it() -> None:
    service = Service(unreachable, answer("TooManyRequestsException", 429))
    submitter(service).submit(TAGGED)
    assert service.now_s < 1


def test_a_job_of_the_same_name_is_not_mistaken_for_the_lost_one() -> None:
    """Another process has submitted it at the same moment, so that it is not an older job."""
    service = Service(closed, accepts_first=False)
    service.jobs.append(("run-step", {submit_job.SUBMISSION_TAG: "of another"}, 0.0))
    assert submitter(service).submit(TAGGED) == "id-2"
    # Without tags, the jobs of before are known by their ids.
    service = Service(closed, accepts_first=True)
    service.jobs.append(("run-step", {}, 0.0))
    assert submitter(service).submit(REQUEST, older_ids=["id-1"]) == "id-2"
    assert len(service.jobs) == 2


def test_every_call_has_its_own_token_which_is_recorded_before_it() -> None:
    calls: list[tuple[str, bool, int]] = []
    service = Service(answer("TooManyRequestsException", 429), closed)

    def record(token: str, *, is_repeat: bool) -> None:
        calls.append((token, is_repeat, len(service.jobs)))

    submitter(service).submit(TAGGED, record_attempt=record)
    assert [is_repeat for _, is_repeat, _ in calls] == [False, False, True]
    assert len({token for token, _, _ in calls}) == 3
    assert [count for _, _, count in calls] == [0, 0, 0]
    ((_, tags, _),) = service.jobs
    assert tags == {"team": "red", submit_job.SUBMISSION_TAG: calls[-1][0]}


def test_a_refusal_is_told_at_once() -> None:
    service = Service(answer("ClientException", 400))
    with pytest.raises(AwsRefusedError, match="submit run-step"):
        submitter(service).submit(REQUEST)
    with pytest.raises(AccessDeniedError, match="batch:SubmitJob"):
        submitter(Service(answer("AccessDeniedException", 403))).submit(REQUEST)
    assert service.now_s == 0


@pytest.mark.parametrize("trouble", [answer("TooManyRequestsException", 429), closed, unreachable])
def test_it_gives_up_after_minutes(trouble: Callable[[], Exception]) -> None:
    service = Service(*[trouble] * 500)
    with pytest.raises(OperationalError, match="could not submit"):
        submitter(service).submit(REQUEST)
    assert 200 < service.now_s <= 340


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "1e9"])
def test_a_lag_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="BATCHYARD_AWS_LAG_S is"):
        submit_job.read_lag_s({"BATCHYARD_AWS_LAG_S": text})
    assert submit_job.read_lag_s({"BATCHYARD_AWS_LAG_S": "2.5"}) == 2.5
    assert submit_job.read_lag_s({}) == 30


def test_the_pauses_between_looks_are_the_whole_lag() -> None:
    assert sum(submit_job.make_look_delays(30.0)) == pytest.approx(30.0)
    assert list(submit_job.make_look_delays(0.0)) == list(submit_job.make_look_delays(-3)) == []


def test_a_journal_survives_a_line_that_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.intend("a", 4.0, "token")
    journal.record_submitted("a", "1", at_s=5.0)
    journal.intend("b", 6.0)
    path.write_bytes(path.read_bytes()[:-5])
    again = Journal(path)
    assert again.ids == {"a": "1"} and again.intended_at == {"a": 4.0}
    again.intend("b", 6.25, is_repeat=True)
    again.record_submitted("b", "2", at_s=6.5)
    again.mark_repeated("c")
    third = Journal(path)
    assert third.ids == {"a": "1", "b": "2"} and third.submitted_at == {"a": 5.0, "b": 6.5}
    assert third.repeated == {"b", "c"} and third.intended_at["b"] == 6.25
    assert third.to_json()["repeated"] == ["b", "c"]
