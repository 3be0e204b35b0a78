"""Checks of the form of user data: MIME, size, first lines, secrets. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from batchyard.doctor import masking
from batchyard.doctor.userdata.boot import Boot
from batchyard.doctor.userdata.parts import BOOTHOOK, SHELL, UserData

#: EC2's limit, before base64
MAX_BYTES = 16 * 1024

#: /etc/nsswitch.conf names where accounts are looked up
_NSSWITCH = re.compile(r"passwd:(?:[ \t]+(?:files|compat|db|nis|sss|ldap|winbind|systemd|altfiles)\b|\\s|\[|\.\*)")
#: names of what only leads to a secret
_LEADS_TO_ONE = re.compile(r".*(?:file|name|path|arn|id|url|ttl|policy|length)s?", re.IGNORECASE)
#: what is filled in later: ${name}, {{ name }}, #{name}, @Name@, %(name)s
_FILLED_IN = re.compile(r"[^\s=:@]*[=:]?[ \t]*[\"']?(?:[^\s\"'@]*:)?(?:\$|\{\{|#\{|@\w+@|%\()")
_PROSE = re.compile(
    r"[ \t]*#[^=:]*[=:][ \t]*[a-z_]+(?::[a-z_]+)*(?:[ \t(]|$)|[ \t]*(?:echo|printf)\b[^=:]*:[ \t]+[A-Za-z]+[ \t\"']"
)

Found = Iterator[tuple[int, str, tuple[str, ...], tuple[str, ...]]]


def not_mime(data: UserData, boot: Boot) -> Found:
    if data.is_mime or not data.text.strip():
        return
    yield (
        1,
        "the user data is not MIME multipart, so AWS Batch calls the compute environment INVALID",
        (f"it begins with {data.text.lstrip().splitlines()[0][:60]!r}",),
        (
            'put this above it:  MIME-Version: 1.0 / Content-Type: multipart/mixed; boundary="==B==" / (blank) / '
            '--==B== / Content-Type: text/x-shellscript; charset="us-ascii" / (blank)',
            "and this below it:  --==B==--",
        ),
    )


def too_long(data: UserData, boot: Boot) -> Found:
    if data.size > MAX_BYTES:
        yield (
            0,
            "the user data is longer than EC2 takes",
            (f"{data.size:,} bytes; at most {MAX_BYTES:,} before base64",),
            ("put the long part in the image or in S3, and fetch it at boot",),
        )


def malformed(data: UserData, boot: Boot) -> Found:
    for line, what in [*data.problems, *boot.problems]:
        yield (
            line,
            "a part of the user data cannot be read and is passed over",
            (what,),
            ("write it as shown on the page",),
        )


def no_interpreter(data: UserData, boot: Boot) -> Found:
    """cloud-init hands a script to the system, which wants to know its interpreter."""
    for part in data.parts:
        if part.kind not in (SHELL, BOOTHOOK) or not part.text.strip():
            continue
        text = part.text
        if part.kind == BOOTHOOK:  # cloud-init takes its own mark away, and blanks
            text = text.lstrip().removeprefix("#cloud-boothook").lstrip()
        first = text.split("\n", 1)[0]
        if text and not first.startswith("#!"):
            yield (
                part.first_line,
                "a script does not begin with #! and is not run",
                (f"its first line is {first[:60]!r}",),
                ("make #!/bin/bash the very first line of the part, with no blank line above it",),
            )


def secrets(data: UserData, boot: Boot) -> Found:
    lines = set()
    for offset, what in masking.secrets_in(data.text):
        line = data.text.count("\n", 0, offset) + 1
        if line not in lines and not _is_no_secret(data.text, offset, what):
            lines.add(line)
            yield (
                line,
                "a secret stands in the user data, which everybody on the node and in the account can read",
                (f"it looks like {what}",),
                ("keep it in Secrets Manager or SSM, and let the instance's role read it",),
            )


def _is_no_secret(text: str, offset: int, what: str) -> bool:
    """What sounds like one and is none: a file's name, a value that is filled in later, a sentence."""
    start = text.rfind("\n", 0, offset) + 1
    line = text[start : start + 2000].split("\n", 1)[0]
    is_named = what.startswith("a value for ")
    return bool(
        _NSSWITCH.search(line)
        or _FILLED_IN.match(text, offset)
        or (is_named and _LEADS_TO_ONE.fullmatch(what))
        or (is_named and _PROSE.match(line))
    )
