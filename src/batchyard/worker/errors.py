"""Errors of the worker itself, each with an exit code, and messages for errors of S3. Pure.

Failures of commands are not among them: a command has its own exit code. Only 75 asks for another
attempt; ``rules`` turns other codes into it.
"""

from __future__ import annotations

from collections.abc import Mapping

#: a bug of the worker
EXIT_BUG = 70
#: the machine: no disk space, no permission, no process
EXIT_MACHINE = 71
#: a bucket or an object that does not exist
EXIT_MISSING = 72
#: another attempt may succeed
EXIT_RETRY = 75
#: the name of a file that S3 or the disk does not allow
EXIT_NAME = 76
#: no credentials, or access denied
EXIT_DENIED = 77
#: invalid orders, or an invalid variable that leads to them
EXIT_ORDERS = 78

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
_REGION_CODES = frozenset(["PermanentRedirect", "IllegalLocationConstraintException", "301"])
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
        # The object was replaced while it was read.
        "PreconditionFailed",
        # The upload of a part was interrupted, and S3 has deleted the parts.
        "NoSuchUpload",
    ]
)
_PASSING_STATUSES = (408, 412, 429)
#: operation -> IAM action, if their names differ
_ACTIONS = {
    "ListObjectsV2": "ListBucket",
    "HeadObject": "GetObject",
    "CreateMultipartUpload": "PutObject",
    "UploadPart": "PutObject",
    "CompleteMultipartUpload": "PutObject",
}


class WorkerError(Exception):
    """One sentence for the log, and the worker's exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def from_s3_error(
    action: str, address: str, operation: str, code: str, message: str, status: int
) -> WorkerError:
    """Return the error for an error response of S3.

    ``action`` completes "could not ..."; ``address`` is an s3:// address.
    """
    problem, exit_code = _explain(address, operation, code, message, status)
    return WorkerError(f"could not {action} {address}: {problem}", exit_code)


def _explain(address: str, operation: str, code: str, message: str, status: int) -> tuple[str, int]:
    """Return what the error means and what to do, and the exit code."""
    if is_passing(code, status):
        return (
            f"S3 answers {code or status}, also after several tries; another attempt may succeed",
            EXIT_RETRY,
        )
    if code in _CREDENTIAL_CODES:
        return f"AWS refuses the credentials ({code}); check the job role", EXIT_DENIED
    if code == "NoSuchBucket":
        bucket = address.removeprefix("s3://").partition("/")[0]
        return (
            f"there is no bucket {bucket}; check the environment's bucket, or deploy it",
            EXIT_MISSING,
        )
    if _is_denied(code, status):
        return f"access denied; {_missing_permission(address, operation, message)}", EXIT_DENIED
    if code in _MISSING_CODES or status == 404:
        return "it does not exist; was it deleted while the run was going on?", EXIT_MISSING
    if code in _REGION_CODES:
        return "the bucket is in another region; set AWS_REGION to it in the job", EXIT_ORDERS
    return f"S3 answers {code or status} to {operation}: {message}", EXIT_BUG


def _is_denied(code: str, status: int) -> bool:
    return code in _DENIED_CODES or status == 403


def _missing_permission(address: str, operation: str, message: str) -> str:
    if "kms" in message.lower():
        is_read = operation in ("GetObject", "HeadObject")
        key_action = "kms:Decrypt" if is_read else "kms:GenerateDataKey"
        return (
            f"allow {key_action} on the bucket's key in the job role's policy, "
            "and the role in the key's policy"
        )
    bucket, _, key = address.removeprefix("s3://").partition("/")
    action = _ACTIONS.get(operation, operation)
    resource = bucket if action == "ListBucket" else f"{bucket}/{key}"
    return f"allow s3:{action} on arn:aws:s3:::{resource} in the job role's policy"


def is_passing(code: str, status: int) -> bool:
    """Return whether the same request may succeed a little later."""
    return code in _PASSING_CODES or status >= 500 or status in _PASSING_STATUSES


def unreachable_error(action: str, address: str, cause: object) -> WorkerError:
    return WorkerError(
        f"could not {action} {address}: {cause}; another attempt may succeed", EXIT_RETRY
    )


def replaced_error(action: str, address: str) -> WorkerError:
    return WorkerError(
        f"could not {action} {address}: it was replaced meanwhile; another attempt may succeed",
        EXIT_RETRY,
    )


def credentials_error(action: str, address: str) -> WorkerError:
    return WorkerError(
        f"could not {action} {address}: no AWS credentials; give the job definition a job role",
        EXIT_DENIED,
    )


def from_os_error(action: str, exc: OSError) -> WorkerError:
    path = f" {exc.filename}" if exc.filename else ""
    return WorkerError(
        f"could not {action}{path}: {exc.strerror or exc}; check the container's disk and its user",
        EXIT_MACHINE,
    )


def read_variable(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    """Return the whole number in an environment variable. Raises WorkerError."""
    text = environ.get(name, "")
    if not text and default is not None:
        return default
    if not (text.isascii() and text.isdigit()):
        raise WorkerError(
            f"{name} is {text!r}, not a whole number; AWS Batch or the engine sets it", EXIT_ORDERS
        )
    return int(text)
