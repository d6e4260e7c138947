"""What SGLang's `/server_info` says, by allow-list: the settings, the version and the sizes the server has.

The answer holds api_key and admin_api_key too: only the fields named here are ever looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.engines.launch_line import GivenFlag, LaunchLine
from headrace.engines.sglang.rules import NEWEST, TABLE
from headrace.engines.versions import Version
from headrace.errors import InputError
from headrace.quantities import Origin

# Fields of server_args that decide sizes and strategy. None of them can hold a secret or a path.
ALLOWED = (
    "tp_size",
    "dp_size",
    "pp_size",
    "attn_dp_size",
    "enable_dp_attention",
    "context_length",
    "mem_fraction_static",
    "max_running_requests",
    "max_total_tokens",
    "max_mamba_cache_size",
    "mamba_full_memory_ratio",
    "mamba_ssm_dtype",
    "mamba_scheduler_strategy",
    "mamba_radix_cache_strategy",
    "swa_full_tokens_ratio",
    "disable_radix_cache",
    "disable_overlap_schedule",
    "page_size",
    "kv_cache_dtype",
    "chunked_prefill_size",
    "cuda_graph_max_bs",
    "cuda_graph_max_bs_decode",
    "attention_backend",
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
)
_WORD = 64  # characters kept of a textual value


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The settings as a launch line (origin `reported`), the version, and the sizes for `advice.explain`."""

    version: str
    line: LaunchLine
    reported: Mapping[str, float]


def read_server_info(document: Mapping[str, Any]) -> ServerInfo:
    """Returns what an answer of `/server_info` says.

    Raises:
        InputError: the answer is not that of an SGLang server.
    """
    if not isinstance(document, Mapping) or "version" not in document:
        raise InputError("this is no answer of SGLang's /server_info: it has no field 'version'.")
    version = str(document["version"])[:_WORD]
    rules = Version.parse(version) or NEWEST
    flags: list[GivenFlag] = []
    for field in ALLOWED:
        value = document.get(field)
        if value is None or value is False or (field == "mamba_full_memory_ratio" and not value):
            continue
        name = "--" + field.replace("_", "-")
        if not (flag := TABLE.find(name, rules)) or not flag.known_to(rules):
            continue
        flags.append(GivenFlag(name, () if value is True else (str(value)[:_WORD],)))
    states = document.get("internal_states")
    first = states[0] if isinstance(states, list) and states and isinstance(states[0], Mapping) else {}
    reported = {}
    for key, found in (
        ("cap", first.get("effective_max_running_requests_per_dp")),
        ("slots", first.get("max_mamba_cache_size")),
        ("kv", document.get("max_total_num_tokens")),
    ):
        if isinstance(found, int | float) and not isinstance(found, bool):
            reported[key] = float(found)
    memory = first.get("memory_usage")
    if isinstance(memory, Mapping) and isinstance(memory.get("weight"), int | float):
        reported["weights"] = float(memory["weight"])
    return ServerInfo(version, LaunchLine(tuple(flags), {}, origin=Origin.REPORTED), reported)


MAX_FILE_BYTES = 16 * 1024 * 1024  # an answer of /server_info is some kilobytes


def read_server_info_file(path: Path) -> ServerInfo:
    """What a saved /server_info answer tells. Raises InputError when it cannot be read."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{path} is larger than 16 MB: an answer of /server_info is some kilobytes.")
        return read_server_info(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}.") from error
