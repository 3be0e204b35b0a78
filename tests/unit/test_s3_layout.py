"""The names of a run's objects in S3. Earlier versions made runs with them: they never change."""

from __future__ import annotations

from batchyard import s3_layout

RUN = s3_layout.run_address("bucket", "team/", "demo-20260101-abcdef")


def test_a_run_is_below_the_runs_of_its_bucket_and_prefix() -> None:
    assert RUN == "s3://bucket/team/runs/demo-20260101-abcdef/"
    assert s3_layout.runs_address("bucket", "") == "s3://bucket/runs/"


def test_files_of_a_run() -> None:
    assert s3_layout.RUN_RECORD == "run.json"
    assert s3_layout.JOB_IDS == "jobs.json"
    assert s3_layout.FINAL_STATES == "final.json"
    assert s3_layout.STOP_REQUEST == "stopped.json"
    assert s3_layout.SKIPPED_COMMANDS == "skip.json"
    assert s3_layout.workspace_address(RUN) == f"{RUN}workspace/"


def test_objects_of_a_step() -> None:
    assert s3_layout.list_address(RUN, "a") == f"{RUN}lists/a.txt"
    assert s3_layout.list_index_address(RUN, "a") == f"{RUN}lists/a.idx"
    assert s3_layout.orders_address(RUN, "a") == f"{RUN}steps/a.json"
    assert s3_layout.all_orders_address(RUN) == f"{RUN}steps/"
    assert s3_layout.records_address(RUN, "a") == f"{RUN}done/a/"
    assert s3_layout.all_records_address(RUN) == f"{RUN}done/"
    assert s3_layout.checkpoints_address(RUN, "a") == f"{RUN}checkpoint/a/"


def test_a_step_is_read_back_from_the_key_of_its_orders() -> None:
    assert s3_layout.step_of_orders("team/runs/r/steps/a.json") == "a"


def test_records_sort_by_number_and_before_the_failures() -> None:
    records = [s3_layout.success_record(command) for command in (0, 9, 10, 9_999_999)]
    assert records == ["0000000", "0000009", "0000010", "9999999"]
    assert s3_layout.failures_record(3) == "failures/0000003.json"
    assert sorted(records) == records
    assert max(records) < s3_layout.failures_record(0)
    assert len(s3_layout.success_record(s3_layout.MAX_COMMANDS - 1)) == len(records[0])


def test_a_command_is_read_back_from_the_key_of_its_record() -> None:
    assert s3_layout.command_of_record("runs/r/done/a/0000012") == 12
    assert s3_layout.command_of_record("runs/r/done/a/failures/0000003.json") is None


def test_the_newest_complete_checkpoint_is_found() -> None:
    older, newer = s3_layout.checkpoint_name(0, 2), s3_layout.checkpoint_name(86_400, 1)
    assert (older, newer) == ("19700101T000000Z-02", "19700102T000000Z-01")
    assert s3_layout.checkpoints_of(7) == "7/"
    assert s3_layout.checkpoint_files(newer) == f"{newer}/"
    assert s3_layout.checkpoint_marker(older) == f"{older}.json"
    keys = [f"p/7/{newer}/file", f"p/7/{older}.json"]  # the upload of the newer one was cut short
    assert s3_layout.newest_checkpoint(keys) == f"p/7/{older}"
    assert s3_layout.newest_checkpoint([*keys, f"p/7/{newer}.json"]) == f"p/7/{newer}"
    assert s3_layout.newest_checkpoint(keys[:1]) is None
