"""A shared list: every command is in exactly one child, and a child runs its part in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from batchyard.shard import Turn, commands_of

totals = st.integers(0, 2_000)
sizes = st.integers(1, 500)
exit_codes = st.sampled_from([0, 0, 0, 1, 2, 75, 137])


@given(totals, sizes)
def test_every_command_is_in_exactly_one_child_in_order(total: int, size: int) -> None:
    shared_out = [number for index in range(size) for number in commands_of(total, index, size)]
    assert shared_out == list(range(total))


@given(totals, sizes)
def test_parts_differ_by_at_most_one_command(total: int, size: int) -> None:
    lengths = {len(commands_of(total, index, size)) for index in range(size)}
    assert max(lengths) - min(lengths) <= 1


@given(st.integers(0, 10**12), st.integers(1, 10**6), st.data())
def test_neighbours_meet_without_gap_or_overlap_at_any_scale(
    total: int, size: int, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, size - 1))
    part = commands_of(total, index, size)
    assert part.start == (commands_of(total, index - 1, size).stop if index else 0)
    assert part.stop == (commands_of(total, index + 1, size).start if index < size - 1 else total)


def walk(turn: Turn, codes: dict[int, int]) -> list[int]:
    numbers = []
    while (number := turn.next()) is not None:
        numbers.append(number)
        turn.record_exit(codes[number])
    assert turn.next() is None
    return numbers


@st.composite
def turns(draw: st.DrawFn) -> tuple[range, set[int], dict[int, int]]:
    start = draw(st.integers(0, 50))
    commands = range(start, start + draw(st.integers(0, 12)))
    done = draw(st.sets(st.integers(0, 70), max_size=20))
    return commands, done, {number: draw(exit_codes) for number in commands}


@given(turns())
def test_a_turn_passes_over_what_is_done_and_stops_after_the_first_failure(
    attempt: tuple[range, set[int], dict[int, int]],
) -> None:
    commands, done, codes = attempt
    remaining = [number for number in commands if number not in done]
    failed = next(
        (place for place, number in enumerate(remaining) if codes[number]), len(remaining)
    )
    turn = Turn(commands, done)
    assert walk(turn, codes) == remaining[: failed + 1]
    assert turn.exit_code == (codes[remaining[failed]] if failed < len(remaining) else 0)


@given(turns())
def test_a_turn_that_keeps_going_runs_all_and_exits_as_its_first_failure(
    attempt: tuple[range, set[int], dict[int, int]],
) -> None:
    commands, done, codes = attempt
    remaining = [number for number in commands if number not in done]
    turn = Turn(commands, done, keep_going=True)
    assert walk(turn, codes) == remaining
    assert turn.exit_code == next((codes[number] for number in remaining if codes[number]), 0)


@given(turns())
def test_attempts_until_success_run_every_command_to_success_exactly_once(
    attempt: tuple[range, set[int], dict[int, int]],
) -> None:
    commands, _, codes = attempt
    done: set[int] = set()
    for is_last in (False, True):
        turn = Turn(commands, done)
        while (number := turn.next()) is not None:
            code = 0 if is_last else codes[number]
            turn.record_exit(code)
            if not code:
                assert number not in done
                done.add(number)
    assert done == set(commands)


def test_a_child_without_commands_succeeds() -> None:
    turn = Turn(commands_of(3, 0, 5))
    assert commands_of(3, 0, 5) == range(0)
    assert turn.next() is None
    assert turn.exit_code == 0
