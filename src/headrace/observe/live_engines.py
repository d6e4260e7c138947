"""One reader per engine: what to ask a running server, look by look, and what it told of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from headrace.engines.llamacpp import metrics as llamacpp
from headrace.engines.load import Fetch
from headrace.engines.metrics import Page
from headrace.engines.sglang import loads as sglang_loads
from headrace.engines.sglang import metrics as sglang
from headrace.engines.sglang.server_facts import ServerFacts, read_server_facts
from headrace.engines.versions import Version
from headrace.engines.vllm import metrics as vllm
from headrace.net.redact import redact, without_user

_WORD = 300


@dataclass(slots=True)
class Told:
    """What a server told of itself, as in ServerObservation; capacities with their source."""

    version: str | None = None
    model: str | None = None
    gpu: str | None = None
    gpus: int | None = None
    tensor_parallel: int | None = None
    data_parallel: int | None = None
    weights_dtype: str | None = None
    kv_dtype: str | None = None
    flags: str = ""
    capacities: dict[str, tuple[float, str]] = field(default_factory=dict)
    settings: Mapping[str, str | float | bool] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


class Reader(Protocol):
    """Reads one server of one engine."""

    name: str

    async def look(self, fetch: Fetch) -> Page | None:
        """The load now; None where the server did not answer this time."""
        ...

    def told(self) -> Told:
        """What the server told of itself so far."""
        ...


async def find_engine(fetch: Fetch) -> Reader | None:
    """The reader for the engine that answers, or None. Asks at most five pages."""
    page = await fetch("/metrics")
    if page:
        if vllm.read_metrics(page).seen:
            return await VllmReader.meet(fetch)
        if llamacpp.read_metrics(page).seen:
            return await LlamaCppReader.meet(fetch)
    has_metrics = bool(page and sglang.read_metrics(page).seen)
    found: Reader | None = await SglangReader.meet(fetch, has_metrics)
    return found or await LlamaCppReader.meet(fetch) or await VllmReader.meet(fetch)


class SglangReader:
    """SGLang: /server_info once, then /v1/loads and /metrics; without the latter, /server_info again."""

    name = "sglang"

    def __init__(self, facts: ServerFacts | None, info_path: str, has_metrics: bool) -> None:
        self._facts, self._info_path, self._has_metrics = facts, info_path, has_metrics
        self._version = facts.info.version if facts else None
        self._load_path: str | None = sglang_loads.PATH
        self._model: str | None = None
        self._gpu: str | None = None
        self._lines = sglang.page_lines()

    @classmethod
    async def meet(cls, fetch: Fetch, has_metrics: bool) -> SglangReader | None:
        """The reader, or None where this is no SGLang server."""
        for path in ("/server_info", "/get_server_info"):
            facts = await _server_facts(fetch, path)
            if facts is not None:
                return cls(facts, path, has_metrics)
        if has_metrics:
            return cls(None, "", True)
        body = await fetch(sglang_loads.PATH)
        return cls(None, "", False) if body and sglang_loads.read_loads(body) else None

    async def look(self, fetch: Fetch) -> Page | None:
        page = await self._metrics(fetch) if self._has_metrics else Page()
        loads = await self._loads(fetch)
        if page is None and loads is None:
            return None
        found = page or Page()
        if loads is not None:
            found.gauges.update(loads.gauges)
            found.by_rank.update(loads.by_rank)
            found.names.update({word: loads.names[word] for word in loads.gauges})
            found.ranks = max(found.ranks, loads.ranks)
            if page is not None:  # else counters would come from another source than in other looks
                for word, value in loads.counters.items():
                    if word not in found.counters:
                        found.counters[word] = value
                        found.names[word] = loads.names[word]
        if not self._has_metrics and self._info_path:
            facts = await _server_facts(fetch, self._info_path)
            if facts is not None and found.gauges.get("running"):
                found.gauges.update(facts.gauges)
                found.names.update(dict.fromkeys(facts.gauges, f"{self._info_path} internal_states"))
        return found if found.gauges or found.counters else None

    async def _metrics(self, fetch: Fetch) -> Page | None:
        body = await fetch("/metrics")
        page = sglang.read_metrics(body, self._version, self._lines) if body else None
        if page is None or not page.seen:
            return None
        self._model = self._model or page.model
        return page

    async def _loads(self, fetch: Fetch) -> Page | None:
        if self._load_path is None:
            return None
        body = await fetch(self._load_path)
        if body is None:
            if self._load_path == sglang_loads.PATH and not self._version_has_loads():
                self._load_path = sglang_loads.OLD_PATH
                return await self._loads(fetch)
            if self._load_path == sglang_loads.OLD_PATH:
                self._load_path = None
            return None
        if self._load_path == sglang_loads.OLD_PATH:
            return sglang_loads.read_old_load(body)
        told = sglang_loads.read_loads(body)
        if told is None:
            return None
        self._version = self._version or told[1]
        self._gpu = self._gpu or told[0].settings.get("accelerator")
        return told[0]

    def _version_has_loads(self) -> bool:
        version = Version.parse(self._version) if self._version else None
        return version is not None and version >= Version(0, 5, 8)

    def told(self) -> Told:
        told = Told(version=self._version, model=self._model, gpu=self._gpu)
        if self._gpu is None:
            told.missing.append("the GPU: this server does not tell it; give --gpu.")
        if not self._has_metrics:
            told.missing.append(
                "state and prefix-cache readings, token counters, latencies: start the server with "
                "--enable-metrics, or give its log."
            )
        facts = self._facts
        if facts is None:
            told.missing.append("settings and pool sizes: /server_info did not answer; give --flags.")
            return told
        settings = facts.settings
        told.model = facts.model or told.model
        told.flags = redact(without_user(facts.info.line.text()))
        told.settings = settings
        told.tensor_parallel = _count(settings.get("tp_size"))
        told.data_parallel = _count(settings.get("dp_size")) or facts.ranks
        pipeline = _count(settings.get("pp_size")) or 1
        if told.tensor_parallel:
            copies = 1 if settings.get("enable_dp_attention") else told.data_parallel
            told.gpus = told.tensor_parallel * pipeline * copies
        kv_dtype = settings.get("kv_cache_dtype")
        told.kv_dtype = kv_dtype if isinstance(kv_dtype, str) and kv_dtype != "auto" else None
        quantisation, dtype = settings.get("quantization"), settings.get("dtype")
        for word in (quantisation, dtype):
            if isinstance(word, str) and word != "auto" and told.weights_dtype is None:
                told.weights_dtype = word
        told.capacities = {word: (value, "/server_info") for word, value in facts.capacities.items()}
        if settings.get("device") == "cpu":
            told.notes.append("the server runs on the CPU.")
        return told


async def _server_facts(fetch: Fetch, path: str) -> ServerFacts | None:
    document = _json(await fetch(path))
    return read_server_facts(document) if isinstance(document, dict) else None


class VllmReader:
    """vLLM: /version and /v1/models once, then /metrics."""

    name = "vllm"

    def __init__(self, version: str | None, model: str | None, longest: float | None) -> None:
        self._version, self._model, self._longest = version, model, longest
        self._page: Page | None = None
        self._lines = vllm.page_lines()

    @classmethod
    async def meet(cls, fetch: Fetch) -> VllmReader | None:
        """The reader, or None where this is no vLLM server."""
        document = _json(await fetch("/version"))
        version = document.get("version") if isinstance(document, dict) else None
        models = _json(await fetch("/v1/models"))
        cards = models.get("data") if isinstance(models, dict) else None
        card = cards[0] if isinstance(cards, list) and cards and isinstance(cards[0], dict) else {}
        owned = card.get("owned_by") == "vllm"
        page = await fetch("/metrics")
        if not owned and not isinstance(version, str) and not (page and vllm.read_metrics(page).seen):
            return None
        return cls(
            _text(version),
            _text(card.get("root")) or _text(card.get("id")),
            _amount(card.get("max_model_len")),
        )

    async def look(self, fetch: Fetch) -> Page | None:
        body = await fetch("/metrics")
        page = vllm.read_metrics(body, self._lines) if body else None
        if page is None or not page.seen:
            return None
        self._page = page
        self._model = self._model or page.model
        return page

    def told(self) -> Told:
        told = Told(version=self._version, model=self._model)
        if self._longest:
            told.capacities["max_context"] = (self._longest, "/v1/models max_model_len")
        told.missing.append(
            "the cap of running requests and other flags: vLLM does not tell them; give --flags or its log."
        )
        told.missing.append("the GPU: vLLM does not tell it; give --gpu.")
        if self._page is None:
            told.missing.append(
                "all metrics: the server runs with --disable-log-stats; start it without, or give its log."
            )
            return told
        told.data_parallel = self._page.ranks
        told.settings = dict(self._page.settings)
        dtype = self._page.settings.get("cache_dtype")
        told.kv_dtype = dtype if dtype and dtype != "auto" else None
        return told


class LlamaCppReader:
    """llama.cpp: /props once, then /metrics, or /slots where that is off."""

    name = "llamacpp"

    def __init__(self, props: Mapping[str, Any]) -> None:
        self._props = props
        self._metrics = True

    @classmethod
    async def meet(cls, fetch: Fetch) -> LlamaCppReader | None:
        """The reader, or None where this is no llama-server."""
        props = _json(await fetch("/props"))
        return cls(props) if isinstance(props, dict) and _amount(props.get("total_slots")) else None

    async def look(self, fetch: Fetch) -> Page | None:
        if self._metrics:
            body = await fetch("/metrics")
            page = llamacpp.read_metrics(body) if body else None
            if page is not None and page.seen:
                return page
            self._metrics = False
        slots = _json(await fetch("/slots"))
        if not isinstance(slots, list):
            return None
        busy = sum(1 for slot in slots if isinstance(slot, dict) and slot.get("is_processing") is True)
        return Page(
            gauges={"running": float(busy)}, names={"running": "/slots is_processing"}, seen=len(slots)
        )

    def told(self) -> Told:
        props = self._props
        told = Told(
            version=_text(props.get("build_info")), model=_text(props.get("model_path")), data_parallel=1
        )
        slots = _amount(props.get("total_slots"))
        if slots:
            told.capacities["cap"] = (slots, "/props total_slots")
        defaults = props.get("default_generation_settings")
        context = _amount(defaults.get("n_ctx")) if isinstance(defaults, dict) else None
        if context:
            told.capacities["max_context"] = (context, "/props n_ctx")
        told.weights_dtype = _text(props.get("model_ftype"))
        if not self._metrics:
            told.missing.append("token counters and the queue: start llama-server with --metrics.")
        told.missing.append("the GPU and the flags: llama.cpp does not tell them; give --gpu and --flags.")
        return told


def _json(body: bytes | None) -> Any:
    """The document, or None where there is none."""
    if not body:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _text(value: object) -> str | None:
    return redact(without_user(value))[:_WORD] or None if isinstance(value, str) else None


def _amount(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        return None
    return float(value)


def _count(value: object) -> int | None:
    amount = _amount(value)
    return int(amount) if amount is not None and 1 <= amount <= 100_000 else None
