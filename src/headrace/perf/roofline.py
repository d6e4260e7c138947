"""All kernels of a pass as arrays, evaluated for many loads at once.

One evaluation of some twenty-five kernels takes about a tenth of a millisecond, whether for one load or for a
hundred.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.hardware.device import Device
from headrace.perf.efficiency import Efficiencies, has_nvlink
from headrace.perf.kernels import Drive, Kernel
from headrace.perf.load import Load, Numbers, pairs
from headrace.perf.options import StepOptions
from headrace.quantities import Origin, Quantity

# Routing is uneven, and the tokens of a step resemble each other: T of them wake as many experts as T^0.9
# routed evenly. Fitted with the constants of `efficiency`: rows left out of the fit 9.4 → 9.1 % (weighted log
# error 0.152 → 0.149), aiconfigurator's sample 12.0 → 11.7 %, RTX PRO 6000 13.6 → 11.9 %; 0.8 is worse again.
_ROUTING_SPREAD = 0.9
_SHARP = 50.0  # an exponent from which the larger term alone counts

LOW, MID, HIGH = 0, 1, 2  # the fast end of every efficiency, its value, the slow end

# One direction per GPU where the device's row does not say: NVLink of the slowest data-centre part, PCIe 4.0.
_LINK = Quantity(300e9, "bytes/s", Origin.ASSUMED, "NVLink, figure not known", low=200e9, high=450e9)
_PCIE = Quantity(25e9, "bytes/s", Origin.ASSUMED, "PCIe 4.0 x16, figure not known", low=12e9, high=50e9)


@dataclass(frozen=True)
class Work:
    """What the kernels do under a load: arrays (kernels, loads)."""

    bytes: Numbers
    flops: Numbers
    launches: Numbers


def alike(tokens: Numbers) -> Numbers:
    """Returns how many tokens, routed evenly and each by itself, would wake as many experts as these do."""
    return np.where(tokens > 1.0, np.maximum(tokens, 1.0) ** _ROUTING_SPREAD, tokens)


class Roofline:
    """The kernels of a pass against the roofs of a device."""

    def __init__(
        self, kernels: Sequence[Kernel], device: Device, options: StepOptions, eff: Efficiencies
    ) -> None:
        self.kernels = tuple(kernels)
        self.options = options
        columns = {
            name: _column([getattr(kernel, name) for kernel in kernels])
            for name in (
                "launches",
                "weight_bytes",
                "experts",
                "expert_bytes",
                "token_bytes",
                "request_bytes",
                "context_bytes",
                "token_flops",
                "pair_flops",
                "bound",
            )
        }
        self._columns = columns
        asleep = [
            1.0 - kernel.experts_per_token / kernel.experts if kernel.experts else 1.0 for kernel in kernels
        ]
        self._log_asleep = np.log(np.maximum(_column(asleep), 1e-12))
        self._drive = np.array([kernel.drive for kernel in kernels])
        self._decode = (self._drive == Drive.DECODE)[:, None]
        self._prefill = (self._drive == Drive.PREFILL)[:, None]
        self._exponent = _column([min(eff.of(k.kind, k.dtype).exponent, _SHARP) for k in kernels])
        self._sharp = self._exponent >= _SHARP
        link = device.interconnect_bytes_per_second or (_LINK if has_nvlink(device) else _PCIE)
        assert device.memory_bytes_per_second is not None
        memory = device.memory_bytes_per_second
        rates = device.dense_flops_per_second
        floors, per_byte, per_flop = [], [], []
        for kernel in kernels:
            reached = eff.of(kernel.kind, kernel.dtype)
            roof = link if kernel.link else memory
            rate = rates.get(kernel.compute_dtype)
            floors.append(_ends(reached.floor_seconds))
            per_byte.append(_inverse(roof, reached.bandwidth_fraction))
            per_flop.append((0.0, 0.0, 0.0) if rate is None else _inverse(rate, reached.flop_fraction))
        self._floor = np.array(floors).T[:, :, None]  # (3, kernels, 1)
        self._per_byte = np.array(per_byte).T[:, :, None]
        self._per_flop = np.array(per_flop).T[:, :, None]

    def work(self, load: Load) -> Work:
        """Returns bytes, FLOPs and launches of every kernel under the load."""
        drafts, ranks = float(self.options.tokens_per_request), float(self.options.dp)
        decode = load.padded * drafts
        every = decode + load.prompt
        heads = decode + load.sequences
        tokens = np.stack((every, heads, load.batch * drafts, load.prompt, every * ranks, load.padded))
        tokens = tokens[self._drive]
        zero = np.zeros_like(load.batch)
        requests = np.stack((zero, zero, load.batch, load.sequences, zero, zero))[self._drive]
        seen, looked = self._context(load, drafts)
        c = self._columns
        awake = c["experts"] * -np.expm1(self._log_asleep * alike(tokens))
        runs = tokens > 0.0
        moved = (
            np.where(runs, c["weight_bytes"], 0.0)
            + c["expert_bytes"] * awake
            + c["token_bytes"] * tokens
            + c["request_bytes"] * requests
            + c["context_bytes"] * seen
        )
        flops = c["token_flops"] * tokens + c["pair_flops"] * looked
        return Work(moved, flops, np.where(runs, c["launches"], 0.0))

    def _context(self, load: Load, drafts: float) -> tuple[Numbers, Numbers]:
        """Returns, per kernel, tokens of context that are read, and pairs of (token, token it sees)."""
        bound = self._columns["bound"]
        batch = np.maximum(load.batch, 1e-12)
        seen = np.where(self._decode, load.batch * np.minimum(load.context / batch, bound), 0.0)
        looked = seen * drafts
        if np.any(load.prompt > 0.0):
            new = load.prompt / np.maximum(load.sequences, 1e-12)
            read = load.sequences * np.minimum(load.prior + new, bound + new)
            seen = np.where(self._prefill, read, seen)
            looked = np.where(self._prefill, load.sequences * pairs(load.prior, new, bound), looked)
        return seen, looked

    def seconds(self, work: Work, end: int = MID) -> tuple[Numbers, Numbers]:
        """Returns the seconds of every kernel at its roofs, and those of its launches: arrays (kernels,
        loads), at one end of the efficiencies."""
        moving = work.bytes * self._per_byte[end]
        counting = work.flops * self._per_flop[end]
        larger = np.maximum(moving, counting)
        ratio = np.minimum(moving, counting) / np.maximum(larger, 1e-30)
        blend = np.where(self._sharp, 1.0, (1.0 + ratio**self._exponent) ** (1.0 / self._exponent))
        return larger * blend, work.launches * self._floor[end]

    def parts(self, work: Work) -> tuple[Numbers, Numbers, Numbers]:
        """Returns seconds of (floor, bytes, FLOPs) of every kernel at the middle efficiencies."""
        return (
            work.launches * self._floor[MID],
            work.bytes * self._per_byte[MID],
            work.flops * self._per_flop[MID],
        )


def _column(values: Sequence[float]) -> Numbers:
    return np.array(values, dtype=np.float64)[:, None]


def _ends(quantity: Quantity) -> tuple[float, float, float]:
    low, high = quantity.range
    return low, quantity.value, high


def _inverse(roof: Quantity, fraction: Quantity) -> tuple[float, float, float]:
    """Returns seconds per unit at the fast end, the value and the slow end.

    A roof that is assumed (several devices that a name fits, a link whose figure is not known) has its own
    range in them; the doubts about a data sheet's figure have not.
    """
    low, high = fraction.range
    least, most = roof.range if roof.origin is Origin.ASSUMED else (roof.value, roof.value)
    return 1.0 / (most * high), 1.0 / (roof.value * fraction.value), 1.0 / (least * low)
