"""Finds the inputs of a child: among the files that the run took along, and in its workspace."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from batchyard.quick_dataclasses import dataclass
from batchyard.worker.globs import Glob, NameIndex, globs
from batchyard.worker.orders import InputFile, Orders, Place, parse_files
from batchyard.worker.s3 import Bucket, S3Object


@dataclass(frozen=True, slots=True)
class Input:
    """An object that becomes a file of the child's workspace."""

    place: Place
    size: int
    #: empty for an object that is named by its content, and never replaced
    etag: str = ""


def find_inputs(bucket: Bucket, orders: Orders, *, is_continued: bool) -> dict[str, Input]:
    """Return path in the workspace -> object, of the files that match the child's inputs.

    A file of the workspace goes before one that the run took along: a step of the run wrote it.
    ``is_continued``: the child has finished commands before, whose outputs may be inputs.
    """
    patterns = orders.inputs
    if orders.has_files:
        patterns = orders.made_inputs + (orders.own_inputs if is_continued else ())
    matches = _list_matches(bucket, orders.workspace, globs(dict.fromkeys(patterns)))
    input_globs = globs(orders.inputs)
    files = {file.path: file for file in _read_files(bucket, orders, input_globs)}
    index = NameIndex(files)
    for path in {path for glob in input_globs for path in index.find(glob)}.difference(matches):
        assert orders.content is not None
        matches[path] = Input(orders.content.below(files[path].sha256), files[path].size)
    return matches


def _read_files(bucket: Bucket, orders: Orders, patterns: tuple[Glob, ...]) -> Iterator[InputFile]:
    """Yield the files that the run took along; of a long list, the blocks with possible matches."""
    yield from orders.files or ()
    if orders.file_list is None:
        return
    starts = [path for path, _, _ in orders.file_blocks]
    numbers = {number for glob in patterns for number in _select_blocks(starts, glob)}
    for first, stop in _join_blocks(sorted(numbers), orders.file_blocks):
        data = bucket.read(orders.file_list, "read the list of inputs", first, stop)
        yield from parse_files([json.loads(line) for line in data.splitlines()])


def _select_blocks(starts: list[str], glob: Glob) -> Iterator[int]:
    """Yield the numbers of the blocks that can have matches. ``starts``: their first paths."""
    if glob.is_plain:
        yield max(0, bisect_right(starts, glob.text) - 1)
    prefix = f"{glob.text}/" if glob.is_plain else glob.prefix
    for number in range(max(0, bisect_right(starts, prefix) - 1), len(starts)):
        # A block that begins behind all paths with the prefix has none of them.
        if starts[number] > prefix and not starts[number].startswith(prefix):
            break
        yield number


def _join_blocks(
    numbers: list[int], blocks: tuple[tuple[str, int, int], ...]
) -> list[tuple[int, int]]:
    """Return (start, stop) of the parts of the list; blocks side by side are one part."""
    parts: list[tuple[int, int]] = []
    for number in numbers:
        _, start, stop = blocks[number]
        if parts and parts[-1][1] == start:
            start = parts.pop()[0]
        parts.append((start, stop))
    return parts


def find_unmatched(orders: Orders, paths: Iterable[str]) -> list[str]:
    """Return the inputs of the child that match none of the paths."""
    index = NameIndex(paths)
    return [glob.text for glob in globs(orders.inputs) if next(index.find(glob), None) is None]


def _list_matches(bucket: Bucket, root: Place, patterns: tuple[Glob, ...]) -> dict[str, Input]:
    """Return the objects below ``root`` that match, with as few requests as possible."""
    if not patterns:
        return {}
    # Most workspaces have less than a page of objects, and one request is enough.
    prefixes = sorted(glob.prefix for glob in patterns)
    common = _common_prefix(prefixes[0], prefixes[-1])
    page, is_last = bucket.list_page(root.below(common), "list the inputs in")
    listings: list[Iterable[S3Object]] = [page]
    if not is_last:
        listings = _list_by_prefix(bucket, root, patterns)
    matches: dict[str, Input] = {}
    for listing in listings:
        for entry in listing:
            path = entry.key[len(root.key) :]
            if not path.endswith("/") and any(glob.matches(path) for glob in patterns):
                matches[path] = Input(root.below(path), entry.size, entry.etag)
    return matches


def _list_by_prefix(
    bucket: Bucket, root: Place, patterns: tuple[Glob, ...]
) -> list[Iterable[S3Object]]:
    """Return lists of objects that have all matches among them."""
    plain = [glob.text for glob in patterns if glob.is_plain]
    wild = [glob for glob in patterns if not glob.is_plain]
    listings: list[Iterable[S3Object]] = [
        bucket.list(root.below(prefix), "list the inputs in", flat=is_flat)
        for prefix, is_flat in _join_prefixes(wild)
    ]
    listings += [_list_plain(bucket, root, texts) for texts in _group_by_folder(plain)]
    return listings


def _join_prefixes(patterns: Iterable[Glob]) -> list[tuple[str, bool]]:
    """Return (prefix, whether folders below it are left out); no prefix is listed twice."""
    is_flat: dict[str, bool] = {}
    for glob in patterns:
        is_flat[glob.prefix] = is_flat.get(glob.prefix, True) and glob.stays_in_folder
    joined: list[tuple[str, bool]] = []
    for prefix in sorted(is_flat):
        if not any(prefix.startswith(other) and not flat for other, flat in joined):
            joined.append((prefix, is_flat[prefix]))
    return joined


def _group_by_folder(paths: Iterable[str]) -> Iterator[list[str]]:
    by_folder: dict[str, list[str]] = {}
    for path in sorted(paths):
        by_folder.setdefault(path.rpartition("/")[0], []).append(path)
    yield from by_folder.values()


def _list_plain(bucket: Bucket, root: Place, paths: list[str]) -> Iterator[S3Object]:
    """Yield the objects with these paths, or in these folders. ``paths``: sorted, in one folder.

    Where the paths are close together, one request lists them all. What lies between two paths
    that are far apart is skipped.
    """
    prefix = root.below(_common_prefix(paths[0], paths[-1]))
    last_key = ""
    while paths:
        # A key without its last character sorts before it.
        start_after = max(last_key, root.key + paths[0][:-1])
        page, is_last = bucket.list_page(prefix, "list the inputs in", start_after)
        yield from page
        if is_last:
            return
        last_key = page[-1].key
        # "0" follows "/": all keys in the folder of a path sort before path + "0".
        paths = [path for path in paths if root.key + path + "0" > last_key]


def _common_prefix(first: str, last: str) -> str:
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    return first[:length]
