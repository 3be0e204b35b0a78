"""Lists of commands that are too long for the memory: lines on the disk, and the start order."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from batchyard.batch.tracked_job import ReadyChildren
from batchyard.errors import PipelineFileError
from batchyard.folder import RunFolder, write_lines_synced
from batchyard.line_files import MAX_BYTES_IN_MEMORY, LineFile
from batchyard.pipeline_file.plain_lists import load_list

#: Lines of many lengths, with characters that `splitlines` takes for line ends.
LINES = [f"echo {number} x" + "\u2028é" * (number % 40) for number in range(30_000)]
COUNT = 140_000


def write_long_list(path: Path, extra: str = "") -> Path:
    path.write_text("".join(f"{line}\n" for line in LINES) + extra, encoding="utf-8")
    assert path.stat().st_size > MAX_BYTES_IN_MEMORY
    return path


def test_lines_of_a_file_are_a_sequence(tmp_path: Path) -> None:
    with write_long_list(tmp_path / "list").open("rb") as file:
        lines = LineFile(file)
    assert len(lines) == len(LINES)
    assert list(lines) == LINES
    assert [lines[number] for number in (0, 29_999, 7, 15_000, -1)] == [
        LINES[number] for number in (0, 29_999, 7, 15_000, -1)
    ]
    assert lines[100:3000:7] == LINES[100:3000:7]
    for number in (30_000, -30_001):
        with pytest.raises(IndexError):
            lines[number]


def test_last_line_needs_no_line_feed(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("a\nb", encoding="utf-8")
    with (tmp_path / "list").open("rb") as file:
        assert list(LineFile(file)) == ["a", "b"]


def test_long_list_has_the_commands_of_a_short_one(tmp_path: Path) -> None:
    """Comments, blanks, CR LF and params mean the same; the file may change afterwards."""
    extra = "\n  # a comment\r\n\tprint ${params.word} \r\nlast"
    path = write_long_list(tmp_path / "list.txt", extra)
    pipeline = load_list(path, params={"word": "one"})
    path.write_text("changed\n")
    commands = pipeline.steps[0].commands
    assert isinstance(commands, LineFile)
    assert list(commands) == [*LINES, "print one", "last"]


@pytest.mark.parametrize(
    ("extra", "place", "problem"),
    [
        ("a\0b\n", (30_001, 2), "NUL"),
        ("a\rb\n", (30_001, 2), "carriage return"),
        ("${params.none}\n", (30_001, 1), "there is no parameter"),
        ("x" * 7 * 2**20, (30_001, 1), "longer than 6 MiB"),
    ],
)
def test_mistake_at_the_end_of_a_long_list_has_its_place(
    tmp_path: Path, extra: str, place: tuple[int, int], problem: str
) -> None:
    with pytest.raises(PipelineFileError) as error:
        load_list(write_long_list(tmp_path / "list.txt", extra))
    (mistake,) = error.value.mistakes
    assert (mistake.line, mistake.column) == place
    assert problem in mistake.problem


def test_memory_does_not_grow_with_a_list(tmp_path: Path) -> None:
    path, folder = tmp_path / "list.txt", RunFolder(tmp_path / "run")
    write_lines_synced(path, (f"echo {number}\n" for number in range(COUNT)))
    folder.lists.mkdir(parents=True)
    tracemalloc.start()
    try:
        commands = load_list(path).steps[0].commands
        assert commands is not None
        write_lines_synced(folder.list_of("a"), (f"{command}\n" for command in commands))
        stored = folder.load_list("a")
        ready = ReadyChildren()
        ready.set_order(range(COUNT))
        assert (len(stored), stored[COUNT - 1], len(ready)) == (COUNT, f"echo {COUNT - 1}", COUNT)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The texts would take more than 8 MB. What is checked at a time takes the same for any list.
    assert peak_bytes < 8 * 2**20


def test_order_of_children_stays_a_range() -> None:
    ready = ReadyChildren()
    assert ready.first() is None
    ready.set_order(range(3000))
    order = []
    for _ in range(2500):
        child = ready.first()
        assert child is not None
        order.append(child)
        ready.remove_first()
    assert order == list(range(2500))
    assert (len(ready), list(ready)[:2], list(ready)[-1]) == (500, [2500, 2501], 2999)
    ready.append(7)
    assert list(ready) == [*range(2500, 3000), 7]
    ready.clear()
    assert (len(ready), ready.first()) == (0, None)
