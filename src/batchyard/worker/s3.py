"""Read, write and list small objects of S3, and turn boto3's errors into WorkerError.

``transfers`` moves files. botocore itself repeats requests that were throttled or interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from batchyard.worker import errors
from batchyard.worker.errors import WorkerError
from batchyard.worker.orders import Place

_MAX_ATTEMPTS = 6
_CONNECT_TIMEOUT_S = 10
_READ_TIMEOUT_S = 30
#: keys in one page of a list
_MAX_KEYS = 1000
#: requests of one child at the same time
CONCURRENCY = 16
#: tries to read the body of an object, which botocore does not repeat
_BODY_TRIES = 4


@dataclass(frozen=True, slots=True)
class S3Object:
    """An entry in a list of objects."""

    key: str
    size: int
    etag: str


class Bucket:
    """S3, with the rights of the job's role."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def read(
        self, place: Place, action: str, first: int | None = None, stop: int | None = None
    ) -> bytes:
        """Return the object, or its bytes from ``first`` up to ``stop``.

        ``action`` completes "could not ..." in errors, here and below.
        """
        extra = {} if first is None or stop is None else {"Range": f"bytes={first}-{stop - 1}"}
        with naming_errors(action, place):
            for remaining_tries in reversed(range(_BODY_TRIES)):
                answer = self.client.get_object(Bucket=place.bucket, Key=place.key, **extra)
                try:
                    return bytes(answer["Body"].read())
                except Exception as exc:
                    if not remaining_tries or not is_passing(exc):
                        raise
        raise AssertionError("unreachable")

    def write(self, place: Place, data: bytes, action: str) -> None:
        with naming_errors(action, place):
            self.client.put_object(Bucket=place.bucket, Key=place.key, Body=data)

    def list(
        self,
        prefix: Place,
        action: str,
        *,
        start_after: str = "",
        flat: bool = False,
        at_most: int = _MAX_KEYS,
    ) -> Iterator[S3Object]:
        """Yield the objects below the prefix, in the order of keys, page by page.

        ``flat``: without those in folders. ``at_most``: number that the caller expects to read.
        """
        request: dict[str, Any] = {
            "Bucket": prefix.bucket,
            "Prefix": prefix.key,
            "MaxKeys": min(_MAX_KEYS, at_most),
        }
        request |= {"StartAfter": start_after} if start_after else {}
        request |= {"Delimiter": "/"} if flat else {}
        while True:
            with naming_errors(action, prefix):
                page = self.client.list_objects_v2(**request)
            for entry in page.get("Contents", ()):
                yield S3Object(entry["Key"], entry["Size"], entry["ETag"])
            if not page.get("IsTruncated"):
                return
            request["ContinuationToken"] = page["NextContinuationToken"]


def connect() -> Bucket:
    # The import takes half of the worker's start-up time. An error in the variables needs none.
    # botocore alone is boto3 without its transfers, which many children never need.
    try:
        import botocore.session
        from botocore.config import Config
    except ImportError:
        raise WorkerError(
            "the image has no boto3; install it there: pip install boto3", errors.EXIT_MACHINE
        ) from None
    config = Config(
        retries={"mode": "standard", "total_max_attempts": _MAX_ATTEMPTS},
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
        max_pool_connections=CONCURRENCY,
        tcp_keepalive=True,
        user_agent_extra="batchyard-worker",
    )
    return Bucket(botocore.session.get_session().create_client("s3", config=config))


@contextmanager
def naming_errors(action: str, place: Place) -> Iterator[None]:
    """Turn errors of boto3 and of the network into WorkerError."""
    try:
        yield
    except Exception as exc:
        error = to_worker_error(exc, action, str(place))
        if error is None:
            raise
        raise error from exc


def to_worker_error(exc: BaseException, action: str, address: str) -> WorkerError | None:
    """Return the error for what boto3 raised; None if it comes from elsewhere."""
    from botocore import exceptions as aws
    from s3transfer import exceptions as transfers

    exc = _last_error(exc)
    # Older versions, as Linux distributions have them, have no error for a replaced object.
    if isinstance(exc, getattr(transfers, "S3DownloadFailedError", ())):
        return errors.replaced_error(action, address)
    if isinstance(exc, aws.ClientError):
        return errors.from_s3_error(action, address, exc.operation_name, *_read_answer(exc))
    if isinstance(exc, aws.NoCredentialsError | aws.PartialCredentialsError):
        return errors.credentials_error(action, address)
    if is_passing(exc):
        return errors.unreachable_error(action, address, exc)
    if isinstance(exc, aws.BotoCoreError):
        return WorkerError(f"could not {action} {address}: {exc}", errors.EXIT_BUG)
    return None


def is_passing(exc: BaseException) -> bool:
    """Return whether another try may succeed: an error of the network, or a throttled request."""
    from botocore import exceptions as aws
    from urllib3.exceptions import HTTPError

    exc = _last_error(exc)
    if isinstance(exc, aws.ClientError):
        code, _, status = _read_answer(exc)
        return errors.is_passing(code, status)
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


def _last_error(exc: BaseException) -> BaseException:
    """Return the last error of a transfer that gave up, else the error itself."""
    from s3transfer.exceptions import RetriesExceededError

    return exc.last_exception if isinstance(exc, RetriesExceededError) else exc


def _read_answer(exc: Any) -> tuple[str, str, int]:
    """Return code, message and HTTP status of an error response."""
    error = exc.response.get("Error", {})
    status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    return str(error.get("Code", "")), str(error.get("Message", "")), int(status)
