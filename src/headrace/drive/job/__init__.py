"""The job as the driver knows it: resolved, validated, immutable. Job files become this in `file`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.words import Api, Flag, FlagPolicy, OutputFormat

DEFAULT_POLICIES: Mapping[Flag, FlagPolicy] = dict.fromkeys(Flag, FlagPolicy.KEEP)


@dataclass(frozen=True, slots=True)
class Source:
    """One set of prompts: the files, how their rows are read, and what is sent with them.

    Attributes:
        name: unique in the job; stands in every output row. By default the file's name without suffixes.
        paths: local files, in order; globs and folders are already expanded.
        columns: user's mapping from what headrace needs (`prompt`, `messages`, `conversations`,
            `instruction`, `input`, `system`) to the column that holds it; empty = recognise the shape.
        id_column: the user's own id; None = `id`/`custom_id` if unique over the job, else the content hash.
        limit: at most this many rows of the source, in file order; None = all.
        samples: requests per row (n-index 0 … samples-1).
        system: system prompt put before rows that have none.
        thinking: True/False sets `chat_template_kwargs.enable_thinking`; None leaves it to the server.
        sampling: OpenAI-named sampling parameters (`max_tokens`, `temperature`, `top_p`, …).
        extra_body: further fields of the request body, sent as they are.
    """

    name: str
    paths: tuple[Path, ...]
    columns: Mapping[str, str] = field(default_factory=dict)
    id_column: str | None = None
    limit: int | None = None
    samples: int = 1
    system: str | None = None
    thinking: bool | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that one run needs.

    Attributes:
        out: output folder; made if missing.
        sources: at least one.
        servers: base URLs, scheme and host and port, no trailing slash.
        model: the served name; None = the one model that the servers serve.
        api: the request form. Rows that are full OpenAI batch bodies keep their own.
        in_flight: requests in flight per server; None = `auto`.
        flag_policies: what happens to flagged rows.
        exclude: job folders or files whose answered prompts are left out: exactly the same, by any sampling.
        output_format: the form of finished shards.
        token_ids: ask for, and keep, output token ids where the engine returns them.
        request_timeout_seconds: a request older than this is given up and tried elsewhere.
        max_tries: tries of a row that servers fail on (5xx, drops, time-outs) before it goes to failed/.
            429 and 503 do not count: they say "later", not "no".
        retry_failed: take up the rows in failed/ again.
        api_key_env / api_key_file: where the bearer key comes from; never an argument.
        ledger: where the ledger lies; None = in `out`, or in the user's state folder on a network disk.
        seed: of the dispatch order.
        row_checks: look for think tags and repetition in every answer.
        hedge_tail: near the end, ask an idle fast server as well for a row stuck on a much slower one.
    """

    out: Path
    sources: tuple[Source, ...]
    servers: tuple[str, ...]
    model: str | None = None
    api: Api = Api.CHAT
    in_flight: int | None = None
    flag_policies: Mapping[Flag, FlagPolicy] = field(default_factory=lambda: dict(DEFAULT_POLICIES))
    exclude: tuple[Path, ...] = ()
    output_format: OutputFormat = OutputFormat.PARQUET
    token_ids: bool = False
    request_timeout_seconds: float = 3600.0
    max_tries: int = 5
    retry_failed: bool = False
    api_key_env: str | None = None
    api_key_file: Path | None = None
    ledger: Path | None = None
    seed: int = 0
    hedge_tail: bool = True
    row_checks: bool = True
