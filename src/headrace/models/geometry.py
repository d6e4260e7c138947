"""A model's geometry, and the bytes and FLOPs that follow from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from headrace.models.headers import StoredBytes
from headrace.models.layers import AnyAttention, Experts, FeedForward, LatentAttention, Layer, LayerKind
from headrace.models.quantisation import Part, Quantisation
from headrace.quantities import Origin, Quantity, derived


@dataclass(frozen=True, slots=True)
class Vision:
    """The vision tower: enough to count its bytes and to know how an engine sizes for it."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    patch: int
    parameters: int  # tower and projector
    origin: Origin  # configured: from the config; assumed: the config does not describe it
    source: str = ""


@dataclass(frozen=True)
class ModelGeometry:
    """The shape of a model, as its config.json says.

    Methods that take `tp` answer for one rank of a tensor-parallel group. Sizes in bytes are exact for the
    tensors they name; what an engine pads or adds on loading is not in here.
    """

    name: str  # "Qwen/Qwen3.6-27B", or the folder's name
    model_type: str
    architecture: str  # the first of `architectures`: "Qwen3_5ForConditionalGeneration"; "" where not stated
    source: str  # where the config came from
    hidden: int
    vocabulary: int
    tied_embeddings: bool
    layers: tuple[Layer, ...]
    context_tokens: int | None  # max_position_embeddings of the text model
    quantisation: Quantisation
    state_dtype: str | None = None  # the recurrent state's dtype as the config says: "float32"
    final_norms: int = 0
    mtp_layers: int = 0  # multi-token-prediction layers in the checkpoint
    mtp_parameters: int = 0
    vision: Vision | None = None
    other_parameters: int = 0  # tensors outside layers, embedding, head, MTP and vision
    multimodal: bool = (
        False  # the checkpoint is served by a multimodal class, whether or not the tower is described
    )
    stored: StoredBytes | None = None  # exact, from safetensors headers, where they were at hand
    caveats: tuple[str, ...] = field(default=())  # one sentence each: what the config does not say

    # ── layers ────────────────────────────────────────────────────────────────────────────────────────────
    @property
    def is_multimodal(self) -> bool:
        return self.multimodal or self.vision is not None

    @cached_property
    def layers_by_kind(self) -> Mapping[LayerKind, int]:
        """Layers by kind; a layer with attention and a recurrent mixer counts under both."""
        counts: Counter[LayerKind] = Counter()
        for layer in self.layers:
            counts[layer.kind] += 1
            if layer.recurrent is not None and layer.attention is not None:
                counts[layer.attention.kind] += 1
        return dict(counts)

    @cached_property
    def distinct_layers(self) -> tuple[tuple[Layer, int], ...]:
        """Every different layer with how often it comes, in order of first appearance."""
        return tuple(Counter(self.layers).items())

    @property
    def attention_layers(self) -> tuple[AnyAttention, ...]:
        """The attention parts, in layer order."""
        return tuple(layer.attention for layer in self.layers if layer.attention is not None)

    @cached_property
    def is_hybrid(self) -> bool:
        """True where some layers keep a recurrent state."""
        return any(layer.recurrent is not None for layer in self.layers)

    @cached_property
    def is_latent(self) -> bool:
        """True where attention is MLA."""
        return any(isinstance(layer.attention, LatentAttention) for layer in self.layers)

    @cached_property
    def window_tokens(self) -> int | None:
        """The sliding window, None where no layer has one."""
        return next((a.window_tokens for a in self.attention_layers if a.window_tokens), None)

    # ── memory per token and per request ──────────────────────────────────────────────────────────────────
    def kv_bytes_per_token(
        self,
        dtype_bytes: float = 2.0,
        tp: int = 1,
        *,
        windowed: bool | None = None,
        layers: slice = slice(None),
    ) -> Quantity:
        """Returns the bytes of keys and values that one token adds on one rank.

        Args:
            dtype_bytes: bytes per element: 2 for bf16, 1 for fp8.
            tp: tensor-parallel ranks; kv heads are divided, and copied where there are fewer than ranks.
            windowed: None counts every attention layer; True only those with a sliding window; False only
                those without. For a model without windows None and False are the same.
            layers: the layers of one pipeline stage.
        """
        elements = 0.0
        for layer in self.layers[layers]:
            attention = layer.attention
            if attention is None:
                continue
            if windowed is None or windowed == (attention.window_tokens is not None):
                elements += attention.kv_elements_per_token(tp)
        return derived(
            elements * dtype_bytes,
            "bytes/token",
            "Σ attention layers kv heads ÷ tp × (key dim + value dim) × bytes per element",
            elements=Quantity(elements, "elements/token", Origin.CONFIGURED, self.source),
            dtype_bytes=Quantity(dtype_bytes, "bytes/element", Origin.CONFIGURED, "KV dtype"),
        )

    def state_elements_per_request(self, tp: int = 1, *, layers: slice = slice(None)) -> tuple[int, int]:
        """Returns (recurrent state elements, convolution elements) of one state slot on one rank."""
        ssm = conv = 0
        for layer in self.layers[layers]:
            if layer.recurrent is not None:
                ssm += layer.recurrent.ssm_elements(tp)
                conv += layer.recurrent.conv_elements(tp)
        return ssm, conv

    def state_bytes_per_request(
        self,
        ssm_dtype_bytes: float = 4.0,
        conv_dtype_bytes: float = 2.0,
        tp: int = 1,
        *,
        layers: slice = slice(None),
    ) -> Quantity:
        """Returns the bytes of one state slot on one rank; 0 for a model without recurrent layers."""
        ssm, conv = self.state_elements_per_request(tp, layers=layers)
        return derived(
            ssm * ssm_dtype_bytes + conv * conv_dtype_bytes,
            "bytes/request",
            "ssm elements × ssm bytes + conv elements × conv bytes",
            ssm_elements=Quantity(ssm, "elements", Origin.CONFIGURED, self.source),
            ssm_bytes=Quantity(ssm_dtype_bytes, "bytes/element", Origin.CONFIGURED, "state dtype"),
            conv_elements=Quantity(conv, "elements", Origin.CONFIGURED, self.source),
            conv_bytes=Quantity(conv_dtype_bytes, "bytes/element", Origin.CONFIGURED, "convolution dtype"),
        )

    # ── parameters ────────────────────────────────────────────────────────────────────────────────────────
    def parameters_by_part(self, tp: int = 1) -> Mapping[Part, float]:
        """Returns the elements of each part on one of `tp` ranks; embedding once where it is tied to the
        head.

        Attention follows its heads (copied where there are fewer kv heads than ranks); embedding, head,
        recurrent, feed-forward and vision parts are divided by tp; routers, norms and other vectors are
        copied.
        """
        parts: dict[Part, float] = dict.fromkeys(Part, 0.0)
        parts[Part.EMBEDDING] = self.vocabulary * self.hidden / tp
        parts[Part.HEAD] = 0.0 if self.tied_embeddings else parts[Part.EMBEDDING]
        parts[Part.NORMS] = float(self.final_norms + self.other_parameters)
        parts[Part.MTP] = self.mtp_parameters / tp
        parts[Part.VISION] = (self.vision.parameters if self.vision else 0) / tp
        for layer, count in self.distinct_layers:
            parts[Part.NORMS] += count * layer.norms
            if layer.attention is not None:
                parts[Part.ATTENTION] += count * layer.attention.matrix_parameters(self.hidden, tp)
                parts[Part.NORMS] += count * layer.attention.vector_parameters()
            if layer.recurrent is not None:
                parts[Part.RECURRENT] += count * layer.recurrent.parameters / tp
                parts[Part.NORMS] += count * layer.recurrent.vectors
            ffn = layer.ffn
            if isinstance(ffn, FeedForward):
                parts[Part.DENSE_FFN] += count * ffn.parameters(self.hidden) / tp
                parts[Part.NORMS] += count * ffn.biases
            elif isinstance(ffn, Experts):
                parts[Part.EXPERTS] += count * ffn.routed_parameters(self.hidden) / tp
                parts[Part.SHARED_EXPERTS] += count * ffn.always_read(self.hidden) / tp
                parts[Part.ROUTER] += count * ffn.router_parameters(self.hidden)
                parts[Part.NORMS] += count * ffn.biases
        return parts

    @cached_property
    def text_parameters(self) -> int:
        """Parameters of the language model: without vision tower and MTP layers."""
        parts = self.parameters_by_part()
        return round(sum(parts.values()) - parts[Part.VISION] - parts[Part.MTP])

    @cached_property
    def total_parameters(self) -> int:
        """Parameters in the checkpoint: language model, vision tower, MTP layers."""
        return round(sum(self.parameters_by_part().values()))

    @cached_property
    def active_parameters(self) -> int:
        """Parameters of the language model that one token uses: of the routed experts only those chosen."""
        idle = 0.0
        for layer, count in self.distinct_layers:
            if isinstance(layer.ffn, Experts):
                ffn = layer.ffn
                share = (ffn.count - ffn.per_token) / ffn.count
                idle += count * share * (ffn.routed_parameters(self.hidden) + ffn.biases)
        return round(self.text_parameters - idle)

    # ── weight bytes ──────────────────────────────────────────────────────────────────────────────────────
    def weight_bytes(
        self, tp: int = 1, *, dtype_bytes: float | None = None, vision: bool = True, mtp: bool = False
    ) -> Quantity:
        """Returns the bytes of weights that one of `tp` ranks holds when the model is served.

        Args:
            dtype_bytes: store every part at this width instead of the checkpoint's own (on-line quantisation
                or a cast); None keeps the checkpoint's.
            vision: count the vision tower (engines load it unless told not to).
            mtp: count the MTP layers (engines load them only for speculative decoding).
        """
        parts = dict(self.parameters_by_part(tp))
        if not vision:
            parts[Part.VISION] = 0.0
        if not mtp:
            parts[Part.MTP] = 0.0
        counted = self._bytes_of(parts, dtype_bytes, "Σ parts elements × bytes per element")
        if self.stored is None or dtype_bytes is not None:
            return counted
        return self._exact(counted, tp, vision=vision, mtp=mtp)

    def _exact(self, counted: Quantity, tp: int, *, vision: bool, mtp: bool) -> Quantity:
        """Returns the bytes that the headers add up to; for one of several ranks, in the counted
        proportion."""
        stored = self.stored
        assert stored is not None
        exact = stored.total - (0 if vision else stored.vision) - (0 if mtp else stored.mtp)
        share = 1.0
        if tp > 1:
            whole = replace(self, stored=None).weight_bytes(1, vision=vision, mtp=mtp)
            share = counted.value / whole.value
        return derived(
            exact * share,
            "bytes",
            "bytes in the checkpoint's headers × share of this rank",
            headers=Quantity(exact, "bytes", Origin.MEASURED, f"{stored.files} safetensors headers"),
            share=Quantity(share, "fraction", Origin.CONFIGURED, f"one of {tp} ranks"),
        )

    def weight_bytes_read_per_step(
        self, tokens: float = 1.0, tp: int = 1, *, dtype_bytes: float | None = None
    ) -> Quantity:
        """Returns the bytes of weights one rank reads in a step over `tokens` tokens (decode: running
        requests).

        Everything but vision tower, MTP and the input embedding (of which only the tokens' rows are read);
        of the routed experts those that `tokens` tokens are expected to wake, E(1 − (1 − k/E)^T) with even
        routing.
        """
        parts = dict(self.parameters_by_part(tp))
        parts[Part.VISION] = parts[Part.MTP] = 0.0
        if self.tied_embeddings:  # the one table is read as the head
            parts[Part.HEAD] = parts[Part.EMBEDDING]
        parts[Part.EMBEDDING] = 0.0
        parts[Part.EXPERTS] = 0.0
        for layer, count in self.distinct_layers:
            if isinstance(layer.ffn, Experts):
                awake = layer.ffn.expected_active(tokens) * layer.ffn.one_expert(self.hidden)
                parts[Part.EXPERTS] += count * awake / tp
        return self._bytes_of(parts, dtype_bytes, "Σ parts read elements × bytes per element")

    def _bytes_of(self, parts: Mapping[Part, float], dtype_bytes: float | None, formula: str) -> Quantity:
        inputs: dict[str, Quantity] = {}
        total = 0.0
        for part, elements in parts.items():
            if elements:
                width = self.quantisation.bytes_of(part) if dtype_bytes is None else dtype_bytes
                total += elements * width
                inputs[part] = Quantity(
                    elements * width,
                    "bytes",
                    Origin.CONFIGURED,
                    f"{elements:.6g} elements × {width:.4g} bytes",
                )
        return derived(total, "bytes", formula, **inputs)

    # ── work ──────────────────────────────────────────────────────────────────────────────────────────────
    def flops_per_token(self, context_tokens: float = 0.0) -> Quantity:
        """Returns the FLOPs of one token's forward pass: 2 per active matrix element, attention at that
        context.

        A sliding window bounds the context a layer looks at; an MLA indexer bounds it at its number of
        tokens.
        """
        parts = self.parameters_by_part()
        matrices = float(self.active_parameters - parts[Part.NORMS] - parts[Part.EMBEDDING])
        if self.tied_embeddings:
            matrices += parts[Part.EMBEDDING]
        looking = recurrent = 0.0
        for layer, count in self.distinct_layers:
            if layer.attention is not None:
                seen = context_tokens
                bound = layer.attention.window_tokens
                if isinstance(layer.attention, LatentAttention) and layer.attention.index_tokens:
                    bound = layer.attention.index_tokens
                    looking += (
                        count * 2 * layer.attention.index_heads * layer.attention.index_dim * context_tokens
                    )
                if bound is not None:
                    seen = min(seen, bound)
                looking += count * layer.attention.flops_per_context_token() * seen
            if layer.recurrent is not None:
                recurrent += count * layer.recurrent.flops_per_token()
        return derived(
            2.0 * matrices + looking + recurrent,
            "FLOP/token",
            "2 × active matrix elements + attention at this context + state updates",
            matrix_elements=Quantity(matrices, "elements", Origin.CONFIGURED, self.source),
            attention=Quantity(
                looking, "FLOP/token", Origin.CONFIGURED, f"at {context_tokens:g} tokens of context"
            ),
            recurrent=Quantity(recurrent, "FLOP/token", Origin.CONFIGURED, self.source),
        )
