"""Clients of AWS for one region, and how a call that failed is told to the user. The only place that makes clients.

boto3 is imported when the first client is made. What may be repeated is repeated by botocore itself, with backoff and
jitter; SubmitJob may not (``batch.submit``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from batchyard.errors import BadInput, Surroundings

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

_MOST_ATTEMPTS = 12
_TIMEOUT_S = 60
#: error codes that mean "later"
THROTTLED = frozenset(
    ["TooManyRequestsException", "ThrottlingException", "Throttling", "RequestLimitExceeded", "SlowDown"]
)
_DENIED = frozenset(["AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403", "Forbidden"])
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


class NotAllowed(Surroundings):
    """AWS does not let this user do it."""


class Refused(BadInput):
    """AWS understood, and says no."""

    def __init__(self, message: str = "", *, code: str = "", hint: str = "") -> None:
        self.code = code
        super().__init__(message, hint=hint)


class Door:
    """AWS in one region, as one profile."""

    def __init__(self, region: str | None, profile: str | None = None) -> None:
        """A region of None is that of the profile or the environment."""
        self.region = region
        self.profile = profile
        self._clients: dict[tuple[str, bool], Any] = {}
        self._session: Any = None

    def client(self, service: str, *, repeats: bool = True) -> Any:
        """``repeats``: whether botocore may send a request again by itself."""
        key = (service, repeats)
        if key not in self._clients:
            with told(f"use {service}"):
                self._clients[key] = self._made(service, repeats)
        return self._clients[key]

    def _made(self, service: str, repeats: bool) -> Any:
        try:
            import boto3
            from botocore.config import Config
        except ImportError:
            raise Surroundings("the AWS engine needs boto3", hint="pip install 'batchyard[aws]'") from None
        if self._session is None:
            self._session = boto3.Session(region_name=self.region, profile_name=self.profile)
        retries = {"mode": "standard", "total_max_attempts": _MOST_ATTEMPTS if repeats else 1}
        config = Config(
            retries=retries,
            read_timeout=_TIMEOUT_S,
            connect_timeout=10,
            user_agent_extra="batchyard",
            max_pool_connections=32,
        )
        return self._session.client(service, config=config)


@contextmanager
def told(doing: str) -> Iterator[None]:
    """boto3's errors end here. ``doing`` completes "could not ..."."""
    from botocore import exceptions as aws

    try:
        yield
    except (aws.NoCredentialsError, aws.PartialCredentialsError, aws.CredentialRetrievalError) as exc:
        raise Surroundings(
            f"could not {doing}: there are no usable AWS credentials ({exc})",
            hint="log in with `aws sso login` or `aws configure`, or set AWS_PROFILE; for the endpoint on this "
            "machine, paste the lines that `batchyard emulate` printed",
        ) from exc
    except (aws.ProfileNotFound, aws.NoRegionError) as exc:
        raise BadInput(f"could not {doing}: {exc}", hint="`aws configure list-profiles` shows the profiles") from exc
    except aws.ClientError as exc:
        raise from_client_error(exc, doing) from exc
    except aws.ParamValidationError as exc:
        raise BadInput(f"could not {doing}: {exc}") from exc
    except (aws.HTTPClientError, aws.ConnectionError) as exc:
        raise Surroundings(
            f"could not {doing}: AWS cannot be reached: {exc}",
            hint="check the network, the region's name, and AWS_ENDPOINT_URL if it is set",
        ) from exc


def from_client_error(exc: ClientError, doing: str) -> Surroundings | Refused:
    """The sentence for an answer of AWS that is an error."""
    code = str(exc.response.get("Error", {}).get("Code", ""))
    message = str(exc.response.get("Error", {}).get("Message", "")) or code
    if code in _EXPIRED:
        return Surroundings(
            f"could not {doing}: the AWS credentials have expired", hint="log in again: `aws sso login`"
        )
    if code in _UNKNOWN_KEYS:
        return Surroundings(
            f"could not {doing}: AWS does not know these credentials: {message}",
            hint="check AWS_PROFILE, AWS_ACCESS_KEY_ID and the account",
        )
    if code in _DENIED:
        action = f"{exc_service(exc)}:{exc.operation_name}"
        return NotAllowed(
            f"could not {doing}: access denied for {action}: {message}",
            hint=f"ask for the action {action}; the environment's submitter policy grants what a run needs",
        )
    if code in THROTTLED:
        return Surroundings(
            f"could not {doing}: AWS asks to go slower, and went on asking", hint="try again in a minute"
        )
    status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    if status >= 500:
        return Surroundings(f"could not {doing}: AWS has a problem of its own: {message}", hint="try again")
    return Refused(f"could not {doing}: {message}", code=code)


def exc_service(exc: ClientError) -> str:
    """`batch` for what SubmitJob answered: the prefix of the IAM action."""
    known = {"SubmitJob": "batch", "DescribeJobs": "batch", "ListJobs": "batch", "TerminateJob": "batch"}
    operation = exc.operation_name
    if (
        operation in known
        or "JobDefinition" in operation
        or "JobQueue" in operation
        or "ComputeEnvironment" in operation
    ):
        return "batch"
    if "Log" in operation:
        return "logs"
    if "Stack" in operation or "Export" in operation or "ChangeSet" in operation:
        return "cloudformation"
    if "Authorization" in operation or "Image" in operation or "Repositor" in operation:
        return "ecr"
    return "s3"
