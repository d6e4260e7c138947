"""The picture of `headrace watch` for its page, of a made-up fleet."""

from __future__ import annotations


def watch_sample() -> str:
    """What `headrace watch` shows of a made-up fleet at 80 columns, in a fenced block."""
    from rich.console import Console

    from headrace.report.watch_document import ServerRow, VerdictLine, WatchDocument
    from headrace.report.watch_view import watch_view

    def server(port: int, running: int, queued: int, held: float, rate: float) -> ServerRow:
        return ServerRow(
            f"http://127.0.0.1:{port}", "", "sglang", running=running, queued=queued, cap=37, kv_usage=0.2,
            state_held=held, state_reserved=running * 5 / 188, output_tokens_per_s=rate,
            step_seconds=running / rate, cache_hit_rate=0.0,
        )  # fmt: skip

    document = WatchDocument(
        62.0,
        (
            server(30000, 37, 4, 0.66, 702.0),
            server(30001, 37, 4, 0.64, 698.0),
            server(30002, 36, 0, 0.63, 689.0),
            ServerRow("http://127.0.0.1:30003", "cannot connect: Connection refused"),
        ),
        VerdictLine("state_pool", 0.9, "37 running of 37 that may, 4 queued", 3.0),
    )
    console = Console(width=80, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as captured:
        console.print(watch_view(document, 80))
    text = "\n".join(line.rstrip() for line in captured.get().splitlines())
    return f"```text\n{text}\n```\n"
