"""S3: whole objects in and out, listings, and files. Addresses are `s3://bucket/key`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from batchyard.aws.session import AwsSession, naming_errors
from batchyard.errors import InputError, OperationalError, from_os_error

_AT_ONCE = 16


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


class Found(NamedTuple):
    key: str
    size: int
    modified: float


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
        """None where there is no such object."""
        place = Place.of(address)
        with naming_errors(f"read {address}"):
            try:
                return bytes(
                    self._client.get_object(Bucket=place.bucket, Key=place.key)["Body"].read()
                )
            except self._client.exceptions.NoSuchKey:
                return None

    def list(self, prefix: str) -> Iterator[Found]:
        place = Place.of(prefix)
        with naming_errors(f"list {prefix}"):
            for page in self._client.get_paginator("list_objects_v2").paginate(
                Bucket=place.bucket, Prefix=place.key
            ):
                for one in page.get("Contents", []):
                    yield Found(one["Key"], one["Size"], one["LastModified"].timestamp())

    def folders(self, prefix: str) -> Iterator[str]:
        """The names right under a prefix."""
        place = Place.of(prefix)
        with naming_errors(f"list {prefix}"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=place.bucket, Prefix=place.key, Delimiter="/"
            )
            for page in pages:
                for one in page.get("CommonPrefixes", []):
                    yield one["Prefix"].removeprefix(place.key).rstrip("/")

    def upload(self, files: Iterable[tuple[Path, str]]) -> int:
        """Files to addresses, many at once, large ones in parallel parts. Returns how many."""

        def send(pair: tuple[Path, str]) -> None:
            path, address = pair
            place = Place.of(address)
            with naming_errors(f"upload {path}"), _files_told("read", path):
                self._client.upload_file(str(path), place.bucket, place.key)

        return self._each(send, files)

    def download(self, files: Iterable[tuple[str, Path]]) -> int:
        """Addresses to files, each complete or not there."""

        def fetch(pair: tuple[str, Path]) -> None:
            address, path = pair
            place = Place.of(address)
            with naming_errors(f"download {address}"), _files_told("write", path):
                path.parent.mkdir(parents=True, exist_ok=True)
                # boto3 writes beside it and renames.
                self._client.download_file(place.bucket, place.key, str(path))

        return self._each(fetch, files)

    def _each(self, act: Callable[[Any], None], pairs: Iterable[Any]) -> int:
        _ = self._client  # made by one thread
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return sum(1 for _ in pool.map(act, pairs))


@contextmanager
def _files_told(doing: str, path: Path) -> Iterator[None]:
    """What the disk refuses, and what boto3 wraps in an error of its own."""
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
