"""Parameter counts against published totals, to 0.5 %.

The totals are those that Hugging Face shows for the checkpoints (sums over their safetensors headers), as
quoted in public repositories in 2025–2026, or of the model's report where it names exact ones. They count
what lies in the files: vision tower and MTP layers, quantisation scales in some.
"""

from __future__ import annotations

import pytest

from headrace.models.catalogue import built_in, model_ids

PUBLISHED = {
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-2-70b-hf": 68_976_648_192,
    "meta-llama/Meta-Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Meta-Llama-3.1-70B": 70_553_706_496,
    "meta-llama/Meta-Llama-3.1-405B": 405_853_388_800,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
    "meta-llama/Llama-3.3-70B-Instruct": 70_553_706_496,
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": 108_641_793_536,
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": 401_583_781_376,
    "codellama/CodeLlama-34b-Instruct-hf": 33_743_970_304,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "mistralai/Mixtral-8x22B-v0.1": 140_620_634_112,
    "mistralai/Mistral-7B-v0.3": 7_248_023_552,
    "mistralai/Ministral-8B-Instruct-2410": 8_019_808_256,
    "microsoft/phi-2": 2_779_683_840,
    "microsoft/phi-4": 14_659_507_200,
    "microsoft/Phi-4-mini-instruct": 3_836_021_760,
    "internlm/internlm2-20b": 19_861_149_696,
    "google/gemma-2-2b": 2_614_341_888,
    "google/gemma-2-9b": 9_241_705_984,
    "google/gemma-2-27b": 27_227_128_320,
    "google/gemma-3-4b-it": 4_300_079_472,
    "google/gemma-3-27b-it": 27_432_406_640,
    "Qwen/Qwen-72B": 72_287_920_128,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-32B": 32_762_123_264,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "Qwen/Qwen3-235B-A22B": 235_093_634_560,
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": 480_154_875_392,
    "Qwen/Qwen3-Next-80B-A3B-Instruct": 81_324_862_720,
    "Qwen/Qwen3-VL-2B-Instruct": 2_127_532_032,
    "Qwen/Qwen3-VL-4B-Instruct": 4_437_815_808,
    "Qwen/Qwen3-VL-8B-Instruct": 8_767_123_696,
    "Qwen/Qwen3-VL-30B-A3B-Instruct": 31_070_754_032,
    "Qwen/Qwen3.5-27B": 27_781_427_952,
    "Qwen/Qwen3.5-35B-A3B": 35_951_822_704,
    "Qwen/Qwen3.5-122B-A10B": 125_086_497_008,
    "Qwen/Qwen3.5-397B-A17B": 403_397_928_944,
    "Qwen/Qwen3.6-27B": 27_781_427_952,
    "Qwen/Qwen3.6-35B-A3B": 35_951_822_704,
    "Qwen/Qwen3.8-27B": 27_781_427_952,
    "deepseek-ai/DeepSeek-R1": 684_489_845_504,
    "deepseek-ai/DeepSeek-V3": 684_531_386_000,
    "deepseek-ai/DeepSeek-V3.2": 685_355_329_792,
    "deepseek-ai/DeepSeek-V4-Flash": 290_944_616_402,
    "deepseek-ai/DeepSeek-V4-Pro": 1_598_839_674_782,
    "moonshotai/Kimi-K2-Instruct": 1_026_408_235_864,
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": 49_122_681_728,
    "zai-org/GLM-4.5": 358_337_791_296,
    "zai-org/GLM-4.5-Air": 110_468_824_832,
    "zai-org/GLM-5": 753_864_139_008,
    "zai-org/GLM-5.1": 753_864_139_008,
    "zai-org/GLM-5.2": 753_329_940_480,
    "zai-org/GLM-5.3": 753_329_940_480,
    "MiniMaxAI/MiniMax-M2.5": 228_703_644_928,
    "MiniMaxAI/MiniMax-M2.7": 228_689_764_864,
    "openai/gpt-oss-20b": 20_914_757_184,
    "openai/gpt-oss-120b": 116_829_156_672,
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 31_577_937_344,
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": 123_611_012_096,
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": 49_867_145_216,
    "tiiuae/Falcon-H1-7B-Instruct": 7_585_654_784,
    "ibm-granite/granite-4.0-h-small": 32_207_338_112,
    "XiaomiMiMo/MiMo-7B-Base": 7_833_409_536,
}
# Two files of Qwen3-0.6B and 1.7B hold the tied embedding twice; the model has it once.
TIED_TWICE = {
    "Qwen/Qwen3-0.6B": (751_632_384, 151_936 * 1024),
    "Qwen/Qwen3-1.7B": (2_031_739_904, 151_936 * 2048),
}
# Parameters per token, as the model cards state them (input embedding counted).
ACTIVE = {
    "Qwen/Qwen3-30B-A3B": 3.35e9,
    "Qwen/Qwen3-235B-A22B": 22.2e9,
    "deepseek-ai/DeepSeek-R1": 37.55e9,
    "deepseek-ai/DeepSeek-V4-Pro": 49e9,
    "mistralai/Mixtral-8x7B-v0.1": 12.88e9,
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": 3.6e9,
    "google/gemma-4-26B-A4B": 3.8e9,
}
# Sizes of the files: OpenAI's gpt-oss 60.8 and 12.8 GiB; DeepSeek-R1 688.6 GB with its MTP layer.
STORED = {"openai/gpt-oss-120b": 65.25e9, "openai/gpt-oss-20b": 13.76e9, "deepseek-ai/DeepSeek-R1": 688.6e9}


@pytest.mark.parametrize(("model_id", "total"), PUBLISHED.items())
def test_total_parameters(model_id: str, total: int) -> None:
    assert built_in(model_id).total_parameters == pytest.approx(total, rel=0.005)


def test_most_totals_are_exact() -> None:
    errors = [abs(built_in(name).total_parameters - total) / total for name, total in PUBLISHED.items()]
    assert sum(error < 1e-6 for error in errors) >= 0.75 * len(errors)
    assert max(errors) < 0.0001  # the rest are quantisation scales that some files count


@pytest.mark.parametrize(("model_id", "total", "twice"), [(k, *v) for k, v in TIED_TWICE.items()])
def test_a_tied_embedding_counts_once(model_id: str, total: int, twice: int) -> None:
    assert built_in(model_id).total_parameters == total - twice


@pytest.mark.parametrize(("model_id", "active"), ACTIVE.items())
def test_active_parameters(model_id: str, active: float) -> None:
    assert built_in(model_id).active_parameters == pytest.approx(active, rel=0.015)


@pytest.mark.parametrize(("model_id", "embedding", "active"), [
    ("openai/gpt-oss-120b", 201_088 * 2880, 5.13e9), ("openai/gpt-oss-20b", 201_088 * 2880, 3.61e9),
])  # fmt: skip
def test_active_parameters_without_the_input_embedding(model_id: str, embedding: int, active: float) -> None:
    assert built_in(model_id).active_parameters - embedding == pytest.approx(active, rel=0.005)


@pytest.mark.parametrize(("model_id", "stored"), STORED.items())
def test_stored_bytes(model_id: str, stored: float) -> None:
    assert built_in(model_id).weight_bytes(mtp=True).value == pytest.approx(stored, rel=0.005)


def test_a_hundred_models_are_built_in() -> None:
    assert len(model_ids()) > 100
