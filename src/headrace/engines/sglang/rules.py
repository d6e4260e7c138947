"""SGLang's memory rules by version, and the architectures they speak of.

Sources: the wheels 0.5.3, 0.5.5 to 0.5.23 (0.5.4 was not read). Up to 0.5.6
`model_executor/model_runner.py`, 0.5.7 to 0.5.15 `model_runner_kv_cache_mixin.py`, from 0.5.16
`mem_cache/kv_cache_configurator.py`; tokens in `model_executor/pool_configurator.py` from 0.5.11; flags in
`server_args.py`, from 0.5.15 also `arg_groups/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.engines.flags import FlagTable
from headrace.engines.versions import Version
from headrace.models.geometry import ModelGeometry

OLDEST, NEWEST = Version(0, 5, 3), Version(0, 5, 23)

# What replaced a flag: the new_flag of DeprecatedAlias actions in server_args.py 0.5.12 to 0.5.23.
SUCCESSORS = {
    "--mamba-scheduler-strategy": "--mamba-radix-cache-strategy",
    "--cuda-graph-max-bs": "--cuda-graph-max-bs-decode",
    "--cuda-graph-bs": "--cuda-graph-bs-decode",
    "--disable-piecewise-cuda-graph": "--cuda-graph-backend-prefill=disabled",
    "--enforce-piecewise-cuda-graph": "--cuda-graph-backend-prefill=tc_piecewise",
    "--enable-breakable-cuda-graph": "--cuda-graph-backend-prefill=breakable",
    "--piecewise-cuda-graph-tokens": "--cuda-graph-bs-prefill",
    "--piecewise-cuda-graph-max-tokens": "--cuda-graph-max-bs-prefill",
    "--piecewise-cuda-graph-compiler": "--cuda-graph-tc-compiler",
    "--stream-output": "--incremental-streaming-output",
    "--nsa-prefill-backend": "--dsa-prefill-backend",
    "--nsa-decode-backend": "--dsa-decode-backend",
    "--speculative-dflash-draft-window-size": "--speculative-draft-window-size",
    "--enable-nsa-prefill-context-parallel": "--enable-prefill-cp",
    "--enable-dsa-prefill-context-parallel": "--enable-prefill-cp",
    "--enable-prefill-context-parallel": "--enable-prefill-cp",
    "--nsa-prefill-cp-mode": "--cp-strategy",
    "--dsa-prefill-cp-mode": "--cp-strategy",
    "--prefill-cp-mode": "--cp-strategy",
    "--enable-gdn-replayssm-spec": "--enable-linear-replayssm-spec",
    "--monokernel-backend": "--enable-amd-monokernel",
}
TABLE = FlagTable("SGLang", Path(__file__).with_name("flags.tsv"), SUCCESSORS)

# Models whose sliding windows get a pool of their own (configs/model_config.py::is_hybrid_swa_model); every
# other model with windows is given full-length KV in all layers.
WINDOW_POOL_ARCHITECTURES = frozenset(
    (
        "Llama4ForConditionalGeneration",
        "GptOssForCausalLM",
        "MiMoV2ForCausalLM",
        "MiMoV2FlashForCausalLM",
        "Step3p5ForCausalLM",
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "LagunaForCausalLM",
        "Step3p7ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
        "MellumForCausalLM",
    )
)
# Hybrid models that can keep extra state buffers: 0.5.7 to 0.5.12 (calls of _handle_mamba_radix_cache), and
# 0.5.14 on (_support_mamba_cache_extra_buffer, later _MAMBA_EXTRA_BUFFER_ARCHS).
_GDN = frozenset(
    (
        "Qwen3NextForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen3_5ForCausalLM",
        "Qwen3_5MoeForCausalLM",
        "InternS2PreviewForConditionalGeneration",
        "MiniCPMV4_6ForConditionalGeneration",
    )
)
_MAMBA2 = frozenset(
    (
        "FalconH1ForCausalLM",
        "GraniteMoeHybridForCausalLM",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "BailingMoeV2_5ForCausalLM",
    )
)
_KIMI = frozenset(("KimiLinearForCausalLM", "KimiK3ForConditionalGeneration"))
# Radix cache forced off up to 0.5.13: _handle_mamba_radix_cache(support_mamba_cache=False).
NO_STATE_CACHE_ARCHITECTURES = frozenset(("KimiLinearForCausalLM", "BailingMoeV2_5ForCausalLM"))
# MLA models with DeepSeek's back ends (server_args.py::_handle_model_specific_adjustments).
DEEPSEEK_FAMILY = frozenset(
    (
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "KimiK25ForConditionalGeneration",
        "MistralLarge3ForCausalLM",
        "PixtralForConditionalGeneration",
        "GlmMoeDsaForCausalLM",
    )
)


# Multimodal models served as text models unless --enable-multimodal (configs/model_config.py,
# mm_disabled_models).
TEXT_ONLY_BY_DEFAULT = frozenset(
    ("Gemma3ForConditionalGeneration", "Llama4ForConditionalGeneration", "Step3VLForConditionalGeneration")
)
# Excerpts of configs leave `architectures` out: the class that serves the model type.
_BY_MODEL_TYPE = {
    "falcon_h1": "FalconH1ForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "kimi_linear": "KimiLinearForCausalLM",
}


def architecture_of(model: ModelGeometry) -> str:
    """Returns the serving class's name: as the config states it, else by model type."""
    return model.architecture or _BY_MODEL_TYPE.get(model.model_type, "")


def supports_extra_buffer(architecture: str, version: Version) -> bool:
    """Returns whether that version can give the architecture's states extra buffers."""
    if version < Version(0, 5, 7):
        return False
    if version < Version(0, 5, 13):
        return architecture in _GDN
    if version < Version(0, 5, 15):
        return architecture in _GDN or architecture in _MAMBA2
    return architecture in _GDN | _MAMBA2 | _KIMI


@dataclass(frozen=True, slots=True)
class MemoryRules:
    """What differs between versions in the division of memory."""

    version: Version

    @property
    def splits_by_ratio(self) -> bool:
        """0.5.5 on: the state pool is a share of the rest; before, 512 slots or the running flag."""
        return self.version >= Version(0, 5, 5)

    @property
    def radix_off_default_slots(self) -> int | None:
        """Up to 0.5.8, without a running flag, the radix cache off gave 512 slots."""
        return 512 if self.version < Version(0, 5, 9) else None

    @property
    def reserves_drafts_by_request(self) -> bool:
        """0.5.7 to 0.5.12: state × requested running × draft tokens, taken before the split."""
        return Version(0, 5, 7) <= self.version < Version(0, 5, 13)

    @property
    def solves_drafts_jointly(self) -> bool:
        """0.5.13 on: slots and draft states share the state budget."""
        return self.version >= Version(0, 5, 13)

    @property
    def budgets_padding_slot(self) -> bool:
        """0.5.17 on: the pool's unused row 0 is paid for."""
        return self.version >= Version(0, 5, 17)

    @property
    def scales_state_by_stage(self) -> bool:
        """0.5.17 on: under pipeline parallelism a stage pays only for its own layers' states."""
        return self.version >= Version(0, 5, 17)

    @property
    def multimodal_reserve_bytes(self) -> int:
        """0.5.18 on: SGLANG_VLM_CACHE_SIZE_MB (100) comes off what pools may use."""
        return 100 << 20 if self.version >= Version(0, 5, 18) else 0

    @property
    def caps_flag_by_estimate(self) -> bool:
        """0.5.10 to 0.5.13: a given running flag is bounded by clamp(tokens ÷ context × 512, 2048, 4096)."""
        return Version(0, 5, 10) <= self.version < Version(0, 5, 14)

    @property
    def caps_flag_by_tokens(self) -> bool:
        """0.5.14 on: a given running flag is bounded by half the KV tokens."""
        return self.version >= Version(0, 5, 14)

    @property
    def counts_draft_layers(self) -> bool:
        """0.5.14 on: an EAGLE or MTP draft's layers are part of the KV bytes per token."""
        return self.version >= Version(0, 5, 14)

    @property
    def sizes_windows_by_requests(self) -> bool:
        """0.5.22 on: with the radix cache off and a running flag, the window pool is what those requests
        need.
        """
        return self.version >= Version(0, 5, 22)

    @property
    def prices_sparse_scales(self) -> bool:
        """0.5.17 on: a token is priced with the scales of a sparse MLA row in FP8."""
        return self.version >= Version(0, 5, 17)

    @property
    def elides_shared_indexers(self) -> bool:
        """0.5.20 on: layers that reuse another layer's top-k indices keep no indexer keys."""
        return self.version >= Version(0, 5, 20)

    @property
    def resolves_strategy(self) -> bool:
        """0.5.14 on: `auto` becomes extra_buffer where that can be; before it is no_buffer."""
        return self.version >= Version(0, 5, 14)

    def slots_per_request(
        self, *, radix: bool, extra_buffer: bool, lazy: bool, overlap: bool, drafts: bool, skip_lock: bool
    ) -> int:
        """Returns S, the state slots reserved per running request (`_calculate_mamba_ratio` and
        forerunners).
        """
        if not radix or not self.splits_by_ratio:
            return 1
        base = 3
        if not extra_buffer:
            return base  # with the decode lock skipped too: the base's drop is added back
        if skip_lock and self.version >= Version(0, 5, 17):
            base -= 1
        if self.version < Version(0, 5, 10):
            return base + (1 if drafts else 2)
        return base + (1 if lazy or not overlap else 2)
