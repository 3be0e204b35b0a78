"""S3: read, write and list objects, and copy files. Addresses are `s3://bucket/key`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from batchyard.aws.session import AwsSession, naming_errors
from batchyard.errors import InputError, OperationalError, from_os_error

_MAX_THREADS = 16


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


class S3:
    def __init__(self, session: AwsSession) -> None:
        self._session = session

    @property
    def _client(self) -> Any:
        return self._session.client("s3")

    def put(
        self, address: str, data: bytes, content_type: str = "application/octet-stream"
    ) -> None:
        place = Place.of(address)
        with naming_errors(f"write {address}"):
            self._client.put_object(
                Bucket=place.bucket, Key=place.key, Body=data, ContentType=content_type
            )

    def get(self, address: str) -> bytes | None:
        """Return the content of an object; None if it does not exist."""
        place = Place.of(address)
        with naming_errors(f"read {address}"):
            try:
                return bytes(
                    self._client.get_object(Bucket=place.bucket, Key=place.key)["Body"].read()
                )
            except self._client.exceptions.NoSuchKey:
                return None

    def list(self, prefix: str) -> Iterator[S3Object]:
        place = Place.of(prefix)
        with naming_errors(f"list {prefix}"):
            for page in self._client.get_paginator("list_objects_v2").paginate(
                Bucket=place.bucket, Prefix=place.key
            ):
                for entry in page.get("Contents", []):
                    modified_s = entry["LastModified"].timestamp()
                    yield S3Object(entry["Key"], entry["Size"], modified_s)

    def folders(self, prefix: str) -> Iterator[str]:
        """Yield the names of the folders directly under a prefix."""
        place = Place.of(prefix)
        with naming_errors(f"list {prefix}"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=place.bucket, Prefix=place.key, Delimiter="/"
            )
            for page in pages:
                for entry in page.get("CommonPrefixes", []):
                    yield entry["Prefix"].removeprefix(place.key).rstrip("/")

    def upload(self, files: Iterable[tuple[Path, str]]) -> int:
        """Upload files to addresses in parallel, and return their number."""

        def send(pair: tuple[Path, str]) -> None:
            path, address = pair
            place = Place.of(address)
            with naming_errors(f"upload {path}"), _naming_file_errors("read", path):
                self._client.upload_file(str(path), place.bucket, place.key)

        return self._each(send, files)

    def download(self, files: Iterable[tuple[str, Path]]) -> int:
        """Download addresses to files in parallel, and return their number.

        A file appears only when it is complete.
        """

        def fetch(pair: tuple[str, Path]) -> None:
            address, path = pair
            place = Place.of(address)
            with naming_errors(f"download {address}"), _naming_file_errors("write", path):
                path.parent.mkdir(parents=True, exist_ok=True)
                # boto3 writes a temporary file and renames it.
                self._client.download_file(place.bucket, place.key, str(path))

        return self._each(fetch, files)

    def _each(self, act: Callable[[Any], None], pairs: Iterable[Any]) -> int:
        _ = self._client  # created before the threads start
        with ThreadPoolExecutor(_MAX_THREADS) as pool:
            return sum(1 for _ in pool.map(act, pairs))


@contextmanager
def _naming_file_errors(doing: str, path: Path) -> Iterator[None]:
    """Turn errors of the disk, and those that boto3 wraps, into ours."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import ClientError

    try:
        yield
    except OSError as exc:
        error = from_os_error(exc, doing, path)
        if doing == "write":
            error.hint = "make room there, or name another folder: `batchyard fetch RUN --to DIR`"
        raise error from exc
    except Boto3Error as exc:
        if isinstance(exc.__context__, ClientError):
            raise exc.__context__ from exc
        raise OperationalError(f"could not {doing} {path}: {exc}", hint="try again") from exc
