"""The blocks of a dynamic step in S3: performs the requests of the lease protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from batchyard import s3_layout
from batchyard.quick_dataclasses import dataclass
from batchyard.worker import leases, scale
from batchyard.worker.errors import EXIT_ORDERS, WorkerError
from batchyard.worker.lease_protocol import (
    Answer,
    Entry,
    ListBlocks,
    Listing,
    Operation,
    ReadBlock,
    RefusedWrite,
    Request,
    Result,
    StoredBlock,
    WriteBlock,
    WrittenBlock,
)
from batchyard.worker.orders import Place
from batchyard.worker.s3 import Bucket
from batchyard.worker.scale import Scale

T = TypeVar("T")


@dataclass(slots=True)
class BlockStore:
    bucket: Bucket
    #: where the step has its blocks
    folder: Place
    #: the scale of the step that was read last, and its ETag
    _scale: Scale | None = None
    _scale_etag: str = ""

    def run(self, operation: Operation) -> tuple[Operation, Result]:
        """Perform an operation to its end; return its last state and its result.

        Raises WorkerError if S3 does not answer for long. The operation may then have been
        performed, or be performed later.
        """
        while True:
            outcome = operation.receive(self.perform(operation.request))
            if not isinstance(outcome, Operation):
                return operation, outcome
            operation = outcome

    def perform(self, request: Request) -> Answer:
        if isinstance(request, ListBlocks):
            return self._list(request.first)
        if isinstance(request, ReadBlock):
            return self.read(request.number)
        return self._write(request)

    def _list(self, first: int) -> Listing:
        start_after = self._place_of(first - 1).key if first else ""
        listed = self.bucket.list_aged(self.folder, "list the blocks in", start_after=start_after)
        entries, step_scale = {}, None
        for entry in listed:
            number = s3_layout.block_of_key(entry.key)
            if number is not None:
                state = leases.state_of_size(entry.size)
                entries[number] = Entry(state, entry.etag, entry.age_s)
            elif s3_layout.is_scale(entry.key):
                step_scale = self._read_scale(entry.etag)
        return Listing(entries, step_scale)

    def _read_scale(self, etag: str) -> Scale | None:
        if etag != self._scale_etag:
            place = self.folder.below(s3_layout.SCALE)
            data = self.bucket.read(place, "read the scale of the step from")
            self._scale, self._scale_etag = _decode(scale.decode, data, place, "a scale"), etag
        return self._scale

    def read(self, number: int) -> StoredBlock:
        place = self._place_of(number)
        data, etag, age_s = self.bucket.read_version(place, f"read block {number} from")
        return StoredBlock(_decode(leases.decode, data, place, "a block"), etag, age_s)

    def _write(self, request: WriteBlock) -> WrittenBlock | RefusedWrite:
        place, data = self._place_of(request.number), leases.encode(request.lease)
        action = f"write block {request.number} to"
        etag, was_sent_once = self.bucket.write_if(place, data, request.etag, action)
        return RefusedWrite(was_sent_once) if etag is None else WrittenBlock(etag)

    def _place_of(self, number: int) -> Place:
        return self.folder.below(s3_layout.block_name(number))


def _decode(decode: Callable[[bytes], T], data: bytes, place: Place, noun: str) -> T:
    try:
        return decode(data)
    except ValueError as exc:
        raise WorkerError(
            f"{place} is not {noun} that this worker can read: {exc}; install the same version "
            "of batchyard in the image as the one that submits",
            EXIT_ORDERS,
        ) from exc
