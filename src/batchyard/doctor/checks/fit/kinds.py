"""The kinds of findings about a job that is too large for its queue."""

from __future__ import annotations

from batchyard.doctor.finding import Kind, Severity

MAX_VCPUS_TOO_SMALL = Kind(
    "BY012", Severity.ERROR, 90, "maxvCpus allows one instance that the job fits on"
)
NOT_ENOUGH_VCPUS = Kind("BY014", Severity.ERROR, 91, "some instance type has the requested vCPUs")
NOT_ENOUGH_MEMORY = Kind(
    "BY015", Severity.ERROR, 92, "some instance type registers the requested memory"
)
NOT_ENOUGH_GPUS = Kind("BY016", Severity.ERROR, 91, "some instance type has the requested GPUs")
NO_GPUS = Kind("BY017", Severity.ERROR, 93, "a GPU job has a compute environment with GPUs")
