"""Numbers with origin: derivation keeps its inputs, JSON keeps everything."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.quantities import Estimate, Origin, Quantity, derived

FREE = Quantity(94.3, "GiB", Origin.ASSUMED, "default of the card", low=94.0, high=94.5)
FRACTION = Quantity(0.85, "fraction", Origin.CONFIGURED, "--mem-fraction-static")
WEIGHTS = Quantity(51.1, "GiB", Origin.REPORTED, "Load weight end")


def rest() -> Quantity:
    return derived(
        0.85 * 94.3 - 51.1, "GiB", "free × fraction − weights", free=FREE, fraction=FRACTION, weights=WEIGHTS
    )


def test_a_derived_quantity_keeps_formula_and_inputs() -> None:
    quantity = rest()
    assert quantity.origin is Origin.DERIVED
    assert quantity.source == "free × fraction − weights"
    assert list(quantity.inputs) == ["free", "fraction", "weights"]
    assert float(quantity) == pytest.approx(29.055)


def test_leaves_are_the_inputs_that_are_not_derived_themselves() -> None:
    slots = derived(188, "slots", "rest × share ÷ state", rest=rest())
    assert [name for name, _ in slots.leaves()] == ["rest.free", "rest.fraction", "rest.weights"]
    assert {leaf.origin for _, leaf in slots.leaves()} == {Origin.ASSUMED, Origin.CONFIGURED, Origin.REPORTED}


def test_a_plain_quantity_is_its_own_leaf() -> None:
    assert list(FREE.leaves("free")) == [("free", FREE)]


def test_the_range_is_the_value_where_none_was_stated() -> None:
    assert WEIGHTS.range == (51.1, 51.1)
    assert FREE.range == (94.0, 94.5)
    assert WEIGHTS.with_range(51.0, 51.3).range == (51.0, 51.3)


def test_json_has_no_empty_keys() -> None:
    assert Quantity(1, "tokens", Origin.USER).to_json() == {"value": 1, "unit": "tokens", "origin": "user"}


@pytest.mark.parametrize(
    "broken", [{}, {"value": 1, "unit": "x"}, {"value": 1, "unit": "x", "origin": "rumour"}]
)
def test_json_that_is_no_quantity_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Quantity.from_json(broken)


def test_json_nested_without_end_is_refused() -> None:
    document: dict[str, object] = {"value": 1, "unit": "", "origin": "user"}
    for _ in range(50):
        document = {"value": 1, "unit": "", "origin": "derived", "inputs": {"x": document}}
    with pytest.raises(ValueError, match="deeper"):
        Quantity.from_json(document)


numbers = st.floats(allow_nan=False, allow_infinity=False)
plain = st.builds(
    Quantity, numbers, st.sampled_from(["bytes", "tokens"]), st.sampled_from(Origin), st.text(max_size=9)
)
quantities = st.recursive(
    plain,
    lambda inner: st.builds(
        lambda value, inputs: Quantity(value, "bytes", Origin.DERIVED, "formula", inputs),
        numbers,
        st.dictionaries(st.text(min_size=1, max_size=5), inner, min_size=1, max_size=3),
    ),
    max_leaves=8,
)


@given(quantities)
def test_json_round_trip(quantity: Quantity) -> None:
    assert Quantity.from_json(json.loads(json.dumps(quantity.to_json()))) == quantity


def test_an_estimate_is_ordered() -> None:
    assert Estimate(1.3, 1.5, 1.85, "×").scaled(2).to_json() == {
        "low": 2.6,
        "mid": 3.0,
        "high": 3.7,
        "unit": "×",
    }
    with pytest.raises(ValueError, match="low ≤ mid ≤ high"):
        Estimate(2.0, 1.0, 3.0, "×")
