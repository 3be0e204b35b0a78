"""Messages and exit codes of the worker for errors of S3."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest
from botocore.exceptions import CredentialRetrievalError

from batchyard.worker import errors, s3
from batchyard.worker.errors import (
    EXIT_BUG,
    EXIT_DENIED,
    EXIT_MACHINE,
    EXIT_MISSING,
    EXIT_ORDERS,
    EXIT_RETRY,
    WorkerError,
    from_s3_error,
)

WHERE = "s3://yard/ws/raw/a.tif"


@pytest.mark.parametrize(
    ("operation", "code", "status", "exit_code", "message"),
    [
        (
            "GetObject",
            "AccessDenied",
            403,
            EXIT_DENIED,
            "allow s3:GetObject on arn:aws:s3:::yard/ws/raw/a.tif",
        ),
        (
            "ListObjectsV2",
            "AccessDenied",
            403,
            EXIT_DENIED,
            "allow s3:ListBucket on arn:aws:s3:::yard in",
        ),
        ("UploadPart", "AccessDenied", 403, EXIT_DENIED, "allow s3:PutObject"),
        ("HeadObject", "403", 403, EXIT_DENIED, "allow s3:GetObject"),
        ("GetObject", "ExpiredToken", 400, EXIT_DENIED, "job role"),
        ("GetObject", "NoSuchBucket", 404, EXIT_MISSING, "no bucket yard"),
        ("GetObject", "NoSuchKey", 404, EXIT_MISSING, "it does not exist"),
        ("GetObject", "PermanentRedirect", 301, EXIT_ORDERS, "another region"),
        ("PutObject", "SlowDown", 503, EXIT_RETRY, "SlowDown"),
        ("PutObject", "InternalError", 500, EXIT_RETRY, "InternalError"),
        ("PutObject", "", 502, EXIT_RETRY, "502"),
        ("GetObject", "PreconditionFailed", 412, EXIT_RETRY, "PreconditionFailed"),
        ("PutObject", "KeyTooLongError", 400, EXIT_BUG, "KeyTooLongError"),
    ],
)
def test_an_answer_of_s3_in_a_sentence(
    operation: str, code: str, status: int, exit_code: int, message: str
) -> None:
    error = from_s3_error("download", WHERE, operation, code, "sorry", status)
    assert error.exit_code == exit_code
    assert str(error).startswith(f"could not download {WHERE}: ")
    assert message in str(error)


def test_a_key_that_may_not_be_used_is_told_from_a_bucket_that_may_not() -> None:
    message = "User is not authorized to perform: kms:GenerateDataKey on this resource"
    assert "allow kms:GenerateDataKey" in str(
        from_s3_error("upload", WHERE, "PutObject", "AccessDenied", message, 403)
    )
    assert "allow kms:Decrypt" in str(
        from_s3_error("download", WHERE, "GetObject", "AccessDenied", "KMS key", 403)
    )


def test_only_what_may_pass_asks_for_another_attempt() -> None:
    codes = {EXIT_BUG, EXIT_MACHINE, EXIT_MISSING, errors.EXIT_NAME, EXIT_DENIED, EXIT_ORDERS}
    assert EXIT_RETRY not in codes
    assert len(codes) == 6


def test_the_disk_is_named() -> None:
    error = errors.from_os_error(
        "make", OSError(errno.ENOSPC, "No space left on device", "/scratch/a")
    )
    assert error.exit_code == EXIT_MACHINE
    assert str(error).startswith("could not make /scratch/a: No space left on device; ")


@pytest.mark.parametrize(
    ("region", "address"),
    [
        ("us-east-1", "https://s3.us-east-1.amazonaws.com"),
        ("eu-central-1", "https://s3.eu-central-1.amazonaws.com"),
        ("us-gov-west-1", "https://s3.us-gov-west-1.amazonaws.com"),
        ("cn-north-1", "https://s3.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_s3_is_asked_at_the_address_of_the_region(region: str, address: str) -> None:
    code = (
        f"from batchyard.worker import s3\nprint(s3.connect({region!r}).client.meta.endpoint_url)"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == address


def test_an_image_without_boto3_is_told_what_to_install() -> None:
    code = (
        "import sys; sys.modules['botocore'] = None\n"
        "from batchyard.worker import errors, s3\n"
        "try: s3.connect()\n"
        "except errors.WorkerError as exc: print(exc)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install boto3" in done.stdout


class SlowCredentials:
    """A session whose credentials cannot be read in the first tries."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def create_client(self, service: str) -> str:
        self.failures -= 1
        if self.failures >= 0:
            raise CredentialRetrievalError(provider="container-role", error_msg="Read timeout")
        return f"client of {service}"


def test_credentials_of_a_busy_host_are_read_again() -> None:
    pauses: list[float] = []
    assert s3.create_client(SlowCredentials(3), pauses.append) == "client of s3"
    assert pauses == [0.4, 0.8, 1.6]
    with pytest.raises(WorkerError, match="could not read the credentials of the job's role") as e:
        s3.create_client(SlowCredentials(4), pauses.append)
    assert e.value.exit_code == EXIT_RETRY
