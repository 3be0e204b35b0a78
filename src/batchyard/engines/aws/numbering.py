"""Shell that gives a plain command, in an image without the worker, its child's number in the step. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from batchyard.plan import PlannedJob, to_ranges

#: finds the by_n-th number, from 0, of those that the words after `in` leave in, beginning with by_i: see `gaps`
_FIND = (
    "do case $by_g in *+*) by_c=${by_g#*+};; *) by_c=0;; esac; "
    "by_i=$((by_i + ${by_g%+*})); [ $by_n -le $by_c ] && break; "
    "by_i=$((by_i + by_c + 1)); by_n=$((by_n - by_c - 1)); done; "
    "AWS_BATCH_JOB_ARRAY_INDEX=$((by_i + by_n)); unset by_n by_i by_g by_c; "
)


def prelude(job: PlannedJob, offset: int, size: int) -> str:
    """What goes before the command in a part of the job, where AWS's numbers are not the step's own."""
    if not job.is_array:
        return ""
    if job.indices is None and size == job.step_size and size > 1:
        return ""
    index = "${AWS_BATCH_JOB_ARRAY_INDEX:-0}"
    if job.indices is None:
        find = f"AWS_BATCH_JOB_ARRAY_INDEX=$(({index} + {offset})); "
    else:
        own = job.indices[offset : offset + size]
        find = f"by_n={index}; by_i={own[0]}; for by_g in {gaps(own)}; {_FIND}"
    sizes = f"AWS_BATCH_JOB_ARRAY_SIZE={job.step_size}; "
    return f"{find}{sizes}export AWS_BATCH_JOB_ARRAY_INDEX AWS_BATCH_JOB_ARRAY_SIZE; "


def gaps(numbers: Sequence[int]) -> str:
    """Ascending numbers in few characters: for each unbroken run how many are left out before it, and after a `+` how
    many more than one it has. Of 3 5 7 8 9 that is `0 1 1+2`: from 3 on."""
    words = []
    next_one = numbers[0]
    for first, last in to_ranges(numbers):
        words.append(
            f"{first - next_one}+{last - first}" if last > first else f"{first - next_one}"
        )
        next_one = last + 1
    return " ".join(words)
