"""User data into the templates, between marks. Functions of text; only `main` reads and writes templates.

    python -m batchyard.infra.inline [FILE...]

rewrites what stands between the marks of the files named, or of all templates of a checkout. In the user data `@Name@`
is a value of the stack (a parameter, a resource, a pseudo parameter); in the template it becomes `${Name}`, and every
`${` of the shell's own becomes `${!`, as Fn::Sub wants it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path

from batchyard.infra import STANDALONE

#: user data -> the files of userdata/ that it is made of, in order
USER_DATA = {
    "batch-cpu": ("common.sh", "cpu.sh"),
    "batch-gpu": ("common.sh", "gpu.sh"),
    "ecs-gpu": ("common.sh", "ecs-cluster.sh", "gpu.sh"),
    "unmanaged-gpu": ("common.sh", "unmanaged-cluster.sh", "gpu.sh"),
}
#: EC2's limit, in bytes before base64. AWS Batch adds a part of its own to a node's, so ours stay well below.
LIMIT_BYTES = 16 * 1024

_BOUNDARY = "==BATCHYARD=="
_WRITE = re.compile(r"^#@ write (\S+) (\S+) (\d+)$", re.MULTILINE)
_VALUE = re.compile(r"@([A-Za-z][A-Za-z0-9]*(?:::[A-Za-z]+)?)@")
_BLOCK = re.compile(
    r"^(?P<indent> *)# user data (?P<name>[a-z-]+): (?P<note>.*)\n(?P<old>(?:.*\n)*?)(?P=indent)# end of user data\n",
    re.MULTILINE,
)
_HEREDOC_END = "BATCHYARD_FILE"

Read = Callable[[str], str]


def userdata_file(name: str) -> str:
    return resources.files("batchyard.infra").joinpath("userdata", name).read_text(encoding="utf-8")


def script(name: str, read: Read = userdata_file) -> str:
    """The shell script of a user data, whole: its files one after the other, and those it writes in here-documents."""
    joined = "\n".join(read(file) for file in USER_DATA[name])
    return _WRITE.sub(lambda match: _heredoc(read(match[1]), match[2], match[3]), joined)


def _heredoc(content: str, path: str, mode: str) -> str:
    if _HEREDOC_END in content:
        raise ValueError(
            f"the file for {path} holds the word {_HEREDOC_END}, which ends its here-document"
        )
    return f"install -D -m {mode} /dev/stdin {path} <<'{_HEREDOC_END}'\n{content}{_HEREDOC_END}"


def mime(shell_script: str) -> str:
    """AWS Batch takes user data only as MIME multipart; the blank lines are part of the form."""
    return (
        f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{_BOUNDARY}"\n\n'
        f'--{_BOUNDARY}\nContent-Type: text/x-shellscript; charset="us-ascii"\n\n'
        f"{shell_script}\n--{_BOUNDARY}--\n"
    )


def on_node(name: str, values: Mapping[str, str], read: Read = userdata_file) -> str:
    """The user data as a node gets it, with the stack's values filled in."""
    return _VALUE.sub(lambda match: values[match[1]], mime(script(name, read)))


def for_sub(text: str) -> str:
    """The text as Fn::Sub takes it: it gives back the text, with the values of the stack filled in."""
    return _VALUE.sub(r"${\1}", text.replace("${", "${!"))


def inline(template: str, read: Read = userdata_file) -> str:
    """The template with the user data of today between its marks."""
    return _BLOCK.sub(lambda match: _block(match, read), template)


def names_in(template: str) -> list[str]:
    """The user data that a template has marks for."""
    return [match["name"] for match in _BLOCK.finditer(template)]


def _block(match: re.Match[str], read: Read) -> str:
    name, indent = match["name"], match["indent"]
    if name not in USER_DATA:
        raise ValueError(f"a template asks for user data {name}; there is {', '.join(USER_DATA)}")
    text = mime(script(name, read))
    function, body = ("!Sub |", for_sub(text)) if _VALUE.search(text) else ("|", text)
    lines = (f"{indent}  {line}\n" if line else "\n" for line in body.splitlines())
    return (
        f"{indent}# user data {name}: {match['note']}\n"
        f"{indent}Fn::Base64: {function}\n{''.join(lines)}{indent}# end of user data\n"
    )


def main(arguments: list[str]) -> None:
    here = Path(__file__).parent
    own = [*sorted((here / "templates").glob("*.yaml")), here.parents[2] / f"{STANDALONE}.yaml"]
    for path in [Path(argument) for argument in arguments] or own:
        before = path.read_text(encoding="utf-8")
        after = inline(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(f"{path}: written anew", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
