"""Credentials of jobs that expire, as those of a task role do (`--faults credentials=SECONDS`).

Jobs read them from the address in AWS_CONTAINER_CREDENTIALS_FULL_URI. The end of their lifetime is
part of their session token, so the endpoint stores none of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

#: Path below the metadata address of a task.
PATH = "/container-credentials"
JOB_ROLE = "arn:aws:iam::123456789012:role/batchyard-job-role"
_TOKEN_PREFIX = "batchyard-until-"
_KEY_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def use_expiring_credentials(variables: dict[str, str], metadata_address: str) -> dict[str, str]:
    """Return the variables of a job without keys, with the address of its credentials instead."""
    other_variables = {
        name: value for name, value in variables.items() if name not in _KEY_VARIABLES
    }
    return {**other_variables, "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{metadata_address}{PATH}"}


def issue(
    variables: Mapping[str, str], now_s: float, lifetime_s: float, role: str = JOB_ROLE
) -> dict[str, str]:
    """Return new credentials with the keys in the variables of clients."""
    end = datetime.fromtimestamp(now_s + lifetime_s, UTC)
    return {
        "RoleArn": role,
        "AccessKeyId": variables["AWS_ACCESS_KEY_ID"],
        "SecretAccessKey": variables["AWS_SECRET_ACCESS_KEY"],
        "Token": f"{_TOKEN_PREFIX}{int((now_s + lifetime_s) * 1000)}",
        "Expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def is_expired(session_token: str, now_s: float) -> bool:
    """Return whether a session token is from this module and its lifetime is over."""
    match = re.fullmatch(rf"{_TOKEN_PREFIX}([0-9]{{1,18}})", session_token)
    return match is not None and int(match[1]) < now_s * 1000
