"""A model in the terminal: parameters, bytes of weights, KV and state, FLOPs, with origins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.models.description import ModelDescription
from headrace.quantities import Quantity
from headrace.report.amounts import amount, origin
from headrace.report.figures import printable, several

_READ = (
    "How to read this: 'served' is what a server loads (no MTP layers); 'read per step' leaves out the "
    "vision tower and the input embedding and counts the experts that so many tokens wake. 'derived': a "
    "formula over the config, shown by --json."
)


def model_view(model: ModelDescription) -> RenderableType:
    """Returns one model in full."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True, style="dim")
    for label, value, where in lines(model):
        table.add_row(label, printable(value), where)
    title = " · ".join(word for word in (model.model, model.architecture or model.model_type) if word)
    parts: list[RenderableType] = [Text(printable(title), style="bold"), table]
    parts += [Text(printable(f"Note: {caveat}"), style="yellow") for caveat in model.caveats]
    parts.append(Text(printable(f"Source: {model.source}"), style="dim"))
    parts.append(Text(_READ, style="dim"))
    return Group(*parts)


def lines(model: ModelDescription) -> Iterable[tuple[str, str, str]]:
    """Yields (label, value, origin) in the order that views show them."""
    rank = f" (one of {model.tp} ranks)" if model.tp > 1 else ""
    yield "Parameters", _both(model.parameters["total"], model.parameters["active"]), "derived"
    beside = [name for name in ("text", "vision", "mtp") if model.parameters[name].value]
    if len(beside) > 1:
        yield "", ", ".join(f"{name} {amount(model.parameters[name])}" for name in beside), "derived"
    yield (
        "Layers",
        ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in model.layers.items()),
        "config",
    )
    if model.experts:
        yield "Experts per token", model.experts, "config"
    yield "Stored as", model.stored_as, "config"
    yield f"Weights served{rank}", _weights(model.weight_bytes_served), _origin(model.weight_bytes_served)
    read = f"{_weights(model.weight_bytes_read_per_step)} for {several(model.tokens_per_step, 'token')}"
    yield "Read per step", read, origin(model.weight_bytes_read_per_step)
    yield "KV cache", _by_dtype(model.kv_bytes_per_token), "derived"
    if model.window_tokens:
        within = _by_dtype(model.kv_window_bytes_per_token)
        yield "  of it windowed", f"{within}, the last {model.window_tokens:,} tokens only", "derived"
    if model.state_bytes_per_request:
        yield "State", _by_dtype(model.state_bytes_per_request), "derived"
        yield "", f"the config says {model.state_dtype or 'no dtype: engines take float32'}", "config"
    work = f"{amount(model.flops_per_token)} at {model.at_context_tokens:,} tokens of context"
    yield "Work", work, origin(model.flops_per_token)
    yield "Longest context", amount(model.context_tokens), origin(model.context_tokens)


def _both(total: Quantity, active: Quantity) -> str:
    return f"{amount(total)}, {amount(active)} active per token"


def _weights(quantity: Quantity) -> str:
    return f"{amount(quantity)} ({quantity.value / 1e9:,.1f} GB)"


def _origin(quantity: Quantity) -> str:
    return "headers" if "headers" in quantity.inputs else origin(quantity)


def _by_dtype(values: Mapping[str, Quantity]) -> str:
    return ", ".join(f"{amount(quantity)} in {dtype}" for dtype, quantity in values.items())


def models_view(ids: Sequence[str]) -> RenderableType:
    """Returns the list of built-in models."""
    return Group(
        Text(f"{len(ids)} built-in models; others by the path of their config.json", style="bold"),
        Columns(ids, padding=(0, 2)),
    )
