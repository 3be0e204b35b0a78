"""Patterns of paths: what they match, and that looking where they begin finds all of it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchyard.worker.globs import Glob, globs, is_safe

MATCHES = [
    ("raw/**", ["raw/a", "raw/b/c", "raw/.hidden", "raw/a b/ü"], ["raw", "raws/a", "a/raw/b"]),
    ("raw/*", ["raw/a", "raw/.a"], ["raw/b/c", "raw/", "raw"]),
    ("raw/*.tif", ["raw/a.tif", "raw/.tif"], ["raw/a.tiff", "raw/b/a.tif"]),
    ("**/*.tif", ["a.tif", "b/a.tif", "b/c/a.tif"], ["a.png", "b.tif/c"]),
    ("a/**/z", ["a/z", "a/b/z", "a/b/c/z"], ["a/bz", "z", "a/z/b"]),
    ("raw", ["raw", "raw/a", "raw/b/c"], ["raws", "a/raw"]),
    ("slice_00?.npy", ["slice_001.npy"], ["slice_0010.npy", "slice_00/.npy"]),
    ("part-[0-3]", ["part-0", "part-3"], ["part-4", "part-"]),
    ("part-[!0-3]", ["part-4"], ["part-0", "part-/"]),
    ("part-[]x]", ["part-]", "part-x"], ["part-["]),
    ("part-[z-a]", ["part-[z-a]"], ["part-z"]),
    ("a[b", ["a[b"], ["ab"]),
    ("a.b+c", ["a.b+c"], ["aXb+c", "a.bbc"]),
    ("a**b", ["ab", "axxb"], ["a/b"]),
    ("**", ["a", "a/b"], []),
    ("x/*", [], ["x/.batchyard-0011.part"]),
]


@pytest.mark.parametrize(("pattern", "matched", "others"), MATCHES)
def test_a_pattern_matches_these_and_not_those(
    pattern: str, matched: list[str], others: list[str]
) -> None:
    (glob,) = globs([pattern])
    assert [path for path in matched if not glob.matches(path)] == []
    assert [path for path in others if glob.matches(path)] == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [("raw/", "raw"), ("./raw/**", "raw/**"), ("a//b", "a/b"), (".", "**"), ("./", "**")],
)
def test_what_says_nothing_is_left_out(written: str, meant: str) -> None:
    assert globs([written]) == (Glob(meant),)


@pytest.mark.parametrize(
    ("pattern", "prefix", "folder", "stays"),
    [
        ("raw/**", "raw/", "raw", False),
        ("raw/x*.tif", "raw/x", "raw", True),
        ("raw/*/a", "raw/", "raw", False),
        ("**", "", "", False),
        ("*.tif", "", "", True),
        ("raw/a", "raw/a", "raw", False),
        ("a/[bc]", "a/", "a", True),
    ],
)
def test_where_to_begin_to_look(pattern: str, prefix: str, folder: str, stays: bool) -> None:
    glob = Glob(pattern)
    assert (glob.prefix, glob.folder, glob.stays_in_folder) == (prefix, folder, stays)


SIGNS = st.text(alphabet="ab/*?[]!-.", min_size=1, max_size=8)
PATHS = st.lists(st.text(alphabet="ab.[]!-", min_size=1, max_size=3), min_size=1, max_size=4).map(
    "/".join
)


@given(SIGNS, PATHS)
@example("[!a]", "b")
@example("[a", "[a")
def test_everything_it_matches_is_where_one_looks(text: str, path: str) -> None:
    (glob,) = globs([text])
    if glob.matches(path):
        assert path.startswith(glob.prefix)
        if glob.stays_in_folder:
            assert "/" not in path.removeprefix(glob.folder).removeprefix("/")


@given(PATHS)
def test_a_path_without_signs_matches_itself_and_what_is_below(path: str) -> None:
    (glob,) = globs([path])
    if glob.is_plain:
        assert glob.matches(glob.text)
        assert glob.matches(f"{glob.text}/x/y")
        assert not glob.matches(f"{glob.text}x")


@pytest.mark.parametrize("path", ["a", "a/b", "..a/b..", "a b", "ü"])
def test_an_ordinary_path_is_safe(path: str) -> None:
    assert is_safe(path)


@pytest.mark.parametrize("path", ["", "/a", "../a", "a/../b", "a/..", "./a", "a//b", "a/", "a\0b"])
def test_a_path_that_leads_out_or_is_no_name_is_not(path: str) -> None:
    assert not is_safe(path)
