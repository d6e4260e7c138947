"""What people write, as data."""

from __future__ import annotations

import pytest

from headrace.diagnose.claims import Pair, Topic, read_claims


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("25% of a B200", (0.25, 0.25, "B200")),
        ("we expected 20-30 % of an H100", (0.2, 0.3, "H100")),
        ("about 40 percent of the H200", (0.4, 0.4, "H200")),
        ("half of what I hoped", None),
    ],
)
def test_shares(text: str, share: tuple[float, float, str] | None) -> None:
    assert read_claims([text])[0].share == share


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("the BF16 checkpoint gives 1,234.5 output tok/s", (Topic.WEIGHTS_DTYPE, "bf16", 1234.5)),
        ("fp16 KV makes 15.9 tok/s", (Topic.KV_DTYPE, "fp16", 15.9)),
        ("an H200 gives 7,000 total tok/s", (Topic.GPU, "H200", 7000.0)),
        ("it is slow", None),
    ],
)
def test_paired_claims(text: str, pair: tuple[Topic, str, float] | None) -> None:
    found = read_claims([text])[0].pair
    if pair is None:
        assert found is None
        return
    assert isinstance(found, Pair)
    assert (found.topic, found.alternative, found.rate) == pair
    assert found.total == ("total" in text)


def test_a_product_and_a_reference() -> None:
    product, reference = read_claims(["40 x 20 tok/s = 800 tok/s", "an H100 fleet of 16 made 40,000 tok/s"])
    assert product.product == (40, 20, 800)
    assert reference.reference == (16, 40_000)
    assert reference.gpu == "H100"


def test_claims_are_bounded() -> None:
    assert len(read_claims(["x"] * 500)) == 100
    assert len(read_claims(["y" * 10**6])[0].text) == 2000
