"""Workers without trouble: slices, files, records, numbers, and exit codes of failing commands."""

from __future__ import annotations

import os
import sys
from itertools import chain
from pathlib import Path

import pytest
from emulator_endpoint import Endpoint
from worker_scene import Scene, exit_codes, name_of

from batchyard.images import recipes


def test_every_command_of_a_list_runs_once_and_has_its_record(scene: Scene) -> None:
    commands = [
        f'mkdir -p out && echo "{n} $AWS_BATCH_JOB_ARRAY_INDEX/$ARRAY_SIZE" > out/{n}'
        for n in range(7)
    ]
    job = scene.run(scene.orders(commands, size=3, outputs=["out/**"]), size=3)
    assert job["status"] == "SUCCEEDED"
    assert scene.done() == list(range(7))
    children = [0, 0, 1, 1, 2, 2, 2]
    assert scene.files() == {f"out/{n}": f"{n} {child}/3\n" for n, child in enumerate(children)}


def test_the_log_has_what_the_commands_say_and_nothing_else(scene: Scene) -> None:
    job = scene.run(scene.orders(["echo one", "echo two >&2", "printf 'a\\nb'"]))
    assert scene.logs(job["jobId"]) == ["one", "two", "a", "b"]


@pytest.mark.slow
def test_more_children_than_commands_have_nothing_to_do(scene: Scene) -> None:
    job = scene.run(scene.orders(["echo only > $KEEP/ran"], size=3), size=3)
    assert job["status"] == "SUCCEEDED"
    assert scene.done() == [0]


def test_commands_are_text_as_they_were_written(scene: Scene) -> None:
    commands = [
        "printf '%s' 'ü \"quoted\"' > a",
        "cat > b <<E\ntwo\nlines\nE",
        "echo $((1+2)) | tr 3 4 > c",
    ]
    job = scene.run(scene.orders(commands, outputs=["*"]))
    assert job["status"] == "SUCCEEDED"
    assert scene.files() == {"a": 'ü "quoted"', "b": "two\nlines\n", "c": "4\n"}


@pytest.mark.slow
def test_a_plain_command_runs_in_every_child_and_is_numbered_by_it(scene: Scene) -> None:
    command = (
        'echo "$AWS_BATCH_JOB_ARRAY_INDEX of $AWS_BATCH_JOB_ARRAY_SIZE" '
        "> out-$AWS_BATCH_JOB_ARRAY_INDEX"
    )
    job = scene.run(
        scene.orders(command=command, command_count=3, size=3, outputs=["out-*"]), size=3
    )
    assert job["status"] == "SUCCEEDED"
    assert scene.done() == [0, 1, 2]
    assert scene.files() == {f"out-{n}": f"{n} of 3\n" for n in range(3)}


@pytest.mark.slow
def test_a_compact_array_over_two_jobs_keeps_the_steps_numbers(scene: Scene) -> None:
    commands = [f"echo {n} $AWS_BATCH_JOB_ARRAY_INDEX $ARRAY_SIZE > out-{n}" for n in range(16)]
    address = scene.orders(commands, size=8, indices=[[2, 2], [5, 6]], outputs=["out-*"])
    first = scene.submit(address, size=2)
    # What is left of the array is one child: a plain job, without an index.
    second = scene.submit(address, BATCHYARD_OFFSET="2")
    assert [scene.endpoint.wait(job)["status"] for job in (first, second)] == ["SUCCEEDED"] * 2
    ran = {2: 4, 5: 10, 6: 12}
    assert scene.done() == [4, 5, 10, 11, 12, 13]
    assert scene.files() == {f"out-{n}": f"{n} {c} 8\n" for c, f in ran.items() for n in (f, f + 1)}


def test_what_an_earlier_run_has_finished_is_not_run(scene: Scene) -> None:
    commands = [f"echo {n} >> $KEEP/ran" for n in range(4)]
    job = scene.run(scene.orders(commands, skip=[[0, 1], [3, 3]]))
    assert scene.kept_lines("ran") == ["2"]
    # The output of the others is in the logs of the earlier run.
    assert scene.logs(job["jobId"]) == []


# -- files -----------------------------------------------------------------------------------------


def test_inputs_are_fetched_by_their_patterns_under_their_own_paths(scene: Scene) -> None:
    wanted = ["raw/a.bin", "raw/deep/er/b ü.bin", "flat/1.tif", "one", "folder/x", "folder/y/z"]
    unwanted = ["raws/a", "flat/1.png", "flat/deep/1.tif", "one.more", "other/a"]
    for name in chain(wanted, unwanted):
        scene.put(f"ws/{name}", name.encode())
    scene.put("ws/raw/", b"")  # how consoles make folders
    globs = ["raw/**", "flat/*.tif", "one", "folder"]
    command = "find . -type f | sort > $KEEP/found; cat one raw/deep/er/* > $KEEP/read"
    job = scene.run(scene.orders(command=command, inputs=globs))
    assert job["status"] == "SUCCEEDED", scene.logs(job["jobId"])
    assert scene.kept_lines("found") == sorted((f"./{name}" for name in wanted), key=os.fsencode)
    assert scene.kept_lines("read") == ["oneraw/deep/er/b ü.bin"]


@pytest.mark.slow
def test_large_files_go_both_ways_in_parts_and_stay_as_they_are(scene: Scene) -> None:
    data = os.urandom(40 * 1024 * 1024 + 17)
    scene.put("ws/in/large", data)
    scene.put("ws/in/empty", b"")
    command = (
        "mkdir out && cp in/large out/copy && cp in/empty out/ && ls -a in | wc -l > $KEEP/count"
    )
    job = scene.run(scene.orders(command=command, inputs=["in/*"], outputs=["out/**"]))
    assert job["status"] == "SUCCEEDED"
    assert scene.get("ws/out/copy") == data
    assert scene.get("ws/out/empty") == b""
    assert scene.s3.head_object(Bucket="yard", Key=f"{scene.root}ws/out/copy")["ETag"].endswith(
        '-3"'
    )
    assert scene.kept_lines("count") == ["4"]  # ., .., and no part left behind


def test_only_what_a_command_wrote_is_given_back(scene: Scene) -> None:
    for name in ("data/kept", "data/changed", "data/replaced"):
        scene.put(f"ws/{name}", b"old.")
    # S3 changes while the command runs: an upload of the unchanged file would undo that.
    commands = [
        "printf new. > data/changed; touch -d 2001-01-01 data/changed; "
        "echo 1 > data/made; touch $KEEP/ready; "
        "while [ ! -e $KEEP/go ]; do sleep 0.1; done",
        "echo 2 > data/second",
    ]
    job_id = scene.submit(scene.orders(commands, inputs=["data/**"], outputs=["data/**"]))
    while not (scene.folder / "ready").exists():
        assert scene.endpoint.job(job_id)["status"] not in ("SUCCEEDED", "FAILED"), scene.logs(
            job_id
        )
    scene.put("ws/data/kept", b"from elsewhere")
    (scene.folder / "go").touch()
    assert scene.endpoint.wait(job_id)["status"] == "SUCCEEDED"
    assert scene.files() == {
        "data/kept": "from elsewhere",
        "data/changed": "new.",
        "data/replaced": "old.",
        "data/made": "1\n",
        "data/second": "2\n",
    }


def test_what_a_failed_command_left_is_not_given_back_with_the_next_ones(scene: Scene) -> None:
    commands = ["echo half > out-0; exit 3", "echo whole > out-1"]
    job = scene.run(scene.orders(commands, outputs=["out-*"], keep_going=True))
    assert job["container"]["exitCode"] == 3
    assert scene.files() == {"out-1": "whole\n"}
    assert scene.done() == [1]


def test_outputs_are_files_and_links_to_them(scene: Scene) -> None:
    links = "ln -s ../sub/x out/link && ln -s ../sub out/folder && ln -s no out/dead"
    command = f"mkdir out sub && echo x > sub/x && {links} && mkfifo out/pipe"
    job = scene.run(scene.orders(command=command, outputs=["out", "sub/x", "nothing/**"]))
    assert job["status"] == "SUCCEEDED", scene.logs(job["jobId"])
    assert scene.files() == {"out/link": "x\n", "sub/x": "x\n"}


def test_a_key_that_would_leave_the_folder_is_refused(scene: Scene) -> None:
    scene.put("ws/in/fine", b"fine")
    scene.put("ws/in/../../../evil", b"evil")
    work = scene.folder / "a/b/work"
    job = scene.run(
        scene.orders(command="touch $KEEP/ran", inputs=["in/**"]), BATCHYARD_WORKDIR=str(work)
    )
    assert job["container"]["exitCode"] == 76
    assert "'in/../../../evil'" in scene.logs(job["jobId"])[-1]
    assert [path.name for path in scene.folder.rglob("*") if path.is_file()] == []


def test_a_file_and_a_folder_of_one_name_are_told(scene: Scene) -> None:
    scene.put("ws/in/a", b"file")
    scene.put("ws/in/a/b", b"below it")
    job = scene.run(scene.orders(command="true", inputs=["in/**"]))
    assert job["container"]["exitCode"] == 76
    assert "in/a" in scene.logs(job["jobId"])[-1]


def test_a_name_that_s3_cannot_have_is_told(scene: Scene) -> None:
    job = scene.run(scene.orders(command="touch \"$(printf 'out-\\377')\"", outputs=["out-*"]))
    assert job["container"]["exitCode"] == 76
    assert "UTF-8" in scene.logs(job["jobId"])[-1]


def test_an_input_that_matches_nothing_is_said_and_the_command_runs(scene: Scene) -> None:
    job = scene.run(scene.orders(command="echo ran", inputs=["raw/**"]))
    said = scene.logs(job["jobId"])
    assert said[0].startswith(
        "batchyard-worker: no object matches the input raw/** below s3://yard/"
    )
    assert said[1:] == ["ran"]


def test_a_folder_of_ones_own_is_used_and_stays(scene: Scene) -> None:
    work = scene.folder / "work"
    job = scene.run(
        scene.orders(command='echo "$BATCHYARD_WORKSPACE $PWD" > said'), BATCHYARD_WORKDIR=str(work)
    )
    assert job["status"] == "SUCCEEDED"
    assert (work / "said").read_text() == f"{work} {work}\n"


# -- failures --------------------------------------------------------------------------------------


def test_the_first_failure_is_the_exit_code_and_the_rest_is_left(scene: Scene) -> None:
    commands = ["true", "exit 4", "echo never > $KEEP/ran"]
    job = scene.run(scene.orders(commands))
    assert (job["status"], job["container"]["exitCode"]) == ("FAILED", 4)
    assert scene.done() == [0]
    assert scene.kept_lines("ran") == []
    assert [(one["command"], one["exit_code"], one["attempt"]) for one in scene.failures()] == [
        (1, 4, 1)
    ]


def test_keep_going_runs_the_rest_and_has_the_first_failures_code(scene: Scene) -> None:
    commands = ["exit 4", "true", "exit 5", "true"]
    job = scene.run(scene.orders(commands, keep_going=True))
    assert (job["status"], job["container"]["exitCode"]) == ("FAILED", 4)
    assert scene.done() == [1, 3]


def test_another_attempt_skips_what_has_succeeded(scene: Scene) -> None:
    commands = [f"echo {n} >> $KEEP/ran" for n in range(5)]
    commands[2] += '; [ "$AWS_BATCH_JOB_ATTEMPT" = 2 ]'
    job = scene.run(scene.orders(commands, retries=1, attempts=2), attempts=2)
    assert job["status"] == "SUCCEEDED"
    assert exit_codes(job) == [75, 0]
    assert scene.kept_lines("ran") == ["0", "1", "2", "2", "3", "4"]
    assert scene.done() == list(range(5))
    (line,) = (line for line in scene.logs(job["jobId"]) if "earlier" in line)
    assert line.startswith("batchyard-worker: commands 0-1 succeeded earlier and are not run again")


def test_a_child_has_use_only_for_its_own_records(scene: Scene) -> None:
    for n in (0, 1, 3, 5):
        scene.put(f"done/s/{n:07d}", b"{}")
    commands = [f"echo {n} >> $KEEP/ran-{n}" for n in range(6)]
    job = scene.run(scene.orders(commands, size=3), size=3)
    assert job["status"] == "SUCCEEDED"
    assert sorted(path.name for path in scene.folder.iterdir()) == ["ran-2", "ran-4"]


def test_retries_are_counted_apart_from_the_attempts_that_reclaims_need(scene: Scene) -> None:
    job = scene.run(
        scene.orders(["echo x >> $KEEP/ran; exit 9"], retries=1, attempts=5), attempts=5
    )
    assert exit_codes(job) == [75, 9]
    assert [one["exit_code"] for one in scene.failures()] == [9, 9]


@pytest.mark.parametrize(
    ("rules", "code", "codes"),
    [
        ({"fail_on": ["2"]}, 2, [2]),
        ({"fail_on": ["2"]}, 3, [75, 3]),
        ({"retry_on": ["64-78"]}, 64, [75, 64]),
        ({"retry_on": ["spot"]}, 75, [1]),
        ({"retry_on": ["75"]}, 75, [75, 75]),
    ],
)
def test_the_rules_decide(
    scene: Scene, rules: dict[str, list[str]], code: int, codes: list[int]
) -> None:
    job = scene.run(
        scene.orders(command=f"exit {code}", retries=1, attempts=2, **rules), attempts=2
    )
    assert exit_codes(job) == codes
    if codes == [1]:
        assert "ended with exit code 75, and no rule retries it" in scene.logs(job["jobId"])[-1]


def test_the_launcher_of_an_image_leaves_the_environment_of_commands_alone(
    worker_endpoint: Endpoint, tmp_path: Path
) -> None:
    recipes.write(tmp_path / "image", ("cpu",))
    launcher = tmp_path / "image" / "batchyard-worker" / "batchyard-worker"
    keep = tmp_path / "keep"
    keep.mkdir()
    scene = Scene(worker_endpoint, keep, name_of("launcher"), worker=(str(launcher),))
    command = "echo [$PYTHONPATH] [$FOLDER] > $KEEP/seen"
    job = scene.run(
        scene.orders([command]), BATCHYARD_PYTHON=sys.executable, PYTHONPATH="mine", FOLDER="f"
    )
    assert job["status"] == "SUCCEEDED", scene.logs(job["jobId"])
    assert scene.kept_lines("seen") == ["[mine] [f]"]
