"""S3: read, write and list objects, and copy files. Addresses are `s3://bucket/key`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from batchyard.aws.session import AwsSession, naming_errors
from batchyard.errors import InputError, OperationalError, from_os_error

_MAX_THREADS = 16
#: Pauses before a body that was cut short is read again. botocore repeats calls, but not these.
_READ_DELAYS_S = (0.2, 0.5, 1.0, 2.0, 4.0)
#: Downloads that the transfer manager has at the same time; more would only wait in its queue.
_MAX_WAITING = 256
#: Statuses of a write whose condition is not met, or that another write of the object overtook.
_REFUSED = (409, 412)


class Place(NamedTuple):
    bucket: str
    key: str

    @classmethod
    def of(cls, address: str) -> Place:
        if not address.startswith("s3://"):
            raise InputError(f"{address!r} is no address in S3", hint="write s3://bucket/prefix/")
        bucket, _, key = address.removeprefix("s3://").partition("/")
        if not bucket:
            raise InputError(f"{address!r} names no bucket", hint="write s3://bucket/prefix/")
        return cls(bucket, key)


class S3Object(NamedTuple):
    key: str
    size_bytes: int
    #: seconds since 1970
    modified_s: float
    etag: str = ""


class S3:
    def __init__(self, session: AwsSession, sleep: Callable[[float], None] = time.sleep) -> None:
        self._session = session
        self._sleep = sleep

    @property
    def client(self) -> Any:
        return self._session.client("s3")

    def put(
        self, address: str, data: bytes, content_type: str = "application/octet-stream"
    ) -> None:
        place = Place.of(address)
        with naming_errors(f"write {address}"):
            self.client.put_object(
                Bucket=place.bucket, Key=place.key, Body=data, ContentType=content_type
            )

    def put_if(self, address: str, data: bytes, etag: str | None) -> bool:
        """Write an object if it has this ETag, or if there is none where ``etag`` is None.

        Returns False if S3 refused. That can also mean that the first try of the call was
        performed, and its answer was lost.
        """
        place = Place.of(address)
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        with naming_errors(f"write {address}"):
            try:
                self.client.put_object(Bucket=place.bucket, Key=place.key, Body=data, **condition)
            except self.client.exceptions.ClientError as exc:
                if exc.response["ResponseMetadata"]["HTTPStatusCode"] not in _REFUSED:
                    raise
                return False
        return True

    def get(self, address: str) -> bytes | None:
        """Return the content of an object; None if it does not exist."""
        version = self.get_version(address)
        return None if version is None else version[0]

    def get_version(self, address: str) -> tuple[bytes, str] | None:
        """Return the content and the ETag of an object; None if it does not exist."""
        place = Place.of(address)
        with naming_errors(f"read {address}"):
            for delay_s in _READ_DELAYS_S:
                with _tolerating_cut_body():
                    return self._read(place)
                self._sleep(delay_s)
            return self._read(place)

    def _read(self, place: Place) -> tuple[bytes, str] | None:
        try:
            answer = self.client.get_object(Bucket=place.bucket, Key=place.key)
            return bytes(answer["Body"].read()), str(answer["ETag"])
        except self.client.exceptions.NoSuchKey:
            return None

    def list(self, prefix: str) -> Iterator[S3Object]:
        place = Place.of(prefix)
        with naming_errors(f"list {prefix}"):
            for page in self.client.get_paginator("list_objects_v2").paginate(
                Bucket=place.bucket, Prefix=place.key
            ):
                for entry in page.get("Contents", []):
                    modified_s = entry["LastModified"].timestamp()
                    yield S3Object(entry["Key"], entry["Size"], modified_s, entry["ETag"])

    def folders(self, prefix: str) -> Iterator[str]:
        """Yield the names of the folders directly under a prefix."""
        place = Place.of(prefix)
        with naming_errors(f"list {prefix}"):
            pages = self.client.get_paginator("list_objects_v2").paginate(
                Bucket=place.bucket, Prefix=place.key, Delimiter="/"
            )
            for page in pages:
                for entry in page.get("CommonPrefixes", []):
                    yield entry["Prefix"].removeprefix(place.key).rstrip("/")

    def touch(self, address: str) -> None:
        """Copy an object onto itself, so that it counts as written now."""
        place = Place.of(address)
        source = {"Bucket": place.bucket, "Key": place.key}
        with naming_errors(f"renew {address}"):
            # S3 refuses such a copy unless something changes: here the metadata.
            replaced = {"MetadataDirective": "REPLACE"}
            self.client.copy(source, place.bucket, place.key, ExtraArgs=replaced)

    def download(self, files: Iterable[tuple[str, S3Object, Path]]) -> int:
        """Download listed objects, as (bucket, object, file), in parallel; return their number.

        A file appears only when it is complete. Size and ETag are known from the list, so that a
        file of less than 8 MiB takes one request.
        """
        from s3transfer.manager import TransferConfig, TransferManager

        config = TransferConfig(max_request_concurrency=_MAX_THREADS)
        count = 0
        with TransferManager(self.client, config) as manager:
            running: deque[tuple[str, Path, Any]] = deque()
            for bucket, entry, path in files:
                address = f"s3://{bucket}/{entry.key}"
                with naming_file_errors("write", path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                # The manager writes a temporary file and renames it.
                known_sizes = [_known_object(entry)]
                future = manager.download(bucket, entry.key, str(path), subscribers=known_sizes)
                running.append((address, path, future))
                count += 1
                if len(running) > _MAX_WAITING:
                    _finish_download(*running.popleft())
            while running:
                _finish_download(*running.popleft())
        return count


def _finish_download(address: str, path: Path, future: Any) -> None:
    with naming_errors(f"download {address}"), naming_file_errors("write", path):
        future.result()


def _known_object(entry: S3Object) -> Any:
    from s3transfer.subscribers import BaseSubscriber

    class KnownObject(BaseSubscriber):  # type: ignore[misc]
        """Tells the transfer manager what the list of objects has."""

        def on_queued(self, future: Any, **_: Any) -> None:
            # s3transfer before 2025 has no ETags, and asks S3 for the size itself.
            if hasattr(future.meta, "provide_object_etag"):
                future.meta.provide_transfer_size(entry.size_bytes)
                future.meta.provide_object_etag(entry.etag)

    return KnownObject()


@contextmanager
def _tolerating_cut_body() -> Iterator[None]:
    """Ignore the errors of a body that ends before its end."""
    from botocore.exceptions import HTTPClientError, IncompleteReadError

    with suppress(HTTPClientError, IncompleteReadError):
        yield


@contextmanager
def naming_file_errors(doing: str, path: Path) -> Iterator[None]:
    """Turn errors of the disk, and those of the transfer manager, into ours."""
    from s3transfer.exceptions import RetriesExceededError, S3DownloadFailedError

    try:
        yield
    except OSError as exc:
        error = from_os_error(exc, doing, path)
        if doing == "write":
            error.hint = "make room there, or name another folder: `batchyard fetch RUN --to DIR`"
        raise error from exc
    except RetriesExceededError as exc:
        message = f"could not {doing} {path}: {exc.last_exception}"
        raise OperationalError(message, hint="try again") from exc
    except S3DownloadFailedError as exc:
        message = f"could not {doing} {path}: its object was replaced during the download"
        raise OperationalError(message, hint="try again") from exc
