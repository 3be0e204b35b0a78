"""Who watches a run asks a busy service again, and says so once."""

from __future__ import annotations

import pytest

from batchyard.engines.busy_service import PatientCaller
from batchyard.errors import BusyServiceError, OperationalError, UnreachableServiceError


class Service:
    """Raises these errors, one for each call, and then answers."""

    def __init__(self, *troubles: OperationalError) -> None:
        self.troubles = list(troubles)

    def ask(self) -> str:
        if self.troubles:
            raise self.troubles.pop(0)
        return "answer"


def test_a_busy_service_is_asked_until_it_answers() -> None:
    service = Service(*[BusyServiceError("could not look: AWS throttles the calls")] * 20)
    sentences: list[str] = []
    pauses_s: list[float] = []
    assert PatientCaller(sentences.append, pauses_s.append).call(service.ask) == "answer"
    assert sentences == [
        "could not look: AWS throttles the calls; the run goes on, and this command asks again "
        "until it answers"
    ]
    assert len(pauses_s) == 20 and pauses_s == sorted(pauses_s) and pauses_s[-1] == 60


def test_a_service_that_has_answered_is_waited_for_when_the_network_is_lost() -> None:
    sentences: list[str] = []
    pauses_s: list[float] = []
    caller = PatientCaller(sentences.append, pauses_s.append)
    caller.call(lambda: "answer")
    for _ in range(2):
        lost = Service(*[UnreachableServiceError("AWS cannot be reached")] * 30)
        assert caller.call(lost.ask) == "answer"
    assert len(pauses_s) == 60
    # One sentence each time that the network is lost.
    assert len(sentences) == 2


def test_a_service_that_has_never_answered_may_have_a_wrong_address() -> None:
    lost = UnreachableServiceError("AWS cannot be reached")
    caller = PatientCaller(sleep=lambda seconds: pytest.fail("waited"))
    with pytest.raises(UnreachableServiceError):
        caller.call(Service(lost).ask)
    pauses_s: list[float] = []
    caller = PatientCaller(sleep=pauses_s.append, was_answered=True)
    assert caller.call(Service(lost).ask) == "answer" and len(pauses_s) == 1


def test_other_errors_are_not_waited_out() -> None:
    caller = PatientCaller(sleep=lambda seconds: pytest.fail("waited"), was_answered=True)
    with pytest.raises(OperationalError, match="expired"):
        caller.call(Service(OperationalError("the credentials have expired")).ask)
