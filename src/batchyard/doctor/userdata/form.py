"""Checks of the form of user data: MIME, size, first lines, secrets. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from batchyard.doctor import packed, secrets
from batchyard.doctor.userdata.boot import Boot
from batchyard.doctor.userdata.parts import BOOTHOOK, SHELL, UserData

#: EC2's limit, before base64
MAX_BYTES = 16 * 1024

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


def no_secrets(data: UserData, boot: Boot) -> Found:
    """Also in what is packed: it is as easily unpacked. A line is named once."""
    looks: dict[int, str] = {}
    for at, text in [(0, data.text), *packed.layers(data.text)]:
        first_line = data.text.count("\n", 0, at) + 1
        for secret in secrets.find(text):
            if secret.is_sure:
                inner = text.count("\n", 0, secret.start) if at == 0 else 0
                looks.setdefault(first_line + inner, secret.what)
    for line, what in sorted(looks.items()):
        yield (
            line,
            "a secret stands in the user data, which everybody on the node and in the account can read",
            (f"it looks like {what}",),
            ("keep it in Secrets Manager or SSM, and let the instance's role read it",),
        )
