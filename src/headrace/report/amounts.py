"""Quantities as people read them: bytes, rates, parameters, a range, an origin."""

from __future__ import annotations

from headrace.quantities import Origin, Quantity
from headrace.report.figures import UNKNOWN

_GIB = 2**30
ORIGIN_WORDS = {
    Origin.MEASURED: "measured",
    Origin.REPORTED: "reported",
    Origin.CONFIGURED: "config",
    Origin.DEFAULT: "default",
    Origin.DATASHEET: "data sheet",
    Origin.DERIVED: "derived",
    Origin.USER: "given",
    Origin.ASSUMED: "assumed",
}

_WHOLE = {"requests", "servers", "GPUs", "slots", "blocks", "rows"}


def digits(value: float) -> str:
    """Returns a number with two decimals below 10, one below 100, else none: `0.46`, `12.1`, `5,040`."""
    if value == 0:
        return "0"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def scaled(value: float, unit: str) -> str:
    """Returns a value with a unit people use: GiB for bytes, GB/s, TFLOPS, B parameters, KiB per token."""
    if unit == "bytes":
        return _bytes(value)
    if unit == "bytes/s":
        return f"{digits(value / 1e9)} GB/s"
    if unit in {"bytes/token", "bytes/request"}:
        return f"{_bytes(value)}/{unit.partition('/')[2]}"
    if unit == "FLOP/s":
        return f"{digits(value / 1e12)} TFLOPS"
    if unit == "FLOP/token":
        return f"{digits(value / 1e9)} GFLOP/token"
    if unit == "parameters":
        return f"{value / 1e9:,.3f} B"
    if unit == "s" and 0 < abs(value) < 1:
        return f"{digits(value * 1e3)} ms"
    if unit in {"units", "tokens"}:
        return f"{value:,.0f}" + (" tokens" if unit == "tokens" else "")
    return f"{digits(value)} {unit}".rstrip()


def _bytes(value: float) -> str:
    for size, name in ((_GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(value) >= size:
            return f"{digits(value / size)} {name}"
    return f"{digits(value)} B"


def amount(quantity: Quantity | None, *, ranged: bool = True) -> str:
    """Returns a quantity in words, with its range where it has one; a dash for None."""
    if quantity is None:
        return UNKNOWN
    low, high = quantity.range
    text = scaled(quantity.value, quantity.unit)
    if not ranged or low == high:
        return text
    return f"{text} ({scaled(low, quantity.unit)} … {scaled(high, quantity.unit)})"


def origin(quantity: Quantity | None) -> str:
    """Returns where a quantity comes from, in a word or two."""
    return "not published" if quantity is None else ORIGIN_WORDS[quantity.origin]


def shown(value: float | None, unit: str) -> str:
    """Returns a value as people read it: `61 %`, `32`, `50.1 ms`, `5,105 tokens/s`; a dash for None."""
    if value is None:
        return UNKNOWN
    if unit == "fraction":
        return f"{digits(100 * value)} %"
    if unit == "yes/no":
        return "yes" if value else "no"
    if unit in _WHOLE:
        return f"{value:,.0f}" if value == round(value) else digits(value)
    if unit == "tokens/s":
        return f"{digits(value)} tok/s"
    if unit == "FLOP":
        return f"{digits(value / 1e9)} GFLOP"
    if unit == "×":
        return f"×{value:.2f}"
    return scaled(value, unit)
