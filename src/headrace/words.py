"""The closed vocabularies: option words, constraint ids, row flags. One spelling, everywhere."""

from __future__ import annotations

from enum import StrEnum


class Constraint(StrEnum):
    """What can bind a fleet. The meaning of each id stands in docs/words.md."""

    CLIENT_CONCURRENCY = "client_concurrency"
    CLIENT_SIDE = "client_side"
    LONG_TAIL = "long_tail"
    LOAD_IMBALANCE = "load_imbalance"
    SERVER_DOWN = "server_down"
    MAX_RUNNING_REQUESTS = "max_running_requests"
    STATE_POOL = "state_pool"
    KV_POOL = "kv_pool"
    ADMISSION = "admission"
    TOKEN_BUDGET = "token_budget"
    RETRACTION = "retraction"
    PREFILL = "prefill"
    MEMORY_BANDWIDTH = "memory_bandwidth"
    COMPUTE = "compute"
    KERNEL_PATH = "kernel_path"
    STEP_OVERHEAD = "step_overhead"
    CUDA_GRAPH = "cuda_graph"
    INTERCONNECT = "interconnect"
    KV_TRANSFER = "kv_transfer"
    EXPERT_IMBALANCE = "expert_imbalance"
    FRONTEND = "frontend"
    GRAMMAR = "grammar"
    SPECULATION = "speculation"
    PREFIX_CACHE = "prefix_cache"
    POWER_THERMAL = "power_thermal"
    RUNAWAY_LENGTH = "runaway_length"
    # states, not constraints: no ladder
    COLD_START = "cold_start"
    CONFIGURATION_ERROR = "configuration_error"
    NOT_LIMITED = "not_limited"
    UNKNOWN = "unknown"


class Flag(StrEnum):
    """What can be wrong with an answered row."""

    EMPTY = "empty"  # no answer text and no tool call
    TRUNCATED = "truncated"  # finish_reason length: the model had more to say
    THINK_TAG = "think_tag"  # a think tag unclosed, or leaked into the answer
    REPETITION = "repetition"  # the text ends in a loop
    REFUSED = "refused"  # the server said the request can never succeed (4xx)


class FlagPolicy(StrEnum):
    """What to do with a flagged row."""

    KEEP = "keep"  # the row is kept, with its flag
    REJECT = "reject"  # the row goes to failed/ with its answer
    RETRY_ONCE = "retry_once"  # asked once more; the second answer is kept whatever it is


class Api(StrEnum):
    """The request forms that headrace can send."""

    CHAT = "chat"  # POST /v1/chat/completions
    COMPLETIONS = "completions"  # POST /v1/completions
    GENERATE = "generate"  # POST /generate (SGLang)


class OutputFormat(StrEnum):
    """The form of finished shards."""

    PARQUET = "parquet"
    JSONL = "jsonl"  # zstd-compressed JSON lines, .jsonl.zst
