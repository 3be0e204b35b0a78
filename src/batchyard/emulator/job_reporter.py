"""Lines about the jobs of an endpoint: one when a job is submitted, and one when it ends."""

from __future__ import annotations

from collections.abc import Callable

from batchyard.batch.jobs import JobState, Resources
from batchyard.embedded.runner import Task
from batchyard.embedded.store import AttemptRow, JobRow
from batchyard.emulator import job_submission
from batchyard.emulator.regions import Regions
from batchyard.emulator.state import JOB, Document, EndpointState

_FAILED = list(JobState).index(JobState.FAILED)


class JobReporter:
    """The reporter of the embedded engine's loop."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._regions: Regions | None = None
        self._on_tick: Callable[[], None] = lambda: None
        self._on_changes: Callable[[list[JobRow]], None] = lambda rows: None
        #: Jobs that were reported as submitted -> whether their end was reported too.
        self._reported: dict[str, bool] = {}

    def attach(
        self,
        regions: Regions,
        on_tick: Callable[[], None],
        on_changes: Callable[[list[JobRow]], None],
    ) -> None:
        """Report the jobs of all regions from now on.

        ``on_tick`` is called in each tick, then ``on_changes`` with the jobs that have changed.
        """
        self._regions, self._on_tick, self._on_changes = regions, on_tick, on_changes
        # Tasks of ECS are not in the documents: like moto's clusters, they end with the endpoint.
        rows = [
            row for row in regions.default.store.jobs() if regions.state_of_job(row.id) is not None
        ]
        self._reported = {row.id: JobState(row.state).is_terminal for row in rows}
        unfinished = [row for row in rows if not self._reported[row.id]]
        if unfinished:
            jobs = "jobs" if len(unfinished) > 1 else "job"
            self._report(f"resuming {len(unfinished)} {jobs} from the previous start")
        for row in unfinished:
            state = regions.state_of_job(row.id)
            if state is not None:
                self._warn_if_too_large(state, row, state.require(JOB, row.id))

    def on_tick(self, changed: list[JobRow]) -> None:
        self._on_tick()
        self._on_changes(changed)
        if self._regions is None:
            return
        for row in changed:
            state = self._regions.state_of_job(row.id)
            if state is not None and not self._reported.get(row.id):
                self._report_job(state, row, state.require(JOB, row.id))

    def on_failure(self, task: Task, row: AttemptRow) -> None:
        """Report nothing: DescribeJobs shows failed attempts."""

    def _report_job(self, state: EndpointState, row: JobRow, document: Document) -> None:
        children = f" ({row.size:,} children)" if "arrayProperties" in document else ""
        name = document["jobName"] + children
        if row.id not in self._reported:
            queue = document["jobQueue"].rpartition("/")[2]
            self._report(f"{row.id}  {name}: submitted to {queue}")
            self._warn_if_too_large(state, row, document)
        is_over = JobState(row.state).is_terminal
        self._reported[row.id] = is_over
        if is_over:
            self._report(f"{row.id}  {name}: {row.state}{_failure_text(row)}")

    def _warn_if_too_large(self, state: EndpointState, row: JobRow, document: Document) -> None:
        """Report a job that waits for ever because it requests more than the endpoint has."""
        excess = excess_text(job_submission.to_job(document).resources, state.machine)
        if excess:
            self._report(f"{row.id}  {document['jobName']}: can never be placed here: {excess}")


def _failure_text(row: JobRow) -> str:
    failed_children = row.counts[_FAILED]
    text = f", {failed_children:,} failed" if failed_children and row.size > 1 else ""
    if row.status_reason and row.state == JobState.FAILED:
        text += f": {row.status_reason}"
    return text


def excess_text(requested: Resources, machine: Resources) -> str:
    """Return which requested resources the endpoint lacks, and the options to raise; or nothing."""
    amounts = (
        ("--cpus", requested.vcpus, machine.vcpus, "vCPUs"),
        ("--memory", requested.memory_mib, machine.memory_mib, "MiB"),
        ("--gpus", requested.gpus, machine.gpus, "GPUs"),
    )
    lacking = [amount for amount in amounts if amount[1] > amount[2]]
    if not lacking:
        return ""
    needs = ", ".join(f"{needed:,} {unit}" for _, needed, _, unit in lacking)
    offers = ", ".join(f"{offered:,} {unit}" for _, _, offered, unit in lacking)
    options = ", ".join(option for option, *_ in lacking)
    return f"asks {needs}, this endpoint has {offers}; start it with more: {options}"
