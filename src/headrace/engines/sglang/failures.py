"""SGLang's failure catalogue: its warnings and crash texts, 0.4 to 0.5.23."""

from __future__ import annotations

from headrace.engines.failure_entry import Failure, Severity
from headrace.engines.failures import Catalogue
from headrace.words import Constraint

_F, _W, _N = Severity.FAILURE, Severity.WARNING, Severity.NOTE

ENTRIES: tuple[Failure, ...] = (
    Failure(
        "memory_fraction_too_small",
        _F,
        ("Not enough memory. Please try to increase --mem-fraction-static",),
        "After the weights nothing of the static part of memory is left for the KV pool.",
        "Raise --mem-fraction-static, use more GPUs per server (--tp), or smaller weights.",
        Constraint.CONFIGURATION_ERROR,
        r"mem_fraction_static=(?P<mem_fraction_static>[\d.]+)",
    ),
    Failure(
        "state_pool_no_room",
        _F,
        ("Not enough space for mamba cache", "Not enough space for mamba ping pong idx"),
        "The recurrent-state pool had no slot for a request that was already admitted.",
        "Raise --max-mamba-cache-size or --mamba-full-memory-ratio, or lower --max-running-requests.",
        Constraint.STATE_POOL,
    ),
    Failure(
        "state_pool_too_small",
        _F,
        ("state cache is too small to serve any requests",),
        "The recurrent-state pool has fewer slots than a single request needs, so the server refuses "
        "to start.",
        "Raise --mem-fraction-static, --mamba-full-memory-ratio or --max-mamba-cache-size, or lower "
        "--max-total-tokens.",
        Constraint.CONFIGURATION_ERROR,
        r"max_mamba_cache_size=(?P<state_slots>\d+), mamba_ratio=(?P<slots_per_request>\d+)",
    ),
    Failure(
        "state_pool_raised",
        _W,
        ("raising effective_mamba_size to",),
        "The decode server's state pool was enlarged beyond what was asked, to hold its running and "
        "incoming requests.",
        "Look for memory: the pool takes more than was planned; lower --max-running-requests if it is short.",
        Constraint.STATE_POOL,
        r"raising effective_mamba_size to (?P<state_slots>\d+)",
    ),
    Failure(
        "request_slots_exhausted",
        _F,
        ("alloc_req_slots runs out of memory",),
        "More requests were admitted than the server has request slots.",
        "Lower --max-running-requests.",
        Constraint.MAX_RUNNING_REQUESTS,
    ),
    Failure(
        "out_of_memory_after_retraction",
        _F,
        ("Out of memory even after retracting all other requests", "retract_decode: aborted last request"),
        "A single request outgrew the whole KV pool; it was aborted with an error to its client.",
        "Lower the request's max_tokens or the context length, or enlarge the KV pool.",
        Constraint.KV_POOL,
    ),
    Failure(
        "pool_exhausted",
        _F,
        ("Prefill out of memory. Try to lower your batch size", "Decode out of memory. Try to lower"),
        "The KV pool ran out in the middle of a step; the scheduler ends.",
        "Lower --max-running-requests or raise --schedule-conservativeness, then enlarge the pool.",
        Constraint.KV_POOL,
    ),
    Failure(
        "graph_capture_failed",
        _F,
        ("Capture cuda graph failed", "Capture CUDA Graph failed", "cuda graph failed:"),
        "CUDA graphs could not be captured at the start, most often for lack of memory outside the "
        "static part.",
        "Lower --mem-fraction-static or the largest captured batch (--cuda-graph-max-bs, from 0.5.20 "
        "--cuda-graph-max-bs-decode).",
        Constraint.CONFIGURATION_ERROR,
    ),
    Failure(
        "extra_buffer_without_radix",
        _F,
        ("extra_buffer is not compatible with --disable-radix-cache",),
        "This version refuses the extra_buffer state strategy with the radix cache off.",
        "Write --mamba-scheduler-strategy no_buffer beside --disable-radix-cache.",
        Constraint.CONFIGURATION_ERROR,
    ),
    Failure(
        "extra_buffer_platform",
        _F,
        ("Mamba extra_buffer is only supported on",),
        "The extra_buffer state strategy needs a GPU with the FLA kernels.",
        "Write no_buffer as the state strategy.",
        Constraint.CONFIGURATION_ERROR,
    ),
    Failure(
        "no_buffer_with_overlap",
        _F,
        ("no_buffer do not support overlap schedule",),
        "From 0.5.14 an explicit no_buffer with the radix cache on refuses to start with the overlap "
        "scheduler.",
        "Add --disable-radix-cache (keeps the overlap), or --disable-overlap-schedule.",
        Constraint.CONFIGURATION_ERROR,
    ),
    Failure(
        "model_unsupported",
        _F,
        ("are not supported for now. Supported architectures",),
        "This version of SGLang has no implementation of the model's architecture.",
        "Take the version that the model's card names, or --model-impl transformers.",
        Constraint.CONFIGURATION_ERROR,
    ),
    Failure(
        "scheduler_crashed",
        _F,
        (
            "Scheduler hit an exception",
            "DetokenizerManager hit an exception",
            "TokenizerManager hit an exception",
        ),
        "A process of the server ended with an exception; the whole server goes down with it.",
        "The last line of the trace below it says why; requests in flight are lost and must be sent again.",
        Constraint.SERVER_DOWN,
    ),
    Failure(
        "kv_pool_full",
        _W,
        ("KV cache pool is full. Retract requests",),
        "The KV pool was full, so running requests were put back into the queue; their work is "
        "computed again later.",
        "About one a minute is healthy; with more, raise --schedule-conservativeness (1.3) or enlarge "
        "the KV pool.",
        Constraint.RETRACTION,
    ),
    Failure(
        "cap_by_state_pool",
        _W,
        ("by the mamba state cache (max_mamba_cache_size",),
        "The recurrent-state pool holds fewer requests than --max-running-requests asks for.",
        "Free slots: radix cache off for one-shot prompts (1 slot per request), a larger "
        "--mamba-full-memory-ratio or --max-mamba-cache-size.",
        Constraint.STATE_POOL,
    ),
    Failure(
        "cap_by_kv_pool",
        _W,
        ("was reduced from the requested",),
        "The KV pool is too small for the number of running requests that was asked for.",
        "Raise --mem-fraction-static, or use an FP8 KV cache after checking its accuracy.",
        Constraint.KV_POOL,
    ),
    Failure(
        "child_failed",
        _F,
        (
            "Received sigquit from a child process",
            "SIGQUIT received",
            "crashed with exit code",
            "Rank 0 scheduler is dead",
            "Child process unexpectedly failed",
        ),
        "One process of the server ended, so the others are stopped.",
        "Look for the first error above it: this line only passes it on.",
        Constraint.SERVER_DOWN,
        pattern=r"crashed with exit code (?P<exit_code>-?\d+)",
    ),
    Failure(
        "watchdog_timeout",
        _F,
        ("Watchdog timeout", "watchdog timeout"),
        "A step took longer than the watchdog allows, so the server ends itself: a hang, or a very "
        "long first compilation.",
        "Look for a rank that died first; raise --watchdog-timeout only where a compilation is known "
        "to be the cause.",
        Constraint.SERVER_DOWN,
    ),
    Failure(
        "detokenizer_silent",
        _F,
        ("Server couldn't get a response from detokenizer",),
        "The health check waited for an answer of the server's own processes and got none.",
        "Busy or dead? Look for a crash above; if decode lines go on, the single tokenizer and "
        "detokenizer process is the limit (--tokenizer-worker-num, no streaming).",
        Constraint.FRONTEND,
    ),
    Failure(
        "detokenizer_forgot",
        _F,
        ("Decode status not found for request",),
        "The detokenizer dropped a request's state: more requests are in flight than it keeps.",
        "Send fewer requests at once, or raise SGLANG_DETOKENIZER_MAX_STATES.",
        Constraint.FRONTEND,
    ),
    Failure(
        "nan_logits",
        _F,
        ("Detected errors during sampling! NaN in the logits", "NaN in the logits"),
        "The model's output was not a number.",
        "Take another attention back end or KV dtype; check the quantised checkpoint.",
    ),
    Failure(
        "transfer_failed",
        _F,
        (
            "KVTransferError",
            "fail to receive KV Cache transfer done signal",
            "Some requests timed out when bootstrapping",
            "Decode transfer failed",
            "Prefill bootstrap failed",
            "Prefill transfer failed",
        ),
        "A request's KV could not be moved from the prefill to the decode server.",
        "Check the transfer back end's network device and the bootstrap port.",
        Constraint.KV_TRANSFER,
    ),
    Failure(
        "prompt_too_long",
        _W,
        (
            "is longer than the model's context length",
            "exceeds the model's context length",
            "exceeds the maximum allowed length",
            "Input length (",
        ),
        "A request asked for more tokens than the context length; it was refused or cut.",
        "Leave such prompts out, lower max_tokens, or raise --context-length.",
        pattern=r"\((?P<prompt_tokens>\d+) (?:input|tokens)",
    ),
    Failure(
        "queue_full",
        _W,
        ("The request queue is full",),
        "The server refuses requests beyond --max-queued-requests.",
        "Send less at once, or raise --max-queued-requests.",
    ),
    Failure(
        "overlap_disabled",
        _W,
        (
            "Disabling overlap schedule since mamba no_buffer",
            "Overlap scheduler is disabled",
            "Overlap schedule is disabled",
            "Pipeline parallelism is incompatible with overlap schedule",
            "Pipeline parallelism is not compatible with overlap schedule",
            "The overlap scheduler and mixed chunked prefill are disabled",
            "is not compatible with overlap schedule",
        ),
        "Each step now waits for the host between two passes on the GPU.",
        "For no_buffer add --disable-radix-cache where prompts share no prefix; else choose a setting "
        "that keeps the overlap.",
        Constraint.STEP_OVERHEAD,
    ),
    Failure(
        "graphs_disabled",
        _W,
        ("Cuda graph is disabled", "CUDA graph is disabled", "cuda graph is disabled"),
        "Decode steps are launched kernel by kernel.",
        "Choose an attention back end that captures graphs; drop --disable-cuda-graph.",
        Constraint.CUDA_GRAPH,
    ),
    Failure(
        "running_reset_by_speculation",
        _W,
        ("Max running requests is reset to 48 for speculative decoding",),
        "Speculation set the cap of running requests to 48.",
        "Write --max-running-requests.",
        Constraint.MAX_RUNNING_REQUESTS,
    ),
    Failure(
        "radix_cache_disabled",
        _W,
        ("Radix cache is disabled", "Disabling radix cache", "Disabling Radix Cache"),
        "Nothing is taken from the prefix cache.",
        "For one-shot prompts this costs nothing; for shared prefixes choose a back end that keeps it.",
        Constraint.PREFIX_CACHE,
    ),
    Failure(
        "kernels_compiling",
        _W,
        (
            "Entering DeepGEMM JIT Pre-Compile session",
            "DeepGEMM JIT code generation",
            "Try DeepGEMM JIT Compiling",
            "DeepGEMM JIT Compiling",
            "DeepGEMM warmup",
        ),
        "Kernels are compiled while the server starts or serves; steps are slow until it is done.",
        "Wait, or compile before the start (python -m sglang.compile_deep_gemm); leave this stretch "
        "out of any measurement.",
        Constraint.COLD_START,
    ),
    Failure(
        "scale_format",
        _W,
        ("scale_fmt of checkpoint is not ue8m0",),
        "The checkpoint's FP8 scales are rounded for DeepGEMM on this GPU, which may cost accuracy.",
        "Check the accuracy, or turn DeepGEMM off.",
    ),
    Failure(
        "allreduce_slow_path",
        _W,
        (
            "Custom allreduce is disabled",
            "Setup Custom allreduce failed",
            "Custom quick allreduce is disabled",
            "PyMscclpp is disabled",
        ),
        "Tensor-parallel sums take NCCL's path; the fast one is not possible between these GPUs.",
        "Prefer replicas to tensor parallelism where the model fits one GPU; else check peer-to-peer access.",
        Constraint.INTERCONNECT,
    ),
    Failure(
        "kv_scales_missing",
        _W,
        (
            "Using FP8 KV cache but no scaling factors",
            "Defaulting to KV cache scaling factors",
            "does not support loading scaling factors",
        ),
        "The FP8 KV cache runs with scales of 1.0.",
        "Check the accuracy; give --quantization-param-path where the model has scales.",
    ),
    Failure(
        "flush_refused",
        _W,
        ("Cache not flushed because there are pending requests",),
        "The cache is flushed only when nothing is queued or running.",
        "Wait until the server is idle.",
        pattern=r"#queue-req: (?P<queued>\d+), #running-req: (?P<running>\d+)",
    ),
    Failure(
        "stream_backlog",
        _W,
        ("Streaming backlog:",),
        "Clients or the front-end process read streamed tokens more slowly than they are made.",
        "Do not stream, or raise --stream-interval.",
        Constraint.FRONTEND,
    ),
    Failure(
        "priority_or_rank_ignored",
        _W,
        ("is ignored because dp_size=",),
        "A request named a data-parallel rank that this server does not have.",
        "Leave the field out.",
    ),
    Failure(
        "model_skipped",
        _N,
        ("Ignore import error when loading",),
        "A model of another kind could not be loaded into the registry.",
        "Nothing, unless it is the model that is served.",
    ),
    Failure(
        "piecewise_graph_disabled",
        _N,
        ("Disable piecewise CUDA graph", "Disable prefill CUDA graph"),
        "Prefill runs without captured graphs, as it does for many models.",
        "Nothing: it is the rule for multimodal and hybrid models.",
    ),
)

CATALOGUE = Catalogue(ENTRIES)
