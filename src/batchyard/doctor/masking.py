"""Takes secrets and account ids out of facts, so that they can be given away. Pure.

Account ids become 000000000001, 000000000002 ... in the order in which they are met: two that differ still differ.
"""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

T = TypeVar("T")

HIDDEN = "***"

_ACCOUNT = re.compile(r"(?<![0-9A-Za-z.-])(\d{12})(?![0-9A-Za-z])")
_SECRETS = (
    # An access key's id, and what its holder is given for a while.
    re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{16}\b"),
    # A header's credentials, a URL's password, GitHub's, GitLab's and Slack's tokens.
    re.compile(r"(?i)\bbearer +[\w.~+/=-]{12,}"),
    re.compile(r"(?<=://)[^/\s:@'\"]+:[^/\s@'\"]+(?=@)"),
    re.compile(r"\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,})"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
)
#: NAME=value, NAME: value, --name value: the name says that the value is nobody's business
_NAMED = re.compile(
    r"(?i)((?<![\w.-])[\w.-]{0,60}"
    r"(?:passw(?:or)?d|secret|token|api[_-]?key|access[_-]?key|credential|private[_-]?key)[\w.-]*"
    r"\"?(?: *[=:] *| +))(\"[^\"\n]*\"|'[^'\n]*'|[^\s\"';,)}]+)"
)
#: values that are no secrets though their name says so: a variable, a command's output, a path, a switch
_HARMLESS = re.compile(
    r"[\"']?(?:\$.*|`.*|/.*|<.*|arn:.*|true|false|null|\d{1,6}|\W*)[\"']?", re.IGNORECASE | re.DOTALL
)


def masked(facts: T) -> T:
    accounts: dict[str, str] = {}
    return cast(T, _walk(facts, accounts))


def mask_text(text: str, accounts: dict[str, str] | None = None) -> str:
    seen: dict[str, str] = {} if accounts is None else accounts
    for secret in _SECRETS:
        text = secret.sub(HIDDEN, text)
    text = _NAMED.sub(lambda m: m[0] if _HARMLESS.fullmatch(m[2]) else m[1] + HIDDEN, text)
    return _ACCOUNT.sub(lambda m: seen.setdefault(m[1], f"{len(seen) + 1:012}"), text)


def secrets_in(text: str) -> list[tuple[int, str]]:
    """Where secrets seem to stand: offset, and what it looks like (never the secret itself)."""
    names = ("an AWS access key", "a bearer token", "a password in a URL", "a token", "a private key")
    found = [(m.start(), name) for name, secret in zip(names, _SECRETS, strict=True) for m in secret.finditer(text)]
    for match in _NAMED.finditer(text):
        if _looks_secret(match):
            found.append((match.start(), f"a value for {match[1].strip(' =:')}"))
    return sorted(found)


def _looks_secret(match: re.Match[str]) -> bool:
    # In free text "token for ..." names nothing: only NAME=value and NAME: value are taken at their word.
    value = match[2].strip("\"'")
    is_assignment = "=" in match[1] or ":" in match[1]
    is_header = "x-aws-ec2-metadata-token" in match[1].lower()
    return is_assignment and not is_header and len(value) >= 8 and not _HARMLESS.fullmatch(match[2])


def _walk(value: Any, accounts: dict[str, str]) -> Any:
    if isinstance(value, str):
        return mask_text(value, accounts)
    if isinstance(value, tuple):
        return tuple(_walk(item, accounts) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _walk(getattr(value, f.name), accounts) for f in fields(value)})
    return value
