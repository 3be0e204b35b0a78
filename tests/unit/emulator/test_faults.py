"""What --faults accepts, and which calls meet a fault."""

from __future__ import annotations

import pytest

from batchyard.emulator.faults import Fault, FaultInjector, FaultRule, FaultSettings
from batchyard.errors import InputError


def test_all_kinds_are_parsed() -> None:
    text = (
        "throttle=0.3, lose@SubmitJob=2x,cut@s3:GET=.5,describe-lag=1.5,list-lag=2,log-lag=3,"
        "burst=70,credentials=60,drop-logs=0.1,seed=7,"
    )
    assert FaultSettings.parse(text) == FaultSettings(
        rules=(
            FaultRule(Fault.THROTTLE, None, 0.3),
            FaultRule(Fault.LOSE, "SubmitJob", next_calls=2),
            FaultRule(Fault.CUT, "s3:GET", 0.5),
        ),
        describe_lag=1.5,
        list_lag=2,
        log_lag=3,
        burst=70,
        credentials=60,
        drop_logs=0.1,
        seed=7,
    )
    assert FaultSettings.parse("") == FaultSettings()


def test_a_preset_is_a_list_of_faults() -> None:
    unkind = FaultSettings.parse("unkind,list-lag=9,seed=1")
    assert (unkind.describe_lag, unkind.list_lag, unkind.seed) == (0.4, 9, 1)
    assert {rule.fault for rule in unkind.rules} == set(Fault) - {Fault.EXPIRE, Fault.CONFLICT}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("throttle", "throttle is a share", "throttle=0.3"),
        ("throttle=2", "throttle is a share", "throttle=2x"),
        ("throttle=-1", "throttle is a share", "throttle=0.3"),
        ("cut=x", "cut is a share", "cut=2x"),
        ("list-lag=soon", "list-lag is a number of seconds", "list-lag=2"),
        ("list-lag=nan", "list-lag is a number of seconds", "list-lag=2"),
        ("drop-logs=2", "drop-logs is a share", "drop-logs=0.3"),
        ("seed=a", "the seed is a whole number", "seed=1"),
        ("slow=1", "there is no fault 'slow'", "list-lag"),
        ("list-lag@SubmitJob=1", "there is no fault", "KIND=VALUE"),
    ],
)
def test_other_texts_are_refused(text: str, message: str, hint: str) -> None:
    with pytest.raises(InputError) as error:
        FaultSettings.parse(text)
    assert message in error.value.message and text in error.value.message
    assert hint in (error.value.hint or "")


def draw_many(text: str, count: int = 1000) -> list[Fault | None]:
    faults = FaultInjector(FaultSettings.parse(text))
    return [faults.draw("batch", "SubmitJob") for _ in range(count)]


def test_a_share_of_the_calls_meets_each_fault() -> None:
    drawn = draw_many("throttle=0.3,lose=0.2,seed=1")
    assert 250 < drawn.count(Fault.THROTTLE) < 350
    assert 150 < drawn.count(Fault.LOSE) < 250
    assert set(draw_many("")) == {None}


def test_the_same_seed_draws_the_same_faults() -> None:
    assert draw_many("cut=0.5,seed=3") == draw_many("cut=0.5,seed=3")
    assert draw_many("cut=0.5,seed=3") != draw_many("cut=0.5,seed=4")


def test_a_number_of_calls_meets_the_fault_and_no_more() -> None:
    assert draw_many("lose@SubmitJob=2x,cut=1x", 5) == [
        Fault.LOSE,
        Fault.LOSE,
        Fault.CUT,
        None,
        None,
    ]


def test_faults_are_counted_by_kind() -> None:
    now = [0.0]
    settings = FaultSettings.parse("throttle@ListJobs=1x,lose=2x,burst=9")
    faults = FaultInjector(settings, lambda: now[0])
    assert faults.counts == {}
    for operation in ("SubmitJob", "SubmitJob", "SubmitJob", "ListJobs", "ListJobs"):
        faults.draw("batch", operation)
    # Those of a burst count, too, and new settings forget none.
    faults.use(FaultSettings.parse(""))
    faults.draw("batch", "SubmitJob")
    assert faults.counts == {"lose": 2, "throttle": 2}


@pytest.mark.parametrize("target", ["SubmitJob", "batch", "batch:SubmitJob"])
def test_a_fault_of_some_calls_spares_the_others(target: str) -> None:
    faults = FaultInjector(FaultSettings.parse(f"error@{target}=1"))
    assert faults.draw("batch", "SubmitJob") is Fault.ERROR
    assert faults.draw("s3", "GET") is None
    assert (faults.draw("batch", "ListJobs") is Fault.ERROR) == (target == "batch")


def test_a_burst_throttles_one_operation_until_its_end() -> None:
    now = [0.0]
    faults = FaultInjector(FaultSettings.parse("throttle=1x,burst=70"), lambda: now[0])
    assert faults.draw("batch", "DescribeJobs") is Fault.THROTTLE
    assert faults.draw("batch", "ListJobs") is None
    now[0] = 69.9
    assert faults.draw("batch", "DescribeJobs") is Fault.THROTTLE
    now[0] = 70.1
    assert faults.draw("batch", "DescribeJobs") is None
