"""From a model's layers to the kernels of one forward pass, on one rank.

Input embedding and vision tower are not read. What is fused in every engine (q, k and v; gate and up) is one
launch. Launches are of what is listed: an engine's many small kernels are the one elementwise launch a layer.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.hardware.device import Device
from headrace.models.geometry import ModelGeometry
from headrace.models.layers import (
    Attention,
    CompressedAttention,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    Recurrent,
)
from headrace.models.quantisation import Part
from headrace.perf.attention import attention_kernels
from headrace.perf.efficiency import OperatorClass
from headrace.perf.kernels import Drive, Kernel
from headrace.perf.options import StepOptions
from headrace.perf.widths import Widths

_ACTIVATION_BYTES = 2.0  # bf16 between kernels
_LOGIT_BYTES = 4.0  # sampling works in fp32
_SCAN_CHUNK = 64  # tokens of one block of the chunked scan (flash-linear-attention)


def kernels(model: ModelGeometry, device: Device, options: StepOptions) -> tuple[Kernel, ...]:
    """Returns the kernels of one pass over all layers, those for decoding and those for prompts."""
    builder = _Builder(model, options, Widths(model, device, options.weights_dtype))
    found: list[Kernel] = []
    for layer, count in model.distinct_layers:
        found += builder.layer(layer, count)
    found += builder.ends()
    found += builder.links()
    found += builder.drafts()
    return tuple(found)


class _Builder:
    def __init__(self, model: ModelGeometry, options: StepOptions, widths: Widths) -> None:
        self.model, self.options, self.widths = model, options, widths
        self.hidden = model.hidden

    # ── parts of a layer ──────────────────────────────────────────────────────────────────────────────────
    def layer(self, layer: Layer, count: int) -> Iterator[Kernel]:
        if layer.attention is not None:
            yield self._projections(layer.attention, count)
            yield from attention_kernels(layer.attention, count, self.options)
        if layer.recurrent is not None:
            yield from self._recurrent(layer.recurrent, count)
        inner = 0.0
        if isinstance(layer.ffn, FeedForward):
            inner = layer.ffn.intermediate
            yield self._dense(layer.ffn.parameters(self.hidden), inner, Part.DENSE_FFN, "feed-forward", count)
        elif isinstance(layer.ffn, Experts):
            inner = layer.ffn.per_token * layer.ffn.intermediate
            yield from self._experts(layer.ffn, count)
        yield Kernel(
            "elementwise",
            OperatorClass.ELEMENTWISE,
            "bf16",
            "bf16",
            Drive.TOKENS,
            count,
            # two norms with the residual read and written, and the activation's three rows
            token_bytes=count * _ACTIVATION_BYTES * (8.0 * self.hidden + 3.0 * inner / self.options.tp),
        )

    def _gemm(
        self, name: str, part: Part, elements: float, launches: float, count: float, drive: Drive, rows: float
    ) -> Kernel:
        dtype = self.widths.dtype(part)
        return Kernel(
            name,
            OperatorClass.HEAD if part is Part.HEAD else OperatorClass.GEMM,
            dtype,
            self.widths.compute(dtype),
            drive,
            launches * count,
            weight_bytes=count * elements * self.widths.bytes_of(part),
            token_bytes=count * _ACTIVATION_BYTES * rows,
            token_flops=count * 2.0 * elements,
        )

    def _projections(
        self, attention: Attention | LatentAttention | CompressedAttention, count: int
    ) -> Kernel:
        elements = float(attention.matrix_parameters(self.hidden, self.options.attention_tp))
        # q·k·v and o; the latent forms go down, up, through two absorbed products, and out
        launches = 2 if isinstance(attention, Attention) else 5
        rows = 2.0 * self.hidden + elements / self.hidden
        return self._gemm(
            "attention projections", Part.ATTENTION, elements, launches, count, Drive.TOKENS, rows
        )

    def _recurrent(self, mixer: Recurrent, count: int) -> Iterator[Kernel]:
        tp, options = self.options.attention_tp, self.options
        elements = mixer.parameters / tp
        rows = 2.0 * self.hidden + elements / self.hidden
        yield self._gemm("state projections", Part.RECURRENT, elements, 2, count, Drive.TOKENS, rows)
        state = (
            mixer.ssm_elements(tp) * options.state_ssm_bytes
            + mixer.conv_elements(tp) * options.state_conv_bytes
        )
        flops = mixer.flops_per_token() / tp
        channels = mixer.conv_channels(tp) * _ACTIVATION_BYTES
        # a step reads the state once and writes it after every token that may be the last to be accepted
        yield Kernel(
            "recurrent state",
            OperatorClass.RECURRENT,
            "bf16" if options.state_ssm_bytes <= 2 else "fp32",
            "bf16",
            Drive.DECODE,
            2.0 * count,
            request_bytes=count * state,
            token_bytes=count * (state + 4.0 * channels),
            token_flops=count * flops,
        )
        heads = -(-mixer.value_heads // tp)
        inside = 4.0 * _SCAN_CHUNK * heads * (mixer.key_dim + mixer.value_dim)  # products within a block
        yield Kernel(
            "recurrent scan (prefill)",
            OperatorClass.RECURRENT_PREFILL,
            "bf16",
            "bf16",
            Drive.PREFILL,
            4.0 * count,
            request_bytes=2.0 * count * state,
            token_bytes=count * 8.0 * channels,
            token_flops=count * (flops + inside),
        )

    def _dense(self, elements: float, inner: float, part: Part, name: str, count: int) -> Kernel:
        tp = self.options.tp
        return self._gemm(
            name, part, elements / tp, 2, count, Drive.TOKENS, 2.0 * self.hidden + 3.0 * inner / tp
        )

    def _experts(self, ffn: Experts, count: int) -> Iterator[Kernel]:
        tp = self.options.tp
        shared_tokens = Drive.SHARED_TOKENS if self.options.dp > 1 else Drive.TOKENS
        one = float(ffn.one_expert(self.hidden))
        dtype = self.widths.dtype(Part.EXPERTS)
        yield self._gemm(
            "router",
            Part.ROUTER,
            float(ffn.router_parameters(self.hidden)),
            1,
            count,
            Drive.TOKENS,
            self.hidden + ffn.count,
        )
        yield Kernel(
            "experts",
            OperatorClass.MOE,
            dtype,
            self.widths.compute(dtype),
            shared_tokens,
            count,
            experts=float(ffn.count),
            experts_per_token=float(ffn.per_token),
            expert_bytes=count * one * self.widths.bytes_of(Part.EXPERTS) / tp,
            token_bytes=count
            * _ACTIVATION_BYTES
            * ffn.per_token
            * (2.0 * (ffn.latent or self.hidden) + 3.0 * ffn.intermediate)
            / tp,
            token_flops=count * 2.0 * ffn.per_token * one / tp,
        )
        always = float(ffn.always_read(self.hidden))
        if always:
            inner = float(ffn.shared_intermediate + ffn.dense_intermediate)
            yield self._dense(always, inner, Part.SHARED_EXPERTS, "shared experts", count)

    # ── ends, links, drafts ───────────────────────────────────────────────────────────────────────────────
    def ends(self) -> Iterator[Kernel]:
        yield self._head("head", Drive.HEAD, 1)
        yield Kernel(
            "sampling",
            OperatorClass.SAMPLING,
            "fp32",
            "bf16",
            Drive.HEAD,
            3,
            token_bytes=3.0 * _LOGIT_BYTES * self.model.vocabulary,  # cast, soft-max, draw
        )

    def _head(self, name: str, drive: Drive, count: float) -> Kernel:
        rows = self.model.vocabulary / self.options.tp
        elements = rows * self.hidden
        part = Part.EMBEDDING if self.model.tied_embeddings else Part.HEAD
        dtype = self.widths.dtype(part)
        return Kernel(
            name,
            OperatorClass.HEAD,
            dtype,
            self.widths.compute(dtype),
            drive,
            count,
            weight_bytes=count * elements * self.widths.bytes_of(part),
            token_bytes=count * _ACTIVATION_BYTES * (self.hidden + rows),
            token_flops=count * 2.0 * elements,
        )

    def links(self) -> Iterator[Kernel]:
        """Collectives: each rank sends 2·(n−1)/n of the row in an all-reduce, (n−1)/n in half of one."""
        options = self.options
        row = _ACTIVATION_BYTES * self.hidden
        mixers = sum(1 for layer in self.model.layers if layer.attention or layer.recurrent)
        forwards = sum(1 for layer in self.model.layers if layer.ffn is not None)
        if options.attention_tp > 1:
            yield self._all_reduce("all-reduce", mixers + 1, row, options.attention_tp, Drive.TOKENS)
        if options.tp > 1:
            share = (options.tp - 1) / options.tp
            if options.dp == 1:
                yield self._all_reduce("all-reduce", forwards, row, options.tp, Drive.TOKENS)
            elif options.ep > 1:
                experts = [layer.ffn for layer in self.model.layers if isinstance(layer.ffn, Experts)]
                sent = sum(3.0 * self.hidden * ffn.per_token for ffn in experts)  # fp8 there, bf16 back
                yield Kernel(
                    "all-to-all",
                    OperatorClass.ALL_TO_ALL,
                    "bf16",
                    "bf16",
                    Drive.TOKENS,
                    2.0 * len(experts),
                    token_bytes=sent * (1.0 - 1.0 / options.ep),
                    link=True,
                )
            else:
                yield self._all_reduce("gather and scatter", forwards, row, options.tp, Drive.SHARED_TOKENS)
            logits = _ACTIVATION_BYTES * self.model.vocabulary * share
            yield Kernel(
                "gather of logits",
                OperatorClass.ALL_REDUCE,
                "bf16",
                "bf16",
                Drive.HEAD,
                1,
                token_bytes=logits,
                link=True,
            )
        if options.pp > 1:
            yield Kernel(
                "pipeline transfer",
                OperatorClass.ALL_REDUCE,
                "bf16",
                "bf16",
                Drive.TOKENS,
                options.pp - 1,
                token_bytes=(options.pp - 1) * 2.0 * row,  # the row and its residual
                link=True,
            )

    def _all_reduce(self, name: str, count: float, row: float, ranks: int, drive: Drive) -> Kernel:
        return Kernel(
            name,
            OperatorClass.ALL_REDUCE,
            "bf16",
            "bf16",
            drive,
            count,
            token_bytes=count * row * 2.0 * (ranks - 1) / ranks,
            link=True,
        )

    def drafts(self) -> Iterator[Kernel]:
        (
            """The checkpoint's own drafting layers, once per drafted token: a layer like the last one, and
        the head."""
            ""
        )
        speculation = self.options.speculation
        passes = speculation.draft_passes if speculation else 0
        if not passes or not self.model.mtp_layers:
            return
        width, dtype = self.widths.bytes_of(Part.MTP), self.widths.dtype(Part.MTP)
        elements = self.model.mtp_parameters / self.model.mtp_layers / self.options.tp
        last = self.model.layers[-1].ffn
        experts, one = 0.0, 0.0
        if isinstance(last, Experts):
            one = last.one_expert(self.hidden) / self.options.tp
            experts = float(last.count) if last.count * one <= elements else 0.0
        dense = elements - experts * one
        per_token = float(last.per_token) if isinstance(last, Experts) and experts else 0.0
        yield Kernel(
            "draft layers",
            OperatorClass.MOE if experts else OperatorClass.GEMM,
            dtype,
            self.widths.compute(dtype),
            Drive.DRAFT,
            (1.0 if experts else 6.0) * passes,
            weight_bytes=passes * dense * width,
            experts=experts,
            experts_per_token=per_token,
            expert_bytes=passes * one * width,
            token_flops=passes * 2.0 * (dense + per_token * one),
        )
        yield self._head("draft head", Drive.DRAFT, passes)
