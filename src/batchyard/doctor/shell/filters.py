"""The output of common text programs: echo, printf, cat, tr, sed, base64; files of downloads. Pure.

Only forms whose output is certain are covered; the output of any other is unknown.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib

from batchyard.doctor.shell.files import File, FileSystem

#: characters that a program prints at most
MAX_PRINTED = 100_000

_DIRECTIVE = re.compile(r"%(?:%|[-+ 0#]*\d{0,4}(?:\.\d{0,4})?[sdiqbu])")
_SUBSTITUTE = re.compile(r"s(?P<mark>[/|#,:@])(?P<old>[^\n]*?)(?P=mark)(?P<new>[^\n]*?)(?P=mark)g?")
_PLAIN_TEXT = re.compile(r"[\w ./:@%=,-]*")
_ESCAPES = {"\\n": "\n", "\\t": "\t"}
_ECHO_OPTIONS = {"-n", "-e", "-ne", "-en", "-E"}
#: programs that print the lines they read, in some order
_REORDERING = ("sort", "uniq", "tac")
_PACKING = ("base64", "gunzip", "gzip", "zcat")
#: program -> letter and name of the option for the output file
_OUTPUT_OPTIONS = {"curl": ("o", "--output"), "wget": ("O", "--output-document")}
#: programs that print nothing
QUIET = frozenset(
    ": true false cd pushd popd export local declare readonly typeset set unset shift exit return "
    "sleep mkdir chmod chown touch rm cp mv ln install read test [ [[ (( let wait trap systemctl "
    "logger shopt ulimit umask exec".split()
)


def find_output(
    name: str, words: tuple[str, ...], line: int, stdin: File | None, files: FileSystem
) -> File | None:
    """Return what the program prints; None if it is unknown."""
    if name == "echo":
        return File(_echo(words[1:]), line)
    if name == "printf" and len(words) > 1:
        start = 2 if words[1] == "--" and len(words) > 2 else 1
        return File(format_printf(words[start], words[start + 1 :]), line)
    if name == "tee":
        return stdin
    if name == "cat":
        return _cat(words, stdin, files)
    options = [word for word in words[1:] if word.startswith("-")]
    operands = [word for word in words[1:] if not word.startswith("-")]
    return _filter(name, options, operands, stdin, files)


def _filter(
    name: str, options: list[str], operands: list[str], stdin: File | None, files: FileSystem
) -> File | None:
    """Return what a program prints that changes its standard input or its file."""
    if name == "tr":
        return _translate(options, operands, stdin)
    if name == "sed":
        return _substitute(options, operands, stdin)
    if name not in _REORDERING and name not in _PACKING:
        return None
    source = files.find(operands[0]) if operands else stdin
    if source is None or name in _REORDERING:
        return source
    return _unpack_output(name, options, source)


def _echo(words: tuple[str, ...]) -> str:
    texts = words[1:] if words[:1] and words[0] in _ECHO_OPTIONS else words
    return _limit(" ".join(texts).replace("\\n", "\n") + "\n")


def _limit(text: str) -> str:
    return text[:MAX_PRINTED]


def _cat(words: tuple[str, ...], stdin: File | None, files: FileSystem) -> File | None:
    names = [word for word in words[1:] if not word.startswith("-") or word == "-"]
    if not names:
        return stdin
    sources = [stdin if name == "-" else files.find(name) for name in names]
    existing = [source for source in sources if source is not None]
    contents: list[str] = []
    for source in existing:
        contents.append(source.content)
        if sum(map(len, contents)) > MAX_PRINTED:
            break
    return File(_limit("".join(contents)), existing[0].line) if existing else None


def format_printf(template: str, values: tuple[str, ...]) -> str:
    """Return the output of printf: the template is repeated until all values are used."""
    template = template.replace("\\n", "\n").replace("\\t", "\t")
    remaining = list(values)
    output = ""
    while len(output) < MAX_PRINTED:
        count = len(remaining)
        output += _DIRECTIVE.sub(
            lambda m: "%" if m[0] == "%%" else remaining.pop(0) if remaining else "", template
        )
        if not remaining or len(remaining) == count:
            break
    return _limit(output)


def _translate(options: list[str], operands: list[str], stdin: File | None) -> File | None:
    sets = [_ESCAPES.get(word, word) for word in operands]
    if stdin is None or not all(map(_is_plain_set, sets)):
        return None
    if options == ["-d"] and len(sets) == 1:
        return File(stdin.content.translate(dict.fromkeys(map(ord, sets[0]))), stdin.line)
    if set(options) <= {"-s"} and len(sets) == 2 and sets[1]:
        old, new = sets[0], sets[1].ljust(len(sets[0]), sets[1][-1])
        table = dict(zip(map(ord, old), new, strict=False))
        return File(stdin.content.translate(table), stdin.line)
    return None


def _is_plain_set(text: str) -> bool:
    """Return whether a set of tr is a list of characters, without a-z or [:lower:]."""
    return len(text) < 50 and not re.search(r".-.|\[:|\\", text)


def _substitute(options: list[str], operands: list[str], stdin: File | None) -> File | None:
    if stdin is None or len(operands) != 1 or not set(options) <= {"-e", "-E", "-r"}:
        return None
    match = _SUBSTITUTE.fullmatch(operands[0])
    if not match or not match["old"]:
        return None
    if not _PLAIN_TEXT.fullmatch(match["old"]) or not _PLAIN_TEXT.fullmatch(match["new"]):
        return None
    text = stdin.content[:MAX_PRINTED].replace(match["old"], match["new"])
    return File(_limit(text), stdin.line)


def _unpack_output(name: str, options: list[str], source: File) -> File | None:
    """Return what base64 -d, gunzip and zcat print; None for a program that packs."""
    is_unpacking = any("d" in option for option in options) or name in ("gunzip", "zcat")
    text = _unpack(name, source.content) if is_unpacking else None
    return File(text, source.line) if text is not None else None


def _unpack(name: str, text: str) -> str | None:
    try:
        if name == "base64":
            return _decode(base64.b64decode("".join(text.split()), validate=True))
        return _decode(zlib.decompressobj(31).decompress(text.encode("latin-1"), MAX_PRINTED))
    except (binascii.Error, ValueError, zlib.error):
        return None


def _decode(data: bytes) -> str:
    try:
        return _limit(data.decode("utf-8"))
    except UnicodeDecodeError:
        return _limit(data.decode("latin-1"))


def find_download(name: str, words: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the file that a download writes, and its source; None if there is no such file."""
    if name == "aws" and words[1:3] in (("s3", "cp"), ("s3", "mv")):
        return _find_s3_download(words[3:])
    if name not in _OUTPUT_OPTIONS:
        return None
    for word, next_word in zip(words[1:], (*words[2:], ""), strict=False):
        path = _output_path(word, next_word, *_OUTPUT_OPTIONS[name])
        if path and path != "-" and not path.startswith("/dev/"):
            return path, words[-1]
    return None


def _find_s3_download(words: tuple[str, ...]) -> tuple[str, str] | None:
    places = [word for word in words if not word.startswith("-")]
    if len(places) < 2 or "://" in places[1] or places[1] == "-":
        return None
    return places[1], places[0]


def _output_path(word: str, next_word: str, letter: str, option: str) -> str:
    """Return the value of the option for the output file; empty if the word is not that option."""
    if word == option or re.fullmatch(f"-[a-zA-Z]*{letter}", word):
        return next_word
    return word.partition("=")[2] if word.startswith(f"{option}=") else ""
