"""Resolve and check the dependencies of jobs (facts, 1.7 and 2). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from batchyard.batch.jobs import Dependency, DependencyType, Job
from batchyard.batch.tracked_job import TrackedJob
from batchyard.quick_dataclasses import NamedTuple

#: digits in the largest index of a child that is looked at
_MAX_INDEX_DIGITS = 9


class InvalidJobError(ValueError):
    """The scheduler cannot accept the job; the message says why."""


class ParentJob(NamedTuple):
    """A job that another job depends on."""

    name: str
    #: None for a job that is not an array
    array_size: int | None


def resolve_dependency(
    jobs: Mapping[str, TrackedJob], job: Job, dependency: Dependency
) -> tuple[TrackedJob, int | None] | None:
    """Return the parent job, and the index of its child if the dependency names one.

    Returns None for SEQUENTIAL, which has no parent. Raises InvalidJobError.
    """
    parent_id, _, child = (dependency.job_id or "").partition(":")
    tracked = jobs.get(parent_id)
    parent = ParentJob(tracked.job.name, tracked.job.array_size) if tracked else None
    problem = dependency_problem(job.name, job.array_size, dependency, parent)
    if problem:
        raise InvalidJobError(problem)
    return (tracked, int(child) if child else None) if tracked else None


def dependency_problem(
    name: str, array_size: int | None, dependency: Dependency, parent: ParentJob | None
) -> str:
    """Return what is wrong with a dependency of the job of this name and size; empty if nothing is.

    ``parent``: the job that the dependency names, itself or by a child; None if it does not exist.
    """
    kind, dependency_id = dependency.type, dependency.job_id
    if dependency.pairs is not None:
        return "" if parent else f"no job has the id {dependency_id}"
    if kind is not DependencyType.WHOLE and array_size is None:
        return f"{kind.value} is for array jobs, and {name!r} is none"
    if kind is DependencyType.SEQUENTIAL:
        if dependency_id is None:
            return ""
        return "a SEQUENTIAL dependency names no job: it is about the array itself"
    if dependency_id is None:
        return "a dependency must name a job"
    _, colon, child = dependency_id.partition(":")
    if parent is None or (colon and not _has_child(parent, child)):
        return f"no job has the id {dependency_id}"
    if kind is DependencyType.N_TO_N:
        return _n_to_n_problem(name, array_size, dependency_id, parent)
    return ""


def _n_to_n_problem(
    name: str, array_size: int | None, dependency_id: str, parent: ParentJob
) -> str:
    if ":" in dependency_id:
        return f"N_TO_N is about a whole array, and {dependency_id} is one child"
    if parent.array_size == array_size:
        return ""
    return (
        f"N_TO_N needs two arrays of one size: {name!r} has {array_size} children, "
        f"{parent.name!r} has {parent.array_size or 'none'}"
    )


def _has_child(parent: ParentJob, child: str) -> bool:
    is_number = child.isascii() and child.isdigit() and len(child) <= _MAX_INDEX_DIGITS
    return parent.array_size is not None and is_number and int(child) < parent.array_size
