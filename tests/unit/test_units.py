from __future__ import annotations

import pytest

from batchyard.units import format_duration, format_memory, parse_duration, parse_memory, quote


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("2GiB", 2048),
        ("512MiB", 512),
        ("1.5GiB", 1536),
        ("1TiB", 1024 * 1024),
        ("8192KiB", 8),
        ("2GB", 1908),  # 1907.3, rounded up
        ("512MB", 489),
        ("5000KB", 5),
        ("1TB", 953_675),
        ("2G", 2048),
        ("2Gi", 2048),
        ("512m", 512),
        ("2gib", 2048),
        ("2 GiB", 2048),
        (" 2GiB ", 2048),
        ("0.1GiB", 103),
        ("4MiB", 4),
        ("3.5MiB", 4),
        ("1024TiB", 2**30),
    ],
)
def test_memory_is_read_in_whole_mib(text: str, mib: int) -> None:
    assert parse_memory(text) == mib


NOT_MEMORY = "is not an amount of memory; write a number with a unit, like 2GiB or 512MiB"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2 gigs", f'"2 gigs" {NOT_MEMORY}'),
        ("", f'"" {NOT_MEMORY}'),
        ("GiB", f'"GiB" {NOT_MEMORY}'),
        ("-2GiB", f'"-2GiB" {NOT_MEMORY}'),
        ("1e3MiB", f'"1e3MiB" {NOT_MEMORY}'),
        ("2,5GiB", f'"2,5GiB" {NOT_MEMORY}'),
        ("٢GiB", f'"٢GiB" {NOT_MEMORY}'),
        ("9" * 5000 + "GiB", f'"{"9" * 57}..." {NOT_MEMORY}'),
        ("2048", '"2048" has no unit; write 2048MiB or 2048GiB, whichever is meant'),
        ("1MiB", '"1MiB" is too little memory; write at least 4MiB'),
        ("0GiB", '"0GiB" is too little memory; write at least 4MiB'),
        ("1025TiB", '"1025TiB" is more memory than any machine has; write at most 1024TiB'),
    ],
)
def test_what_is_no_memory_says_what_to_write(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_memory(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("1h", 3600),
        ("2d", 172_800),
        ("1h30m", 5400),
        ("1d1h1m1s", 90_061),
        ("45", 45),
        (" 45 ", 45),
    ],
)
def test_durations_are_read_in_seconds(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


NOT_TIME = "is not a length of time; write a number with a unit, like 90s, 30m, 1h30m or 2d"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("soon", f'"soon" {NOT_TIME}'),
        ("", f'"" {NOT_TIME}'),
        ("1:30", f'"1:30" {NOT_TIME}'),
        ("30m1h", f'"30m1h" {NOT_TIME}'),
        ("-5s", f'"-5s" {NOT_TIME}'),
        ("1.5h", f'"1.5h" {NOT_TIME}'),
        ("²", f'"²" {NOT_TIME}'),
        ("0s", '"0s" is no time at all; write at least 1s'),
        ("0", '"0" is no time at all; write at least 1s'),
        ("4000d", '"4000d" is more than ten years; write at most 3650d'),
    ],
)
def test_what_is_no_duration_says_what_to_write(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_duration(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("mib", "expected"),
    [
        (4, "4MiB"),
        (512, "512MiB"),
        (1024, "1GiB"),
        (1536, "1.5GiB"),
        (1908, "1.9GiB"),
        (2**20, "1TiB"),
    ],
)
def test_memory_is_shown_to_one_decimal(mib: int, expected: str) -> None:
    assert format_memory(mib) == expected


@pytest.mark.parametrize(
    ("duration_s", "expected"),
    [
        (0, "0s"),
        (0.04, "0s"),
        (0.42, "0.4s"),
        (5, "5s"),
        (9.97, "10s"),
        (42.4, "42s"),
        (59.7, "1m"),
        (90, "1m30s"),
        (3600, "1h"),
        (3601, "1h"),
        (5400, "1h30m"),
        (172_800, "2d"),
        (90_061, "1d1h"),
        (-90, "-1m30s"),
    ],
)
def test_durations_are_shown_in_their_two_largest_units(duration_s: float, expected: str) -> None:
    assert format_duration(duration_s) == expected


def test_quoting_makes_control_characters_visible_and_shortens() -> None:
    assert quote("größe") == '"größe"'
    assert quote("a\nb\x1b[31m") == '"a\\nb\\u001b[31m"'
    assert quote("x" * 100) == '"' + "x" * 57 + '..."'
