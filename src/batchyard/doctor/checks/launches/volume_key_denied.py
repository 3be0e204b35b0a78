"""BY043: instances end at launch because the key of their encrypted volume is denied."""

from __future__ import annotations

from batchyard.doctor.checks.launches import refusals
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY043", Severity.ERROR, 70, "encrypted volumes can be opened at launch")

check = refusals.check_refusals(
    KIND,
    refusals.KEY,
    "instances end at launch because their encrypted volume cannot be opened",
    (
        "aws kms create-grant --key-id KEY "
        "--operations Decrypt GenerateDataKeyWithoutPlaintext CreateGrant --grantee-principal "
        "arn:aws:iam::$(aws sts get-caller-identity --query Account --output text):role/"
        "aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
        "   # KEY: the key of the volume, in the launch template or the image",
    ),
)
