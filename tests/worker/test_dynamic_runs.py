"""Workers of a dynamic step: they claim blocks, retry commands, and take over from each other."""

from __future__ import annotations

import signal
import struct
import subprocess

import pytest
from emulator_endpoint import until
from worker_scene import BUCKET, Scene, exit_codes

from batchyard.worker.errors import EXIT_RETRY
from batchyard.worker.leases import BlockState

Worker = subprocess.Popen[str]
#: runs until the file exists that frees it
GATE = "touch $KEEP/began; while [ ! -e $KEEP/go ]; do sleep 0.1; done; echo {} >> $KEEP/ran"


def lines(scene: Scene) -> list[int]:
    return sorted(map(int, scene.kept_lines("ran")))


def finish(worker: Worker, within_s: float = 120) -> tuple[int, str]:
    _, said = worker.communicate(timeout=within_s)
    return worker.returncode, said


def start(scene: Scene, address: str, child: int, attempt: int = 1, **environ: str) -> Worker:
    return scene.direct(
        address,
        AWS_BATCH_JOB_ARRAY_INDEX=str(child),
        AWS_BATCH_JOB_ID=f"job:{child}",
        AWS_BATCH_JOB_ATTEMPT=str(attempt),
        **environ,
    )


@pytest.mark.parametrize("inline", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_children_of_a_job_run_every_command_once(scene: Scene, inline: bool) -> None:
    commands = [f"echo {number} >> $KEEP/ran" for number in range(40)]
    job = scene.run(scene.dynamic_orders(commands, 3, inline=inline), size=3)
    assert job["status"] == "SUCCEEDED"
    assert lines(scene) == list(range(40))
    records = scene.block_records()
    assert sorted(records) == list(range(40))
    assert {(record.exit_code, record.attempts) for record in records.values()} == {(0, 1)}
    assert all(record.max_rss_kib > 0 and record.started_ms > 0 for record in records.values())
    assert {lease.state for lease in scene.blocks()} == {BlockState.COMPLETE}


def test_the_numbers_of_many_commands_are_read_block_by_block(scene: Scene) -> None:
    order = [3, 0, 2, 1]
    ordered = [f"echo {number} >> $KEEP/ran" for number in order]
    scene.put("lists/s.num", struct.pack("<4Q", *order))
    address = scene.orders(
        ordered,
        format=3,
        order_numbers=f"s3://{BUCKET}/{scene.root}lists/s.num",
        block_bounds=[0, 1, 4],
        blocks=f"s3://{BUCKET}/{scene.root}blocks/s/",
    )
    assert finish(start(scene, address, 0))[0] == 0
    assert scene.kept_lines("ran") == ["3", "0", "2", "1"]
    assert sorted(scene.block_records()) == [0, 1, 2, 3]


def test_skipped_commands_do_not_run(scene: Scene) -> None:
    commands = [f"echo {number} >> $KEEP/ran" for number in range(10)]
    job = scene.run(scene.dynamic_orders(commands, 2, skip=((0, 3), (6, 6))), size=2)
    assert job["status"] == "SUCCEEDED"
    assert lines(scene) == [4, 5, 7, 8, 9]


def test_a_failed_command_is_retried_by_the_worker_and_the_others_go_on(scene: Scene) -> None:
    commands = [f"echo {number} >> $KEEP/ran" for number in range(8)]
    commands[2] += "; exit 7"
    commands[5] += "; [ $(grep -c 5 $KEEP/ran) = 2 ]"
    address = scene.dynamic_orders(commands, 1, retries=1, attempts=10, outputs=["*.txt"])
    job = scene.run(address, attempts=10)
    assert (job["status"], exit_codes(job)) == ("FAILED", [7])
    assert lines(scene) == [0, 1, 2, 2, 3, 4, 5, 5, 6, 7]
    records = scene.block_records()
    assert (records[2].exit_code, records[2].attempts) == (7, 2)
    assert (records[5].exit_code, records[5].attempts) == (0, 2)
    assert [lease.state for lease in scene.blocks()].count(BlockState.FAILED) == 1
    assert any("command 2 ended with exit code 7" in line for line in scene.logs(job["jobId"]))


@pytest.mark.parametrize("code", [EXIT_RETRY, 137])
def test_a_final_failure_never_asks_for_another_attempt(scene: Scene, code: int) -> None:
    address = scene.dynamic_orders([f"exit {code}"], 1, attempts=10)
    worker = start(scene, address, 0)
    assert finish(worker)[0] == 1
    assert scene.block_records()[0].exit_code == code


def test_the_next_attempt_of_a_failed_child_fails_too(scene: Scene) -> None:
    address = scene.dynamic_orders(["true", "exit 9"], 1, attempts=10)
    assert finish(start(scene, address, 0))[0] == 9
    # The worker was killed, say, before AWS Batch saw its exit code.
    assert finish(start(scene, address, 0, attempt=2))[0] == 9


def test_a_command_that_takes_too_long_fails_for_good(scene: Scene) -> None:
    commands = ["exec sleep 600", "echo 1 >> $KEEP/ran"]
    address = scene.dynamic_orders(commands, 1, retries=3, timeout_s=3)
    assert finish(start(scene, address, 0))[0] == 124
    records = scene.block_records()
    assert (records[0].exit_code, records[0].attempts) == (124, 1)
    assert records[1].exit_code == 0


def test_a_stopped_worker_releases_its_block_and_another_goes_on(scene: Scene) -> None:
    commands = ["echo 0 >> $KEEP/ran", GATE.format(1)]
    address = scene.dynamic_orders(commands, 2, block_bounds=[0, 2], order=[0, 1])
    first = start(scene, address, 0)
    until((scene.folder / "began").exists, bool)
    first.send_signal(signal.SIGTERM)
    code, said = finish(first)
    assert (code, "SIGTERM" in said) == (EXIT_RETRY, True)
    (lease,) = scene.blocks()
    assert lease.state is BlockState.RELEASED
    assert [record.command for record in lease.records] == [0]
    (scene.folder / "go").touch()
    assert finish(start(scene, address, 1))[0] == 0
    assert lines(scene) == [0, 1]
    (lease,) = scene.blocks()
    assert [owner.child for owner in lease.owners] == [0, 1]
    assert [record.epoch for record in lease.records] == [1, 2]


def test_the_next_attempt_of_a_killed_worker_goes_on_at_once(scene: Scene) -> None:
    address = scene.dynamic_orders([GATE.format(0)], 2)
    first = start(scene, address, 0)
    until((scene.folder / "began").exists, bool)
    first.kill()
    first.wait()
    # Its lease has not expired, so another child leaves the block alone.
    assert finish(start(scene, address, 1))[0] == 0
    assert [lease.epoch for lease in scene.blocks()] == [1]
    (scene.folder / "go").touch()
    finish(first)  # now its command ends, too
    assert finish(start(scene, address, 0, attempt=2))[0] == 0
    (lease,) = scene.blocks()
    assert (lease.epoch, lease.state) == (2, BlockState.COMPLETE)


def test_a_worker_that_slept_beyond_its_lease_drops_its_block(scene: Scene) -> None:
    address = scene.dynamic_orders([GATE.format(0)], 2)
    first = start(scene, address, 0, BATCHYARD_LEASE_S="2")
    until((scene.folder / "began").exists, bool)
    first.send_signal(signal.SIGSTOP)
    (scene.folder / "go").touch()

    def run_second() -> int:
        assert finish(start(scene, address, 1, BATCHYARD_LEASE_S="2"))[0] == 0
        return scene.blocks()[0].epoch

    # The second worker does not wait, so it is started until the lease has expired.
    assert until(run_second, lambda epoch: epoch == 2) == 2
    first.send_signal(signal.SIGCONT)
    code, said = finish(first)
    assert (code, "another worker has taken block 0" in said) == (0, True)
    (lease,) = scene.blocks()
    assert lease.state is BlockState.COMPLETE
    assert [record.epoch for record in lease.records] == [2]


def test_a_lease_is_renewed_while_a_command_runs(scene: Scene) -> None:
    address = scene.dynamic_orders([GATE.format(0)], 2)
    first = start(scene, address, 0, BATCHYARD_LEASE_S="1")
    until(lambda: scene.blocks()[0].writes if scene.names("blocks/s/") else 0, lambda n: n > 3)
    (scene.folder / "go").touch()
    assert finish(first)[0] == 0
    assert scene.blocks()[0].state is BlockState.COMPLETE


@pytest.mark.slow
def test_a_command_that_kills_workers_fails_after_three_of_them(scene: Scene) -> None:
    kill = "kill -9 $PPID"
    commands = [kill, *(f"echo {number} >> $KEEP/ran" for number in range(1, 4))]
    address = scene.dynamic_orders(
        commands, 1, attempts=10, block_bounds=[0, 4], order=[1, 0, 2, 3]
    )
    codes = [finish(start(scene, address, 0, attempt))[0] for attempt in range(1, 5)]
    assert codes == [-9, -9, -9, 1]
    assert scene.block_records()[0].exit_code == 137
    # The first worker ended before it had renewed its lease: command 1 ran twice.
    assert sorted(set(lines(scene))) == [1, 2, 3]
