"""What a dependency of a job is about, and which dependencies are no good (facts, 1.7 and 2). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from batchyard.batch.jobs import Dependency, DependencyType, Job
from batchyard.batch.tracking import TrackedJob


class InvalidJob(ValueError):
    """The job cannot be accepted: the message says why."""


def target(jobs: Mapping[str, TrackedJob], job: Job, dependency: Dependency) -> tuple[TrackedJob, int | None] | None:
    """The job, and the child where one is named; None for SEQUENTIAL, which is about the job itself."""
    kind, dependency_id = dependency.type, dependency.job_id
    if kind is not DependencyType.WHOLE and job.array_size is None:
        raise InvalidJob(f"{kind.value} is for array jobs, and {job.name!r} is none")
    if kind is DependencyType.SEQUENTIAL:
        if dependency_id is not None:
            raise InvalidJob("a SEQUENTIAL dependency names no job: it is about the array itself")
        return None
    if dependency_id is None:
        raise InvalidJob("a dependency must name a job")
    parent_id, colon, child = dependency_id.partition(":")
    found = jobs.get(parent_id)
    if found is None or (colon and not _is_child_of(found.job, child)):
        raise InvalidJob(f"no job has the id {dependency_id}")
    if kind is DependencyType.N_TO_N and child:
        raise InvalidJob(f"N_TO_N is about a whole array, and {dependency_id} is one child")
    if kind is DependencyType.N_TO_N and found.job.array_size != job.array_size:
        raise InvalidJob(
            f"N_TO_N needs two arrays of one size: {job.name!r} has {job.array_size} children, "
            f"{found.job.name!r} has {found.job.array_size or 'none'}"
        )
    return found, int(child) if child else None


def _is_child_of(job: Job, child: str) -> bool:
    is_number = child.isascii() and child.isdigit() and len(child) < 10
    return job.array_size is not None and is_number and int(child) < job.size
