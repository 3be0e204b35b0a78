"""The command: files in, words or JSON out, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from batchyard.cli.doctor import command
from batchyard.doctor import facts_json
from batchyard.doctor.facts import Environment, Facts, Job, Subject
from batchyard.doctor.host.facts import HostFacts
from batchyard.doctor.kinds import BY_ID
from batchyard.doctor.pages import read_page
from batchyard.errors import InputError, OperationalError

NOW = 1_700_000_000_000


def run(*args: str, stdin: bytes | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(command, args, input=stdin, standalone_mode=False)
    if result.exception:
        raise result.exception
    code: Any = result.return_value
    return code, result.output


def test_sick_user_data_exits_1_with_the_line(tmp_path: Path) -> None:
    file = tmp_path / "boot.sh"
    file.write_text("#!/bin/bash\nsystemctl start ecs\n")
    code, text = run("userdata", str(file), "--for", "ecs")
    assert code == 1
    assert (
        f"at {file}:2" in text and "BY101 error:" in text and "see docs/findings/BY101.md" in text
    )


def test_healthy_user_data_exits_0() -> None:
    code, text = run(
        "userdata",
        "-",
        "--for",
        "ecs",
        stdin=b"#!/bin/bash\necho ECS_CLUSTER=a >> /etc/ecs/ecs.config\n",
    )
    assert code == 0
    assert "no findings" in text


def test_json_is_json() -> None:
    code, text = run("userdata", "-", "--json", stdin=b"#!/bin/bash\n")
    assert code == 1
    assert [finding["id"] for finding in json.loads(text)["findings"]] == ["BY103"]


def test_all_lists_what_is_right() -> None:
    _, text = run("userdata", "-", "--all", stdin=b"#!/bin/bash\n")
    assert "BY104 the user data is at most 16 KiB" in text


@pytest.mark.parametrize("content", ["", " \n\n"])
def test_user_data_that_is_empty_is_not_called_right(content: str, tmp_path: Path) -> None:
    file = tmp_path / "boot.sh"
    file.write_text(content)
    with pytest.raises(InputError) as caught:
        run("userdata", str(file))
    assert f"{file} is empty" in caught.value.message and caught.value.exit_code == 2


def test_a_template_is_examined(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text("Resources:\n  A:\n    Type: AWS::EC2::SpotFleet\n")
    code, text = run("template", str(file))
    assert code == 1 and f"{file}:2 (A)" in text


@pytest.mark.parametrize("name", ["userdata", "template", "judge"])
def test_a_file_that_is_not_there_is_bad_input(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        run(name, str(tmp_path / "nowhere"))
    assert "cannot read" in caught.value.message and caught.value.exit_code == 2


def saved_job(folder: Path) -> Path:
    environment = Environment("gpu-123456789012", state="DISABLED", max_vcpus=8)
    facts = Facts(
        Subject("job", "j"), NOW, Job("j", "RUNNABLE", since_ms=NOW), environments=(environment,)
    )
    file = folder / "facts.json"
    file.write_text(facts_json.dump(facts))
    return file


def test_saved_facts_are_judged_elsewhere(tmp_path: Path) -> None:
    code, text = run("judge", str(saved_job(tmp_path)))
    assert code == 1 and "BY004" in text


def test_facts_are_saved_masked(tmp_path: Path) -> None:
    environment = Environment(
        "e", status="INVALID", status_reason="arn:aws:iam::123456789012:role/x"
    )
    file, masked = tmp_path / "a.json", tmp_path / "b.json"
    file.write_text(facts_json.dump(Facts(Subject("env", "e"), NOW, environments=(environment,))))
    run("judge", str(file), "--save", str(masked))
    assert "123456789012" not in masked.read_text()
    assert run("judge", str(masked))[1] == run("judge", str(file))[1].replace(
        "123456789012", "000000000001"
    )


def run_refused(*args: str) -> tuple[InputError, str]:
    result = CliRunner().invoke(command, args, standalone_mode=False)
    assert isinstance(result.exception, InputError)
    return result.exception, result.output


def test_facts_that_cannot_be_written_cost_the_file_and_not_the_answer(tmp_path: Path) -> None:
    host = tmp_path / "host.json"
    host.write_text(facts_json.dump(HostFacts(NOW, "n", is_clock_synchronized=False)))
    job = str(saved_job(tmp_path))
    nowhere = str(tmp_path / "no" / "facts.json")
    for args, finding in (
        (("judge", job), "BY004"),
        (("queue", "--from", job), "BY004"),
        (("host", "--from", str(host)), "BY313"),
    ):
        error, text = run_refused(*args, "--save", nowhere)
        assert finding in text
        assert error.exit_code == 2 and f"could not write the facts to {nowhere}" in error.message
        assert "--save" in error.hint and "--home" not in error.hint


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_where_the_disk_is_full_nothing_is_said_about_runs(tmp_path: Path) -> None:
    error, text = run_refused("judge", str(saved_job(tmp_path)), "--save", "/dev/full")
    assert "BY004" in text and error.exit_code == 2
    assert "free some space" in error.hint and "resume" not in error.hint


def test_the_dwell_time_is_a_flag(tmp_path: Path) -> None:
    environment = Environment("e", strategy="BEST_FIT_PROGRESSIVE", max_vcpus=4, desired_vcpus=4)
    facts = Facts(
        Subject("job", "j"),
        NOW,
        Job("j", "RUNNABLE", since_ms=NOW - 300_000),
        environments=(environment,),
    )
    file = tmp_path / "f.json"
    file.write_text(facts_json.dump(facts))
    assert "BY013" in run("judge", str(file), "--dwell", "1m")[1]
    assert "BY013" not in run("judge", str(file))[1]


def test_a_hosts_facts_are_judged_by_both_commands(tmp_path: Path) -> None:
    file = tmp_path / "host.json"
    file.write_text(facts_json.dump(HostFacts(NOW, "n", is_clock_synchronized=False)))
    assert run("host", "--from", str(file)) == run("judge", str(file))
    assert "BY313" in run("judge", str(file))[1]


def test_host_refuses_the_facts_of_a_job(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no facts of a host"):
        run("host", "--from", str(saved_job(tmp_path)))


@pytest.mark.parametrize("name", ["BY042", "by042", "42", "BY42"])
def test_a_finding_is_explained_by_its_page(name: str) -> None:
    code, text = run("explain", name)
    assert code == 0 and text.startswith("# BY042: ") and "## What to do" in text


def test_without_a_finding_all_are_listed() -> None:
    _, text = run("explain")
    header, *lines = text.splitlines()
    assert header == "finding, severity, what is true when the check passes"
    assert [line.split()[0] for line in lines] == list(BY_ID)


@pytest.mark.parametrize("name", ["BY999", "nothing", "BY0420", "../42"])
def test_a_finding_that_is_not_there_is_bad_input(name: str) -> None:
    with pytest.raises(InputError, match="no finding"):
        run("explain", name)


def test_pages_that_are_missing_are_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(OperationalError, match="BY042 is not installed"):
        read_page("BY042", (tmp_path,))
    (tmp_path / "BY042.md").write_text("the page")
    assert read_page("BY042", (tmp_path / "nowhere", tmp_path)) == "the page"


def test_a_host_can_be_saved_and_judged_again(tmp_path: Path) -> None:
    saved = tmp_path / "host.json"
    code, text = run("host", "--save", str(saved), "--all")
    assert run("host", "--from", str(saved), "--all") == (code, text)
