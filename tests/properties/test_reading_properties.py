"""The reader with random files: valid ones come back unchanged, all others have mistakes."""

from __future__ import annotations

import json
import re
import string
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from hypothesis import given
from hypothesis import strategies as st

from batchyard import pipeline
from batchyard.errors import PipelineFileError
from batchyard.pipeline import ExitRule, Mount, Need, Pipeline
from batchyard.pipeline_file import key_limits, plain_lists, printing, reading

SCHEMA = json.loads((Path(pipeline.__file__).parent / "pipeline.schema.json").read_text())

# -- right files -------------------------------------------------------------------------------

names = st.from_regex(r"[a-z][a-z0-9-]{0,9}", fullmatch=True)
printable = st.characters(
    exclude_categories=("Cs", "Cc", "Zl", "Zp"), exclude_characters="\ufeff\ufffe\uffff"
)
line = st.text(printable, min_size=1, max_size=20).map(str.strip).filter(bool)
commands = line.filter(lambda command: "${params." not in command)
words = st.text(string.ascii_letters, min_size=1, max_size=8)
env_names = st.from_regex(r"X_[A-Za-z0-9_]{0,8}", fullmatch=True)
tables = st.dictionaries(env_names, line, max_size=3)
globs = st.lists(words.map(lambda word: f"{word}/**"), max_size=3)
codes = st.integers(1, 255)
rules = st.one_of(
    st.sampled_from(pipeline.RETRY_WORDS),
    codes,
    st.tuples(codes, codes).map(lambda ends: f"{min(ends)}-{max(ends)}"),
)
optional_keys: dict[str, st.SearchStrategy[Any]] = {
    "cpus": st.integers(*key_limits.LIMITS["cpus"]),
    "gpus": st.integers(*key_limits.LIMITS["gpus"]),
    "memory": st.integers(4, 2**20).map(lambda mib: f"{mib}MiB"),
    "timeout": st.integers(60, 10**6).map(lambda s: f"{s}s"),
    "retries": st.integers(*key_limits.LIMITS["retries"]),
    "retry_on": st.lists(rules, min_size=1, max_size=3),
    "fail_on": st.lists(rules, max_size=3),
    "max_running": st.integers(*key_limits.LIMITS["max_running"]),
    "keep_going": st.booleans(),
    "image": words,
    "queue": words,
    "share": words,
    "priority": st.integers(*key_limits.LIMITS["priority"]),
    "shm": st.integers(4, 2**20).map(lambda mib: f"{mib}MiB"),
    "log_mode": st.sampled_from(["blocking", "non-blocking"]),
    "mounts": st.lists(
        st.fixed_dictionaries(
            {
                "path": words.map(lambda word: f"/{word}"),
                "host": words.map(lambda word: f"/{word}"),
            },
            optional={"read_only": st.booleans()},
        ),
        max_size=2,
    ),
    "ulimits": st.dictionaries(
        st.sampled_from(["nofile", "memlock"]), st.integers(-1, 10**6), max_size=2
    ),
    "user": words,
}


@st.composite
def steps(draw: st.DrawFn) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = []
    for name in draw(st.lists(names, min_size=1, max_size=5, unique=True)):
        work = st.fixed_dictionaries({"command": commands}) | st.fixed_dictionaries(
            {"commands": st.lists(commands, min_size=1, max_size=4)}
        )
        extra = {
            **optional_keys,
            "env": tables,
            "inputs": globs,
            "outputs": globs,
            "checkpoint": globs,
        }
        step = {"name": name, **draw(work), **draw(st.fixed_dictionaries({}, optional=extra))}
        if draw(st.booleans()):
            step["array"] = draw(st.integers(1, 4))
        needed = (
            draw(st.lists(st.sampled_from(written), unique_by=lambda s: s["name"]))
            if written
            else []
        )
        for other in needed:
            each = other.get("array", 1) == step.get("array", 1) and draw(st.booleans())
            step.setdefault("needs", []).append(
                {"step": other["name"], "each": True} if each else other["name"]
            )
        written.append(step)
    return draw(st.permutations(written))


files = st.fixed_dictionaries(
    {"name": names, "steps": steps()},
    optional={
        "env": tables,
        "image": words,
        "workspace": words,
        "fail_fast": st.booleans(),
        "defaults": st.fixed_dictionaries({}, optional=optional_keys),
    },
)


def rule(written: str | int) -> ExitRule:
    if written in pipeline.RETRY_WORDS:
        return ExitRule(word=str(written))
    first, _, last = str(written).partition("-")
    return ExitRule(first=int(first), last=int(last or first))


def expected_needs(file: dict[str, Any], step: dict[str, Any]) -> tuple[Need, ...]:
    sizes = {other["name"]: other.get("array", 1) for other in file["steps"]}
    needs = [need if isinstance(need, dict) else {"step": need} for need in step.get("needs", ())]
    return tuple(Need(n["step"], n.get("each", False) and sizes[n["step"]] > 1) for n in needs)


def expected_fields(file: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    values = {"image": file.get("image"), **file.get("defaults", {}), **step}
    mib = {key: int(values[key].removesuffix("MiB")) for key in ("memory", "shm") if key in values}
    return {
        "name": step["name"],
        "command": step.get("command"),
        "commands": tuple(step["commands"]) if "commands" in step else None,
        "array": step.get("array"),
        "needs": expected_needs(file, step),
        **{key: tuple(step.get(key, ())) for key in ("inputs", "outputs", "checkpoint")},
        "cpus": values.get("cpus", 1),
        "gpus": values.get("gpus", 0),
        "retries": values.get("retries", 0),
        "memory_mib": mib.get("memory", 512),
        "shm_mib": mib.get("shm"),
        "timeout_s": int(values["timeout"].removesuffix("s")) if "timeout" in values else None,
        "expect_s": None,
        "retry_on": tuple(map(rule, values.get("retry_on", ["any"]))),
        "fail_on": tuple(map(rule, values.get("fail_on", []))),
        "share_out": "static",
        "weight": (),
        "keep_going": values.get("keep_going", False),
        **{key: values.get(key) for key in ("image", "max_running", "queue", "share", "priority")},
        "env": {**file.get("env", {}), **step.get("env", {})},
        "secrets": {},
        "log_mode": values.get("log_mode", "blocking"),
        "mounts": tuple(Mount(**mount) for mount in values.get("mounts", ())),
        "ulimits": {name: f"{n}:{n}" for name, n in values.get("ulimits", {}).items()},
        "user": values.get("user"),
    }


def fields(step: pipeline.Step) -> dict[str, Any]:
    return {name: getattr(step, name) for name in pipeline.Step.__dataclass_fields__}


scripts = st.lists(line.map(lambda text: text.replace("${params.", "$")), min_size=2).map("\n".join)


@given(files, st.dictionaries(names, line, max_size=2), scripts)
def test_a_pipeline_prints_as_the_file_that_it_is(
    file: dict[str, Any], params: dict[str, str], script: str
) -> None:
    last = {"name": "z" * 20, "command": script, "array": 2}
    document = {**file, "params": params, "steps": [*file["steps"], last]}
    read = reading.load_text(yaml.safe_dump(document, allow_unicode=True), Path("/"))
    printed = printing.print_pipeline(read)
    again = reading.load_text(printed, Path("/"))
    assert replace(again, warnings=read.warnings) == read
    assert printing.print_pipeline(again) == printed
    assert reading.load_text(printing.print_keys(document), Path("/")).steps == read.steps


def check(text: str, name: str, file: dict[str, Any]) -> Pipeline:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(text.encode())
        loaded = reading.load(path)
    assert [fields(step) for step in loaded.steps] == [
        expected_fields(file, step) for step in file["steps"]
    ]
    assert loaded.name == file["name"]
    assert (loaded.workspace, loaded.fail_fast) == (
        file.get("workspace"),
        file.get("fail_fast", False),
    )
    return loaded


@given(files, st.booleans(), st.booleans())
def test_a_right_file_comes_back_as_it_was_written(
    file: dict[str, Any], flow: bool, wide: bool
) -> None:
    text = yaml.safe_dump(file, default_flow_style=flow, allow_unicode=wide, sort_keys=False)
    loaded = check(text, "p.yaml", file)
    assert [step.name for step in pipeline.sort_by_needs(loaded.steps)]
    jsonschema.Draft202012Validator(SCHEMA).validate(file)


@given(files, st.booleans())
def test_a_right_file_may_be_json(file: dict[str, Any], ascii_only: bool) -> None:
    check(json.dumps(file, ensure_ascii=ascii_only), "p.json", file)


# -- any file ----------------------------------------------------------------------------------

#: pieces that a reader of YAML has to decide something about
pieces = st.sampled_from(
    (
        "name: p|steps:|\n|\r\n|- |  |{|}|[|]|,|: |'|\"|a|b|needs: |command: |commands: |array: |"
        "1|-1|*a|&a |!!str |!x |!!python/object/apply:os.system |<<: |? |---|...|%YAML 1.1|#|\t|>|"
        "\\|x|\\ud800|\\x00|~|yes|1.5|2GiB|${params.x}|env: |defaults: |retry_on: |"
        "commands_file: |list.txt|é|\x85|"
        "\u2028|\x00|\ufeff|@|`"
    ).split("|")
)
anything = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(pieces, max_size=40).map(lambda parts: "".join(parts).encode()),
    st.lists(pieces, max_size=30).map(
        lambda parts: ("name: p\nsteps:\n- " + "".join(parts)).encode()
    ),
)


def lines_in(content: bytes) -> int:
    """As YAML counts them."""
    return len(re.split("\r\n|[\r\n\x85\u2028\u2029]", content.decode("utf-8", "replace")))


@given(anything, st.sampled_from(["p.yaml", "p.json"]))
def test_any_bytes_load_or_have_mistakes_at_lines_of_the_file(content: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            noted = reading.load(path).warnings
        except PipelineFileError as exc:
            noted = exc.mistakes
            assert any(not mistake.is_warning for mistake in noted)
        for mistake in noted:
            assert 0 <= mistake.line <= lines_in(content)
            assert (mistake.line == 0) == (mistake.column == 0)
            assert mistake.problem and "\n" not in str(mistake)


@given(anything)
def test_any_bytes_are_a_list_of_commands_or_have_mistakes(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "list.txt"
        path.write_bytes(content)
        try:
            loaded = plain_lists.load_list(path)
        except PipelineFileError as exc:
            assert all(0 <= mistake.line <= lines_in(content) for mistake in exc.mistakes)
            return
        # What was read can be kept as lines, and read again.
        listed = loaded.steps[0].commands
        assert listed
        path.write_bytes("\n".join(listed).encode())
        assert plain_lists.load_list(path).steps == loaded.steps
