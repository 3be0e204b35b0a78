"""Checks of the form of user data: MIME, size, interpreter lines, secrets. Pure."""

from __future__ import annotations

from batchyard.doctor import packed, secrets
from batchyard.doctor.finding import Kind, Severity
from batchyard.doctor.userdata.boot import Boot
from batchyard.doctor.userdata.observation import Observations, check_user_data
from batchyard.doctor.userdata.parts import BOOTHOOK, SHELL, UserData

#: EC2's limit in bytes, before base64
MAX_BYTES = 16 * 1024


@check_user_data(
    Kind("BY103", Severity.ERROR, 95, "the user data is MIME multipart"), is_for_batch=True
)
def check_mime(data: UserData, boot: Boot) -> Observations:
    if data.is_mime or not data.text.strip():
        return
    yield (
        1,
        "the user data is not MIME multipart, so AWS Batch calls the compute environment INVALID",
        (f"it begins with {data.text.lstrip().splitlines()[0][:60]!r}",),
        (
            "put this above it:  MIME-Version: 1.0 / "
            'Content-Type: multipart/mixed; boundary="==B==" / (blank) / '
            '--==B== / Content-Type: text/x-shellscript; charset="us-ascii" / (blank)',
            "and this below it:  --==B==--",
        ),
    )


@check_user_data(Kind("BY104", Severity.ERROR, 90, "the user data is at most 16 KiB"))
def check_size(data: UserData, boot: Boot) -> Observations:
    if data.size > MAX_BYTES:
        yield (
            0,
            "the user data is longer than EC2 takes",
            (f"{data.size:,} bytes; at most {MAX_BYTES:,} before base64",),
            ("put the long part in the image or in S3, and fetch it at boot",),
        )


@check_user_data(Kind("BY108", Severity.ERROR, 93, "the MIME parts are well formed"))
def check_parts(data: UserData, boot: Boot) -> Observations:
    for line, problem in [*data.problems, *boot.problems]:
        yield (
            line,
            "a part of the user data cannot be read, and cloud-init ignores it",
            (problem,),
            ("correct the part: the page of the finding shows the form",),
        )


@check_user_data(Kind("BY109", Severity.ERROR, 80, "scripts begin with #!"))
def check_interpreter_lines(data: UserData, boot: Boot) -> Observations:
    """Check the #! lines, by which the system finds the interpreter of a script."""
    for part in data.parts:
        if part.kind not in (SHELL, BOOTHOOK) or not part.text.strip():
            continue
        text = part.text
        if part.kind == BOOTHOOK:  # cloud-init removes its own first line, and blank lines
            text = text.lstrip().removeprefix("#cloud-boothook").lstrip()
        first = text.split("\n", 1)[0]
        if text and not first.startswith("#!"):
            yield (
                part.first_line,
                "a script does not begin with #! and is not run",
                (f"its first line is {first[:60]!r}",),
                ("make #!/bin/bash the very first line of the part, with no blank line above it",),
            )


@check_user_data(Kind("BY113", Severity.ERROR, 70, "no secret is written in the user data"))
def check_secrets(data: UserData, boot: Boot) -> Observations:
    """Find secrets, also in packed texts, which are easily unpacked. A line is reported once."""
    descriptions: dict[int, str] = {}
    for at, text in [(0, data.text), *packed.unpack_layers(data.text)]:
        first_line = data.text.count("\n", 0, at) + 1
        for secret in secrets.find_secrets(text):
            if secret.is_sure:
                line_offset = text.count("\n", 0, secret.start) if at == 0 else 0
                descriptions.setdefault(first_line + line_offset, secret.description)
    for line, description in sorted(descriptions.items()):
        yield (
            line,
            "the user data contains a secret, "
            "which everybody on the node and in the account can read",
            (f"it looks like {description}",),
            ("keep it in Secrets Manager or SSM, and let the instance's role read it",),
        )
