"""Lines in the wrappings of terminals, containers, journals and Ray: the same event comes out."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from headrace.engines.log_lines import unwrap
from headrace.engines.log_reader import parse_line

SGLANG = (
    "[2026-03-04 05:06:07 DP1 PP0 TP2 EP2] Decode batch, #running-req: 19, #token: 400, token usage: 0.25, "
    "cuda graph: True, gen throughput (token/s): 333.50, #queue-req: 8"
)
VLLM = (
    "(EngineCore_DP1 pid=9) INFO 03-04 05:06:07 [loggers.py:12] Engine 001: Avg prompt throughput: 4.0 "
    "tokens/s, "
    "Avg generation throughput: 333.5 tokens/s, Running: 19 reqs, Waiting: 8 reqs, GPU KV cache usage: "
    "25.0%"
)
WITH_YEAR = 1772600767.0  # date -u -d "2026-03-04 05:06:07" +%s
YEARLESS = 952146367.0  # the same in 2000
Wrap = Callable[[str], str]
# name → (wrapping, the time it brings, the host it brings)
WRAPPINGS: dict[str, tuple[Wrap, float | None, str]] = {
    "nothing": (lambda text: text, None, ""),
    "CRLF": (lambda text: text + "\r", None, ""),
    "a progress bar drawn before it": (lambda text: f"\r 10%|#  | 1/9\r 99%|###| 8/9\r{text}", None, ""),
    "colours": (lambda text: f"\x1b[1;36m{text[:30]}\x1b[0m{text[30:]}\x1b[K", None, ""),
    "Docker's JSON": (
        lambda text: json.dumps(
            {"log": text + "\n", "stream": "stderr", "time": "2026-03-04T05:06:07.500000000Z"}
        ),
        WITH_YEAR + 0.5,
        "",
    ),
    "journald's JSON": (
        lambda text: json.dumps({"MESSAGE": text, "__REALTIME_TIMESTAMP": "1772600767500000"}),
        WITH_YEAR + 0.5,
        "",
    ),
    "a collector's JSON": (
        lambda text: json.dumps({"level": "info", "ts": 1772600767.5, "msg": text}),
        WITH_YEAR + 0.5,
        "",
    ),
    "CRI": (lambda text: f"2026-03-04T05:06:07.500000000Z stdout F {text}", WITH_YEAR + 0.5, ""),
    "kubectl --timestamps": (lambda text: f"2026-03-04T05:06:07.500000000Z {text}", WITH_YEAR + 0.5, ""),
    "kubectl --prefix": (lambda text: f"[pod/llm-0/engine] {text}", None, "pod/llm-0/engine"),
    "kubectl --prefix --timestamps": (
        lambda text: f"[pod/llm-0/engine] 2026-03-04T05:06:07.5Z {text}",
        WITH_YEAR + 0.5,
        "pod/llm-0/engine",
    ),
    "stern": (lambda text: f"llm-0 engine {text}", None, ""),
    "docker compose": (lambda text: f"engine-1  | {text}", None, "engine-1"),
    "journald's ISO lines": (
        lambda text: f"2026-03-04T07:06:07.500000+0200 node5 llm[77]: {text}",
        WITH_YEAR + 0.5,
        "node5",
    ),
    "Python's logging": (lambda text: f"2026-03-04 05:06:07,500 INFO {text}", WITH_YEAR + 0.5, ""),
    "srun": (lambda text: f"12: {text}", None, ""),
    "mpirun": (lambda text: f"[1,3]<stdout>:{text}", None, ""),
    "a quotation": (lambda text: f"> {text}", None, ""),
    "indented": (lambda text: f"    {text}", None, ""),
    "Ray": (lambda text: f"\x1b[36m(Engine pid=5, ip=10.1.2.3)\x1b[0m {text}", None, "10.1.2.3"),
    "all at once": (
        lambda text: f"2026-03-04T05:06:07.5Z stderr F engine-1 | (Engine pid=5, ip=10.1.2.3) {text}\r",
        WITH_YEAR + 0.5,
        "",
    ),
}


@pytest.mark.parametrize("name", WRAPPINGS)
@pytest.mark.parametrize(
    ("text", "kind", "own_time", "ranks"),
    [
        (SGLANG, "decode", WITH_YEAR, {"dp": 1, "pp": 0, "tp": 2, "ep": 2}),
        (VLLM, "stats", YEARLESS, {"dp": 1, "engine": 1}),
    ],
    ids=["sglang", "vllm"],
)
def test_every_wrapping_comes_off(
    name: str, text: str, kind: str, own_time: float, ranks: dict[str, int]
) -> None:
    wrap, time_seconds, host = WRAPPINGS[name]
    found = parse_line(wrap(text))
    assert found is not None
    assert found.kind == kind
    assert dict(found.ranks) == ranks
    assert found.time_seconds == (own_time if time_seconds is None else time_seconds)
    if host:
        assert found.host == host
    wanted = {"running": 19, "queued": 8, "kv_usage": 0.25, "output_tokens_per_s": 333.5}
    assert {word: found.values.get(word) for word in wanted} == wanted


def test_a_journal_without_year_gives_way_to_a_time_with_one() -> None:
    found = parse_line(f"Mar 04 01:02:03 node5 llm[77]: {SGLANG}")
    assert found is not None
    assert (found.time_seconds, found.host) == (WITH_YEAR, "node5")


def test_ray_says_for_how_many_workers_a_line_stands() -> None:
    found = parse_line(
        f"(Engine pid=5) {SGLANG} [repeated 7x across cluster] (Ray deduplicates logs by default. …)"
    )
    assert found is not None
    assert (found.repeated, found.values["queued"]) == (7, 8)


def test_ranks_of_vllms_processes() -> None:
    line = unwrap("(Worker_TP3_DCP1 pid=5) (Worker pid=6) WARNING 01-02 03:04:05 [x.py:1] oh")
    assert (dict(line.ranks), line.level, line.file, line.message) == (
        {"tp": 3, "dcp": 1},
        "WARNING",
        "x.py",
        "oh",
    )


@pytest.mark.parametrize("prefix", ["… ", "my-logger scheduler.py:9 | ", "ERROR? no: "])
def test_a_batch_line_behind_anything(prefix: str) -> None:
    for text in (SGLANG.partition("] ")[2], VLLM.partition("Engine 001: ")[2]):
        found = parse_line(prefix + text)
        assert found is not None
        assert found.values["running"] == 19


def test_ranks_and_engines_behind_an_unknown_prefix() -> None:
    batch, stats = SGLANG.partition("] ")[2], VLLM.partition("INFO")[2].partition("] ")[2]
    found = parse_line(f"2026-03-04T05:06:07.5Z pod-7 INFO HTTP2 DP1 TP3] {batch}")
    assert found is not None
    assert (dict(found.ranks), found.time_seconds) == ({"dp": 1, "tp": 3}, WITH_YEAR + 0.5)
    found = parse_line(f"2026-03-04T05:06:07.5Z INFO dynamo.vllm: log_stats: {stats}")
    assert found is not None
    assert (dict(found.ranks), found.values["running"]) == ({"engine": 1}, 19)


@pytest.mark.parametrize("prefix", ["HF_TOKEN=abcdefgh12345678901", "sk-abcdefgh12345678901"])
def test_a_secret_before_an_unknown_prefix_is_no_host(prefix: str) -> None:
    found = parse_line(f"{prefix} {SGLANG}")
    assert found is not None
    assert "abcdefgh12345" not in str(found)


@pytest.mark.parametrize(
    "text",
    [
        "[2026-13-45 99:99:99] Decode batch, #running-req: 1",
        "2026-02-30T00:00:00Z Decode batch, #running-req: 1",
        "INFO 02-31 25:61:61 [loggers.py:1] Engine 000: Running: 1 reqs",
    ],
)
def test_an_impossible_time_is_no_time(text: str) -> None:
    found = parse_line(text)
    assert found is not None
    assert found.time_seconds is None
    assert found.values["running"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "{" * 100_000,
        '{"log":' * 50_000,
        '{"log": 5}',
        '{"log": null}',
        '{"log": "',
        "(" * 100_000,
        "[" * 100_000,
        "\x1b" * 100_000,
        "\x1b[" * 100_000,
        "INFO " * 100_000,
        "'\\" * 100_000,
        "server_args=ServerArgs(" + "\\'" * 100_000,
        "server_args=" + "{" * 100_000,
        "server_args=ServerArgs(" + "a='" * 50_000,
        "Decode batch, " + ", " * 100_000,
        "Decode batch, " + "#token: 1, x: " * 20_000,
        "(Worker pid=" * 20_000,
        "2026-01-01 00:00:00 " * 10_000,
        "Mamba Cache is allocated. " + "a: 1 " * 30_000,
        "Error" * 50_000,
        ' - "GET ' + "a" * 200_000,
    ],
    ids=lambda text: str(text)[:24],
)
def test_a_hostile_line_costs_little(text: str) -> None:
    """Quadratic patterns would take minutes on these."""
    parse_line(text)
