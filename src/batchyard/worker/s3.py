"""Read, write and list small objects of S3, and turn boto3's errors into WorkerError.

``transfers`` moves files. botocore itself repeats requests that were throttled or interrupted.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from batchyard.quick_dataclasses import dataclass
from batchyard.service_models import avoid_listing
from batchyard.worker import errors
from batchyard.worker.errors import WorkerError
from batchyard.worker.orders import Place

_MAX_ATTEMPTS = 6
_CONNECT_TIMEOUT_S = 10
_READ_TIMEOUT_S = 30
#: keys in one page of a list
_MAX_KEYS = 1000
_PRECONDITION_FAILED = 412
#: another write of the same object is under way
_CONFLICT = 409
#: requests of one child at the same time
CONCURRENCY = 16
#: tries to read the body of an object, which botocore does not repeat
_BODY_TRIES = 4
#: tries of a write with a condition, each with botocore's own, and the pauses between them
_CONDITIONAL_TRIES = 6
#: tries to read the credentials of the job, each with three of botocore's own
_CREDENTIAL_TRIES = 4
_FIRST_PAUSE_S = 0.2
_MAX_PAUSE_S = 5.0


@dataclass(frozen=True, slots=True)
class S3Object:
    """An entry in a list of objects."""

    key: str
    size: int
    etag: str


class AgedObject(NamedTuple):
    """An entry in a list of objects, with the time since its last write by the clock of S3."""

    key: str
    size: int
    etag: str
    age_s: float


class ObjectVersion(NamedTuple):
    """The content of an object, and the time since its last write by the clock of S3."""

    data: bytes
    etag: str
    age_s: float


class Bucket:
    """S3, with the rights of the job's role."""

    def __init__(self, client: Any, sleep: Callable[[float], object] = time.sleep) -> None:
        self.client = client
        self._sleep = sleep

    def read(
        self, place: Place, action: str, first: int | None = None, stop: int | None = None
    ) -> bytes:
        """Return the object, or its bytes from ``first`` up to ``stop``.

        ``action`` completes "could not ..." in errors, here and below.
        """
        extra = {} if first is None or stop is None else {"Range": f"bytes={first}-{stop - 1}"}
        return self._read(place, action, extra)[0]

    def read_version(self, place: Place, action: str) -> ObjectVersion:
        data, answer = self._read(place, action, {})
        age_s = _date_of(answer).timestamp() - answer["LastModified"].timestamp()
        return ObjectVersion(data, answer["ETag"], age_s)

    def _read(self, place: Place, action: str, extra: dict[str, str]) -> tuple[bytes, Any]:
        with naming_errors(action, place):
            for remaining_tries in reversed(range(_BODY_TRIES)):
                answer = self.client.get_object(Bucket=place.bucket, Key=place.key, **extra)
                try:
                    return bytes(answer["Body"].read()), answer
                except Exception as exc:
                    if not remaining_tries or not is_passing(exc):
                        raise
        raise AssertionError("unreachable")

    def write(self, place: Place, data: bytes, action: str) -> None:
        with naming_errors(action, place):
            self.client.put_object(Bucket=place.bucket, Key=place.key, Body=data)

    def write_if(
        self, place: Place, data: bytes, etag: str | None, action: str
    ) -> tuple[str | None, bool]:
        """Write the object if it has this ETag, or if it does not exist where ``etag`` is None.

        Returns the new ETag, None if S3 refused; and whether the request was sent once. Otherwise,
        a refusal can also mean that an earlier try was performed and its answer was lost.
        """
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        _require_conditions(self.client)
        with naming_errors(action, place):
            for remaining_tries in reversed(range(_CONDITIONAL_TRIES)):
                try:
                    answer = self.client.put_object(
                        Bucket=place.bucket, Key=place.key, Body=data, **condition
                    )
                    return str(answer["ETag"]), False
                except Exception as exc:
                    if is_replaced(exc):
                        is_first = remaining_tries == _CONDITIONAL_TRIES - 1
                        return None, is_first and not _was_repeated(exc)
                    if not remaining_tries or not (is_passing(exc) or _is_conflict(exc)):
                        raise
                    self._pause(_CONDITIONAL_TRIES - remaining_tries)
        raise AssertionError("unreachable")

    def _pause(self, tries: int) -> None:
        pause_s = min(_MAX_PAUSE_S, _FIRST_PAUSE_S * 2**tries)
        # The random factor spreads the children that failed at the same time.
        self._sleep(pause_s * random.uniform(0.5, 1))

    def list_aged(
        self, prefix: Place, action: str, *, start_after: str = ""
    ) -> Iterator[AgedObject]:
        """Yield the objects below the prefix with their ages, in the order of keys."""
        request: dict[str, Any] = {"StartAfter": start_after} if start_after else {}
        while True:
            page = self._list(prefix, action, request)
            now_s = _date_of(page).timestamp()
            for entry in page.get("Contents", ()):
                age_s = now_s - entry["LastModified"].timestamp()
                yield AgedObject(entry["Key"], entry["Size"], entry["ETag"], age_s)
            if not page.get("IsTruncated"):
                return
            request["ContinuationToken"] = page["NextContinuationToken"]

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
        request: dict[str, Any] = {"MaxKeys": min(_MAX_KEYS, at_most)}
        request |= {"StartAfter": start_after} if start_after else {}
        request |= {"Delimiter": "/"} if flat else {}
        while True:
            page = self._list(prefix, action, request)
            yield from _objects_of(page)
            if not page.get("IsTruncated"):
                return
            request["ContinuationToken"] = page["NextContinuationToken"]

    def list_page(
        self, prefix: Place, action: str, start_after: str = ""
    ) -> tuple[tuple[S3Object, ...], bool]:
        """Return up to 1000 objects below the prefix after a key, and whether they are the last."""
        request = {"StartAfter": start_after} if start_after else {}
        page = self._list(prefix, action, request)
        return _objects_of(page), not page.get("IsTruncated")

    def _list(self, prefix: Place, action: str, request: dict[str, Any]) -> Any:
        with naming_errors(action, prefix):
            return self.client.list_objects_v2(Bucket=prefix.bucket, Prefix=prefix.key, **request)


def _objects_of(page: Any) -> tuple[S3Object, ...]:
    return tuple(
        S3Object(entry["Key"], entry["Size"], entry["ETag"]) for entry in page.get("Contents", ())
    )


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Import and create what stays to the end, without looking for garbage among it.

    botocore reads models of 80,000 objects. Looking through them again and again
    took a third of the worker's start-up time. Later collections leave them out, too.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@_without_garbage_collection()
def connect(region: str | None = None) -> Bucket:
    """Return S3 at the address of the region; of botocore's own configuration without one."""
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
        # Else requests to us-east-1 go to the global address, which VPC endpoints do not serve.
        s3={"us_east_1_regional_endpoint": "regional"},
    )
    session = botocore.session.get_session()
    avoid_listing(session)
    return Bucket(create_client(session, region_name=region or None, config=config))


def create_client(
    session: Any, sleep: Callable[[float], object] = time.sleep, **members: Any
) -> Any:
    """Return a client of S3. The credentials of the job are read with it, by a few tries."""
    from botocore.exceptions import CredentialRetrievalError, MetadataRetrievalError

    tries = 0
    while True:
        try:
            return session.create_client("s3", **members)
        except (CredentialRetrievalError, MetadataRetrievalError) as exc:
            tries += 1
            if tries == _CREDENTIAL_TRIES:
                action, address = "read the credentials of", "the job's role"
                raise errors.unreachable_error(action, address, exc) from exc
        sleep(_FIRST_PAUSE_S * 2**tries)


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


def is_replaced(exc: BaseException) -> bool:
    """Return whether S3 has refused a request because the object has another ETag by now."""
    from botocore.exceptions import ClientError

    return isinstance(exc, ClientError) and _read_answer(exc)[2] == _PRECONDITION_FAILED


def _was_repeated(exc: Any) -> bool:
    """Return whether botocore has sent the request of this error response more than once."""
    return bool(exc.response.get("ResponseMetadata", {}).get("RetryAttempts", 1))


def _is_conflict(exc: BaseException) -> bool:
    """Return whether S3 has refused a write because of another one at the same time."""
    from botocore.exceptions import ClientError

    return isinstance(exc, ClientError) and _read_answer(exc)[2] == _CONFLICT


def _require_conditions(client: Any) -> None:
    """Raise WorkerError if the image's boto3 cannot write with a condition."""
    members = client.meta.service_model.operation_model("PutObject").input_shape.members
    if "IfMatch" not in members:
        raise WorkerError(
            "a step with `share_out: dynamic` needs boto3 1.35.69 or later in its image; "
            "install it there: pip install -U boto3",
            errors.EXIT_MACHINE,
        )


def _date_of(answer: Any) -> datetime:
    """Return the time at which S3 has answered, by its own clock."""
    return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])


def _last_error(exc: BaseException) -> BaseException:
    """Return the last error of a transfer that gave up, else the error itself."""
    from s3transfer.exceptions import RetriesExceededError

    return exc.last_exception if isinstance(exc, RetriesExceededError) else exc


def _read_answer(exc: Any) -> tuple[str, str, int]:
    """Return code, message and HTTP status of an error response."""
    error = exc.response.get("Error", {})
    status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    return str(error.get("Code", "")), str(error.get("Message", "")), int(status)
