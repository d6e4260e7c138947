"""What an emulated fleet is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.errors import UsageError
from headrace.simulate.emulate.faults import Faults
from headrace.simulate.emulate.physics import hidden_law, hidden_times
from headrace.simulate.emulate.planned import PlannedServer
from headrace.simulate.emulate.timing import StepTimes

EMULATED_VERSION = "0.5.12"  # of SGLang, where no launch line says another


@dataclass(frozen=True, slots=True)
class EmulatorOptions:
    """An emulated fleet: one process, one port per replica.

    Attributes:
        replicas: servers.
        host: address to listen on; loopback unless the user names another.
        base_port: port of replica 0, the next ones follow; 0 = any free ports.
        cap: running requests per server.
        speed: engine seconds per second; 20 makes everything twenty times faster.
        mean_output_tokens: mean of the drawn output lengths (log-normal).
        output_spread: standard deviation of the logarithm of the output length.
        context_length: most tokens of prompt and answer together.
        model: the served model name (as with the real server, any name is answered).
        kv_tokens: KV pool of each server; None = room for `cap` requests of half the context.
        max_queued_requests: more waiting than this and the free slots are refused with 503; None = no limit.
        reasoning_parser: any name: thinking comes as `reasoning_content`; None: inline in <think> tags.
        thinking: whether chats think unless they ask otherwise (`chat_template_kwargs`).
        seed: of lengths, texts and faults.
        journal: file that gets one line per request, see `journal`; None = none.
        log: file of a server's log, with its number before the suffix where there are several; needs
            `server`. None = none.
        step_times: how long the engine's work takes, by the book.
        physics_seed: of hidden physics and length law, see `physics`; None = by the book.
        server: made from a launch line; then `cap`, `kv_tokens`, `context_length`, `model` are its own
            (`of_server`), and so are the times.
        faults: what is wrong with which replica at the start.
    """

    replicas: int = 8
    host: str = "127.0.0.1"
    base_port: int = 0
    cap: int = 64
    speed: float = 1.0
    mean_output_tokens: float = 400.0
    output_spread: float = 0.6
    context_length: int = 8192
    model: str = "emulated-27b"
    kv_tokens: int | None = None
    max_queued_requests: int | None = None
    reasoning_parser: str | None = None
    thinking: bool = True
    seed: int = 0
    journal: Path | None = None
    log: Path | None = None
    step_times: StepTimes = field(default_factory=StepTimes)
    physics_seed: int | None = None
    server: PlannedServer | None = None
    faults: Mapping[int, Faults] = field(default_factory=dict)

    def of_server(self, server: PlannedServer) -> EmulatorOptions:
        """Returns these options with a server made from a launch line."""
        return replace(
            self,
            server=server,
            cap=server.cap,
            kv_tokens=server.pool_tokens,
            context_length=server.context_length,
            model=server.model,
        )

    @property
    def is_vllm(self) -> bool:
        """Whether the servers speak vLLM's dialect; else SGLang's."""
        return self.server is not None and self.server.engine == "vllm"

    @property
    def version(self) -> str:
        """The engine's version, as the servers say it."""
        return EMULATED_VERSION if self.server is None else self.server.version

    @property
    def pool_tokens(self) -> int:
        """KV pool of one server, in tokens."""
        return self.kv_tokens if self.kv_tokens is not None else self.cap * self.context_length // 2

    @property
    def real_times(self) -> StepTimes:
        """How long the engine's work really takes."""
        return hidden_times(self.step_times, self.physics_seed)

    @property
    def length_law(self) -> str:
        """The law of answers' lengths."""
        return hidden_law(self.physics_seed)

    def validate(self) -> None:
        """Raises UsageError with every mistake at once."""
        wrong = [
            f"{name} {value:g} is out of range; give {limit}"
            for name, value, good, limit in (
                ("replicas", self.replicas, 1 <= self.replicas <= 1000, "1 to 1000"),
                ("base_port", self.base_port, 0 <= self.base_port <= 65535, "0 to 65535"),
                ("cap", self.cap, self.cap >= 1, "1 or more"),
                ("speed", self.speed, self.speed > 0, "a factor above 0"),
                ("mean_output_tokens", self.mean_output_tokens, self.mean_output_tokens >= 1, "1 or more"),
                ("output_spread", self.output_spread, 0 <= self.output_spread <= 3, "0 to 3"),
                ("context_length", self.context_length, self.context_length >= 16, "16 or more"),
                ("kv_tokens", self.kv_tokens or 0, (self.kv_tokens or 16) >= 16, "16 or more"),
                ("max_queued_requests", self.max_queued_requests or 0, (self.max_queued_requests or 0) >= 0,
                 "0 or more"),
            )
            if not good
        ]  # fmt: skip
        if self.base_port and self.base_port + self.replicas - 1 > 65535:
            wrong.append(
                f"base_port {self.base_port} with {self.replicas} replicas goes beyond 65535; "
                f"give at most {65536 - self.replicas}"
            )
        wrong += [
            f"replica {replica} has faults but does not exist; replicas are 0 to {self.replicas - 1}"
            for replica in self.faults
            if not 0 <= replica < self.replicas
        ]
        if self.log is not None and self.server is None:
            wrong.append("a log needs a launch line, of which it tells: add --gpu NAME and --model ID")
        if self.log is not None and self.is_vllm:
            wrong.append("vLLM's log is not emulated yet; leave --log out")
        if wrong:
            raise UsageError(wrong)
