"""Two diagnoses in the terminal: what binds each, and which numbers moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.report.amounts import shown
from headrace.report.figures import printable

_READ = (
    "How to read this: 'there' is the diagnosis given with --against, 'here' the other. '≈' means that both "
    "may be the same number: the ranges that the evidence allows meet. Other lengths or another load move "
    "numbers too, without any change of yours."
)


def against_view(document: Mapping[str, Any]) -> RenderableType:
    """Returns a report document's `against` part, at most 80 columns wide."""
    before, now = document["against"]["binding"], document["binding"]
    head = Text("Binding there  ", style="bold").append(_binding(before), style="not bold")
    here = Text("Binding here   ", style="bold").append(_binding(now), style="not bold")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("number", overflow="fold", max_width=36)
    for name in ("there", "here", "÷"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for change in document["against"]["changes"]:
        ratio = change["ratio"]
        table.add_row(
            Text(printable(change["name"])),
            Text(shown(change["before"], change["unit"])),
            Text(shown(change["after"], change["unit"])),
            Text("–" if ratio is None else f"{ratio:.2f}"),
            Text("≈" if change["within_range"] else ""),
        )
    return Group(head, here, Text(), table, Text(_READ, style="dim"))


def _binding(finding: Mapping[str, Any]) -> str:
    evidence = finding["evidence"][:1]
    return printable(f"{finding['constraint']} {finding['confidence']:.2f}: {''.join(evidence)}")
