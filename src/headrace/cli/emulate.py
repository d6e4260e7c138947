"""`headrace emulate`: an emulated fleet in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headrace.simulate.emulate import EmulatorOptions, Faults

_FAULTS = "Faults (VALUE for every replica, or R=VALUE for replica R; repeatable)"


def emulate(
    replicas: Annotated[int, typer.Option(help="Servers; each has a port.")] = 8,
    base_port: Annotated[int, typer.Option(help="Port of replica 0; 0 = any free ports.")] = 30000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    cap: Annotated[int, typer.Option(help="Running requests per server.")] = 64,
    speed: Annotated[float, typer.Option(help="Everything so many times faster.")] = 1.0,
    mean_output_tokens: Annotated[float, typer.Option(help="Mean of the drawn output lengths.")] = 400.0,
    context_length: Annotated[int, typer.Option(help="Tokens of prompt and answer together.")] = 8192,
    model: Annotated[str, typer.Option(help="Served model name.")] = "emulated-27b",
    kv_tokens: Annotated[int | None, typer.Option(help="KV pool per server, in tokens.")] = None,
    max_queued_requests: Annotated[int | None, typer.Option(help="More waiting are refused (503).")] = None,
    reasoning_parser: Annotated[str | None, typer.Option(help="Any name: thinking is kept apart.")] = None,
    thinking: Annotated[bool, typer.Option(help="Chats think unless they ask otherwise.")] = True,
    seed: Annotated[int, typer.Option(help="Of lengths, texts and faults.")] = 0,
    journal: Annotated[
        Path | None, typer.Option(help="File: one line per request, hash and outcome.")
    ] = None,
    error_500: Annotated[
        list[str] | None, typer.Option(help="Percent answered 500.", rich_help_panel=_FAULTS)
    ] = None,
    error_503: Annotated[
        list[str] | None, typer.Option(help="Percent answered 503.", rich_help_panel=_FAULTS)
    ] = None,
    error_429: Annotated[
        list[str] | None,
        typer.Option(help="Percent answered 429 with Retry-After.", rich_help_panel=_FAULTS),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="Percent cut off before the answer.", rich_help_panel=_FAULTS)
    ] = None,
    drop_middle: Annotated[
        list[str] | None,
        typer.Option(help="Percent cut off in the middle of the body.", rich_help_panel=_FAULTS),
    ] = None,
    truncate: Annotated[
        list[str] | None,
        typer.Option(help="Percent whole answers with half the JSON.", rich_help_panel=_FAULTS),
    ] = None,
    html: Annotated[
        list[str] | None, typer.Option(help="Percent 200 with an HTML page.", rich_help_panel=_FAULTS)
    ] = None,
    slow: Annotated[
        list[str] | None, typer.Option(help="So many times slower.", rich_help_panel=_FAULTS)
    ] = None,
    max_prompt_tokens: Annotated[
        list[str] | None,
        typer.Option(help="Longer prompts are refused as over-long.", rich_help_panel=_FAULTS),
    ] = None,
    crash_after: Annotated[
        list[str] | None,
        typer.Option(help="Dies after so many answered requests.", rich_help_panel=_FAULTS),
    ] = None,
    back_after_seconds: Annotated[
        list[str] | None,
        typer.Option(help="A crashed one comes back after so long.", rich_help_panel=_FAULTS),
    ] = None,
    hang: Annotated[
        list[str] | None,
        typer.Option(
            help="posts (or all): accepted and never answered; R alone = R=posts.", rich_help_panel=_FAULTS
        ),
    ] = None,
    refuse: Annotated[
        list[int] | None, typer.Option(help="Replica that does not listen.", rich_help_panel=_FAULTS)
    ] = None,
) -> None:
    """Start emulated servers on loopback, in SGLang 0.5.12's dialect.

    Faults can be changed while it runs: POST /emulator/faults?replica=R with a JSON object of the fields
    (error_503, drop, slow, hang, refuse, ...); an empty object heals the replica. GET /emulator/stats counts.
    """
    from headrace.simulate.emulate import EmulatorOptions

    faults = faults_of(
        replicas,
        {
            "error_500": error_500,
            "error_503": error_503,
            "error_429": error_429,
            "drop": drop,
            "drop_middle": drop_middle,
            "truncate": truncate,
            "html": html,
            "slow": slow,
            "max_prompt_tokens": max_prompt_tokens,
            "crash_after": crash_after,
            "back_after_seconds": back_after_seconds,
            "hang": hang,
        },
        refuse or [],
    )
    serve(
        EmulatorOptions(
            replicas=replicas,
            host=host,
            base_port=base_port,
            cap=cap,
            speed=speed,
            mean_output_tokens=mean_output_tokens,
            context_length=context_length,
            model=model,
            kv_tokens=kv_tokens,
            max_queued_requests=max_queued_requests,
            reasoning_parser=reasoning_parser,
            thinking=thinking,
            seed=seed,
            journal=journal,
            faults=faults,
        )
    )


def faults_of(replicas: int, switches: dict[str, list[str] | None], refuse: list[int]) -> dict[int, Faults]:
    """Returns the faults per replica that the switches ask for.

    Raises UsageError, with every mistake, for a value that is not understood.
    """
    from headrace.errors import UsageError
    from headrace.simulate.emulate.faults import faults_from

    fields: dict[int, dict[str, object]] = {}
    problems: list[str] = []
    for name, values in switches.items():
        for value in values or []:
            replica, _, amount = value.rpartition("=")
            if name == "hang" and not replica and amount.isdigit():
                replica, amount = amount, "posts"
            if replica and not replica.isdigit():
                option = "--" + name.replace("_", "-")
                problems.append(f"{option} {value}: '{replica}' is no replica; write {option} 3={amount}")
                continue
            for index in [int(replica)] if replica else range(replicas):
                fields.setdefault(index, {})[name] = _number_or_word(amount)
    for index in refuse:
        fields.setdefault(index, {})["refuse"] = True
    faults: dict[int, Faults] = {}
    for index, document in sorted(fields.items()):
        try:
            faults[index] = faults_from(document)
        except UsageError as error:
            problems += [f"replica {index}: {problem}" for problem in error.problems]
    if problems:
        raise UsageError(problems)
    return faults


def serve(options: EmulatorOptions) -> None:
    """Runs the fleet until SIGINT or SIGTERM; prints one URL per line once all ports are open."""
    import asyncio
    import signal

    import uvloop

    from headrace.simulate.emulate import EmulatedFleet

    async def run() -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        async with EmulatedFleet(options) as fleet:
            for url in fleet.urls:
                typer.echo(url)
            typer.echo(f"{len(fleet.urls)} emulated servers of {options.model}; Ctrl-C ends them", err=True)
            await stopped.wait()

    uvloop.run(run())


def _number_or_word(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
