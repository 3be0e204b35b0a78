"""Copy user data, and the code of functions, into the templates, between marks.

Only `main` reads and writes templates.

    python -m batchyard.infra.inline [FILE...]

rewrites the text between the marks of the given files, or of all templates of a checkout. In the
user data `@Name@` is a value of the stack (a parameter, a resource, a pseudo parameter). In the
template it becomes `${Name}`, and every `${` of the shell becomes `${!`, as Fn::Sub requires.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path

from batchyard.infra import STANDALONE

#: user data -> the files of userdata/ that it consists of, in order
USER_DATA = {
    "batch-cpu": ("common.sh", "cpu.sh"),
    "batch-gpu": ("common.sh", "gpu.sh"),
    "ecs-gpu": ("common.sh", "ecs-cluster.sh", "gpu.sh"),
    "unmanaged-gpu": ("common.sh", "unmanaged-cluster.sh", "gpu.sh"),
}
#: EC2's limit before base64. AWS Batch adds a part to it, so that ours must stay well below.
MAX_BYTES = 16 * 1024

_BOUNDARY = "==BATCHYARD=="
_WRITE = re.compile(r"^#@ write (\S+) (\S+) (\d+)$", re.MULTILINE)
_VALUE = re.compile(r"@([A-Za-z][A-Za-z0-9]*(?:::[A-Za-z]+)?)@")
_BLOCK = re.compile(
    r"^(?P<indent> *)# user data (?P<name>[a-z-]+): (?P<note>.*)\n"
    r"(?P<old>(?:.*\n)*?)(?P=indent)# end of user data\n",
    re.MULTILINE,
)
_HEREDOC_END = "BATCHYARD_FILE"
#: function -> the modules of the package that it consists of, in order
FUNCTIONS = {"keep-caps": ("cost_cap.py", "aws/cap_keeper.py")}
_FUNCTION = re.compile(
    r"^(?P<indent> *)# function (?P<name>[a-z-]+): (?P<note>.*)\n"
    r"(?P<old>(?:.*\n)*?)(?P=indent)# end of function\n",
    re.MULTILINE,
)
_OWN_IMPORT = re.compile(r"^from (?:batchyard|__future__)\b.*\n", re.MULTILINE)

Read = Callable[[str], str]


def read_userdata(name: str) -> str:
    return resources.files("batchyard.infra").joinpath("userdata", name).read_text(encoding="utf-8")


def make_script(name: str, read: Read = read_userdata) -> str:
    """Return the shell script of a user data: its files, and the files that it writes."""
    joined = "\n".join(read(file) for file in USER_DATA[name])
    return _WRITE.sub(lambda match: _make_heredoc(read(match[1]), match[2], match[3]), joined)


def _make_heredoc(content: str, path: str, mode: str) -> str:
    if _HEREDOC_END in content:
        raise ValueError(
            f"the file for {path} contains {_HEREDOC_END}, which ends its here-document"
        )
    return f"install -D -m {mode} /dev/stdin {path} <<'{_HEREDOC_END}'\n{content}{_HEREDOC_END}"


def to_mime(shell_script: str) -> str:
    """Wrap a script as MIME multipart, the only form that AWS Batch accepts."""
    return (
        f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{_BOUNDARY}"\n\n'
        f'--{_BOUNDARY}\nContent-Type: text/x-shellscript; charset="us-ascii"\n\n'
        f"{shell_script}\n--{_BOUNDARY}--\n"
    )


def render_for_host(name: str, values: Mapping[str, str], read: Read = read_userdata) -> str:
    """Return the user data as a host receives it, with the values of the stack filled in."""
    return _VALUE.sub(lambda match: values[match[1]], to_mime(make_script(name, read)))


def escape_for_sub(text: str) -> str:
    """Return the text for which Fn::Sub produces ``text`` with the values of the stack."""
    return _VALUE.sub(r"${\1}", text.replace("${", "${!"))


def inline(template: str, read: Read = read_userdata) -> str:
    """Return the template with the current user data and functions between their marks."""
    with_functions = _FUNCTION.sub(_render_function, template)
    return _BLOCK.sub(lambda match: _render_block(match, read), with_functions)


def make_function(name: str) -> str:
    """Return the Python code of a function on AWS Lambda: its modules, without their imports."""
    package = resources.files("batchyard")
    texts = [package.joinpath(*file.split("/")).read_text("utf-8") for file in FUNCTIONS[name]]
    return "from __future__ import annotations\n\n" + "\n\n".join(
        _OWN_IMPORT.sub("", text).strip() + "\n" for text in texts
    )


def _render_function(match: re.Match[str]) -> str:
    indent = match["indent"]
    lines = (f"{indent}  {line}\n" if line else "\n" for line in _code_lines(match["name"]))
    return (
        f"{indent}# function {match['name']}: {match['note']}\n"
        f"{indent}ZipFile: |\n{''.join(lines)}{indent}# end of function\n"
    )


def _code_lines(name: str) -> list[str]:
    return make_function(name).splitlines()


def names_in(template: str) -> list[str]:
    """Return the names of the user data that a template has marks for."""
    return [match["name"] for match in _BLOCK.finditer(template)]


def _render_block(match: re.Match[str], read: Read) -> str:
    name, indent = match["name"], match["indent"]
    if name not in USER_DATA:
        raise ValueError(f"a template uses the user data {name}; there is {', '.join(USER_DATA)}")
    text = to_mime(make_script(name, read))
    function, body = ("!Sub |", escape_for_sub(text)) if _VALUE.search(text) else ("|", text)
    lines = (f"{indent}  {line}\n" if line else "\n" for line in body.splitlines())
    return (
        f"{indent}# user data {name}: {match['note']}\n"
        f"{indent}Fn::Base64: {function}\n{''.join(lines)}{indent}# end of user data\n"
    )


def main(arguments: list[str]) -> None:
    folder = Path(__file__).parent
    templates = sorted((folder / "templates").glob("*.yaml"))
    templates.append(folder.parents[2] / f"{STANDALONE}.yaml")
    for path in [Path(argument) for argument in arguments] or templates:
        old_text = path.read_text(encoding="utf-8")
        new_text = inline(old_text)
        if new_text != old_text:
            path.write_text(new_text, encoding="utf-8")
            print(f"{path}: updated", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
