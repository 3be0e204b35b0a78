"""`--weight` of a plain list: the word of each command that says how much work it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchyard import plan as planning
from batchyard.errors import PipelineFileError
from batchyard.pipeline_file import plain_lists

LIST = "sim --frames 3 a  # 7\n# a comment\nsim --frames 90 b # 8.5\n"


def load(folder: Path, text: str, **settings: object) -> tuple[float, ...]:
    path = folder / "list.txt"
    path.write_text(text)
    pipeline = plain_lists.load_list(path, **settings)  # type: ignore[arg-type]
    plan = planning.make(pipeline)
    return tuple(plan.lengths.get("list", ()))


@pytest.mark.parametrize(
    ("word", "weights"),
    [
        ("2", (3, 90)),
        ("--frames", (3, 90)),
        ("#", (7, 8.5)),
        ("${command.#}", (7, 8.5)),
        ([1, 2], (1, 2)),
        (None, ()),
    ],
)
def test_weights_are_a_word_of_each_command_or_numbers(
    word: object, weights: tuple[float, ...], tmp_path: Path
) -> None:
    assert load(tmp_path, LIST, weight=word) == weights


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"weight": "9"}, "has no word 9: it has 6, counted from 0"),
        ({"weight": "0"}, 'which is "sim" in the command'),
        ({"weight": "--size"}, "has no word after --size"),
        ({"weight": "2", "share_out": "static"}, "handed out one by one"),
        ({"weight": [1]}, "not a list of 2 numbers"),
        ({"weight": [1, -2]}, "not a list of 2 numbers"),
        ({"weight": [1, True]}, "not a list of 2 numbers"),
        ({"weight": [1, float("nan")]}, "not a list of 2 numbers"),
        ({"weight": 5}, "not a list of 2 numbers"),
    ],
)
def test_other_weights_are_mistakes(
    settings: dict[str, object], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(PipelineFileError, match=problem):
        load(tmp_path, LIST, **settings)
