"""Files in S3 under the SHA-256 of their content: an unchanged file is uploaded once.

A file that is written to during its upload is never stored under the hash of other content: the
hash is made of the very bytes that are sent.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from batchyard.aws.s3 import S3, Place, S3Object, naming_file_errors
from batchyard.aws.session import naming_errors
from batchyard.errors import OperationalError

#: Larger files are sent in parts of at least this size.
_PART_BYTES = 8 * 1024 * 1024
_MAX_PARTS = 9000
_MAX_THREADS = 16
#: Parts of one file that are in memory at the same time.
_MAX_PARTS_IN_MEMORY = 8
_MAX_TRIES = 3
#: An older object is made new again, so that no lifecycle rule deletes it under a run that starts.
REFRESH_S = 3 * 24 * 3600


class ContentFile(NamedTuple):
    sha256: str
    size_bytes: int


class ContentFiles:
    """The objects below one address."""

    def __init__(self, s3: S3, address: str, clock: Callable[[], float] = time.time) -> None:
        self._s3 = s3
        self.address = address
        self._clock = clock
        self._stored: dict[str, S3Object] | None = None
        #: SHA-256 of the files that were uploaded
        self.uploaded: list[str] = []

    @property
    def stored(self) -> dict[str, S3Object]:
        """SHA-256 -> object; listed once."""
        if self._stored is None:
            prefix = Place.of(self.address).key
            self._stored = {
                entry.key.removeprefix(prefix): entry for entry in self._s3.list(self.address)
            }
        return self._stored

    def store(self, paths: Iterable[Path], hashes: dict[Path, ContentFile]) -> None:
        """Upload the files whose content is not in S3, and add all of them to ``hashes``.

        ``hashes`` already has the files that are known not to have changed.
        """
        stored = self.stored
        small: list[Path] = []
        large: list[Path] = []
        for path in paths:
            content = hashes.get(path)
            if content is None or content.sha256 not in stored:
                with naming_file_errors("read", path):
                    (large if path.stat().st_size > _PART_BYTES else small).append(path)
        with ThreadPoolExecutor(_MAX_THREADS) as pool:
            hashes.update(zip(small, pool.map(self._store_small, small), strict=True))
        for path in large:
            hashes[path] = self._store_large(path, hashes.get(path))

    def _store_small(self, path: Path) -> ContentFile:
        with naming_file_errors("read", path):
            data = path.read_bytes()
        content = ContentFile(hashlib.sha256(data).hexdigest(), len(data))
        if content.sha256 not in self.stored:
            place = Place.of(self.address + content.sha256)
            with naming_errors(f"upload {path}"):
                self._s3.client.put_object(Bucket=place.bucket, Key=place.key, Body=data)
            self._add(content)
        return content

    def _store_large(self, path: Path, content: ContentFile | None) -> ContentFile:
        for _ in range(_MAX_TRIES):
            content = content or hash_file(path)
            if content.sha256 in self.stored or self._send_parts(path, content):
                return content
            content = None  # the file has changed since its hash was made
        raise OperationalError(
            f"{path} changes while it is uploaded",
            hint="wait until it is written, or take it out of `inputs`",
        )

    def _send_parts(self, path: Path, content: ContentFile) -> bool:
        """Upload a large file. Return False, and store nothing, if its content is another one."""
        place = Place.of(self.address + content.sha256)
        client = self._s3.client
        with (
            naming_errors(f"upload {path}"),
            naming_file_errors("read", path),
            _multipart_upload(client, place) as upload,
            path.open("rb") as file,
        ):
            parts, sent = _send_all(client, upload, file, content.size_bytes)
            if sent != content:
                return False
            client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
            upload.clear()
        self._add(content)
        return True

    def _add(self, content: ContentFile) -> None:
        self.stored[content.sha256] = S3Object(
            content.sha256, content.size_bytes, self._clock(), ""
        )
        self.uploaded.append(content.sha256)

    def refresh(self, hashes: Iterable[str]) -> None:
        """Copy old objects onto themselves, which makes them new for lifecycle rules."""
        oldest_s = self._clock() - REFRESH_S
        old = [sha256 for sha256 in hashes if self.stored[sha256].modified_s < oldest_s]
        with ThreadPoolExecutor(_MAX_THREADS) as pool:
            list(pool.map(lambda sha256: self._s3.touch(self.address + sha256), old))


def hash_file(path: Path) -> ContentFile:
    with naming_file_errors("read", path), path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return ContentFile(digest.hexdigest(), file.tell())


def _send_all(
    client: Any, upload: dict[str, str], file: BinaryIO, size_bytes: int
) -> tuple[list[dict[str, Any]], ContentFile]:
    """Send the file in parts, in parallel. Return the parts, and what was sent."""
    part_bytes = max(_PART_BYTES, -(-size_bytes // _MAX_PARTS))
    digest, sent_bytes = hashlib.sha256(), 0
    parts: list[dict[str, Any]] = []
    waiting: deque[tuple[int, Future[Any]]] = deque()

    def finish_first() -> None:
        number, answer = waiting.popleft()
        parts.append({"PartNumber": number, "ETag": answer.result()["ETag"]})

    with ThreadPoolExecutor(_MAX_PARTS_IN_MEMORY) as pool:
        # A file that grows is sent no further than its size was: its content is another one.
        while sent_bytes <= size_bytes and (data := file.read(part_bytes)):
            digest.update(data)
            sent_bytes += len(data)
            number = len(parts) + len(waiting) + 1
            answer = pool.submit(client.upload_part, **upload, PartNumber=number, Body=data)
            waiting.append((number, answer))
            if len(waiting) == _MAX_PARTS_IN_MEMORY:
                finish_first()
        while waiting:
            finish_first()
    return parts, ContentFile(digest.hexdigest(), sent_bytes)


@contextmanager
def _multipart_upload(client: Any, place: Place) -> Iterator[dict[str, str]]:
    """Begin an upload in parts. It is aborted at the end, unless the caller clears the value."""
    answer = client.create_multipart_upload(Bucket=place.bucket, Key=place.key)
    upload = {"Bucket": place.bucket, "Key": place.key, "UploadId": answer["UploadId"]}
    try:
        yield upload
    finally:
        if upload:
            client.abort_multipart_upload(**upload)
