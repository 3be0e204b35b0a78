"""The lists of objects that the worker asks for, on a bucket in memory with small pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from typing import Any, cast

import pytest

from batchyard.engines.aws import staging
from batchyard.worker import inputs
from batchyard.worker.globs import globs
from batchyard.worker.orders import Orders, Place, read
from batchyard.worker.s3 import Bucket, S3Object

NAMES = [
    *(f"a/{number:02d}" for number in range(13)),
    *("a-4", "a.txt", "b", "b/2", "b/deep/1", "b-3", "c/00/x", "c/01/x", "c/01/y/z", "c0"),
]
PATTERNS = [
    *("a/05", "a/07", "a/12", "a", "b", "b/deep", "c/01", "missing", "a/0"),
    *("a/*", "a/0*", "b/**", "**", "c/*/x", "**/x", "?", "c/0[01]/*"),
]


class BucketInMemory:
    """Objects of which a page of a list has a few, in the order of their keys."""

    def __init__(self, keys: list[str], page_size: int) -> None:
        self._keys = sorted(keys)
        self._page_size = page_size
        self.request_count = 0
        self.data = b""
        self.read_bytes = 0

    def read(self, place: Place, action: str, first: int, stop: int) -> bytes:
        self.request_count += 1
        self.read_bytes += stop - first
        return self.data[first:stop]

    def list_page(
        self, prefix: Place, action: str, start_after: str = ""
    ) -> tuple[tuple[S3Object, ...], bool]:
        self.request_count += 1
        keys = [key for key in self._keys if key.startswith(prefix.key) and key > start_after]
        page = keys[: self._page_size]
        return tuple(S3Object(key, 1, f"etag of {key}") for key in page), page == keys

    def list(self, prefix: Place, action: str, *, flat: bool = False) -> Iterator[S3Object]:
        keys = [key for key in self._keys if key.startswith(prefix.key)]
        self.request_count += max(1, -(-len(keys) // self._page_size))
        for key in keys:
            if not (flat and "/" in key[len(prefix.key) :]):
                yield S3Object(key, 1, f"etag of {key}")


@pytest.mark.parametrize("page_size", [2, 3, 5, 100])
def test_every_match_is_listed_whatever_the_pages(page_size: int) -> None:
    keys = [f"ws/{name}" for name in NAMES]
    for texts in [*combinations(PATTERNS, 1), *combinations(PATTERNS, 2), PATTERNS]:
        bucket = BucketInMemory([*keys, "other/a/05"], page_size)
        patterns = globs(texts)
        matches = inputs._list_matches(cast(Bucket, bucket), Place("yard", "ws/"), patterns)
        expected = {name for name in NAMES if any(glob.matches(name) for glob in patterns)}
        assert set(matches) == expected, texts
        for path, entry in matches.items():
            assert entry == inputs.Input(Place("yard", f"ws/{path}"), 1, f"etag of ws/{path}")
        if page_size == 100:
            assert bucket.request_count == 1


def test_files_far_apart_do_not_cost_the_pages_between_them() -> None:
    keys = [f"ws/{number:05d}" for number in range(10_000)]
    bucket = BucketInMemory(keys, 100)
    patterns = globs(["00001", "00007", "05000", "09999"])
    matches = inputs._list_matches(cast(Bucket, bucket), Place("yard", "ws/"), patterns)
    assert sorted(matches) == ["00001", "00007", "05000", "09999"]
    assert bucket.request_count == 4  # one page of all, and three pages with the files


def make_orders(patterns: list[str], **changes: Any) -> Orders:
    document = {
        "format": 2,
        **{"run": "r", "step": "s", "size": 1, "indices": None, "command": "x"},
        **{"command_count": 1, "keep_going": False, "attempts": 1, "retries": 0},
        **{"retry_on": [], "fail_on": [], "inputs": patterns, "outputs": [], "checkpoint": []},
        **{"workspace": "s3://yard/ws/", "list": None, "list_index": None},
        **{"done": "s3://yard/done/", "checkpoints": "s3://yard/checkpoint/"},
        "content": "s3://yard/content/",
        **changes,
    }
    return read(json.dumps(document).encode(), Place("yard", "orders.json"))


@pytest.mark.parametrize(
    ("patterns", "request_count"),
    [
        (["raw/77/**"], 1),
        (["raw/77"], 1),
        (["raw/7"], 2),
        (["raw/7/3.npy", "raw/9/1.npy", "raw/900/0.npy"], 3),
        (["code/*.py", "raw/500/*"], 2),
        (["raw/12*/1.npy"], 1),
        (["**/1.npy"], 1),
        (["missing", "zzz/**", "a/**"], 2),
        (["raw/999/9.npy", "code"], 2),
    ],
)
def test_of_a_long_list_of_files_a_child_reads_its_part(
    patterns: list[str], request_count: int
) -> None:
    names = [f"raw/{i}/{j}.npy" for i in range(1000) for j in range(10)]
    names += [f"code/{i}.py" for i in range(40)]
    files = [[name, f"hash of {name}", len(name)] for name in sorted(names)]
    bucket = BucketInMemory([], 100)
    bucket.data, blocks = staging.encode_files(files)
    listed = make_orders(patterns, file_list="s3://yard/files.jsonl", file_blocks=blocks)
    found = inputs.find_inputs(cast(Bucket, bucket), listed, is_continued=False)
    inline = make_orders(patterns, files=files)
    assert found == inputs.find_inputs(cast(Bucket, bucket), inline, is_continued=False)
    assert set(found) == {
        name for name in names if any(glob.matches(name) for glob in globs(patterns))
    }
    assert bucket.request_count <= request_count
    is_everywhere = any(pattern.startswith("**") for pattern in patterns)
    assert is_everywhere or bucket.read_bytes < len(bucket.data) / 4
