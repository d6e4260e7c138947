"""`headrace run`: the main command. Declares the options; the work is done by `headrace.api` and `drive`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.checked import PROBLEMS
from headrace.words import Api, OutputFormat


class Progress(StrEnum):
    """How a running job shows itself."""

    AUTO = "auto"
    TABLE = "table"
    PLAIN = "plain"
    JSON = "json"
    NONE = "none"


def _option(*names: str, panel: str, metavar: str | None = None, help: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, metavar=metavar, help=help, **more)


_ASK, _WHO, _SAMPLING = "What is asked", "Who answers", "Sampling"
_KEEP, _DRIVE, _SHOW = "What is kept", "Driving", "Seeing it"


def run(
    context: typer.Context,
    job_file: Annotated[
        Path | None, typer.Argument(metavar="JOB.yaml", help="Job file; flags given beside it go before it.")
    ] = None,
    prompts: Annotated[
        list[str] | None,
        _option(
            "--prompts", panel=_ASK, metavar="SOURCE", help="File, folder or glob; repeat for more sources."
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        _option(
            "--columns", panel=_ASK, metavar="ROLE=COLUMN", help="Which column holds what: prompt=question."
        ),
    ] = None,
    id_column: Annotated[
        str | None, _option("--id-column", panel=_ASK, metavar="COLUMN", help="The column with your own ids.")
    ] = None,
    count: Annotated[
        int | None, _option("--count", panel=_ASK, metavar="N", help="At most N rows of each source.")
    ] = None,
    samples: Annotated[
        int | None, _option("--samples", panel=_ASK, metavar="N", help="Requests per row. Default 1.")
    ] = None,
    system: Annotated[
        str | None,
        _option("--system", panel=_ASK, metavar="TEXT", help="System prompt of rows that have none."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        _option(
            "--exclude",
            panel=_ASK,
            metavar="OUT|FILE",
            help="Leave out prompts that are answered there, by any sampling; repeatable.",
        ),
    ] = None,
    server: Annotated[
        list[str] | None,
        _option(
            "--server", panel=_WHO, metavar="URL", help="http://HOST:PORT, or a range of ports; repeatable."
        ),
    ] = None,
    model: Annotated[
        str | None,
        _option("--model", panel=_WHO, metavar="NAME", help="Served name, if the servers serve several."),
    ] = None,
    api: Annotated[
        Api | None,
        _option("--api", panel=_WHO, metavar="FORM", help="chat, completions or generate. Default chat."),
    ] = None,
    api_key_env: Annotated[
        str | None,
        _option("--api-key-env", panel=_WHO, metavar="NAME", help="Variable that holds the bearer key."),
    ] = None,
    api_key_file: Annotated[
        str | None,
        _option("--api-key-file", panel=_WHO, metavar="PATH", help="File that holds the bearer key."),
    ] = None,
    max_tokens: Annotated[
        int | None,
        _option("--max-tokens", panel=_SAMPLING, metavar="N", help="Output tokens at most; at least 1."),
    ] = None,
    temperature: Annotated[
        float | None, _option("--temperature", panel=_SAMPLING, metavar="X", help="0 to 2.")
    ] = None,
    top_p: Annotated[
        float | None, _option("--top-p", panel=_SAMPLING, metavar="X", help="Above 0, at most 1.")
    ] = None,
    top_k: Annotated[
        int | None, _option("--top-k", panel=_SAMPLING, metavar="N", help="At least -1, which is off.")
    ] = None,
    min_p: Annotated[float | None, _option("--min-p", panel=_SAMPLING, metavar="X", help="0 to 1.")] = None,
    seed: Annotated[
        int | None,
        _option("--seed", panel=_SAMPLING, metavar="N", help="Of the sampling; sample K gets N+K."),
    ] = None,
    stop: Annotated[
        list[str] | None, _option("--stop", panel=_SAMPLING, metavar="TEXT", help="Stop text; repeatable.")
    ] = None,
    thinking: Annotated[
        bool | None,
        _option(
            "--thinking/--no-thinking",
            panel=_SAMPLING,
            metavar="",
            help="As the server has it, if not given.",
        ),
    ] = None,
    extra_body: Annotated[
        str | None,
        _option("--extra-body", panel=_SAMPLING, metavar="JSON", help="Further fields of the request."),
    ] = None,
    out: Annotated[Path | None, _option("--out", panel=_KEEP, metavar="DIR", help="Output folder.")] = None,
    format: Annotated[
        OutputFormat | None,
        _option("--format", panel=_KEEP, metavar="FORM", help="Shards as parquet or jsonl. Default parquet."),
    ] = None,
    token_ids: Annotated[
        bool | None,
        _option(
            "--token-ids/--no-token-ids",
            panel=_KEEP,
            metavar="",
            help="Keep output token ids, where returned.",
        ),
    ] = None,
    flags_policy: Annotated[
        list[str] | None,
        _option(
            "--flags-policy",
            panel=_KEEP,
            metavar="FLAG=POLICY",
            help="keep, reject or retry_once: truncated=retry_once.",
        ),
    ] = None,
    row_checks: Annotated[
        bool | None,
        _option(
            "--row-checks/--no-row-checks",
            panel=_KEEP,
            metavar="",
            help="Look for think tags and repetition. Default on.",
        ),
    ] = None,
    ledger: Annotated[
        str | None, _option("--ledger", panel=_KEEP, metavar="PATH", help="Ledger on another, local disk.")
    ] = None,
    in_flight: Annotated[
        str | None,
        _option("--in-flight", panel=_DRIVE, metavar="N|auto", help="Requests per server. Default auto."),
    ] = None,
    request_timeout: Annotated[
        str | None,
        _option("--request-timeout", panel=_DRIVE, metavar="SECONDS", help="Also 90s, 30m, 2h. Default 1h."),
    ] = None,
    max_tries: Annotated[
        int | None,
        _option("--max-tries", panel=_DRIVE, metavar="N", help="Per row, on servers that fail. Default 5."),
    ] = None,
    retry_failed: Annotated[
        bool | None,
        _option(
            "--retry-failed/--no-retry-failed",
            panel=_DRIVE,
            metavar="",
            help="Take up the rows in failed/ again.",
        ),
    ] = None,
    hedge: Annotated[
        bool | None,
        _option(
            "--hedge/--no-hedge",
            panel=_DRIVE,
            metavar="",
            help="Near the end, ask a second server. Default on.",
        ),
    ] = None,
    detach: Annotated[
        bool,
        _option("--detach", panel=_DRIVE, metavar="", help="Go on in the background, without this terminal."),
    ] = False,
    dry_run: Annotated[
        bool, _option("--dry-run", panel=_SHOW, metavar="", help="Say what would be sent, and send nothing.")
    ] = False,
    progress: Annotated[
        Progress,
        _option(
            "--progress",
            panel=_SHOW,
            metavar="FORM",
            help="table, plain, json or none; auto is table on a terminal, else plain.",
            show_default=False,
        ),
    ] = Progress.AUTO,
    metrics_port: Annotated[
        int | None,
        _option(
            "--metrics-port",
            panel=_SHOW,
            metavar="PORT",
            help="Serve Prometheus metrics; 0 is any free port.",
            min=0,
            max=65_535,
        ),
    ] = None,
    metrics_host: Annotated[
        str,
        _option(
            "--metrics-host",
            panel=_SHOW,
            metavar="ADDRESS",
            help="Where metrics listen. Default 127.0.0.1.",
            show_default=False,
        ),
    ] = "127.0.0.1",
    record_every: Annotated[
        str,
        _option(
            "--record-every",
            panel=_SHOW,
            metavar="DURATION",
            help="Between two looks at a server for OUT/recording; 0 is none. Default 10s.",
            show_default=False,
        ),
    ] = "10s",
) -> None:
    """Ask a fleet of servers all prompts, keep every answer, go on where it stopped.

    Run the same command again to go on after any stop. Everything is checked before the first request.

    Example with a job file: headrace run job.yaml --dry-run

    Example with flags: headrace run --prompts 'data/*.jsonl' --server http://127.0.0.1:30000 --out out/first
    """
    from headrace.cli.running import run_from_flags

    words = context.find_root().obj["arguments"]
    raise typer.Exit(run_from_flags(dict(context.params), words, context.meta.get(PROBLEMS, ())))
