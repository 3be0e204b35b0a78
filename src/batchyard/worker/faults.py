"""The worker's own failures, each with its exit code, and how S3's are told to the user. Pure.

A command's failures are none of this: their codes are its own. 75 alone asks for another attempt.
"""

from __future__ import annotations

from collections.abc import Mapping

#: a mistake of the worker's
BUG = 70
#: this machine: no disk, no permission, no process
MACHINE = 71
#: a bucket or an object that is not there
MISSING = 72
#: another attempt may do better
AGAIN = 75
#: a file that cannot be laid down here, or there, under its name
NAME = 76
#: no credentials, or not allowed
DENIED = 77
#: the orders, or the variables that lead to them
ORDERS = 78

_DENIED_CODES = frozenset(
    ["AccessDenied", "AccessDeniedException", "AllAccessDisabled", "Forbidden", "403", "401"]
)
_CREDENTIAL_CODES = frozenset(
    [
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    ]
)
_MISSING_CODES = frozenset(["NoSuchKey", "NotFound", "404", "NoSuchVersion"])
_ELSEWHERE_CODES = frozenset(["PermanentRedirect", "IllegalLocationConstraintException", "301"])
_PASSING_CODES = frozenset(
    [
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "RequestTimeTooSkewed",
        "InternalError",
        "ServiceUnavailable",
        "OperationAborted",
        "BadDigest",
        "IncompleteBody",
        # It was replaced while it was read.
        "PreconditionFailed",
        # A part's upload was cut short, and the parts were cleared away.
        "NoSuchUpload",
    ]
)
_PASSING_STATUSES = (408, 412, 429)
#: operation -> IAM action, where their names differ
_ACTIONS = {
    "ListObjectsV2": "ListBucket",
    "HeadObject": "GetObject",
    "CreateMultipartUpload": "PutObject",
    "UploadPart": "PutObject",
    "CompleteMultipartUpload": "PutObject",
}


class Fault(Exception):
    """One sentence for the log, and the exit code that says the same."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def from_answer(
    doing: str, where: str, operation: str, code: str, message: str, status: int
) -> Fault:
    """For an answer of S3 that is an error. ``doing`` completes "could not ..."; ``where`` is an s3:// address."""
    could_not = f"could not {doing} {where}"
    if is_passing(code, status):
        return Fault(
            f"{could_not}: S3 answers {code or status} and went on doing so; another attempt may do",
            AGAIN,
        )
    if code in _CREDENTIAL_CODES:
        return Fault(
            f"{could_not}: AWS does not take the credentials ({code}); check the job role", DENIED
        )
    if code == "NoSuchBucket":
        bucket = where.removeprefix("s3://").partition("/")[0]
        return Fault(
            f"{could_not}: there is no bucket {bucket}; check the environment's bucket, or deploy it",
            MISSING,
        )
    if code in _DENIED_CODES or status == 403:
        return Fault(
            f"{could_not}: access denied; {_permission(where, operation, message)}", DENIED
        )
    if code in _MISSING_CODES or status == 404:
        return Fault(
            f"{could_not}: it is not there; was it deleted while the run was going on?", MISSING
        )
    if code in _ELSEWHERE_CODES:
        return Fault(
            f"{could_not}: the bucket is in another region; set AWS_REGION to it in the job", ORDERS
        )
    return Fault(f"{could_not}: S3 answers {code or status} to {operation}: {message}", BUG)


def _permission(where: str, operation: str, message: str) -> str:
    if "kms" in message.lower():
        key_action = (
            "kms:Decrypt" if operation in ("GetObject", "HeadObject") else "kms:GenerateDataKey"
        )
        return f"allow {key_action} on the bucket's key in the job role's policy, and the role in the key's policy"
    bucket, _, key = where.removeprefix("s3://").partition("/")
    action = _ACTIONS.get(operation, operation)
    resource = bucket if action == "ListBucket" else f"{bucket}/{key}"
    return f"allow s3:{action} on arn:aws:s3:::{resource} in the job role's policy"


def is_passing(code: str, status: int) -> bool:
    """Whether the same request may well be answered otherwise a little later."""
    return code in _PASSING_CODES or status >= 500 or status in _PASSING_STATUSES


def unreachable(doing: str, where: str, why: object) -> Fault:
    return Fault(f"could not {doing} {where}: {why}; another attempt may do", AGAIN)


def replaced(doing: str, where: str) -> Fault:
    return Fault(
        f"could not {doing} {where}: it was replaced meanwhile; another attempt finds the new one",
        AGAIN,
    )


def no_credentials(doing: str, where: str) -> Fault:
    return Fault(
        f"could not {doing} {where}: no AWS credentials; give the job definition a job role", DENIED
    )


def from_os_error(doing: str, exc: OSError) -> Fault:
    what = f" {exc.filename}" if exc.filename else ""
    return Fault(
        f"could not {doing}{what}: {exc.strerror or exc}; check the container's disk and its user",
        MACHINE,
    )


def variable(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    """A whole number from the environment."""
    text = environ.get(name, "")
    if not text and default is not None:
        return default
    if not (text.isascii() and text.isdigit()):
        raise Fault(
            f"{name} is {text!r}, not a whole number; AWS Batch or the engine sets it", ORDERS
        )
    return int(text)
