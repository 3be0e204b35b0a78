"""What the worker says when S3 does not do what it should: a sentence, what to do, and an exit code."""

from __future__ import annotations

import errno

import pytest

from batchyard.worker import faults
from batchyard.worker.faults import AGAIN, BUG, DENIED, MACHINE, MISSING, ORDERS, from_answer

WHERE = "s3://yard/ws/raw/a.tif"


@pytest.mark.parametrize(
    ("operation", "code", "status", "exit_code", "said"),
    [
        (
            "GetObject",
            "AccessDenied",
            403,
            DENIED,
            "allow s3:GetObject on arn:aws:s3:::yard/ws/raw/a.tif",
        ),
        (
            "ListObjectsV2",
            "AccessDenied",
            403,
            DENIED,
            "allow s3:ListBucket on arn:aws:s3:::yard in",
        ),
        ("UploadPart", "AccessDenied", 403, DENIED, "allow s3:PutObject"),
        ("HeadObject", "403", 403, DENIED, "allow s3:GetObject"),
        ("GetObject", "ExpiredToken", 400, DENIED, "job role"),
        ("GetObject", "NoSuchBucket", 404, MISSING, "no bucket yard"),
        ("GetObject", "NoSuchKey", 404, MISSING, "it is not there"),
        ("GetObject", "PermanentRedirect", 301, ORDERS, "another region"),
        ("PutObject", "SlowDown", 503, AGAIN, "SlowDown"),
        ("PutObject", "InternalError", 500, AGAIN, "InternalError"),
        ("PutObject", "", 502, AGAIN, "502"),
        ("GetObject", "PreconditionFailed", 412, AGAIN, "PreconditionFailed"),
        ("PutObject", "KeyTooLongError", 400, BUG, "KeyTooLongError"),
    ],
)
def test_an_answer_of_s3_in_a_sentence(
    operation: str, code: str, status: int, exit_code: int, said: str
) -> None:
    fault = from_answer("download", WHERE, operation, code, "sorry", status)
    assert fault.exit_code == exit_code
    assert str(fault).startswith(f"could not download {WHERE}: ")
    assert said in str(fault)


def test_a_key_that_may_not_be_used_is_told_from_a_bucket_that_may_not() -> None:
    message = "User is not authorized to perform: kms:GenerateDataKey on this resource"
    assert "allow kms:GenerateDataKey" in str(
        from_answer("upload", WHERE, "PutObject", "AccessDenied", message, 403)
    )
    assert "allow kms:Decrypt" in str(
        from_answer("download", WHERE, "GetObject", "AccessDenied", "KMS key", 403)
    )


def test_only_what_may_pass_asks_for_another_attempt() -> None:
    codes = {BUG, MACHINE, MISSING, faults.NAME, DENIED, ORDERS}
    assert AGAIN not in codes
    assert len(codes) == 6


def test_the_disk_is_named() -> None:
    fault = faults.from_os_error(
        "make", OSError(errno.ENOSPC, "No space left on device", "/scratch/a")
    )
    assert fault.exit_code == MACHINE
    assert str(fault).startswith("could not make /scratch/a: No space left on device; ")
