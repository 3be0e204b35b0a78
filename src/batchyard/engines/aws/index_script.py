"""Shell code that sets a child's number in its step, for commands in images without the worker."""

from __future__ import annotations

from collections.abc import Sequence

from batchyard.plan import PlannedJob, to_ranges

#: Sets AWS_BATCH_JOB_ARRAY_INDEX to the number at position by_n (from 0) of the list that the words
#: after `in` encode, beginning with by_i. See ``encode_gaps`` for the words.
_FIND_INDEX = (
    "do case $by_g in *+*) by_c=${by_g#*+};; *) by_c=0;; esac; "
    "by_i=$((by_i + ${by_g%+*})); [ $by_n -le $by_c ] && break; "
    "by_i=$((by_i + by_c + 1)); by_n=$((by_n - by_c - 1)); done; "
    "AWS_BATCH_JOB_ARRAY_INDEX=$((by_i + by_n)); unset by_n by_i by_g by_c; "
)


def make_prelude(job: PlannedJob, offset: int, size: int) -> str:
    """Return the shell code before the command of a part; empty where AWS's numbers are right."""
    if not job.is_array:
        return ""
    if job.indices is None and size == job.step_size and size > 1:
        return ""
    index = "${AWS_BATCH_JOB_ARRAY_INDEX:-0}"
    if job.indices is None:
        set_index = f"AWS_BATCH_JOB_ARRAY_INDEX=$(({index} + {offset})); "
    else:
        numbers = job.indices[offset : offset + size]
        gaps = encode_gaps(numbers)
        set_index = f"by_n={index}; by_i={numbers[0]}; for by_g in {gaps}; {_FIND_INDEX}"
    set_size = f"AWS_BATCH_JOB_ARRAY_SIZE={job.step_size}; "
    return f"{set_index}{set_size}export AWS_BATCH_JOB_ARRAY_INDEX AWS_BATCH_JOB_ARRAY_SIZE; "


def encode_gaps(numbers: Sequence[int]) -> str:
    """Return ascending numbers in few characters.

    There is a word for each unbroken sequence: how many numbers are left out before it, and after
    a `+` how many more than one it has. 3 5 7 8 9 is `0 1 1+2`, from 3 on.
    """
    words = []
    next_number = numbers[0]
    for first, last in to_ranges(numbers):
        gap = f"{first - next_number}"
        words.append(f"{gap}+{last - first}" if last > first else gap)
        next_number = last + 1
    return " ".join(words)
