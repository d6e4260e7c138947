"""What a search over configurations may vary: axes of choices, each an edit of the launch line."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.models.geometry import ModelGeometry


@dataclass(frozen=True, slots=True)
class Choice:
    """One value on an axis. `change` is an edit as `LaunchLine.changed` takes it, "" leaves it as it is.

    `rank` orders by what is given up, as in `Candidate`: 0 nothing … 4 accuracy.
    """

    change: str = ""
    gives_up: str = ""
    rank: int = 0


AS_IS = Choice()


@dataclass(frozen=True, slots=True)
class Axis:
    """One thing that is varied; the first choice leaves it as it is."""

    name: str
    choices: tuple[Choice, ...]


def tensor_parallel_sizes(model: ModelGeometry, gpus: int) -> tuple[int, ...]:
    """Returns the ranks that divide both the GPUs and every layer's query heads, ascending."""
    heads = {attention.query_heads for attention in model.attention_layers}
    heads |= {layer.recurrent.value_heads for layer in model.layers if layer.recurrent is not None}
    return tuple(
        size
        for size in (1, 2, 4, 8, 16)
        if size <= gpus and gpus % size == 0 and all(count % size == 0 for count in heads)
    )
