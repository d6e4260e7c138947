"""An emulated server's log in the shapes of SGLang 0.5.12: the start, prefill and decode lines, the end.

The shapes are those of recorded logs. Left out are lines of what an emulated server has not: shards, captured
graphs, tokenizers, access lines.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from headrace.errors import StorageError
from headrace.simulate.emulate.planned import PlannedServer
from headrace.simulate.emulate.timing import Load

_DECODE_STEPS = 40  # --decode-log-interval
_GIB = 1 << 30
_NOT_ARGUMENTS = ("status", "max_total_num_tokens", "max_req_input_len", "internal_states", "version")


def log_path(path: Path, index: int, replicas: int) -> Path:
    """Returns the file of one server: the path itself where there is one, else with its number."""
    return path if replicas == 1 else path.with_name(f"{path.stem}-{index}{path.suffix}")


class SglangLog:
    """Writes one server's log, from its loads.

    Args:
        path: appended to, as a shell's redirection of several starts would.
        server: what the launch line has made.

    Raises:
        StorageError: the file cannot be written.
    """

    def __init__(self, path: Path, server: PlannedServer) -> None:
        try:
            self._file: TextIO = path.open("a", buffering=1, encoding="utf-8")
        except OSError as error:
            raise StorageError(f"the log {path} cannot be written: {error.strerror}") from error
        self._server = server
        self._last: Load | None = None
        self._decode_from: tuple[int, int, float] | None = None  # steps, tokens, monotonic seconds
        self._prefill_at = time.monotonic()

    def booted(self, info: Mapping[str, Any], port: int) -> None:
        """Writes the start: arguments, memory, pools, sizes, ready."""
        server, plan = self._server, self._server.plan
        arguments = ", ".join(
            f"{name}={value!r}" for name, value in info.items() if name not in _NOT_ARGUMENTS
        )
        self._line(f"server_args=ServerArgs({arguments})")
        before = (plan.figure("free_bytes") or 0.0) / _GIB
        weights, slack = server.pool_gib("weights"), server.pool_gib("slack")
        self._line(f"Load weight begin. avail mem={before:.2f} GB")
        self._line(
            f"Load weight end. elapsed=0.00 s, type={plan.inputs.model.architecture}, "
            f"avail mem={before - weights:.2f} GB, mem usage={weights:.2f} GB."
        )
        if server.state_slots is not None:
            self._line(self._state_pool(server.state_slots))
        kv = server.pool_gib("KV pool") / 2
        self._line(
            f"KV Cache is allocated. #tokens: {server.pool_tokens}, K size: {kv:.2f} GB, V size: {kv:.2f} GB"
        )
        self._line(f"Memory pool end. avail mem={slack:.2f} GB")
        self._line(
            f"max_total_num_tokens={server.pool_tokens}, "
            f"chunked_prefill_size={info['chunked_prefill_size']}, "
            f"max_prefill_tokens={info['max_prefill_tokens']}, max_running_requests={server.cap}, "
            f"context_len={server.context_length}, available_gpu_mem={slack:.2f} GB"
        )
        self._line(f"INFO:     Started server process [{os.getpid()}]")
        self._line("INFO:     Waiting for application startup.")
        self._line("INFO:     Application startup complete.")
        self._line(f"INFO:     Uvicorn running on http://{info['host']}:{port} (Press CTRL+C to quit)")
        self._line("The server is fired up and ready to roll!")
        self._last = self._decode_from = None

    def passed(self, load: Load) -> None:
        """Writes what the passes since the last look give: a line per prefill, and per 40 decode steps."""
        last, now = self._last, time.monotonic()
        if last is not None and load.prefills_done > last.prefills_done:
            self._prefill(load, last, now)
        self._last = load
        made = load.decode_tokens_done + load.first_tokens_done
        if self._decode_from is None:
            self._decode_from = (load.decode_steps_done, made, now)
        steps, tokens, since = self._decode_from
        if load.decode_steps_done - steps >= _DECODE_STEPS and load.running:
            self._decode(load, (made - tokens) / max(1e-9, now - since))
            self._decode_from = (load.decode_steps_done, made, now)

    def told_to_stop(self) -> None:
        """Writes what SIGTERM brings."""
        self._line("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")

    def drained(self) -> None:
        """Writes the end of a drain."""
        self._line(
            "Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[]."
        )

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _prefill(self, load: Load, last: Load, now: float) -> None:
        started = max(1, load.first_tokens_done - last.first_tokens_done)
        new = load.prompt_tokens_done - last.prompt_tokens_done
        cached = load.cached_tokens_done - last.cached_tokens_done
        rate = new / max(1e-9, now - self._prefill_at)
        self._prefill_at = now
        self._line(
            f"Prefill batch, #new-seq: {started}, #new-token: {new}, #cached-token: {cached}, "
            f"{self._usage(load, counts=False)}, #running-req: {max(0, load.running - started)}, "
            f"#queue-req: {load.queued}, #pending-token: {load.queued_tokens}, cuda graph: False, "
            f"input throughput (token/s): {rate:.2f}"
        )

    def _decode(self, load: Load, rate: float) -> None:
        server = self._server
        largest = server.setting("cuda_graph_max_bs_decode")
        graph = not server.setting("disable_cuda_graph") and (largest is None or load.running <= largest)
        self._line(
            f"Decode batch, #running-req: {load.running}, {self._usage(load, counts=True)}, "
            f"cuda graph: {graph}, gen throughput (token/s): {rate:.2f}, #queue-req: {load.queued}"
        )

    def _usage(self, load: Load, *, counts: bool) -> str:
        slots, tokens = self._server.state_slots, round(load.kv_share * self._server.pool_tokens)
        if slots is None:
            return (f"#token: {tokens}, " if counts else "") + f"token usage: {load.kv_share:.2f}"
        states = load.state_slots / max(1, slots)
        if counts:
            return (
                f"#full token: {tokens}, full token usage: {load.kv_share:.2f}, "
                f"mamba num: {load.state_slots}, mamba usage: {states:.2f}"
            )
        return f"full token usage: {load.kv_share:.2f}, mamba usage: {states:.2f}"

    def _state_pool(self, slots: int) -> str:
        """The pool's line: its bytes in the proportion of the two parts of a request's state."""
        sizes = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
        ssm, conv = self._server.plan.inputs.model.state_elements_per_request(
            int(self._server.setting("attn_tp_size") or 1)
        )
        ssm_bytes = ssm * sizes.get(str(self._server.setting("mamba_ssm_dtype")), 4.0)
        conv_bytes = conv * sizes.get(str(self._server.setting("mamba_conv_dtype")), 2.0)
        share = conv_bytes / max(1.0, ssm_bytes + conv_bytes)
        pool = self._server.pool_gib("state pool")
        return (
            f"Mamba Cache is allocated. max_mamba_cache_size: {slots}, "
            f"conv_state size: {pool * share:.2f}GB, ssm_state size: {pool * (1 - share):.2f}GB "
        )

    def _line(self, text: str) -> None:
        self._file.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}\n")
