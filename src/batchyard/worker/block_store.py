"""The blocks of a dynamic step in S3: performs the requests of the lease protocol."""

from __future__ import annotations

from dataclasses import dataclass

from batchyard import s3_layout
from batchyard.worker import leases
from batchyard.worker.errors import EXIT_ORDERS, WorkerError
from batchyard.worker.leases import (
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


@dataclass(frozen=True, slots=True)
class BlockStore:
    bucket: Bucket
    #: where the step has its blocks
    folder: Place

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
        entries = self.bucket.list_aged(self.folder, "list the blocks in", start_after=start_after)
        numbered = ((s3_layout.block_of_key(entry.key), entry) for entry in entries)
        return {
            number: Entry(leases.state_of_size(entry.size), entry.etag, entry.age_s)
            for number, entry in numbered
            if number is not None
        }

    def read(self, number: int) -> StoredBlock:
        place = self._place_of(number)
        data, etag, age_s = self.bucket.read_version(place, f"read block {number} from")
        try:
            return StoredBlock(leases.decode(data), etag, age_s)
        except ValueError as exc:
            raise WorkerError(
                f"{place} is not a block that this worker can read: {exc}; install the same "
                "version of batchyard in the image as the one that submits",
                EXIT_ORDERS,
            ) from exc

    def _write(self, request: WriteBlock) -> WrittenBlock | RefusedWrite:
        place, data = self._place_of(request.number), leases.encode(request.lease)
        action = f"write block {request.number} to"
        etag = self.bucket.write_if(place, data, request.etag, action)
        return RefusedWrite() if etag is None else WrittenBlock(etag)

    def _place_of(self, number: int) -> Place:
        return self.folder.below(s3_layout.block_name(number))
