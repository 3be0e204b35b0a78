"""What the few programs that everybody writes files and pipes with would print. Pure.

Only what is sure: a program, or a form of one, that is not known here prints something that nobody knows.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib

from batchyard.doctor.shell.disk import Disk, File

#: characters that any of them prints at most
MAX_PRINTED = 100_000

_DIRECTIVE = re.compile(r"%(?:%|[-+ 0#]*\d{0,4}(?:\.\d{0,4})?[sdiqbu])")
_SUBSTITUTE = re.compile(
    r"s(?P<mark>[/|#,:@])(?P<this>[^\n]*?)(?P=mark)(?P<that>[^\n]*?)(?P=mark)g?"
)
_PLAIN = re.compile(r"[\w ./:@%=,-]*")
_ESCAPES = {"\\n": "\n", "\\t": "\t"}
_FETCHES = {"curl": ("o", "--output"), "wget": ("O", "--output-document")}
#: programs that print nothing
QUIET = frozenset(
    ": true false cd pushd popd export local declare readonly typeset set unset shift exit return sleep mkdir chmod "
    "chown touch rm cp mv ln install read test [ [[ (( let wait trap systemctl logger shopt ulimit umask exec".split()
)


def printed(
    name: str, words: tuple[str, ...], line: int, stdin: File | None, disk: Disk
) -> File | None:
    """None where it is not known."""
    if name == "echo":
        flags = {"-n", "-e", "-ne", "-en", "-E"}
        texts = [word for at, word in enumerate(words[1:]) if at or word not in flags]
        return File(_bounded(" ".join(texts).replace("\\n", "\n") + "\n"), line)
    if name == "printf" and len(words) > 1:
        start = 2 if words[1] == "--" and len(words) > 2 else 1
        return File(formatted(words[start], words[start + 1 :]), line)
    if name == "tee":
        return stdin
    if name == "cat":
        return _cat(words, stdin, disk)
    return _filtered(name, words, stdin, disk)


def _bounded(text: str) -> str:
    return text[:MAX_PRINTED]


def _cat(words: tuple[str, ...], stdin: File | None, disk: Disk) -> File | None:
    names = [word for word in words[1:] if not word.startswith("-") or word == "-"]
    if not names:
        return stdin
    files = [stdin if name == "-" else disk.find(name) for name in names]
    known = [file for file in files if file is not None]
    found: list[str] = []
    for file in known:
        found.append(file.content)
        if sum(map(len, found)) > MAX_PRINTED:
            break
    return File(_bounded("".join(found)), known[0].line) if known else None


def formatted(form: str, values: tuple[str, ...]) -> str:
    """As printf does: the format again and again, as long as there are values."""
    form = form.replace("\\n", "\n").replace("\\t", "\t")
    rest = list(values)
    found = ""
    while len(found) < MAX_PRINTED:
        before = len(rest)
        found += _DIRECTIVE.sub(
            lambda m: "%" if m[0] == "%%" else rest.pop(0) if rest else "", form
        )
        if not rest or len(rest) == before:
            break
    return _bounded(found)


def _filtered(name: str, words: tuple[str, ...], stdin: File | None, disk: Disk) -> File | None:
    """What comes out of a pipe for what goes in."""
    options = [word for word in words[1:] if word.startswith("-")]
    plain = [word for word in words[1:] if not word.startswith("-")]
    if name == "tr" and stdin is not None:
        return _translated(options, plain, stdin)
    if (
        name == "sed"
        and len(plain) == 1
        and set(options) <= {"-e", "-E", "-r"}
        and stdin is not None
    ):
        return _substituted(plain[0], stdin)
    if name in ("sort", "uniq", "tac", "base64", "gunzip", "gzip", "zcat"):
        source = disk.find(plain[0]) if plain else stdin
        if source is None or name in ("sort", "uniq", "tac"):
            return source
        is_back = any("d" in option for option in options) or name in ("gunzip", "zcat")
        text = _unpacked(name, source.content) if is_back else None
        return File(text, source.line) if text is not None else None
    return None


def _translated(options: list[str], plain: list[str], stdin: File) -> File | None:
    sets = [_ESCAPES.get(word, word) for word in plain]
    if options == ["-d"] and len(sets) == 1 and _is_list(sets[0]):
        return File(stdin.content.translate(dict.fromkeys(map(ord, sets[0]))), stdin.line)
    if set(options) <= {"-s"} and len(sets) == 2 and all(map(_is_list, sets)) and sets[1]:
        this, that = sets[0], sets[1].ljust(len(sets[0]), sets[1][-1])
        return File(
            stdin.content.translate(dict(zip(map(ord, this), that, strict=False))), stdin.line
        )
    return None


def _is_list(text: str) -> bool:
    """Characters as they are, and no a-z or [:lower:]."""
    return len(text) < 50 and not re.search(r".-.|\[:|\\", text)


def _substituted(script: str, stdin: File) -> File | None:
    form = _SUBSTITUTE.fullmatch(script)
    if (
        not form
        or not _PLAIN.fullmatch(form["this"])
        or not _PLAIN.fullmatch(form["that"])
        or not form["this"]
    ):
        return None
    return File(
        _bounded(stdin.content[:MAX_PRINTED].replace(form["this"], form["that"])), stdin.line
    )


def _unpacked(name: str, text: str) -> str | None:
    try:
        if name == "base64":
            return _text(base64.b64decode("".join(text.split()), validate=True))
        return _text(zlib.decompressobj(31).decompress(text.encode("latin-1"), MAX_PRINTED))
    except (binascii.Error, ValueError, zlib.error):
        return None


def _text(data: bytes) -> str:
    try:
        return _bounded(data.decode("utf-8"))
    except UnicodeDecodeError:
        return _bounded(data.decode("latin-1"))


def fetched(name: str, words: tuple[str, ...]) -> tuple[str, str] | None:
    """The file into which something is downloaded, where it is named, and what."""
    if name == "aws" and words[1:3] in (("s3", "cp"), ("s3", "mv")):
        places = [word for word in words[3:] if not word.startswith("-")]
        is_here = len(places) > 1 and "://" not in places[1] and places[1] != "-"
        return (places[1], places[0]) if is_here else None
    if name not in _FETCHES:
        return None
    letter, long = _FETCHES[name]
    for word, after in zip(words[1:], (*words[2:], ""), strict=False):
        is_option = word == long or re.fullmatch(f"-[a-zA-Z]*{letter}", word)
        path = after if is_option else word.partition("=")[2] if word.startswith(f"{long}=") else ""
        if path and path != "-" and not path.startswith("/dev/"):
            return path, words[-1]
    return None
