"""The worker's session to S3: small objects and lists of keys here, files by ``moving``. Failures come out as sentences.

botocore repeats by itself, with backoff, what was throttled or cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from batchyard.worker import faults
from batchyard.worker.orders import Place

_MOST_ATTEMPTS = 6
_CONNECT_TIMEOUT_S = 10
_READ_TIMEOUT_S = 30
#: requests of one child at the same time
CONCURRENCY = 16
_BODY_TRIES = 4


@dataclass(frozen=True, slots=True)
class Found:
    """An object in a list."""

    key: str
    size: int
    etag: str


class Bucket:
    """S3 as the job's role sees it."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def read(
        self, place: Place, doing: str, first: int | None = None, stop: int | None = None
    ) -> bytes:
        """The object, or its bytes from ``first`` up to ``stop``."""
        extra = {} if first is None or stop is None else {"Range": f"bytes={first}-{stop - 1}"}
        with naming_errors(doing, place):
            for left in reversed(range(_BODY_TRIES)):
                answer = self.client.get_object(Bucket=place.bucket, Key=place.key, **extra)
                try:
                    return bytes(answer["Body"].read())
                except Exception as exc:
                    # botocore repeats the request, but not the reading of its body.
                    if not left or not is_passing(exc):
                        raise
        raise AssertionError("unreachable")

    def write(self, place: Place, data: bytes, doing: str) -> None:
        with naming_errors(doing, place):
            self.client.put_object(Bucket=place.bucket, Key=place.key, Body=data)

    def list(
        self,
        prefix: Place,
        doing: str,
        *,
        start_after: str = "",
        flat: bool = False,
        most: int = 1000,
    ) -> Iterator[Found]:
        """What begins with the prefix, in the order of keys, as far as the caller reads. ``flat``: not its folders."""
        request: dict[str, Any] = {
            "Bucket": prefix.bucket,
            "Prefix": prefix.key,
            "MaxKeys": min(1000, most),
        }
        request |= {"StartAfter": start_after} if start_after else {}
        request |= {"Delimiter": "/"} if flat else {}
        while True:
            with naming_errors(doing, prefix):
                page = self.client.list_objects_v2(**request)
            for entry in page.get("Contents", ()):
                yield Found(entry["Key"], entry["Size"], entry["ETag"])
            if not page.get("IsTruncated"):
                return
            request["ContinuationToken"] = page["NextContinuationToken"]


def connect() -> Bucket:
    # Half of the worker's start is this import, and a mistake in the variables is told without it.
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise faults.Fault(
            "the image has no boto3; install it there: pip install boto3", faults.MACHINE
        ) from None
    config = Config(
        retries={"mode": "standard", "total_max_attempts": _MOST_ATTEMPTS},
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
        max_pool_connections=CONCURRENCY,
        tcp_keepalive=True,
        user_agent_extra="batchyard-worker",
    )
    return Bucket(boto3.Session().client("s3", config=config))


@contextmanager
def naming_errors(doing: str, where: object) -> Iterator[None]:
    """boto3's errors end here. ``doing`` completes "could not ..."."""
    try:
        yield
    except Exception as exc:
        fault = explained(exc, doing, str(where))
        if fault is None:
            raise
        raise fault from exc


def explained(exc: BaseException, doing: str, where: str) -> faults.Fault | None:
    """The sentence for what boto3 raised; None where it is nothing of boto3's, nor of the network."""
    from botocore import exceptions as aws
    from s3transfer import exceptions as transfers

    exc = _inner(exc)
    # Older ones, as the distributions have them, do not notice that an object is replaced while they fetch it.
    if isinstance(exc, getattr(transfers, "S3DownloadFailedError", ())):
        return faults.replaced(doing, where)
    if isinstance(exc, aws.ClientError):
        return faults.from_answer(doing, where, exc.operation_name, *_answer(exc))
    if isinstance(exc, aws.NoCredentialsError | aws.PartialCredentialsError):
        return faults.no_credentials(doing, where)
    if is_passing(exc):
        return faults.unreachable(doing, where, exc)
    if isinstance(exc, aws.BotoCoreError):
        return faults.Fault(f"could not {doing} {where}: {exc}", faults.BUG)
    return None


def is_passing(exc: BaseException) -> bool:
    """Whether it may well not happen again: the network, or S3 asking for patience."""
    from botocore import exceptions as aws
    from urllib3.exceptions import HTTPError

    exc = _inner(exc)
    if isinstance(exc, aws.ClientError):
        code, _, status = _answer(exc)
        return faults.is_passing(code, status)
    network = (
        aws.HTTPClientError,
        aws.ConnectionError,
        aws.IncompleteReadError,
        aws.CredentialRetrievalError,
        aws.MetadataRetrievalError,
        HTTPError,
        ConnectionError,
        TimeoutError,
    )
    return isinstance(exc, network) or type(exc).__name__ == "FlexibleChecksumError"


def _inner(exc: BaseException) -> BaseException:
    """What was at the bottom of a transfer that gave up."""
    from s3transfer.exceptions import RetriesExceededError

    return exc.last_exception if isinstance(exc, RetriesExceededError) else exc


def _answer(exc: Any) -> tuple[str, str, int]:
    error = exc.response.get("Error", {})
    status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    return str(error.get("Code", "")), str(error.get("Message", "")), int(status)
