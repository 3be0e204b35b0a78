"""Edited result files: refused with a message, or read, compared and reported."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "bench"))

from bench_values import measurement, on_gpu
from bench_values import results as made

from batchyard import ec2_prices
from batchyard.bench import comparing, tables
from batchyard.bench.page import page
from batchyard.bench.reading import from_json
from batchyard.bench.results import Outcome, Results, to_json
from batchyard.errors import InputError

MACHINE = {
    **{
        "cpu": "Some Processor",
        "cpus": 8,
        "threads": 8,
        "cpu_clock_mhz": 2300.5,
        "memory_bytes": 2**34,
    },
    **{
        "thread_variables": {"OMP_NUM_THREADS": "8"},
        "libraries": {"NumPy": "2.0"},
        "python": "3.11",
        "malloc": "kept",
    },
    **{"gpus": [{"name": "Made-up", "driver": "5"}], "price": {"usd_h": 0.714, "source": "a list"}},
}
CPU = made(
    "cpu",
    *(measurement(size=size, seconds=size / 1000) for size in (500, 1000)),
    measurement("blur", 7, outcome=Outcome.SKIPPED, reason="memory", warm_s=(), tried=()),
    machine=MACHINE,
    instance_type="c7i.4xlarge",
    missing={"SciPy": "not installed"},
)
GPU = made(
    "gpu",
    *(on_gpu(measured, 0.01, 0.6) for measured in CPU.successes),
    machine=MACHINE,
    instance_type="g5.xlarge",
)
WHOLE = {device: json.loads(to_json(results)) for device, results in (("cpu", CPU), ("gpu", GPU))}
LISTED = ec2_prices.load_prices()

#: what people and broken programs put in another's place
ODD = (
    *(
        None,
        True,
        False,
        -1,
        0,
        1,
        2**70,
        10**400,
        -0.0,
        1e-320,
        1e308,
        -1e308,
        float("nan"),
        float("inf"),
        0.5,
    ),
    *(
        "",
        "x",
        "ok",
        "gpu",
        "12",
        "\ud800",
        "\x1b[31m\n\0",
        "<b>" * 99,
        [],
        [None],
        [1],
        ["x"],
        [[]],
        [{}],
        {},
    ),
    *({"": None}, {"\ud800": 1}, {"usd_h": "x"}, [[[[[[[[[[1]]]]]]]]]]),
)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    entries = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, entry in entries:
        yield from places(entry, (*at, key))


PLACES = {device: list(places(value)) for device, value in WHOLE.items()}
_GONE = object()


def changed(value: Any, place: tuple[Any, ...], to: Any) -> Any:
    if not place:
        return to
    value = copy.deepcopy(value)
    holder = value
    for key in place[:-1]:
        holder = holder[key]
    if to is _GONE:
        del holder[place[-1]]
    else:
        holder[place[-1]] = to
    return value


def use(text: str) -> Results | None:
    """Everything that the commands do with a file. None where it is refused, as it should be."""
    try:
        results = from_json(text, "a.json")
    except InputError as exc:
        assert (
            exc.message.startswith("a.json")
            and "\n" not in exc.message
            and exc.message.isprintable()
        )
        exc.message.encode()
        return None
    for other in (CPU, GPU):
        try:
            value = comparing.compare(results, other, LISTED)
        except InputError as exc:
            assert "no operation in common" in exc.message
        else:
            tables.comparison_text(value, LISTED.source).encode()
        page([results, other], 0, LISTED).encode()
    page([results], 0, LISTED).encode()
    tables.run_text(results, all_candidates=True).encode()
    tables.csv_text(results).encode()
    return results


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_what_is_whole_is_used(device: str) -> None:
    assert use(json.dumps(WHOLE[device])) in (CPU, GPU)


# Of lists the first: the others are checked alike.
_FIRST_PLACES = [
    place
    for place in PLACES["cpu"]
    if place and not any(isinstance(key, int) and key > 0 for key in place)
]


@pytest.mark.parametrize(
    "to", [*ODD, _GONE], ids=lambda to: "gone" if to is _GONE else repr(to)[:20]
)
@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_one_value_changed_anywhere(to: Any, first: int) -> None:
    """At every second place, from the first one on."""
    for place in _FIRST_PLACES[first::2]:
        use(json.dumps(changed(WHOLE["cpu"], place, to)))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(ODD),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.data(), st.sampled_from(["cpu", "gpu"]), st.integers(1, 3))
def test_several_values_changed_to_anything(data: st.DataObject, device: str, times: int) -> None:
    value = WHOLE[device]
    for _ in range(times):
        place = data.draw(st.sampled_from(list(places(value))))
        value = changed(value, place, data.draw(_JSON))
    use(json.dumps(value))


@given(st.data())
def test_letters_changed_anywhere(data: st.DataObject) -> None:
    text = json.dumps(WHOLE["cpu"], indent=1)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 30)))
    put = data.draw(st.text(st.sampled_from('[]{}",:0123456789eE+-.truefalsn \n\\u'), max_size=8))
    use(text[:start] + put + text[end:])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"format": "batchyard-bench", "version": ' + "9" * 5000 + "}", "thousands of digits"),
    ],
)
def test_what_no_parser_likes(text: str, message: str) -> None:
    with pytest.raises(InputError, match=f"a.json: .*{message}"):
        from_json(text, "a.json")


@pytest.mark.parametrize(
    ("place", "to", "message"),
    [
        (("device",), None, "device: expected text, found null"),
        (("device",), "tpu", 'device: expected cpu or gpu, found "tpu"'),
        (
            ("measurements", 1, "size"),
            "x",
            'measurements[1].size: expected a whole number, found "x"',
        ),
        (
            ("measurements", 0, "warm_s", 2),
            -1,
            "measurements[0].warm_s[2]: expected a number from 1e-12 to 1e+12, found -1",
        ),
        (("measurements", 0, "outcome"), "good", "outcome: expected ok or skipped or failed"),
        (("measurements", 0, "tried"), _GONE, "measurements[0].tried is missing"),
        (("measurements", 0, "colour"), 1, 'measurements[0]: unknown field "colour"'),
        (
            ("measurements", 0, "warm_s"),
            [],
            "measurements[0].warm_s: there is no time, but the outcome is ok",
        ),
        (
            ("machine", "libraries"),
            [],
            "machine.libraries: expected an object, found a list",
        ),
    ],
)
def test_it_says_where_and_what(place: tuple[Any, ...], to: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        from_json(json.dumps(changed(WHOLE["cpu"], place, to)), "a.json")
    assert caught.value.message.startswith("a.json: ") and message in caught.value.message
