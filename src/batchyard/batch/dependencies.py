"""What a dependency of a job is about, and which dependencies are no good (facts, 1.7 and 2). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from batchyard.batch.jobs import Dependency, DependencyType, Job
from batchyard.batch.tracking import TrackedJob


class InvalidJob(ValueError):
    """The job cannot be accepted: the message says why."""


class Other(NamedTuple):
    """A job that another depends on."""

    name: str
    #: None: no array
    array_size: int | None


def target(
    jobs: Mapping[str, TrackedJob], job: Job, dependency: Dependency
) -> tuple[TrackedJob, int | None] | None:
    """The job, and the child where one is named; None for SEQUENTIAL, which is about the job itself."""
    parent_id, _, child = (dependency.job_id or "").partition(":")
    found = jobs.get(parent_id)
    other = Other(found.job.name, found.job.array_size) if found else None
    problem = problem_of(job.name, job.array_size, dependency, other)
    if problem:
        raise InvalidJob(problem)
    return (found, int(child) if child else None) if found else None


def problem_of(
    name: str, array_size: int | None, dependency: Dependency, other: Other | None
) -> str:
    """What is wrong with a dependency of the job of this name and size; empty: nothing. ``other``: the job whose id, or
    whose child's id, it names; None where there is none."""
    kind, dependency_id = dependency.type, dependency.job_id
    if kind is not DependencyType.WHOLE and array_size is None:
        return f"{kind.value} is for array jobs, and {name!r} is none"
    if kind is DependencyType.SEQUENTIAL:
        return (
            "a SEQUENTIAL dependency names no job: it is about the array itself"
            if dependency_id is not None
            else ""
        )
    if dependency_id is None:
        return "a dependency must name a job"
    _, colon, child = dependency_id.partition(":")
    if other is None or (colon and not _is_child_of(other, child)):
        return f"no job has the id {dependency_id}"
    if kind is DependencyType.N_TO_N and child:
        return f"N_TO_N is about a whole array, and {dependency_id} is one child"
    if kind is DependencyType.N_TO_N and other.array_size != array_size:
        return (
            f"N_TO_N needs two arrays of one size: {name!r} has {array_size} children, "
            f"{other.name!r} has {other.array_size or 'none'}"
        )
    return ""


def _is_child_of(other: Other, child: str) -> bool:
    is_number = child.isascii() and child.isdigit() and len(child) < 10
    return other.array_size is not None and is_number and int(child) < other.array_size
