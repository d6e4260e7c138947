"""`headrace simulate`: what a fleet would make of a job, minutes of computing ahead of days of generation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_SERVER, _WORK, _CLIENT, _FLEET = "Server", "Workload", "Client", "Fleet"


def simulate(
    model: Annotated[
        str,
        typer.Option(
            help="A built-in model's id or short name, a config.json, or a folder.", rich_help_panel=_SERVER
        ),
    ],
    gpu: Annotated[
        str,
        typer.Option(help="The GPU by any name, or a YAML file that describes one.", rich_help_panel=_SERVER),
    ],
    engine: Annotated[str, typer.Option(help="sglang or vllm.", rich_help_panel=_SERVER)] = "sglang",
    engine_version: Annotated[
        str,
        typer.Option(
            help="Its version, like 0.5.12; without it the newest rules known.", rich_help_panel=_SERVER
        ),
    ] = "",
    flags: Annotated[
        str, typer.Option(help="The server's flags, or its whole launch line.", rich_help_panel=_SERVER)
    ] = "",
    compare: Annotated[
        list[str] | None,
        typer.Option(
            help="An edit of the flags to run beside it, over the same prompts; may hold --in-flight N. "
            "Repeat it.",
            rich_help_panel=_SERVER,
        ),
    ] = None,
    free_gib: Annotated[
        float | None,
        typer.Option(
            help="GiB free per GPU before the weights are loaded.", min=0.0, rich_help_panel=_SERVER
        ),
    ] = None,
    weights_gib: Annotated[
        float | None, typer.Option(help="GiB that loading takes per GPU.", min=0.0, rich_help_panel=_SERVER)
    ] = None,
    step_seconds: Annotated[
        str,
        typer.Option(
            help="Timed decode steps, BATCH:SECONDS, like 32:0.050,64:0.075: the step model is scaled "
            "to them.",
            rich_help_panel=_SERVER,
        ),
    ] = "",
    accept_length: Annotated[
        float | None,
        typer.Option(help="Tokens that a speculative step yields, mean.", min=1.0, rich_help_panel=_SERVER),
    ] = None,
    accept_spread: Annotated[
        float, typer.Option(help="Its standard deviation over requests.", min=0.0, rich_help_panel=_SERVER)
    ] = 0.0,
    count: Annotated[int, typer.Option(help="Prompts.", min=1, max=50_000_000, rich_help_panel=_WORK)] = 1000,
    input_tokens: Annotated[
        float, typer.Option(help="Tokens of a prompt, mean.", min=1, rich_help_panel=_WORK)
    ] = 150.0,
    output_tokens: Annotated[
        float, typer.Option(help="Tokens of an answer, mean.", min=1, rich_help_panel=_WORK)
    ] = 1000.0,
    length_law: Annotated[
        str, typer.Option(help="gamma, lognormal or fixed.", rich_help_panel=_WORK)
    ] = "gamma",
    output_spread: Annotated[
        float, typer.Option(help="Standard deviation ÷ mean of answers.", min=0.0, rich_help_panel=_WORK)
    ] = 0.3,
    input_spread: Annotated[
        float, typer.Option(help="Standard deviation ÷ mean of prompts.", min=0.0, rich_help_panel=_WORK)
    ] = 0.5,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            help="What a request asks for at most; else what its prompt leaves.", min=1, rich_help_panel=_WORK
        ),
    ] = None,
    shared_tokens: Annotated[
        int, typer.Option(help="Tokens of a common beginning of prompts.", min=0, rich_help_panel=_WORK)
    ] = 0,
    prompts_per_group: Annotated[
        int, typer.Option(help="Prompts that share one beginning; 0: all.", min=0, rich_help_panel=_WORK)
    ] = 0,
    workload: Annotated[
        list[Path] | None,
        typer.Option(
            help="A trace (.csv, .jsonl, .parquet) or a job's folder, in place of the lengths. Repeat "
            "it for several.",
            rich_help_panel=_WORK,
        ),
    ] = None,
    mixed: Annotated[
        bool,
        typer.Option(
            "--mixed", help="Several workloads mixed, not one after the other.", rich_help_panel=_WORK
        ),
    ] = False,
    arrivals: Annotated[
        bool, typer.Option("--arrivals", help="Prompts arrive when the trace says.", rich_help_panel=_WORK)
    ] = False,
    requests_per_s: Annotated[
        float | None,
        typer.Option(help="Prompts arrive at random at this rate.", min=0.0, rich_help_panel=_WORK),
    ] = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Requests ignore the end token.", rich_help_panel=_WORK)
    ] = False,
    seed: Annotated[int, typer.Option(help="Of lengths and arrivals.", min=0, rich_help_panel=_WORK)] = 0,
    in_flight: Annotated[
        int | None,
        typer.Option(
            help="Requests in flight per server; 32, or without limit where prompts arrive.",
            min=1,
            rich_help_panel=_CLIENT,
        ),
    ] = None,
    ramp_seconds: Annotated[
        float, typer.Option(help="In flight grows over this time.", min=0.0, rich_help_panel=_CLIENT)
    ] = 0.0,
    per_server: Annotated[
        bool, typer.Option("--per-server", help="Prompts are dealt out beforehand.", rich_help_panel=_CLIENT)
    ] = False,
    longest_first: Annotated[
        bool,
        typer.Option(
            "--longest-first", help="The longest answers are asked for first.", rich_help_panel=_CLIENT
        ),
    ] = False,
    client_delay_seconds: Annotated[
        float, typer.Option(help="From an answer to the next request.", min=0.0, rich_help_panel=_CLIENT)
    ] = 0.0,
    replicas: Annotated[int, typer.Option(help="Servers.", min=1, max=10_000, rich_help_panel=_FLEET)] = 1,
    event: Annotated[
        list[str] | None,
        typer.Option(
            help="SECONDS:SERVER:WHAT, WHAT one of dies, up, drains, rolls (all from that one on). "
            "Repeat it.",
            rich_help_panel=_FLEET,
        ),
    ] = None,
    slow_server: Annotated[
        list[str] | None,
        typer.Option(
            help="SERVER:FACTOR: its passes take so many times as long. Repeat it.", rich_help_panel=_FLEET
        ),
    ] = None,
    restart_seconds: Annotated[
        float, typer.Option(help="A drained server is away so long.", min=0.0, rich_help_panel=_FLEET)
    ] = 120.0,
    until_seconds: Annotated[
        float | None, typer.Option(help="Stop there, simulated.", min=0.0, rich_help_panel=_FLEET)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write a recording there: observation.json and simulation.json."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, one object per line of flags.")] = False,
) -> None:
    """Simulate a fleet through a job: throughput, time, pools, what binds; variants over the same prompts."""
    from headrace import api
    from headrace.cli.ask_gpu import asker
    from headrace.cli.counting import counting

    with counting("prompts") as progress:
        found = api.simulate(
            model=model,
            gpu=gpu,
            engine=engine,
            engine_version=engine_version,
            flags=flags,
            compare=compare or (),
            free_gib=free_gib,
            weights_gib=weights_gib,
            replicas=replicas,
            in_flight=in_flight,
            count=count,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            length_law=length_law,
            output_spread=output_spread,
            input_spread=input_spread,
            max_tokens=max_tokens,
            shared_tokens=shared_tokens,
            prompts_per_group=prompts_per_group,
            workload=workload or (),
            mixed=mixed,
            arrivals=arrivals,
            requests_per_s=requests_per_s,
            longest_first=longest_first,
            seed=seed,
            step_seconds=step_seconds,
            accept_length=accept_length,
            accept_spread=accept_spread,
            ignore_eos=ignore_eos,
            ramp_seconds=ramp_seconds,
            per_server=per_server,
            client_delay_seconds=client_delay_seconds,
            restart_seconds=restart_seconds,
            events=event or (),
            slow_servers=slow_server or (),
            until_seconds=until_seconds,
            out=out,
            progress=progress,
            ask=None if as_json else asker(),
        )
    if as_json:
        import json

        from headrace.simulate.recording import plain_json

        typer.echo(json.dumps(plain_json([each.to_json() for each in found]), indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    from headrace.report.simulation_view import simulation_view

    Console(highlight=False, markup=False, emoji=False).print(simulation_view(found))
    if out is not None:
        typer.echo(f"recording written to {out / 'observation.json'}")
