"""User data and templates, damaged at random: the doctor examines all of them, and in time."""

from __future__ import annotations

import base64
import gzip
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchyard.doctor import show
from batchyard.doctor.finding import Report
from batchyard.doctor.template.examine import examine as examine_template
from batchyard.doctor.userdata.examine import examine
from batchyard.errors import InputError

SAMPLES = Path(__file__).parents[2] / "doctor"
USER_DATA = [
    p.read_bytes()
    for p in sorted((SAMPLES / "userdata").rglob("*.txt"))
    if p.stat().st_size < 20_000
]
TEMPLATES = [p.read_bytes() for p in sorted((SAMPLES / "templates").rglob("*.*"))]
#: generous: the slowest of the samples takes a tenth of a second on a busy machine
MAX_CPU_S = 10

often = settings(suppress_health_check=list(HealthCheck))

TOKENS = st.sampled_from(
    "' \" ` $( ${ ( ) { } \\ | & ; < > << <<- <<EOF EOF # ! [ ] [[ ]] if fi do done case esac "
    "function \n \t \r \x00 é - : ? @ % * &a *a !Sub !Ref !If {{ }} ${} --b --==B== --==B==-- "
    "Content-Type: #cloud-config #!/bin/sh Resources Properties UserData "
    "Fn::Base64 Fn::Join Ref null [] {} 0 -1 1e999".split(" ")
).map(str.encode)
#: share of the data before the cut, length of the cut, tokens instead, whether to repeat it
CUTS = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 40), st.lists(TOKENS, max_size=3), st.booleans()),
    min_size=1,
    max_size=6,
)


def damage(data: bytes, cuts: list[tuple[float, int, list[bytes], bool]]) -> bytes:
    for share, length, tokens, repeats in cuts:
        start = int(share * len(data))
        end = start + length
        copy = data[start:end] if repeats else b""
        data = data[:start] + copy + b"".join(tokens) + copy + data[end:]
    return data


def check(report: Report, began: float) -> None:
    assert report.exit_code in (0, 1, 2)
    assert all(finding.cause and finding.remedy for finding in report.findings)
    json.dumps(show.to_json(report))
    assert all(line.isprintable() for line in show.to_lines(report, with_all=True))
    assert time.process_time() - began < MAX_CPU_S


@often
@given(st.sampled_from(USER_DATA), CUTS, st.sampled_from(["batch", "ecs"]))
def test_damaged_user_data_is_examined(data: bytes, cuts: Any, owner: str) -> None:
    began = time.process_time()
    check(examine(damage(data, cuts), "x", owner), began)


@often
@given(
    st.sampled_from(USER_DATA),
    CUTS,
    st.sampled_from([gzip.compress, base64.b64encode]),
    st.booleans(),
)
def test_damaged_packages_are_examined(
    data: bytes, cuts: Any, pack: Any, is_package_damaged: bool
) -> None:
    began = time.process_time()
    data = damage(pack(data), cuts) if is_package_damaged else pack(damage(data, cuts))
    check(examine(data, "x"), began)


@often
@given(st.sampled_from(TEMPLATES), CUTS)
def test_damaged_templates_are_examined_or_refused_in_words(data: bytes, cuts: Any) -> None:
    began = time.process_time()
    try:
        check(examine_template(damage(data, cuts), "x"), began)
    except InputError as exc:
        assert exc.message.startswith("x") and exc.hint


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    paths = [path]
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return paths + [leaf for key, inner in items for leaf in _leaves(inner, (*path, key))]


PLANS = [json.loads(data) for data in TEMPLATES if data.lstrip().startswith(b"{")]
PLACES = [(plan, path) for plan in PLANS for path in _leaves(plan) if path]
ODD = st.sampled_from(
    [
        None,
        "",
        "x",
        0,
        -1,
        True,
        [],
        {},
        [[]],
        [None],
        {"": {}},
        {"Ref": []},
        {"Fn::Join": "x"},
        ["a"] * 3,
    ]
)


@often
@given(st.lists(st.tuples(st.sampled_from(PLACES), ODD), min_size=1, max_size=4))
def test_any_value_in_any_place_of_a_plan_or_template_is_examined(changes: Any) -> None:
    document = json.loads(json.dumps(changes[0][0][0]))
    for (_, path), value in changes:
        holder = document
        with suppress(KeyError, IndexError, TypeError):
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = json.loads(json.dumps(value))
    with suppress(InputError):
        began = time.process_time()
        check(examine_template(json.dumps(document).encode(), "x"), began)


@often
@given(st.sampled_from(USER_DATA), CUTS)
def test_what_stands_above_the_damage_is_still_found(data: bytes, cuts: Any) -> None:
    script = b"#!/bin/bash\nsystemctl restart docker\n: >> /dev/null\n" + damage(data, cuts)
    findings = examine(script, "x", "ecs").findings
    assert any(finding.id == "BY101" and finding.place == "x:2" for finding in findings)
