"""Sizes that real servers printed, from the folder of public cases: those that follow from what was stated.

docs/plan.md has the table, and why the others do not follow. The expected numbers are read from the cases;
here lie only the models, flags and memory that a reader must take from the report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from headrace.engines.plan import GIB
from headrace.models.catalogue import resolve_model
from tests.unit.engines.planning import GOLDEN, card, plan, shared

TOLERANCE = 0.03
Numbers = dict[str, Any]


@dataclass(frozen=True)
class Follows:
    """A number of a case, and the plan's figure for it."""

    case: str
    number: str  # keys joined by "/"
    figure: Callable[[Numbers], float | None]
    exact: bool = False


def vllm(
    model: str, flags: str, figure: str = "kv_tokens", kv: str = "available_kv_gib_per_rank"
) -> Callable[[Numbers], float | None]:
    """The printed capacity from the printed KV memory."""

    def computed(numbers: Numbers) -> float | None:
        longest = numbers.get("max_model_len", 40960)
        line = f"--kv-cache-memory-bytes {int(numbers[kv] * GIB)} --max-model-len {longest} {flags}"
        found = plan(line, engine="vllm", version="0.20.2", model=model, device=card(95.6, usable_gib=95.0))
        return found.figure(figure)

    return computed


def state(model: str, dtype: str, tp: int, unit: float = 1e6) -> Callable[[Numbers], float | None]:
    """State bytes per request in the unit the reporter used: MB, or what SGLang calls MB, MiB."""

    def computed(numbers: Numbers) -> float | None:
        found = plan(
            f"--mem-fraction-static 0.88 --mamba-ssm-dtype {dtype} --tp {tp}",
            model=model,
            free_gib=94,
            weights_gib=40,
        )
        return (found.figure("state_bytes_per_request") or 0) / unit

    return computed


def golden(figure: str) -> Callable[[Numbers], float | None]:
    def computed(numbers: Numbers) -> float | None:
        found = plan(f"{GOLDEN} --mamba-ssm-dtype bfloat16")
        return found.cap.value if figure == "cap" and found.cap else found.figure(figure)

    return computed


def v4(figure: str) -> Callable[[Numbers], float | None]:
    def computed(numbers: Numbers) -> float | None:
        total, left = numbers["total_gpu_memory_gb"], numbers["available_gpu_memory_gb"]
        flags = f"--mem-fraction-static {numbers['mem_fraction_static']} --tp 8 --dp 8 --enable-dp-attention"
        found = plan(
            flags,
            model="deepseek-ai/DeepSeek-V4-Pro",
            device=card(140.4, capability=9.0),
            free_gib=total,
            weights_gib=total - left,
        )
        return found.figure(figure)

    return computed


def asked_slots(figure: str) -> Callable[[Numbers], float | None]:
    def computed(numbers: Numbers) -> float | None:
        setting = numbers["setting"]
        flags = (
            f"--mem-fraction-static 0.85 --max-running-requests {numbers['requested_max_running_requests']} "
            f"--max-mamba-cache-size {setting['max_mamba_cache_size']} "
            f"--mamba-radix-cache-strategy {setting['mamba_radix_cache_strategy']}"
        )
        found = plan(flags, version="0.5.20")
        return found.cap.value if figure == "cap" and found.cap else found.figure(figure)

    return computed


def nemotron(numbers: Numbers) -> float | None:
    """KV tokens from the printed slots, by the ratio that split the two pools."""
    model = resolve_model("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    found = plan(
        "--mem-fraction-static 0.85 --kv-cache-dtype fp8_e4m3 --tp 4",
        model=model,
        free_gib=94,
        weights_gib=20,
    )
    ratio = numbers["setting"]["mamba_full_memory_ratio"]
    price, per_token = (
        found.figures["state_bytes_per_request"].value,
        found.figures["kv_bytes_per_token"].value,
    )
    return numbers["state_slots"] * price / ratio / per_token


def gib_of_pool(numbers: Numbers) -> float | None:
    found = plan(
        "--mem-fraction-static 0.93 --tp 4", model="Qwen/Qwen3-235B-A22B-FP8", free_gib=78, weights_gib=55.5
    )
    return numbers["sglang"]["kv_tokens"] * found.figures["kv_bytes_per_token"].value / GIB / 2


def fp8_ratio(numbers: Numbers) -> float | None:
    line = "--kv-cache-memory-bytes 50GiB --max-model-len 40960"
    tokens = [
        plan(
            f"{line} {dtype}", engine="vllm", version="0.26.0", model="Qwen/Qwen3-8B", device=card(79.3)
        ).figure("kv_tokens")
        for dtype in ("", "--kv-cache-dtype fp8")
    ]
    return (tokens[1] or 0) / (tokens[0] or 1) * numbers["kv_cache_tokens"]["kv auto (bf16)"]


def gh200(flags: str, weights_gib: float = 33.8) -> Callable[[Numbers], float | None]:
    """Caps of one replica. 33.8 GiB of weights are fitted to the first row (the stated bf16 would be 67)."""

    def computed(numbers: Numbers) -> float | None:
        line = f"--context-length 16384 --max-running-requests 512 --cuda-graph-max-bs 1024 {flags}"
        device = card(97871 / 1024, capability=9.0)
        found = plan(
            line, model="Qwen/Qwen3.5-35B-A3B", device=device, free_gib=93.8, weights_gib=weights_gib
        )
        return found.cap.value if found.cap else None

    return computed


GLM = "--tensor-parallel-size 8 --kv-cache-dtype fp8 --max-num-seqs 64 --max-num-batched-tokens 8192"
MTP = """ --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'"""
QWEN27 = (
    "--tensor-parallel-size 2 --kv-cache-dtype fp8 --max-num-seqs 2 --max-num-batched-tokens 8192 "
    "--enable-prefix-caching"
)
FOUND = [
    Follows("golden", "cap", golden("cap"), exact=True),
    Follows("golden", "state_slots", golden("state_slots"), exact=True),
    Follows("golden", "kv_tokens", golden("kv_tokens")),
    Follows("miaai-27b-7-mamba-cap-message", "state_slots", asked_slots("state_slots"), exact=True),
    Follows(
        "miaai-27b-7-mamba-cap-message", "slots_per_request", asked_slots("slots_per_request"), exact=True
    ),
    Follows("miaai-27b-7-mamba-cap-message", "max_running_requests", asked_slots("cap"), exact=True),
    Follows(
        "gh200-nemotron3-super-max-running-cap",
        "state_mb_per_request_fp32",
        state("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", "float32", 1),
    ),
    Follows(
        "gh200-nemotron3-super-max-running-cap",
        "state_mb_per_request_bf16",
        state("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", "bfloat16", 1),
    ),
    Follows(
        "gh200-qwen35-35b-mamba-bound",
        "state_mb_per_request_fp32",
        state("Qwen/Qwen3.5-35B-A3B", "float32", 1, 2**20),
    ),
    Follows(
        "gh200-qwen35-35b-mamba-bound",
        "state_mb_per_request_bf16",
        state("Qwen/Qwen3.5-35B-A3B", "bfloat16", 1, 2**20),
    ),
    Follows("sglang-24523-v4pro-startup-memory-lines", "bytes_per_full_token", v4("kv_bytes_per_token")),
    Follows("sglang-24523-v4pro-startup-memory-lines", "full_tokens", v4("kv_tokens")),
    Follows("sglang-24523-v4pro-startup-memory-lines", "max_total_num_tokens", v4("window_tokens")),
    Follows("nemotronh-tp4-startup-2211-slots", "kv_tokens", nemotron),
    Follows("x-vllm-21348-qwen3-235b-vllm-vs-sglang-kv", "sglang/k_gb", gib_of_pool),
    Follows("vllm-42058-fp8-kv-a100-flat", "kv_cache_tokens/kv fp8", fp8_ratio),
    Follows(
        "vllm-47430-qwen36-27b-prefix-zero-block784",
        "attention_block_tokens",
        lambda numbers: plan(
            "--kv-cache-memory-bytes 20GiB --max-num-seqs 64", engine="vllm", version="0.23.0"
        ).figure("block_tokens"),
        exact=True,
    ),
    *(
        Follows(
            f"rtx6kpro-glm51-dcp{ranks}-mtp{drafts}-full-log",
            name,
            vllm("nvidia/GLM-5.1-NVFP4", GLM + extra, figure),
        )
        for ranks, drafts, extra in (
            (1, 1, MTP),
            (2, 0, " --decode-context-parallel-size 2"),
            (4, 0, " --decode-context-parallel-size 4"),
            (8, 0, " --decode-context-parallel-size 8"),
        )
        for name, figure in (("kv_cache_tokens", "kv_tokens"), ("max_concurrency_x", "max_concurrency"))
    ),
    *(
        Follows(f"rtxpro6000mig-{case}", name, vllm(model, flags, figure))
        for case, model, flags in (
            ("qwen3-30b-vllm-bench-20251222-vllm-bf16", "Qwen/Qwen3-30B-A3B", "--max-num-seqs 32"),
            ("qwen3-32b-vllm-acc-20251223-vllm-nvfp4", "Qwen/Qwen3-32B", "--max-num-seqs 16"),
            ("qwen3-32b-vllm-bench-20251222-vllm-fp8", "Qwen/Qwen3-32B-FP8", "--max-num-seqs 32"),
            (
                "qwen3-32b-vllm-tp2-livebench-20251225-vllm-server-nvfp4",
                "Qwen/Qwen3-32B",
                "--max-num-seqs 8 -tp 2",
            ),
        )
        for name, figure in (("kv_cache_tokens", "kv_tokens"), ("max_concurrency_x", "max_concurrency"))
    ),
    *(
        Follows(
            "talos-1995-qwen38-27b-kv-arithmetic",
            name,
            vllm("Qwen/Qwen3.6-27B", QWEN27, figure, "kv_pool_gib_per_rank"),
        )
        for name, figure in (
            ("kv_cache_tokens", "kv_tokens"),
            ("max_concurrency_x", "max_concurrency"),
            ("attention_block_tokens", "block_tokens"),
        )
    ),
    Follows(
        "x-vllm-21348-qwen3-235b-vllm-vs-sglang-kv",
        "vllm/kv_cache_tokens",
        lambda numbers: vllm("Qwen/Qwen3-235B-A22B-FP8", "--tensor-parallel-size 4", kv="available_kv_gib")(
            numbers["vllm"]
        ),
    ),
]
# Rows of a case whose weights are not what was stated: with one of them fitted, the others follow.
FITTED = [
    ("default mem 0.783 fp32 state", gh200("")),
    ("bf16 state", gh200("--mamba-ssm-dtype bfloat16")),
    ("bf16 state mem 0.88", gh200("--mamba-ssm-dtype bfloat16 --mem-fraction-static 0.88")),
    ("bf16 state mem 0.92", gh200("--mamba-ssm-dtype bfloat16 --mem-fraction-static 0.92")),
]


def numbers_of(case: str) -> Numbers:
    folder = shared()
    if folder is None:
        pytest.skip("the shared folder with public cases is not here (HEADRACE_SHARED names it)")
    read = yaml.safe_load((folder / "cases" / case / "expect.yaml").read_text(encoding="utf-8"))
    found: Numbers = read["numbers"]
    return found


def value_at(numbers: Numbers, path: str) -> float:
    value: Any = numbers
    for key in path.split("/"):
        value = value[key]
    return float(value)


@pytest.mark.parametrize("follows", FOUND, ids=lambda f: f"{f.case}-{f.number}")
def test_a_printed_number_follows_from_what_was_stated(follows: Follows) -> None:
    numbers = numbers_of(follows.case)
    printed, computed = value_at(numbers, follows.number), follows.figure(numbers)
    assert computed is not None
    if follows.exact:
        assert computed == printed
    else:
        assert computed == pytest.approx(printed, rel=TOLERANCE)


@pytest.mark.parametrize(("row", "computed"), FITTED, ids=[row for row, _ in FITTED])
def test_caps_follow_once_the_weights_are_fitted(
    row: str, computed: Callable[[Numbers], float | None]
) -> None:
    numbers = numbers_of("gh200-qwen35-35b-mamba-bound")
    assert computed(numbers) == pytest.approx(numbers["running_per_replica"][row], rel=TOLERANCE)
