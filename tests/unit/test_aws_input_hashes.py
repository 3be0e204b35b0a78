"""The memory of the hashes of input files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from batchyard.aws.content_files import ContentFile
from batchyard.engines.aws.input_hashes import InputHashes

CONTENT = ContentFile("a" * 64, 3)
MINUTE_NS = 60 * 10**9


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "raw"
    path.write_text("one")
    return path


def remember(file: Path, age_ns: int = MINUTE_NS, content: ContentFile = CONTENT) -> None:
    now_ns = file.stat().st_mtime_ns + age_ns
    memory = InputHashes(file.with_name("hashes.json"), lambda: now_ns)
    memory.remember({file: file.stat()}, {file: content})


def recall(file: Path) -> dict[Path, ContentFile]:
    return InputHashes(file.with_name("hashes.json")).recall({file: file.stat()})


def test_an_unchanged_file_is_remembered(file: Path) -> None:
    assert recall(file) == {}
    remember(file)
    assert recall(file) == {file: CONTENT}


def test_a_file_that_was_written_to_is_not(file: Path) -> None:
    remember(file)
    before = file.stat()
    file.write_text("two")
    # tar and cp -p set the time back; the time of the change stays.
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert recall(file) == {}


def test_a_file_of_just_now_may_still_change_within_the_same_time_stamp(file: Path) -> None:
    remember(file, age_ns=10**9)
    assert recall(file) == {}


def test_a_hash_of_another_size_is_not_of_this_state(file: Path) -> None:
    remember(file, content=ContentFile("b" * 64, 4))
    assert recall(file) == {}


def test_a_file_that_is_gone_is_forgotten(file: Path) -> None:
    remember(file)
    other = file.with_name("other")
    other.write_text("two")
    file.unlink()
    remember(other)
    assert str(file) not in file.with_name("hashes.json").read_text()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"/x": 3}'])
def test_a_broken_memory_only_costs_time(file: Path, text: str) -> None:
    file.with_name("hashes.json").write_text(text)
    assert recall(file) == {}
    remember(file)
    assert recall(file) == {file: CONTENT}
