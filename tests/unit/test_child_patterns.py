"""Patterns of files that differ from child to child."""

from __future__ import annotations

import pytest

from batchyard import child_patterns
from batchyard.worker.globs import globs


@pytest.mark.parametrize(
    ("pattern", "command", "filled"),
    [
        ("raw/${command.1}", "cat a.txt", "raw/a.txt"),
        ("${command.2}", "cut  -f1\t'a b/c.txt' > out", "a b/c.txt"),
        ("raw/${command.--part}.npy", "python x.py --part 7 --slow", "raw/7.npy"),
        ("raw/${command.--part}.npy", "python x.py --part=7", "raw/7.npy"),
        ("raw/${command.N}", "N=3 python x.py", "raw/3"),
        ("${command.cat}", "n=$(cat raw/1.txt); echo $n", "raw/1.txt"),
        ("${command.<}", "sort < in.txt > out.txt", "in.txt"),
        ("${command.1}/${command.2}", "copy a b", "a/b"),
        ("raw/${index}", "copy a b", "raw/${index}"),
    ],
)
def test_words_of_a_command(pattern: str, command: str, filled: str) -> None:
    assert child_patterns.fill_words(pattern, command) == filled


@pytest.mark.parametrize(
    ("pattern", "command", "problem"),
    [
        ("${command.3}", "cat a.txt", "has no word 3: it has 2, counted from 0"),
        ("${command.--part}", "cat a.txt --part", "has no word after --part"),
        ("${command.1}", "cat 'a.txt", "no closing quotation"),
        ("${command.1}", "cat /etc/passwd", "is '/etc/passwd', which is not a path inside"),
        ("raw/${command.1}", "cat ../x", "is 'raw/../x', which is not a path inside"),
        ("${command.1}", "cat ''", "is empty, which is not a path inside the workspace"),
    ],
)
def test_a_command_without_the_word_is_named(pattern: str, command: str, problem: str) -> None:
    with pytest.raises(ValueError) as caught:
        child_patterns.fill_words(pattern, command)
    assert problem in str(caught.value) and f"`{command}`" in str(caught.value)


def test_a_child_has_the_patterns_of_all_its_commands() -> None:
    patterns = ("code/*.py", "raw/${index}/**", "flat/${command.1}", "${index}-${command.1}")
    filled = child_patterns.fill(patterns, 4, ["use a", "use b", "use a"])
    assert filled == ("code/*.py", "raw/4/**", "flat/a", "flat/b", "4-a", "4-b")
    assert child_patterns.fill(patterns[2:], 4, []) == ()


@pytest.mark.parametrize(
    ("pattern", "widened", "paths"),
    [
        ("raw/**", "raw/**", ["raw/a"]),
        ("raw/${index}/*.txt", "raw/*/*.txt", ["raw/12/a.txt"]),
        ("part-${index}", "part-*", ["part-7"]),
        ("raw/x-${command.1}.npy", "raw/**", ["raw/x-1.npy", "raw/x-a/b.npy"]),
        ("${command.1}", "**", ["a", "a/b"]),
    ],
)
def test_the_wide_pattern_matches_those_of_all_children(
    pattern: str, widened: str, paths: list[str]
) -> None:
    assert child_patterns.widen(pattern) == widened
    (glob,) = globs([widened])
    assert all(glob.matches(path) for path in paths)
