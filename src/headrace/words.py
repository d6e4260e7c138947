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


class Lever(StrEnum):
    """A change that moves a rung or the step. Engines say by which flag."""

    CLIENT_IN_FLIGHT = "client_in_flight"  # more in flight per server; no restart
    CLIENT_CONNECTIONS = "client_connections"  # more connections at the client; no restart
    SHARED_QUEUE = "shared_queue"  # one queue for all servers in place of an even split; no restart
    LENGTH_LIMIT = "length_limit"  # max_tokens per request; no restart
    RUNNING_FLAG = "running_flag"
    MEMORY_FRACTION = "memory_fraction"
    RADIX_CACHE_OFF = "radix_cache_off"
    PREFIX_CACHE_OFF = "prefix_cache_off"
    LAZY_BUFFERS = "lazy_buffers"
    FEWER_BUFFERS = "fewer_buffers"
    STATE_SHARE = "state_share"
    STATE_DTYPE = "state_dtype"  # an accuracy choice
    KV_DTYPE = "kv_dtype"  # an accuracy choice
    GRAPH_SIZES = "graph_sizes"
    GRAPHS_ON = "graphs_on"
    OVERLAP_ON = "overlap_on"
    LESS_RESERVE = "less_reserve"
    MORE_RESERVE = "more_reserve"
    FRONTEND_PROCESSES = "frontend_processes"
    SPECULATION_OFF = "speculation_off"
    PEER_ACCESS = "peer_access"  # driver or fabric, not a flag
    WEIGHTS_FORM = "weights_form"  # another checkpoint, kernel or back end for this form
    COOLING = "cooling"
    MORE_SERVERS = "more_servers"
