"""Create the clients of AWS for one region, and turn boto3's errors into messages.

boto3 is imported with the first client. botocore itself repeats failed calls, with backoff and
jitter; SubmitJob must not be repeated (``batch.submit``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from batchyard.aws.cut_answers import repeat_cut_answers
from batchyard.errors import (
    BusyServiceError,
    InputError,
    OperationalError,
    UnreachableServiceError,
)
from batchyard.service_models import avoid_listing

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

_MAX_ATTEMPTS = 12
#: Attempts before the first answer, and of those who watch a run: a wrong region or no network
#: should show within seconds.
_MAX_EARLY_ATTEMPTS = 4
_TIMEOUT_S = 60
_CONNECT_TIMEOUT_S = 10
_NO_CONTENT = 204
#: Error codes of throttled calls.
THROTTLED = frozenset(
    [
        "TooManyRequestsException",
        "ThrottlingException",
        "Throttling",
        "RequestLimitExceeded",
        "SlowDown",
    ]
)
_DENIED = frozenset(
    ["AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403", "Forbidden"]
)
_EXPIRED = frozenset(["ExpiredToken", "ExpiredTokenException", "RequestExpired"])
_UNKNOWN_KEYS = frozenset(
    [
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "AuthFailure",
    ]
)

_OTHER_REGION = "the bucket is in another region than the environment: check its `region:`"
_HINTS = {
    "NoSuchBucket": "check the environment's `bucket:`, and its region",
    "PermanentRedirect": _OTHER_REGION,
    "AuthorizationHeaderMalformed": _OTHER_REGION,
}


class AccessDeniedError(OperationalError):
    """The user lacks the permission for a call."""


class NoRegionError(InputError):
    """No region is configured."""


class AwsRefusedError(InputError):
    """AWS refused a call; ``code`` is the error code of AWS."""

    def __init__(self, message: str = "", *, code: str = "", hint: str = "") -> None:
        self.code = code
        super().__init__(message, hint=hint)


class _NotAwsError(Exception):
    """The answer came from another server, such as a proxy or the login page of a network."""


class AwsSession:
    """The clients of AWS for one region and one profile."""

    def __init__(
        self,
        region: str | None,
        profile: str | None = None,
        *,
        timeout_s: float = _TIMEOUT_S,
        max_attempts: int = _MAX_ATTEMPTS,
    ) -> None:
        """With None, the region is that of the profile or of AWS_REGION.

        ``timeout_s``: how long an attempt of a call waits for its answer.
        """
        self.region = region
        self._timeout_s = timeout_s
        self._max_attempts = max_attempts
        self.profile = profile
        self._clients: dict[tuple[str, bool], Any] = {}
        self._session: Any = None
        self._was_answered = False
        self._gives_up_early = False

    @contextmanager
    def giving_up_early(self) -> Iterator[None]:
        """Repeat calls only a few times while no server answers, as before the first answer."""
        self._gives_up_early = True
        try:
            yield
        finally:
            self._gives_up_early = False

    def client(self, service: str, *, repeats: bool = True) -> Any:
        """Return the client of a service; ``repeats`` is whether botocore may repeat a request."""
        key = (service, repeats)
        if key not in self._clients:
            with naming_errors(f"use {service}"):
                self._clients[key] = self._make_client(service, repeats)
        return self._clients[key]

    def _make_client(self, service: str, repeats: bool) -> Any:
        _require_boto3()
        import boto3
        import botocore.session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, NoRegionError

        if self._session is None:
            # boto3 itself reads only AWS_DEFAULT_REGION.
            region = self.region or os.environ.get("AWS_REGION") or None
            own_session = botocore.session.Session()
            avoid_listing(own_session)
            self._session = boto3.Session(
                region_name=region, profile_name=self.profile, botocore_session=own_session
            )
        max_attempts = self._max_attempts if repeats else 1
        config = Config(
            retries={"mode": "standard", "total_max_attempts": max_attempts},
            read_timeout=self._timeout_s,
            connect_timeout=min(_CONNECT_TIMEOUT_S, self._timeout_s),
            user_agent_extra="batchyard",
            max_pool_connections=32,
        )
        try:
            client = self._session.client(service, config=config)
        except BotoCoreError:
            raise
        except ValueError as exc:  # an invalid endpoint address
            raise InputError(
                f"could not use {service}: {exc}", hint="check AWS_ENDPOINT_URL"
            ) from exc
        if not client.meta.region_name:  # AWS_DEFAULT_REGION is set but empty
            raise NoRegionError
        service_id = client.meta.service_model.service_id.hyphenize()
        client.meta.events.register_first(f"needs-retry.{service_id}", self._give_up_early)
        client.meta.events.register_first(f"before-parse.{service_id}", _require_aws)
        repeat_cut_answers(client, max_attempts)
        return client

    def _give_up_early(
        self, response: Any = None, caught_exception: Any = None, attempts: int = 1, **_: Any
    ) -> bool | None:
        """Tell botocore not to repeat a request if no server answers; else let it decide (None)."""
        from botocore.exceptions import ConnectionError, EndpointConnectionError, HTTPClientError

        self._was_answered = self._was_answered or response is not None
        if attempts < _MAX_EARLY_ATTEMPTS:
            return None
        if self._gives_up_early:
            is_over = isinstance(caught_exception, (ConnectionError, HTTPClientError))
        else:
            is_refused = isinstance(caught_exception, EndpointConnectionError)
            is_over = is_refused and not self._was_answered
        return False if is_over else None


def _require_aws(response_dict: Any, **_: Any) -> None:
    """Raise _NotAwsError for a web page, in which botocore would find nothing and report nothing.

    Objects of S3 may be web pages, and have an ETag. Load balancers of AWS may send one with a
    status of 500 or above. An answer with status 204 has no body.
    """
    headers = {name.lower(): value for name, value in response_dict["headers"].items()}
    status = response_dict["status_code"]
    is_page = headers.get("content-type", "").startswith("text/html")
    if is_page and status < 500 and status != _NO_CONTENT and "etag" not in headers:
        raise _NotAwsError(f"it sent a web page (HTTP {status})")


def _require_boto3() -> None:
    """Raise OperationalError if boto3, an optional dependency, is not installed."""
    try:
        import boto3  # noqa: F401 (only to see whether it is installed)
    except ImportError:
        raise OperationalError(
            "the AWS engine needs boto3",
            hint="in the clone of batchyard: pip install '.[aws]'",
        ) from None


@contextmanager
def naming_errors(doing: str) -> Iterator[None]:
    """Turn boto3's errors into ours. ``doing`` completes the message "could not ..."."""
    _require_boto3()
    from botocore import exceptions as aws
    from botocore.parsers import ResponseParserError

    try:
        yield
    except (
        aws.NoCredentialsError,
        aws.PartialCredentialsError,
        aws.CredentialRetrievalError,
    ) as exc:
        raise OperationalError(
            f"could not {doing}: there are no usable AWS credentials ({exc})",
            hint="log in with `aws sso login` or `aws configure`, or set AWS_PROFILE; for the "
            "endpoint on this machine, paste the lines that `batchyard emulate` printed",
        ) from exc
    except aws.ProfileNotFound as exc:
        raise InputError(
            f"could not {doing}: {exc}", hint="`aws configure list-profiles` shows the profiles"
        ) from exc
    except aws.NoRegionError as exc:
        raise NoRegionError(
            f"could not {doing}: no AWS region is set",
            hint="set AWS_REGION, or where the command takes one, name an environment of "
            ".batchyard/environments.yaml with --env; for the endpoint on this machine, paste the "
            "lines that `batchyard emulate` printed",
        ) from exc
    except aws.ClientError as exc:
        raise from_client_error(exc, doing) from exc
    except aws.ParamValidationError as exc:
        raise InputError(f"could not {doing}: {exc}") from exc
    except aws.InvalidRegionError as exc:
        raise InputError(
            f"could not {doing}: {exc}",
            hint="check the environment's `region:`, --region or AWS_REGION",
        ) from exc
    except (aws.HTTPClientError, aws.ConnectionError) as exc:
        raise UnreachableServiceError(
            f"could not {doing}: AWS cannot be reached: {exc}",
            hint="check the network, the region's name, and AWS_ENDPOINT_URL if it is set",
        ) from exc
    except aws.BotoCoreError as exc:
        raise OperationalError(
            f"could not {doing}: {exc}", hint="check your AWS configuration: `aws configure list`"
        ) from exc
    except (_NotAwsError, ResponseParserError) as exc:
        answer = " ".join(str(exc).split())[:200]
        raise UnreachableServiceError(
            f"could not {doing}: the server that answers is not AWS: {answer}",
            hint="check AWS_ENDPOINT_URL if it is set, and whether a proxy answers instead",
        ) from exc


def from_client_error(exc: ClientError, doing: str) -> OperationalError | AwsRefusedError:
    """Return our error for an error that AWS answered with."""
    code = str(exc.response.get("Error", {}).get("Code", ""))
    status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    message = (
        str(exc.response.get("Error", {}).get("Message", ""))
        or code
        or f"it answered with HTTP {status} and no message"
    )
    if code in _EXPIRED:
        return OperationalError(
            f"could not {doing}: the AWS credentials have expired",
            hint="log in again: `aws sso login`",
        )
    if code in _UNKNOWN_KEYS:
        return OperationalError(
            f"could not {doing}: AWS does not know these credentials: {message}",
            hint="check AWS_PROFILE, AWS_ACCESS_KEY_ID and the account",
        )
    if code in _DENIED:
        action = action_of(exc.operation_name)
        return AccessDeniedError(
            f"could not {doing}: access denied for {action}: {message}",
            hint=f"ask for the action {action}; the environment's submitter policy grants what a"
            " run needs",
        )
    if code in THROTTLED:
        return BusyServiceError(
            f"could not {doing}: AWS throttles the calls",
            hint="try again in a minute",
        )
    if status >= 500:
        return BusyServiceError(
            f"could not {doing}: AWS has an internal problem: {message}", hint="try again"
        )
    return AwsRefusedError(f"could not {doing}: {message}", code=code, hint=_HINTS.get(code, ""))


#: Operations whose IAM action has another name.
_ACTIONS = {
    "ListObjectsV2": "s3:ListBucket",
    "HeadObject": "s3:GetObject",
    "HeadBucket": "s3:ListBucket",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
}
#: part of an operation's name -> the prefix of its IAM action; the first match counts
_SERVICES = {
    "JobDefinition": "batch",
    "JobQueue": "batch",
    "ComputeEnvironment": "batch",
    "ConsumableResource": "batch",
    "SchedulingPolic": "batch",
    "Log": "logs",
    "Stack": "cloudformation",
    "Export": "cloudformation",
    "ChangeSet": "cloudformation",
    "Authorization": "ecr",
    "Image": "ecr",
    "Repositor": "ecr",
    "Job": "batch",
    "Task": "ecs",
    "Cluster": "ecs",
    "ContainerInstance": "ecs",
}


def action_of(operation: str) -> str:
    """Return the IAM action of an operation, such as `batch:SubmitJob`."""
    if operation in _ACTIONS:
        return _ACTIONS[operation]
    service = next((service for part, service in _SERVICES.items() if part in operation), "s3")
    return f"{service}:{operation}"
