"""What `scale` has set for the dynamic steps of a run: objects in S3 beside their blocks."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from batchyard import s3_layout
from batchyard.aws.s3 import S3
from batchyard.engines.aws.run_files import RunFiles
from batchyard.errors import BrokenStoreError
from batchyard.plan import Plan
from batchyard.worker import scale as scale_format
from batchyard.worker.scale import Scale


class StoredScale(NamedTuple):
    scale: Scale
    etag: str


class StepScales:
    def __init__(self, plan: Plan, address: str, s3: S3, files: RunFiles) -> None:
        """``address``: the run's prefix in S3."""
        self._steps = [job.step for job in plan.jobs if job.is_dynamic]
        self._address = address
        self._s3 = s3
        self._files = files

    def read_all(self) -> dict[str, Scale]:
        """Return step -> scale, of the steps that were scaled: a call for each dynamic step."""
        with self._files.tolerate_missing_bucket():
            stored = {step: self.read(step) for step in self._steps}
            return {step: entry.scale for step, entry in stored.items() if entry is not None}
        return {}

    def read(self, step: str) -> StoredScale | None:
        address = s3_layout.scale_address(self._address, step)
        version = self._s3.get_version(address)
        if version is None:
            return None
        data, etag = version
        try:
            return StoredScale(scale_format.decode(data), etag)
        except ValueError as exc:
            raise BrokenStoreError(
                f"{address} cannot be read: {exc}", hint="use the batchyard that scaled the run"
            ) from exc

    def dismiss_children(self) -> None:
        """Let all children of dynamic steps end after the block that they have."""
        for step in self._steps:
            stored = self.read(step)
            if stored is not None and not stored.scale.children:
                continue
            added = () if stored is None else stored.scale.added
            # Steps that wait for this one are cancelled, so no child stays for them.
            scale = Scale((), added, False, secrets.token_hex(8))
            self.write(step, scale, None if stored is None else stored.etag)

    def write(self, step: str, scale: Scale, etag: str | None) -> bool:
        """Write the scale if the stored one has this ETag; None: if there is none.

        Returns False if someone else has written it.
        """
        address = s3_layout.scale_address(self._address, step)
        if self._s3.put_if(address, scale_format.encode(scale), etag):
            return True
        # S3 also refuses a write that is repeated because its answer was lost.
        stored = self.read(step)
        return stored is not None and stored.scale == scale
