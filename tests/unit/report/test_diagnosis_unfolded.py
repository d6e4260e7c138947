"""`--explain`: a number to its end, in units that people read."""

from __future__ import annotations

from rich.console import Console

from headrace.quantities import Origin, Quantity, derived
from headrace.report.diagnosis_view import explanation


def test_a_number_unfolds_to_its_last_input_with_ranges_in_the_same_unit() -> None:
    quantity = Quantity(2.0**31, "bytes", Origin.MEASURED, "the last").with_range(2.0**30, 2.0**32)
    for level in range(25):
        quantity = derived(quantity.value, "bytes", f"level {level}", inner=quantity)
    console = Console(width=200)
    with console.capture() as captured:
        console.print(explanation("step", Quantity(0.0501, "s", Origin.DERIVED, "", {"inner": quantity})))
    lines = captured.get().splitlines()
    assert lines[0].startswith("step = 50.1 ms")
    assert len(lines) == 27
    assert lines[-1].strip().startswith("inner = 2.00 GiB (1.00 GiB … 4.00 GiB)  [measured] the last")
