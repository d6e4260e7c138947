"""Statuses of made-up jobs, for the tests of what shows them."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.drive.status import EndpointStatus, JobStatus, SourceStatus


def endpoint(number: int = 0, **changes: Any) -> EndpointStatus:
    """A reachable server on port 30000 + number."""
    usual = EndpointStatus(
        url=f"http://127.0.0.1:{30000 + number}",
        state="reachable",
        why="",
        in_flight=38,
        limit=40,
        limit_origin="reported",
        cap=37,
        running=37,
        queued=1,
        answered=12345,
        errors={},
        output_tokens_per_second=1423.2,
        median_latency_seconds=38.21,
    )
    return msgspec.structs.replace(usual, **changes)


def status(**changes: Any) -> JobStatus:
    """A job of 300,000 rows, an hour old."""
    usual = JobStatus(
        out="out/infinity",
        pid=4711,
        host="gpu-7",
        phase="running",
        message="",
        wall_time=1_800_000_000.0,
        elapsed_seconds=4000.0,
        rows=300_000,
        done=123_456,
        failed=44,
        excluded=1000,
        duplicates=4,
        pending=175_500,
        in_flight=76,
        in_flight_limit=80,
        done_this_run=120_000,
        tries_this_run=121_000,
        requests_per_second=31.25,
        output_tokens_per_second=12_040.4,
        output_tokens_per_second_finished=8002.0,
        in_flight_tokens=54_321.0,
        settled=False,
        mean_output_tokens=1420.0,
        median_latency_seconds=38.2,
        eta_seconds=8040.0,
        flags={"truncated": 400, "empty": 2},
        errors={"timeout": 3, "503": 12},
        failures={"refused": 44},
        hedged=0,
        endpoints=[endpoint(0), endpoint(1)],
        sources=[
            SourceStatus(
                name="infinity",
                rows=299_000,
                done=123_000,
                failed=44,
                excluded=1000,
                mean_output_tokens=1431.0,
                truncated=400,
            ),
            SourceStatus(
                name="gsm8k", rows=1000, done=456, failed=0, excluded=0, mean_output_tokens=211.4, truncated=0
            ),
        ],
    )
    return msgspec.structs.replace(usual, **changes)
