"""A request to stop is never lost, even where the exception of the signal handler is."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from bench_values import Ticks, toy, way, with_numpy

from batchyard.bench.interrupts import DelayedSignals, StopSignals
from batchyard.bench.measuring import measure
from batchyard.bench.timing import Effort
from batchyard.bench.trials import Bench

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def clock() -> Iterator[Ticks]:
    """A clock of the test; the signal handlers are put back afterwards."""
    handlers = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    yield Ticks()
    for signum, handler in handlers.items():
        signal.signal(signum, handler)


class SignalWhenDeleted:
    """An object that is interrupted in ``__del__``, where Python drops every exception."""

    def __init__(self, signum: int) -> None:
        self.signum = signum

    def __del__(self) -> None:
        os.kill(os.getpid(), self.signum)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_whose_exception_is_lost_stops_the_measurement(clock: Ticks, signum: int) -> None:
    stop_signals = StopSignals(clock)
    stop_signals.install()
    calls = 0

    def interrupted(x: Any) -> Any:
        nonlocal calls
        calls += 1
        SignalWhenDeleted(signum)
        return x * 2

    bench = Bench(
        with_numpy(), Effort(2, 4, 1.0), clock=clock, before_call=stop_signals.raise_if_requested
    )
    with pytest.raises(KeyboardInterrupt):
        measure(toy(way("interrupted", interrupted)), 8, bench)
    assert calls == 1


def test_a_signal_after_a_lost_one_raises(clock: Ticks) -> None:
    stop_signals = StopSignals(clock)
    stop_signals.install()
    SignalWhenDeleted(signal.SIGINT)
    clock.pass_(5)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)


def test_the_second_of_two_signals_that_come_together_raises_nothing(clock: Ticks) -> None:
    stop_signals = StopSignals(clock)
    stop_signals.install()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        stop_signals.raise_if_requested()


def test_signals_are_ignored_once_the_program_has_reacted(clock: Ticks) -> None:
    stop_signals = StopSignals(clock)
    stop_signals.install()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    stop_signals.finish()
    clock.pass_(5)
    os.kill(os.getpid(), signal.SIGINT)
    stop_signals.raise_if_requested()


def test_nothing_is_raised_without_a_signal(clock: Ticks) -> None:
    StopSignals(clock).raise_if_requested()


def test_a_signal_while_a_process_is_started_waits_until_its_pid_is_known() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        signals = DelayedSignals()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signals.deliver()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_ignored_signal_stays_ignored_for_the_process_that_is_started() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        signals = DelayedSignals()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signals.deliver()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
