"""One accelerator, every figure with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.quantities import Quantity


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator as software sees it. A figure that nobody published is None, never a guess.

    Where sources conflict, a quantity's low and high hold the range. Dense figures only: a figure printed
    "with sparsity" is not in here. A device that stands for several candidates (an ambiguous name) has the
    range over them in every figure and their names in `candidates`.
    """

    name: str  # unique: "RTX PRO 6000 Blackwell Server"
    vendor: str
    architecture: str  # "Blackwell GB202"
    compute_capability: float | None  # NVIDIA only: 12.0 is sm_120
    memory_bytes: Quantity  # the whole memory, as nvidia-smi or the data sheet says
    usable_bytes: (
        Quantity  # what the runtime calls total (torch.cuda.mem_get_info()[1]): less ECC and firmware
    )
    free_before_load_bytes: Quantity  # free once the process has its context, before weights; origin assumed
    memory_bytes_per_second: Quantity | None
    dense_flops_per_second: Mapping[str, Quantity]  # by dtype: "bf16", "fp16", "fp8", "fp4", "int8"
    measured: Mapping[
        str, Quantity
    ]  # ceilings somebody measured: "bf16_flops_per_second", "stream_bytes_per_second"
    sm_count: Quantity | None  # streaming multiprocessors or compute units
    l2_bytes: Quantity | None
    power_watts: Quantity | None
    interconnect: str  # in words: "PCIe 5.0 x16, no NVLink"
    interconnect_bytes_per_second: Quantity | None  # one direction, per device
    source: str
    notes: str = ""
    aliases: tuple[str, ...] = ()
    marketed_gb: float = 0.0  # the size in its name and on the box
    candidates: tuple[str, ...] = ()  # filled only where an ambiguous name was resolved to a range
    assumptions: tuple[str, ...] = ()  # one sentence each, for the report

    def to_json(self) -> dict[str, Any]:
        """Returns the device as plain JSON, quantities in their own form."""
        document: dict[str, Any] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, Quantity):
                document[name] = value.to_json()
            elif isinstance(value, Mapping):
                document[name] = {key: inner.to_json() for key, inner in value.items()}
            elif isinstance(value, tuple):
                document[name] = list(value)
            else:
                document[name] = value
        return document
