"""Names of a run's objects in S3; no other module makes them. Pure. The worker uses it too.

<prefix>runs/<run>/run.json             the record of the run: plan and target; written once
                   skip.json            commands that the retried run has finished
                   inputs.json          input files of the steps, by their content
                   inputs/<step>.jsonl  input files of a step with many, one a line, sorted by path
                   lists/<step>.txt     commands of the step, one a line
                   lists/<step>.idx     where each command begins in the list, as 64-bit numbers
                   lists/<step>.order.*  the same in dispatch order, of a dynamic step, and where
                                        lengths are known (.num) the numbers of the commands
                   steps/<step>.json    orders of the step, which the worker reads; written last
                   jobs.json            ids of the submitted jobs
                   done/<step>/<command>               success record of a command, written last
                   done/<step>/failures/<child>.json   failures of a child in earlier attempts
                   blocks/<step>/<number>              lease and records of a block of commands
                   blocks/<step>/scale.json            children that `scale` has added, or dismissed
                   checkpoint/<step>/<child>/<time>-<attempt>/...   files of a checkpoint
                   checkpoint/<step>/<child>/<time>-<attempt>.json  says that it is complete
                   workspace/...        files that the steps share, unless they are elsewhere
                   stopped.json         reason of the request to stop the run
                   held.json            why no further child starts: the cap of the run
                   waited.json          steps that waited too long for spot instances
                   fallback.json        the run in which children go on, on demand; written once
                   final.json           end states of the jobs, which AWS forgets
                   failures.json        the first failed attempts of a run that is over
                   usage.json           hosts and attempts on them, which AWS forgets; prices
             .caps/<run>.json       the cap of a run that is not over, for the function on AWS
             .files/<pipeline>/<sha256>   content of input files, shared by runs; written once
"""

from __future__ import annotations

import time

RUN_RECORD = "run.json"
JOB_IDS = "jobs.json"
FINAL_STATES = "final.json"
FAILURES = "failures.json"
USAGE = "usage.json"
STOP_REQUEST = "stopped.json"
HELD = "held.json"
WAITED_STEPS = "waited.json"
FALLBACK = "fallback.json"
SKIPPED_COMMANDS = "skip.json"
INPUT_FILES = "inputs.json"
#: below the blocks of a step, after the numbers of all blocks in the order of keys
SCALE = "scale.json"

#: folders among the runs; the id of a run begins with a letter
_CONTENT = ".files/"
_CAPS = ".caps/"

#: digits in the names of records, so that the order of keys is the order of numbers
_DIGITS = 7
#: commands of a step that have names of that length
MAX_COMMANDS = 10**_DIGITS
_CHECKPOINT_MARKER = ".json"


# -- addresses, from the bucket and the run --------------------------------------------------------


def runs_address(bucket: str, prefix: str) -> str:
    """Return the s3:// address of all runs. ``prefix`` is empty or ends with a slash."""
    return f"s3://{bucket}/{prefix}runs/"


def run_address(bucket: str, prefix: str, run_id: str) -> str:
    """Return the s3:// address of a run: everything below it belongs to the run."""
    return f"{runs_address(bucket, prefix)}{run_id}/"


def is_run(name: str) -> bool:
    """Return whether a folder among the runs is a run."""
    return not name.startswith(".")


def content_address(bucket: str, prefix: str, pipeline: str) -> str:
    """Return the s3:// address of the content of a pipeline's input files.

    The name of an object is the SHA-256 of its content. It is among the runs so that rights and
    lifecycle rules for runs are valid for it.
    """
    return f"{runs_address(bucket, prefix)}{_CONTENT}{pipeline}/"


def cap_address(bucket: str, prefix: str, run_id: str) -> str:
    """Return the address of the object about a run's cap, which the function on AWS looks for."""
    return f"{runs_address(bucket, prefix)}{_CAPS}{run_id}.json"


def workspace_address(run: str) -> str:
    """Return the address of the run's workspace. ``run``: the run's address, here and below."""
    return f"{run}workspace/"


def list_address(run: str, step: str) -> str:
    return f"{run}lists/{step}.txt"


def list_index_address(run: str, step: str) -> str:
    return f"{run}lists/{step}.idx"


def ordered_list_address(run: str, step: str) -> str:
    """Return the address of a dynamic step's list in dispatch order, without what is skipped."""
    return f"{run}lists/{step}.order.txt"


def ordered_list_index_address(run: str, step: str) -> str:
    return f"{run}lists/{step}.order.idx"


def ordered_numbers_address(run: str, step: str) -> str:
    """Return the address of the numbers of the commands in dispatch order, as 64-bit numbers."""
    return f"{run}lists/{step}.order.num"


def input_list_address(run: str, step: str) -> str:
    return f"{run}inputs/{step}.jsonl"


def orders_address(run: str, step: str) -> str:
    return f"{all_orders_address(run)}{step}.json"


def all_orders_address(run: str) -> str:
    return f"{run}steps/"


def step_of_orders(key: str) -> str:
    """Return the step whose orders have this key."""
    return key.rpartition("/")[2].removesuffix(".json")


def all_records_address(run: str) -> str:
    return f"{run}done/"


def records_address(run: str, step: str) -> str:
    """Return the address of a step's success records."""
    return f"{all_records_address(run)}{step}/"


def blocks_address(run: str, step: str) -> str:
    """Return the address of the blocks of a dynamic step."""
    return f"{run}blocks/{step}/"


def scale_address(run: str, step: str) -> str:
    """Return the address of what `scale` has set for a dynamic step."""
    return f"{blocks_address(run, step)}{SCALE}"


def checkpoints_address(run: str, step: str) -> str:
    return f"{run}checkpoint/{step}/"


# -- names below a step's address ------------------------------------------------------------------


def success_record(command: int) -> str:
    """Return the name of a command's success record below the records of its step."""
    return f"{command:0{_DIGITS}d}"


def command_of_record(key: str) -> int | None:
    """Return the number of the command whose success record has this key; None for other keys."""
    name = key.rpartition("/")[2]
    return int(name) if name.isdigit() else None


def block_name(number: int) -> str:
    """Return the name of a block's object below the blocks of its step."""
    return f"{number:0{_DIGITS}d}"


def block_of_key(key: str) -> int | None:
    """Return the number of the block whose object has this key; None for other keys."""
    name = key.rpartition("/")[2]
    return int(name) if name.isdigit() else None


def is_scale(key: str) -> bool:
    """Return whether a key below the blocks of a step is that of its scale."""
    return key.endswith(f"/{SCALE}")


def failures_record(child: int) -> str:
    """Return the name of a child's failures below the records of its step.

    The name sorts after all success records, so that a reader of these can stop at the first one.
    """
    return f"failures/{child:0{_DIGITS}d}.json"


def checkpoints_of(child: int) -> str:
    """Return the name of the folder of a child's checkpoints below the checkpoints of its step."""
    return f"{child}/"


def checkpoint_name(saved_at_s: float, attempt: int) -> str:
    """Return the name of a checkpoint among its child's. Names sort by the time they were saved."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(saved_at_s))}-{attempt:02d}"


def checkpoint_files(checkpoint: str) -> str:
    """Return the folder of the checkpoint's files."""
    return f"{checkpoint}/"


def checkpoint_marker(checkpoint: str) -> str:
    """Return the name of the object that marks the checkpoint as complete."""
    return f"{checkpoint}{_CHECKPOINT_MARKER}"


def newest_checkpoint(keys: list[str]) -> str | None:
    """Return the key of the newest complete checkpoint, without its ending; None without any."""
    complete = [key for key in keys if key.endswith(_CHECKPOINT_MARKER)]
    return max(complete).removesuffix(_CHECKPOINT_MARKER) if complete else None
