"""`headrace emulate`: an emulated fleet in the foreground."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from headrace.simulate.emulate import EmulatorOptions

_LINE = "A launch line (beside --model)"
_SERVERS, _ANSWERS = "Servers", "Answers"
_FAULTS = "Faults (of every replica, or of replica R alone with R=; repeatable)"


def _fault(help: str, metavar: str = "[R=]PERCENT") -> Any:
    return typer.Option(metavar=metavar, help=help, rich_help_panel=_FAULTS)


def emulate(
    replicas: Annotated[
        int,
        typer.Option(
            rich_help_panel=_SERVERS, metavar="N", min=1, max=1000, help="Servers; each has a port."
        ),
    ] = 8,
    base_port: Annotated[
        int,
        typer.Option(
            rich_help_panel=_SERVERS,
            metavar="PORT",
            min=0,
            max=65_535,
            help="Port of replica 0; 0 = any free ports.",
        ),
    ] = 30000,
    host: Annotated[
        str, typer.Option(rich_help_panel=_SERVERS, metavar="ADDRESS", help="Address to listen on.")
    ] = "127.0.0.1",
    engine: Annotated[
        str, typer.Option(rich_help_panel=_LINE, metavar="NAME", help="Whose dialect: sglang, or vllm.")
    ] = "",
    engine_version: Annotated[
        str, typer.Option(rich_help_panel=_LINE, metavar="VERSION", help="Its version, like 0.5.12.")
    ] = "",
    gpu: Annotated[
        str,
        typer.Option(
            rich_help_panel=_LINE,
            metavar="NAME",
            help="The GPU by any name, or a YAML file that describes one.",
        ),
    ] = "",
    flags: Annotated[
        str,
        typer.Option(
            rich_help_panel=_LINE, metavar="FLAGS", help="The server's flags: caps, pools and times follow."
        ),
    ] = "",
    free_gib: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=_LINE, metavar="GIB", min=0.1, help="Free before the weights, off a real server."
        ),
    ] = None,
    weights_gib: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=_LINE, metavar="GIB", min=0.001, help="What loading takes, off a real server."
        ),
    ] = None,
    cap: Annotated[
        int | None,
        typer.Option(rich_help_panel=_SERVERS, metavar="N", min=1, help="Running requests per server; 64."),
    ] = None,
    speed: Annotated[
        float,
        typer.Option(
            rich_help_panel=_SERVERS,
            metavar="X",
            min=0.001,
            max=10_000,
            help="Everything so many times faster.",
        ),
    ] = 1.0,
    kv_tokens: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=_SERVERS, metavar="TOKENS", min=16, help="KV pool per server, in tokens."
        ),
    ] = None,
    max_queued_requests: Annotated[
        int | None,
        typer.Option(rich_help_panel=_SERVERS, metavar="N", min=0, help="More waiting are refused (503)."),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_SERVERS, metavar="FILE", help="One line per request, hash and outcome."
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_LINE, metavar="FILE", help="The server's log; each of several has its own."
        ),
    ] = None,
    mean_output_tokens: Annotated[
        float,
        typer.Option(
            rich_help_panel=_ANSWERS, metavar="TOKENS", min=1, help="Mean of the drawn output lengths."
        ),
    ] = 400.0,
    context_length: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=_ANSWERS,
            metavar="TOKENS",
            min=16,
            help="Tokens of prompt and answer together; 8192.",
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            rich_help_panel=_ANSWERS, metavar="NAME", help="Served model name; with --gpu the model itself."
        ),
    ] = "emulated-27b",
    reasoning_parser: Annotated[
        str | None,
        typer.Option(rich_help_panel=_ANSWERS, metavar="NAME", help="Any name: thinking is kept apart."),
    ] = None,
    thinking: Annotated[
        bool,
        typer.Option(
            "--thinking/--no-thinking",
            rich_help_panel=_ANSWERS,
            metavar="",
            help="Chats think unless they ask otherwise.",
        ),
    ] = True,
    seed: Annotated[
        int, typer.Option(rich_help_panel=_ANSWERS, metavar="N", help="Of lengths, texts and faults.")
    ] = 0,
    physics_seed: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=_SERVERS,
            metavar="N",
            min=0,
            help="Hidden physics: speed, bandwidth, host time and length law off the book's.",
        ),
    ] = None,
    error_500: Annotated[list[str] | None, _fault("Answered 500.")] = None,
    error_503: Annotated[list[str] | None, _fault("Answered 503.")] = None,
    error_429: Annotated[list[str] | None, _fault("Answered 429 with Retry-After.")] = None,
    drop: Annotated[list[str] | None, _fault("Cut off before the answer.")] = None,
    drop_middle: Annotated[list[str] | None, _fault("Cut off in the middle of the body.")] = None,
    truncate: Annotated[list[str] | None, _fault("Whole answers with half the JSON.")] = None,
    html: Annotated[list[str] | None, _fault("200 with an HTML page.")] = None,
    slow: Annotated[list[str] | None, _fault("So many times slower.", "[R=]X")] = None,
    max_prompt_tokens: Annotated[
        list[str] | None, _fault("Longer prompts are refused as over-long.", "[R=]TOKENS")
    ] = None,
    crash_after: Annotated[list[str] | None, _fault("Dies after so many answered requests.", "[R=]N")] = None,
    back_after_seconds: Annotated[
        list[str] | None, _fault("A crashed one comes back after so long.", "[R=]SECONDS")
    ] = None,
    hang: Annotated[
        list[str] | None,
        _fault("posts or all of them: accepted and never answered; R alone is R=posts.", "[R=]WHICH"),
    ] = None,
    refuse: Annotated[list[int] | None, _fault("Replica that does not listen.", "R")] = None,
) -> None:
    """Start emulated servers on loopback, in SGLang 0.5.12's dialect or vLLM's, until Ctrl-C.

    Faults can be changed while it runs: POST /emulator/faults?replica=R with a JSON object of the fields
    (error_503, drop, slow, hang, refuse, ...); an empty object heals the replica. GET /emulator/stats counts.

    Example: headrace emulate --replicas 8 --base-port 30000

    Example of a launch line: headrace emulate --replicas 1 --model Qwen3.6-27B --gpu "RTX PRO 6000 Blackwell
    Server" --flags "--mamba-scheduler-strategy extra_buffer --max-running-requests 64"

    Example with faults: headrace emulate --replicas 4 --error-503 2 --slow 3=4 --crash-after 1=200
    """
    # a handful of servers is quick in plain Python, and shall not wait for a compiler
    os.environ.setdefault("HEADRACE_KERNEL", "python")
    from headrace.simulate.emulate import EmulatorOptions
    from headrace.simulate.emulate.launched import LaunchAsked, with_line
    from headrace.simulate.emulate.switches import faults_of

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
        with_line(
            EmulatorOptions(
                replicas=replicas,
                host=host,
                base_port=base_port,
                speed=speed,
                mean_output_tokens=mean_output_tokens,
                model=model,
                max_queued_requests=max_queued_requests,
                reasoning_parser=reasoning_parser,
                thinking=thinking,
                seed=seed,
                physics_seed=physics_seed,
                journal=journal,
                log=log,
                faults=faults,
            ),
            LaunchAsked(engine, engine_version, gpu, flags, free_gib, weights_gib),
            cap=cap,
            kv_tokens=kv_tokens,
            context_length=context_length,
        )
    )


def serve(options: EmulatorOptions) -> None:
    """Runs the fleet until SIGINT or SIGTERM; prints one URL per line once all ports are open."""
    import asyncio
    import signal

    import uvloop

    from headrace.simulate.emulate import EmulatedFleet

    async def run() -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        told: list[int] = []

        def tell(number: int) -> None:
            told.append(number)
            stopped.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, tell, number)
        async with EmulatedFleet(options) as fleet:
            for url in fleet.urls:
                typer.echo(url)
            typer.echo(f"{len(fleet.urls)} emulated servers of {options.model}; Ctrl-C ends them", err=True)
            await stopped.wait()
            if options.server is not None and not options.is_vllm and told == [signal.SIGTERM]:
                # SGLang finishes what is in flight, a second signal ends it at once; vLLM aborts it
                stopped.clear()
                waits = {asyncio.ensure_future(fleet.drain()), asyncio.ensure_future(stopped.wait())}
                _, left = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for one in left:
                    one.cancel()

    uvloop.run(run())
