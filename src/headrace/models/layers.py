"""What a layer is made of, and the parameters, KV bytes, state bytes and FLOPs that follow from its shape.

A layer has up to three parts: attention (plain or latent), a recurrent mixer, and a feed-forward part
(dense or experts). Most have one mixer and one feed-forward part; Falcon-H1 has both mixers side by side;
Nemotron-H layers have exactly one part each. Counts are of elements; nothing here knows a dtype or an
engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LayerKind(StrEnum):
    """How a layer remembers what came before."""

    FULL = "full_attention"  # keys and values of every token
    SLIDING = "sliding_attention"  # keys and values of the last `window` tokens
    LATENT = "latent_attention"  # MLA: one compressed vector per token
    GATED_DELTA = "gated_delta_net"  # GDN: Qwen3-Next, Qwen3.5, Qwen3.6
    KIMI_DELTA = "kimi_delta"  # KDA: Kimi-Linear
    MAMBA = "mamba"  # mamba 1: Jamba
    MAMBA2 = "mamba2"  # Nemotron-H, Bamba, Falcon-H1, Granite 4
    LIGHTNING = "lightning_attention"  # MiniMax-Text-01: a decayed sum of k·v, no convolution
    NONE = "no_mixer"  # a layer that is only a feed-forward part, or nothing


@dataclass(frozen=True, slots=True)
class Attention:
    """Softmax attention that keeps keys and values per token: MHA, GQA, MQA, with or without a window."""

    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window_tokens: int | None = None  # None: sees every token
    output_gate: bool = False  # the query projection also makes a gate of the output's size
    biases: int = 0  # elements of projection biases
    norms: int = 0  # elements of q/k norms and attention sinks
    shares_kv: bool = False  # reuses an earlier layer's keys and values: stores none of its own
    key_is_value: bool = False  # one projection serves as key and value; both are still stored
    extra_width: int = 0  # columns of further projections from hidden: head gates, a block indexer

    @property
    def kind(self) -> LayerKind:
        return LayerKind.FULL if self.window_tokens is None else LayerKind.SLIDING

    def kv_elements_per_token(self, tp: int = 1) -> int:
        """Returns K + V elements one token adds on each of `tp` ranks; heads are copied where tp >
        kv_heads."""
        if self.shares_kv:
            return 0
        return max(1, -(-self.kv_heads // tp)) * (self.key_dim + self.value_dim)

    def matrix_parameters(self, hidden: int, tp: int = 1) -> int:
        """Returns the elements of the projections on one of `tp` ranks."""
        heads = -(-self.query_heads // tp)
        query = heads * self.key_dim * (2 if self.output_gate else 1)
        stored = 0
        if not self.shares_kv:
            kv_heads = max(1, -(-self.kv_heads // tp))
            stored = kv_heads * (self.key_dim if self.key_is_value else self.key_dim + self.value_dim)
        return hidden * (query + stored + heads * self.value_dim + self.extra_width)

    def matrices(self, hidden: int) -> tuple[tuple[str, int], ...]:
        """Returns (name, elements) of each projection."""
        stored = 0 if self.shares_kv else hidden * self.kv_heads
        query = hidden * self.query_heads * self.key_dim * (2 if self.output_gate else 1)
        return (
            ("q_proj", query),
            ("k_proj", stored * self.key_dim),
            ("v_proj", 0 if self.key_is_value else stored * self.value_dim),
            ("o_proj", hidden * self.query_heads * self.value_dim),
            ("g_proj", hidden * self.extra_width),
        )

    def vector_parameters(self) -> int:
        """Returns the elements of biases and norms."""
        return self.biases + self.norms

    def flops_per_context_token(self) -> int:
        """Returns the FLOPs that one new token spends per token it looks back at: q·k and p·v."""
        return 2 * self.query_heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (MLA): one compressed vector per token for all heads; DeepSeek, Kimi,
    GLM-5.

    With `index_heads`, a small indexer picks `index_tokens` tokens to attend to (DSA); its keys are cached
    too.
    """

    query_heads: int
    kv_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    query_rank: int | None = None
    index_heads: int = 0
    index_dim: int = 0
    index_tokens: int = 0
    output_gate: bool = False

    window_tokens: int | None = None

    @property
    def kind(self) -> LayerKind:
        return LayerKind.LATENT

    def kv_elements_per_token(self, tp: int = 1) -> int:
        """Returns the latent elements per token, the same on every rank (MLA is not split by tp).

        Without the indexer's keys: engines keep those in a buffer of their own (`index_dim` per token).
        """
        return self.kv_rank + self.rope_dim

    def matrix_parameters(self, hidden: int, tp: int = 1) -> int:
        """Returns the elements of the projections, the indexer's included, on one of `tp` ranks.

        The projections down to the latent and the indexer are copied to every rank, those per head are split.
        """
        heads = -(-self.query_heads // tp)
        per_head = self.nope_dim + self.rope_dim
        if self.query_rank:
            query = hidden * self.query_rank + self.query_rank * heads * per_head
        else:
            query = hidden * heads * per_head
        latent = hidden * (self.kv_rank + self.rope_dim)
        expand = self.kv_rank * heads * (self.nope_dim + self.value_dim)
        out = heads * self.value_dim * hidden * (2 if self.output_gate else 1)
        return query + latent + expand + out + self.index_parameters(hidden)

    def matrices(self, hidden: int) -> tuple[tuple[str, int], ...]:
        """Returns (name, elements) of each projection."""
        heads, rank = self.query_heads, self.query_rank
        per_head = self.nope_dim + self.rope_dim
        query: tuple[tuple[str, int], ...] = (("q_proj", hidden * heads * per_head),)
        if rank:
            query = (("q_a_proj", hidden * rank), ("q_b_proj", rank * heads * per_head))
        return (
            *query,
            ("kv_a_proj_with_mqa", hidden * (self.kv_rank + self.rope_dim)),
            ("kv_b_proj", self.kv_rank * heads * (self.nope_dim + self.value_dim)),
            ("o_proj", heads * self.value_dim * hidden * (2 if self.output_gate else 1)),
            ("indexer.wq_b", self.index_parameters(hidden)),
        )

    def index_parameters(self, hidden: int) -> int:
        """Returns the elements of the indexer: wq_b, wk, and the head weights."""
        if not self.index_heads:
            return 0
        return (
            (self.query_rank or hidden) * self.index_heads * self.index_dim
            + hidden * self.index_dim
            + hidden * self.index_heads
        )

    def vector_parameters(self) -> int:
        """Returns the elements of the two norms, and the indexer's."""
        return (self.query_rank or 0) + self.kv_rank + (2 * self.index_dim if self.index_heads else 0)

    def flops_per_context_token(self) -> int:
        """Returns FLOPs per token looked back at, in the absorbed form that decoding uses."""
        return 2 * self.query_heads * (2 * self.kv_rank + self.rope_dim)


@dataclass(frozen=True, slots=True)
class CompressedAttention:
    """DeepSeek V4: one head of keys that are also values, one entry per `ratio` tokens, and a window of
    near tokens.

    With ratio 0 the layer sees the near tokens only. Every layer keeps `near_tokens` entries in any case.
    """

    query_heads: int
    head_dim: int
    query_rank: int
    out_groups: int
    out_rank: int
    ratio: int
    near_tokens: int
    index_heads: int = 0
    index_dim: int = 0
    index_tokens: int = 0

    @property
    def kind(self) -> LayerKind:
        return LayerKind.LATENT if self.ratio else LayerKind.SLIDING

    @property
    def window_tokens(self) -> int | None:
        return None if self.ratio else self.near_tokens

    def kv_elements_per_token(self, tp: int = 1) -> float:
        """Returns the elements per token, the same on every rank; a fraction where entries are compressed."""
        return self.head_dim / self.ratio if self.ratio else self.head_dim

    def matrix_parameters(self, hidden: int, tp: int = 1) -> int:
        """Returns the elements of the projections, the compressors and the indexer on one of `tp` ranks."""
        heads = -(-self.query_heads // tp)
        query = hidden * self.query_rank + self.query_rank * heads * self.head_dim
        out = heads * self.head_dim * self.out_rank + self.out_groups * self.out_rank * hidden // tp
        return query + hidden * self.head_dim + out + self._compressors(hidden)

    def matrices(self, hidden: int) -> tuple[tuple[str, int], ...]:
        """Returns (name, elements), as one."""
        return (("wq_b", self.matrix_parameters(hidden)),)

    def _compressors(self, hidden: int) -> int:
        if not self.ratio:
            return 0
        overlap = 2 if self.index_heads else 1  # the finely compressed layers overlap their blocks
        count = 2 * hidden * overlap * self.head_dim + self.ratio * overlap * self.head_dim
        if self.index_heads:
            count += 2 * hidden * overlap * self.index_dim + self.ratio * overlap * self.index_dim
            count += self.query_rank * self.index_heads * self.index_dim + hidden * self.index_heads
        return count

    def vector_parameters(self) -> int:
        """Returns the elements of the norms and sinks."""
        return self.query_rank + 2 * self.head_dim + self.query_heads

    def flops_per_context_token(self) -> float:
        """Returns FLOPs per token looked back at."""
        return 4 * self.query_heads * self.head_dim / (self.ratio or 1)


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A mixer with a state of fixed size per request: GDN, KDA, mamba, mamba 2, lightning attention.

    The state is `value_heads × value_dim × key_dim` elements, and the convolution keeps `conv_kernel − 1`
    inputs of `value_heads × value_dim + 2 × key_heads × key_dim` channels. In mamba's words: value_heads
    are the heads, value_dim the head dim, key_heads the groups, key_dim the state size. Mamba 1 is
    value_heads = inner channels, value_dim = 1, key_heads = 0.
    """

    kind: LayerKind
    value_heads: int
    key_heads: int
    value_dim: int
    key_dim: int
    conv_kernel: int  # 0: no convolution
    parameters: int  # elements of the projections and of the convolution
    vectors: int = 0  # elements of norms, biases, decays

    def ssm_elements(self, tp: int = 1) -> int:
        """Returns the elements of the recurrent state on one of `tp` ranks."""
        return -(-self.value_heads // tp) * self.value_dim * self.key_dim

    def conv_channels(self, tp: int = 1) -> int:
        """Returns the convolution's channels on one rank; too few groups for tp are filled up to tp."""
        groups = self.key_heads
        if groups and groups % tp:
            groups += tp - groups if groups < tp else tp - groups % tp
        return -(-(self.value_heads * self.value_dim + 2 * groups * self.key_dim) // tp)

    def conv_elements(self, tp: int = 1) -> int:
        """Returns the elements of the convolution's memory on one rank."""
        return self.conv_channels(tp) * (self.conv_kernel - 1) if self.conv_kernel else 0

    def flops_per_token(self) -> int:
        """Returns the FLOPs of the state update and read-out for one token (decay, outer product,
        product)."""
        return 6 * self.value_heads * self.value_dim * self.key_dim


@dataclass(frozen=True, slots=True)
class FeedForward:
    """A dense feed-forward part; `gated` has three matrices (SwiGLU), else two."""

    intermediate: int
    gated: bool = True
    biases: int = 0

    def parameters(self, hidden: int) -> int:
        return (3 if self.gated else 2) * hidden * self.intermediate


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: `count` routed experts of which `per_token` answer, and shared ones that always
    do."""

    count: int
    per_token: int
    intermediate: int
    shared_intermediate: int = 0  # all shared experts together
    gated: bool = True
    shared_gate: bool = False  # the shared expert has a gate vector of its own (Qwen)
    latent: int | None = None  # routed experts work at this width instead of hidden (Nemotron-3 Super)
    dense_intermediate: int = 0  # a dense part beside the experts in the same layer (Gemma 4)
    biases: int = 0
    router_vectors: int = 0  # correction bias and the like

    def one_expert(self, hidden: int) -> int:
        """Returns the elements of one routed expert."""
        return (3 if self.gated else 2) * (self.latent or hidden) * self.intermediate

    def routed_parameters(self, hidden: int) -> int:
        return self.count * self.one_expert(hidden)

    def always_read(self, hidden: int) -> int:
        """Returns the elements every token uses: shared experts, dense part, latent projections."""
        matrices = 3 if self.gated else 2
        latent = 2 * hidden * self.latent if self.latent else 0
        return matrices * hidden * (self.shared_intermediate + self.dense_intermediate) + latent

    def router_parameters(self, hidden: int) -> int:
        return self.count * hidden + self.router_vectors + (hidden if self.shared_gate else 0)

    def expected_active(self, tokens: float) -> float:
        """Returns how many different experts `tokens` tokens wake, if each picks evenly: E(1 − (1 −
        k/E)^T)."""
        if not self.count:
            return 0.0
        asleep: float = (1.0 - self.per_token / self.count) ** tokens
        return self.count * (1.0 - asleep)


AnyAttention = Attention | LatentAttention | CompressedAttention


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer. Equal layers may be one object: compare by value, count by position."""

    attention: AnyAttention | None = None
    recurrent: Recurrent | None = None
    ffn: FeedForward | Experts | None = None
    norms: int = 0  # elements of the norms around the parts

    @property
    def kind(self) -> LayerKind:
        """What the layer remembers by; a layer with both mixers counts under its recurrent one."""
        if self.recurrent is not None:
            return self.recurrent.kind
        return self.attention.kind if self.attention is not None else LayerKind.NONE
