"""Seconds of a decode step and of a prefill chunk, from physics, corrected by what was observed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from headrace.errors import InputError
from headrace.hardware.device import Device
from headrace.models.geometry import ModelGeometry
from headrace.perf.affine import Affine, AffineTable, affine_table, segment
from headrace.perf.building import kernels
from headrace.perf.calibrate import Calibration, Correction, Sample, fit
from headrace.perf.efficiency import Efficiencies, efficiencies
from headrace.perf.host import Host
from headrace.perf.kernels import Drive
from headrace.perf.load import Load, Numbers
from headrace.perf.operators import Operator, operators
from headrace.perf.options import StepOptions
from headrace.perf.roofline import HIGH, LOW, MID, Roofline
from headrace.quantities import Estimate

_LEAST = 0.05  # of the middle: an estimate's low end stays above nothing


@dataclass(frozen=True, slots=True)
class StepTime:
    """One pass: its operators, what the GPU and the host take of it, and the whole with its range.

    Attributes:
        gpu_seconds: the operators one after the other.
        host_seconds: what the GPU waits for beside them.
        tokens_per_request: tokens that a decode step yields per request.
    """

    operators: tuple[Operator, ...]
    gpu_seconds: Estimate
    host_seconds: Estimate
    seconds: Estimate
    tokens_per_request: float
    batch: float
    context_tokens: float

    @property
    def token_seconds(self) -> Estimate:
        """Seconds per output token of one request."""
        return self.seconds.scaled(1.0 / self.tokens_per_request)

    def to_json(self) -> dict[str, Any]:
        """Returns the step as plain JSON."""
        return {
            "batch": self.batch,
            "context_tokens": self.context_tokens,
            "seconds": self.seconds.to_json(),
            "gpu_seconds": self.gpu_seconds.to_json(),
            "host_seconds": self.host_seconds.to_json(),
            "tokens_per_request": self.tokens_per_request,
            "operators": [operator.to_json() for operator in self.operators],
        }


class StepModel:
    """The step time of one model on one device under one engine's options.

    `batch` is what one scheduler runs, `context` the tokens resident for all of it together. Making one takes
    a millisecond or two, one estimate about a fifth of one.

    Raises InputError where the device's bandwidth is not known: there is nothing to compute with.
    """

    def __init__(
        self,
        model: ModelGeometry,
        device: Device,
        options: StepOptions | None = None,
        eff: Efficiencies | None = None,
        correction: Correction | None = None,
    ) -> None:
        if device.memory_bytes_per_second is None:
            raise InputError(
                f"{device.name}: its memory bandwidth is not known, so no step time can be computed; "
                "describe the device in a YAML file with bandwidth_gb_per_second (docs/gpus.md)"
            )
        self.model, self.device = model, device
        self.options = options or StepOptions()
        self.efficiencies = eff or efficiencies(device, self.options)
        self.correction = correction
        self.host = Host.of(self.efficiencies.host, self.options)

    @cached_property
    def _whole(self) -> Roofline:
        found = kernels(self.model, self.device, self.options)
        return Roofline(found, self.device, self.options, self.efficiencies)

    @cached_property
    def _decode_only(self) -> Roofline:
        found = tuple(kernel for kernel in self._whole.kernels if kernel.drive is not Drive.PREFILL)
        return Roofline(found, self.device, self.options, self.efficiencies)

    # ── seconds, vectorised ───────────────────────────────────────────────────────────────────────────────
    def _load(
        self,
        batch: float | Numbers,
        context: float | Numbers,
        prompt: float | Numbers = 0.0,
        prior: float | Numbers = 0.0,
        sequences: float | Numbers = 0.0,
    ) -> Load:
        """Returns the load of one pass; with pipeline stages each pass has its share of the requests."""
        stages = float(self.options.pp)
        share, held = np.asarray(batch, dtype=float) / stages, np.asarray(context, dtype=float) / stages
        # a graph's padding goes with decoding alone
        padded = share
        if self.options.graphs:
            padded = np.where(np.asarray(prompt) > 0.0, share, np.vectorize(self.options.padded)(share))
        return Load.of(share, held, padded=padded, prompt=prompt, prior=prior, sequences=sequences)

    def _seconds(self, load: Load, end: int = MID) -> Numbers:
        roofs, floors, launches = self._gpu(load, end)
        requests = load.batch + load.sequences
        if self.correction is None:
            return self.host.whole(roofs + floors, requests, launches, end)
        return self.correction.seconds(roofs, self._fixed(roofs, floors, launches), requests)

    def _gpu(self, load: Load, end: int = MID) -> tuple[Numbers, Numbers, Numbers]:
        """Returns the operators' seconds at their roofs, those of their launches, and the eager launches."""
        roofline = self._whole if np.any(load.prompt > 0.0) else self._decode_only
        work = roofline.work(load)
        launches = work.launches.sum(axis=0)
        if self.options.graphs is None:
            eager = np.ones_like(load.batch, dtype=bool)
        else:
            beyond = self.options.graphs[-1] if self.options.graphs else math.inf
            eager = np.where(load.prompt > 0.0, not self.options.prefill_graphs, load.batch > beyond)
        roofs, floors = roofline.seconds(work, end)
        return roofs.sum(axis=0), floors.sum(axis=0), np.where(eager, launches, 0.0)

    def _fixed(self, roofs: Numbers, floors: Numbers, launches: Numbers) -> Numbers:
        """Returns what a step takes beside its roofs, whatever runs: launches, gap, exposed scheduling."""
        return self.host.busy(roofs + floors, launches) - roofs + self.host.per_step().value

    def _terms(self, load: Load) -> tuple[Numbers, Numbers]:
        """Returns (seconds at the roofs, fixed seconds), by physics."""
        roofs, floors, launches = self._gpu(load)
        return roofs, self._fixed(roofs, floors, launches)

    def decode_seconds(self, batch: float, total_context_tokens: float) -> float:
        """Returns the seconds of one decode step, middle value."""
        return float(self._seconds(self._load(batch, total_context_tokens))[0])

    def decode_seconds_of(self, batch: Numbers, total_context_tokens: Numbers) -> Numbers:
        """Returns the seconds of decode steps, middle values, for arrays of the same length."""
        return self._seconds(self._load(batch, total_context_tokens))

    def prefill_seconds(
        self, chunk_tokens: float, prior_context_tokens: float = 0.0, sequences: float = 1.0
    ) -> float:
        """Returns the seconds of one pass over a chunk of prompts alone, middle value.

        `chunk_tokens` are of all `sequences` together, `prior_context_tokens` of each of them.
        """
        load = self._load(0.0, 0.0, chunk_tokens, prior_context_tokens, sequences)
        return float(self._seconds(load)[0])

    def mixed_seconds(
        self,
        batch: float | Numbers,
        total_context_tokens: float | Numbers,
        prompt_tokens: float | Numbers,
        prior_context_tokens: float | Numbers = 0.0,
        sequences: float | Numbers = 1.0,
    ) -> Numbers:
        """Returns the seconds of passes that decode and take prompt tokens along, middle values."""
        load = self._load(batch, total_context_tokens, prompt_tokens, prior_context_tokens, sequences)
        return self._seconds(load)

    # ── whole estimates ───────────────────────────────────────────────────────────────────────────────────
    def decode(self, batch: float, total_context_tokens: float) -> StepTime:
        """Returns one decode step of `batch` running requests that hold `total_context_tokens` together."""
        load = self._load(batch, total_context_tokens)
        return self._time(load, self._decode_only, batch, total_context_tokens)

    def decode_estimate(self, batch: float, total_context_tokens: float) -> Estimate:
        """Returns the seconds of one decode step with their range, without the operators."""
        return self._estimate(self._load(batch, total_context_tokens))

    def prefill(
        self, chunk_tokens: float, prior_context_tokens: float = 0.0, sequences: float = 1.0
    ) -> StepTime:
        """Returns one pass over `chunk_tokens` prompt tokens of `sequences` prompts, nothing decoding."""
        load = self._load(0.0, 0.0, chunk_tokens, prior_context_tokens, sequences)
        return self._time(load, self._whole, sequences, sequences * prior_context_tokens + chunk_tokens)

    def _estimate(self, load: Load) -> Estimate:
        """The efficiencies' ends all at once, and beside them (in quadrature) the spread of versions."""
        if self.correction is not None:
            roofs, fixed = (float(each[0]) for each in self._terms(load))
            return self.correction.estimate(roofs, fixed, float((load.batch + load.sequences)[0]))
        low, mid, high = (float(self._seconds(load, end)[0]) for end in (LOW, MID, HIGH))
        slower, faster = self.efficiencies.level.range[1] - 1.0, 1.0 - self.efficiencies.level.range[0]
        below, above = math.hypot(mid - low, mid * faster), math.hypot(high - mid, mid * slower)
        return Estimate(max(mid - below, _LEAST * mid), mid, mid + above, "s")

    def _time(self, load: Load, roofline: Roofline, batch: float, context: float) -> StepTime:
        factors = (1.0, 1.0)
        if self.correction is not None:
            factors = (self.correction.roof_factor, self.correction.fixed_factor)
        gpu = []
        for end in (LOW, MID, HIGH):
            roofs, floors, _ = self._gpu(load, end)
            gpu.append(factors[0] * float(roofs[0]) + factors[1] * float(floors[0]))
        whole = [float(self._seconds(load, end)[0]) for end in (LOW, MID, HIGH)]
        host = sorted(max(0.0, every - part) for every, part in zip(whole, gpu, strict=True))
        return StepTime(
            operators(roofline, self.efficiencies, load),
            Estimate(gpu[LOW], gpu[MID], gpu[HIGH], "s"),
            Estimate(host[0], host[1], host[2], "s"),
            self._estimate(load),
            self.options.yield_per_request,
            batch,
            context,
        )

    # ── for the simulator, and from observations ──────────────────────────────────────────────────────────
    def affine(self, batch: float, near_context_tokens: float = 2048.0) -> Affine:
        """Returns a decode step's seconds as a straight line over total context, for one batch.

        See `affine_table` for many batches at once, and for where the line holds.
        """
        return self.affine_table(np.array([batch], dtype=float), near_context_tokens).at(0)

    def affine_table(self, batches: Numbers, near_context_tokens: float = 2048.0) -> AffineTable:
        """Returns the lines of all `batches` (1 … 1,024: some 20 ms)."""
        batches = np.asarray(batches, dtype=float)
        bounds = {k.bound for k in self._decode_only.kernels if math.isfinite(k.bound) and k.context_bytes}
        low, high = segment(sorted(bounds), near_context_tokens, float(self.model.context_tokens or 131_072))
        ends = np.array([low, near_context_tokens, high])[:, None] * batches
        load = self._load(np.broadcast_to(batches, ends.shape).ravel(), ends.ravel())
        roofs, floors, launches = self._gpu(load)
        gpu = (roofs + floors).reshape(ends.shape)
        # where the GPU begins to take longer than the host the line bends once more
        threshold = self._host_hides_below(load, launches).reshape(ends.shape)[0]
        bend = low + (high - low) * (threshold - gpu[0]) / np.maximum(gpu[2] - gpu[0], 1e-30)
        bends = (bend > low) & (bend < high)
        above = bends & (gpu[1] >= threshold)
        return affine_table(
            self.decode_seconds_of,
            batches,
            np.where(above, bend, low),
            np.where(bends & ~above, bend, high),
        )

    def _host_hides_below(self, load: Load, launches: Numbers) -> Numbers:
        if self.correction is not None:
            return launches * self.efficiencies.host.launch_seconds.value
        return self.host.hides_below(load.batch + load.sequences, launches)

    def calibrate(self, samples: Sequence[Sample]) -> Calibration:
        """Returns what observed steps say of this model: a correction, or the reason why there is none.

        `corrected(calibration.correction)` is the model with it. See `headrace.perf.calibrate.fit`.
        """
        columns = np.array(
            [(s.batch, s.context_tokens, s.prompt_tokens, s.prompt_share) for s in samples], dtype=float
        ).reshape(-1, 4)
        batch, context, prompt, share = columns.T
        per_request, level = self.host.per_request(), self.efficiencies.level
        if not samples:
            return fit(batch, batch, batch, samples, level, per_request)
        roofs, fixed = self._terms(self._load(batch, context))
        if np.any(share > 0.0):
            chunk = prompt / np.maximum(share, 1e-12)
            load = self._load(batch, context, chunk, 0.0, np.where(share > 0.0, 1.0, 0.0))
            roofs_with, fixed_with = self._terms(load)
            roofs, fixed = roofs + share * (roofs_with - roofs), fixed + share * (fixed_with - fixed)
        return fit(roofs, fixed, batch / self.options.pp + share, samples, level, per_request)

    def corrected(self, correction: Correction | None) -> StepModel:
        """Returns the same model with another correction, None for physics alone."""
        return StepModel(self.model, self.device, self.options, self.efficiencies, correction)
