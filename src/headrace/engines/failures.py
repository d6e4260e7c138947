"""The failure catalogue: what an engine's warnings and crash texts mean, and what mends them.

An entry is data: an id, how grave it is, the texts that show it, one sentence of meaning, one of mending. The
engines' own entries lie in their folders (`sglang/failures.py`, `vllm/failures.py`); `SHARED` holds what
PyTorch, CUDA, NCCL, Hugging Face and the operating system say under any of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache

from headrace.words import Constraint


class Severity(StrEnum):
    """How grave: the server stops or drops work, runs worse than it could, or says something harmless."""

    FAILURE = "failure"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Failure:
    """One entry.

    Attributes:
        id: stable, snake case.
        severity: see `Severity`.
        marks: texts of which one stands in the message. Plain text, compared as written.
        meaning: what it means, one sentence.
        mend: what to do, one sentence; for a note, why nothing needs doing.
        constraint: the constraint that this speaks for, where it speaks for one.
        pattern: groups whose names become values of the event.
    """

    id: str
    severity: Severity
    marks: tuple[str, ...]
    meaning: str
    mend: str
    constraint: Constraint | None = None
    pattern: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.marks, str) or not all(len(mark) > 3 for mark in self.marks):
            raise ValueError(f"{self.id}: marks are texts of more than three characters, in a tuple")

    @cached_property
    def compiled(self) -> re.Pattern[str] | None:
        return re.compile(self.pattern) if self.pattern else None


class _Index:
    """Finds the first of some entries one of whose texts stands in a message.

    A line of a log is looked at for a hundred texts: nearly all are ruled out at once by an inner word.
    """

    def __init__(self, entries: Sequence[Failure]) -> None:
        self._entries = entries
        self._short: list[tuple[int, str]] = []
        self._by_word: dict[str, list[tuple[int, str]]] = {}
        for number, entry in enumerate(entries):
            for mark in entry.marks:
                word = max(mark.split(" ")[1:-1], key=len, default="")
                if len(word) > 3:
                    self._by_word.setdefault(word, []).append((number, mark))
                else:
                    self._short.append((number, mark))
        self._words = frozenset(self._by_word)

    def find(self, message: str) -> Failure | None:
        first = len(self._entries)
        for number, mark in self._short:
            if mark in message:
                first = number
                break
        words = message.split(" ")
        for word in () if self._words.isdisjoint(words) else self._words.intersection(words):
            for number, mark in self._by_word[word]:
                if number < first and mark in message:
                    first = number
        return self._entries[first] if first < len(self._entries) else None


class Catalogue:
    """The entries of one engine, the shared ones after them."""

    def __init__(self, entries: Sequence[Failure]) -> None:
        self.entries: tuple[Failure, ...] = (*entries, *SHARED)
        self.by_id = {entry.id: entry for entry in self.entries}
        if len(self.by_id) != len(self.entries):
            raise ValueError("two entries of one id")
        self._own = _Index(tuple(entries))

    def find(self, message: str) -> Failure | None:
        """Returns the first entry one of whose texts stands in the message, or None."""
        return self._own.find(message) or _find_shared(message)


_F, _W, _N = Severity.FAILURE, Severity.WARNING, Severity.NOTE

SHARED: tuple[Failure, ...] = (
    Failure(
        "gpu_out_of_memory",
        _F,
        ("CUDA out of memory", "OutOfMemoryError", "HIP out of memory", "NPU out of memory"),
        "A GPU had no memory left for what was asked: activations, graphs or another process took the slack.",
        "Lower the memory fraction, the prefill chunk or the number of running requests, and look for "
        "other processes on the GPU.",
        pattern=r"Tried to allocate (?P<asked_gib>[\d.]+) GiB"
        r"(?:.{0,200}?of which (?P<free_gib>[\d.]+) GiB is free)?",
    ),
    Failure(
        "illegal_memory_access",
        _F,
        ("illegal memory access", "misaligned address", "unspecified launch failure"),
        "A kernel touched memory that is not its own; every request on the GPU is lost.",
        "Take another attention, MoE or sampling back end or another version; run once with "
        "CUDA_LAUNCH_BLOCKING=1 to learn the kernel.",
    ),
    Failure(
        "device_assert",
        _F,
        ("device-side assert triggered",),
        "A kernel's own check failed, often a token id outside the vocabulary or NaN among the logits.",
        "Run once with CUDA_LAUNCH_BLOCKING=1 to learn the kernel, and check the inputs of the request "
        "before it.",
    ),
    Failure(
        "no_kernel_image",
        _F,
        ("no kernel image is available", "is not compatible with the current PyTorch installation"),
        "The installed kernels were not built for this GPU's architecture.",
        "Install builds for this compute capability (for Blackwell, CUDA 12.8 or newer), or choose a "
        "back end that has them.",
    ),
    Failure(
        "driver_too_old",
        _F,
        ("CUDA driver version is insufficient", "The NVIDIA driver on your system is too old"),
        "The driver is older than the CUDA version of the installed packages.",
        "Update the driver, or install packages built for the CUDA version that the driver has.",
    ),
    Failure(
        "gpu_hardware_fault",
        _F,
        (
            "uncorrectable ECC error",
            "GPU has fallen off the bus",
            "NVRM: Xid",
            "CUDA error: unknown error",
            "No CUDA GPUs are available",
            "Unable to determine the device handle",
        ),
        "The GPU itself failed or is not visible to the process.",
        "Look at dmesg and nvidia-smi, reset or drain the card, and check the container's device list.",
    ),
    Failure(
        "kernel_shared_memory",
        _F,
        ("out of resource: shared memory", "OutOfResources: out of resource"),
        "A Triton kernel was tuned for more shared memory than this GPU has.",
        "Choose another attention or MoE back end, or a version whose kernels know this GPU.",
        Constraint.KERNEL_PATH,
    ),
    Failure(
        "kernel_build_failed",
        _F,
        (
            "Ninja build failed",
            "Error building extension",
            "CUDA_HOME environment variable is not set",
            "nvcc fatal",
            "Could not find nvcc",
            "ninja: build stopped",
        ),
        "A kernel is compiled on this machine at the first start, and the compiler failed or is missing.",
        "Install the CUDA toolkit with headers of the same version as PyTorch, or packages with "
        "prebuilt kernels.",
    ),
    Failure(
        "nccl_failed",
        _F,
        (
            "NCCL error",
            "ncclUnhandledCudaError",
            "ncclSystemError",
            "ncclInternalError",
            "ncclRemoteError",
            "Watchdog caught collective operation timeout",
            "ProcessGroupNCCL's watchdog got stuck",
        ),
        "The GPUs of one server lost each other, or one of them hung.",
        "Set NCCL_DEBUG=INFO for the reason; a rank that died first (out of memory, a fault) is the "
        "usual cause, then shared memory of the container and the peer-to-peer settings.",
    ),
    Failure(
        "port_in_use",
        _F,
        ("address already in use", "Address already in use"),
        "Another process already listens on the port.",
        "Stop it or choose another port; after a crash wait for the old process to end.",
    ),
    Failure(
        "no_shared_memory",
        _F,
        ("unable to open shared memory object", "Bus error", "No space left on device: '/psm"),
        "The container's /dev/shm is too small for the processes of the server.",
        "Start the container with more shared memory (--shm-size or --ipc=host).",
    ),
    Failure(
        "disk_full",
        _F,
        ("No space left on device",),
        "The disk is full.",
        "Make room, or move the caches (HF_HOME, TRITON_CACHE_DIR, TMPDIR) to another disk.",
    ),
    Failure(
        "too_many_files",
        _F,
        ("OSError: [Errno 24]", "[Errno 24] Too many open files"),
        "The process ran out of file handles: each open request takes one.",
        "Raise the limit (ulimit -n 65536) before the server starts.",
    ),
    Failure(
        "killed_by_system",
        _F,
        (
            "exit code -9",
            "exitcode: -9",
            "Out of memory: Killed process",
            "oom-kill",
            "was killed by signal 9",
        ),
        "The operating system killed the process, most often for lack of host memory.",
        "Look at dmesg; give the container more memory, or use fewer loader threads and smaller host caches.",
    ),
    Failure(
        "model_not_found",
        _F,
        (
            "is not a local folder and is not a valid model identifier",
            "Repository Not Found",
            "RepositoryNotFoundError",
            "EntryNotFoundError",
            "LocalEntryNotFoundError",
            "does not appear to have a file named",
            "Cannot find any model weights",
        ),
        "The model, or a file of it, was not found under the name given.",
        "Check the spelling, and that the download is whole or the hub can be reached.",
    ),
    Failure(
        "model_gated",
        _F,
        ("GatedRepoError", "Access to model", "401 Client Error", "403 Client Error"),
        "The hub wants a login or an accepted licence for this model.",
        "Accept the licence on the model's page and give the token by environment, not on the command line.",
    ),
    Failure(
        "remote_code_refused",
        _F,
        ("trust_remote_code=True", "Please pass the argument `trust_remote_code"),
        "The model brings its own code, which is not run unless allowed.",
        "Read that code; then start with --trust-remote-code.",
    ),
    Failure(
        "weights_damaged",
        _F,
        (
            "Error while deserializing header",
            "SafetensorError",
            "incomplete metadata, file not fully covered",
        ),
        "A file of weights is damaged or half downloaded.",
        "Delete that file and download it again.",
    ),
    Failure(
        "module_missing",
        _F,
        ("ModuleNotFoundError: No module named",),
        "A Python package is missing that this model or back end needs.",
        "Install it into the server's environment, in the version that the engine names.",
        pattern=r"No module named '(?P<module>[\w.]{1,80})'",
    ),
    Failure(
        "import_failed",
        _F,
        ("ImportError:", "undefined symbol:"),
        "Two installed packages do not fit each other.",
        "Install the versions that this release of the engine pins, in a fresh environment.",
    ),
    Failure(
        "unknown_flag",
        _F,
        ("error: unrecognized arguments:", "error: argument --", "error: ambiguous option:"),
        "The launch line has a flag or a value that this version does not know.",
        "Check the flag's spelling for this version; headrace plan names the successor of a renamed one.",
    ),
    Failure(
        "slow_tokenizer",
        _W,
        ("Using a slow tokenizer",),
        "The tokenizer runs in Python, not in Rust: encoding and decoding cost many times the CPU.",
        "Install a fast tokenizer for the model, or give the server more tokenizer and detokenizer workers.",
        Constraint.FRONTEND,
    ),
    Failure(
        "process_group_left",
        _N,
        ("destroy_process_group() was not called",),
        "The server ended without tidying its process group.",
        "Nothing: it only says that the process ended.",
    ),
    Failure(
        "leaked_objects",
        _N,
        ("resource_tracker: There appear to be", "nanobind: leaked"),
        "Objects were left at the end of the process.",
        "Nothing: it only says that the process ended without tidying up.",
    ),
    Failure(
        "deprecated",
        _N,
        (
            "is deprecated",
            "DeprecationWarning",
            "FutureWarning",
            "will be deprecated",
            "has been deprecated",
            "an Enum subclass and is now natively supported",
        ),
        "Something in use will go in a later version.",
        "Nothing today: look at it before the next upgrade.",
    ),
)

SHARED_IDS = frozenset(entry.id for entry in SHARED)
_SHARED_INDEX = _Index(SHARED)


@lru_cache(maxsize=4)
def _find_shared(message: str) -> Failure | None:
    """The shared entry of a message; remembered, for each engine's parser asks in turn."""
    return _SHARED_INDEX.find(message)
