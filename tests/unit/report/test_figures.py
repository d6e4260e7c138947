"""How numbers are printed."""

from __future__ import annotations

import pytest

from headrace.report.figures import count, cut, duration, listing, printable, rate, several, share, short_url


def test_counts_and_nouns() -> None:
    assert (count(1234567), count(None), several(1, "row"), several(2000, "row")) == (
        "1,234,567",
        "–",
        "1 row",
        "2,000 rows",
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0.00"),
        (0.434, "0.43"),
        (9.994, "9.99"),
        (9.996, "10.0"),
        (99.94, "99.9"),
        (5040.4, "5,040"),
    ],
)
def test_rates(value: float | None, text: str) -> None:
    assert rate(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (-1.0, "0.0 s"),
        (8.44, "8.4 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (725.0, "12 min 05 s"),
        (3599.7, "1 h 00 min"),
        (8040.0, "2 h 14 min"),
        (86_399.0, "1 d 00 h"),
        (273_600.0, "3 d 04 h"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 0, "–"),
        (0, 5, "0.0 %"),
        (1, 3, "33.3 %"),
        (1, 99_999, "<0.1 %"),
        (99_999, 100_000, "99.9 %"),
        (5, 5, "100.0 %"),
    ],
)
def test_shares_round_neither_to_nothing_nor_to_all(part: int, whole: int, text: str) -> None:
    assert share(part, whole) == text


def test_listings_begin_with_the_most() -> None:
    assert listing({"empty": 3, "truncated": 1200, "refused": 0}) == "truncated 1,200, empty 3"


def test_texts_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[31mb\nc") == "a [31mb c"
    assert cut("abcdef", 4) == "abc…"


def test_short_urls_keep_the_port() -> None:
    assert short_url("http://127.0.0.1:30000", 20) == "127.0.0.1:30000"
    short = short_url("https://a-very-long-name.of-some.cluster.example:30007", 20)
    assert len(short) == 20
    assert short.endswith(":30007")
