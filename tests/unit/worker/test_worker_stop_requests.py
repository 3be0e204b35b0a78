"""How long an attempt keeps its slot on a host that is reclaimed."""

from __future__ import annotations

from batchyard.worker.stop_requests import StopRequests


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_an_attempt_stays_until_the_deadline_of_the_notice() -> None:
    clock = Clock()
    requests = StopRequests(clock)
    assert requests.time_until_host_ends_s() == 0
    requests.add("EC2 takes this machine away", 120, ends_host=True)
    assert requests.time_until_host_ends_s() == 123
    clock.now_s += 100
    assert requests.time_until_host_ends_s() == 23
    clock.now_s += 100
    assert requests.time_until_host_ends_s() == 0


def test_an_attempt_whose_container_was_asked_to_end_exits_at_once() -> None:
    requests = StopRequests(Clock())
    requests.add("stopped by SIGTERM", 30)
    assert requests.time_until_host_ends_s() == 0
    requests.add("EC2 takes this machine away", 120, ends_host=True)
    assert requests.time_until_host_ends_s() == 0


def test_the_wait_ends_at_the_deadline_or_after_the_longest_wait() -> None:
    # With the real clock: a wait that ignored its limits would not end.
    requests = StopRequests()
    requests.wait_until_host_ends()
    requests.add("EC2 takes this machine away", 0.1, ends_host=True)
    requests.wait_until_host_ends()
    requests.add("EC2 takes this machine away", 1e6, ends_host=True)
    requests.wait_until_host_ends()
    late = StopRequests()
    late.add("EC2 takes this machine away", 1e6, ends_host=True)
    late.wait_until_host_ends(max_wait_s=0.1)
    assert late.time_until_host_ends_s() > 0
