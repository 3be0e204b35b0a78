"""All regions of an endpoint: each has resources and jobs of its own, over one engine."""

from __future__ import annotations

from collections.abc import Callable

from batchyard.emulator.state import JOB, EndpointState, SavedDocument


class Regions:
    """The states of the regions. A region has one from its first request on."""

    def __init__(self, default: str, make_state: Callable[[str], EndpointState]) -> None:
        """``default``: the region of requests that name none."""
        self._make_state = make_state
        self._states: dict[str, EndpointState] = {}
        self.default = self.state(default)

    def state(self, region: str) -> EndpointState:
        if region not in self._states:
            self._states[region] = self._make_state(region)
        return self._states[region]

    def states(self) -> list[EndpointState]:
        return list(self._states.values())

    def state_of_job(self, job_id: str) -> EndpointState | None:
        """Return the state of the region in which a job is; None for an unknown job."""
        for state in self._states.values():
            if state.get(JOB, job_id) is not None:
                return state
        return None

    def load(self) -> None:
        """Read the documents that an earlier process saved."""
        store, default_region = self.default.store, self.default.region
        documents: dict[str, list[SavedDocument]] = {}
        moved: list[tuple[str, str | None]] = []
        for key, text in store.values():
            document = SavedDocument.parse(key, text, default_region)
            if document is None:
                continue
            documents.setdefault(document.region, []).append(document)
            new_key = f"{document.region}/{document.kind}/{document.name}"
            if key != new_key:
                moved += [(new_key, text), (key, None)]
        if moved:
            store.commit(values=moved)
        rows = store.jobs()
        for region, saved in documents.items():
            self.state(region).load(saved, rows)
