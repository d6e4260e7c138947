"""What reading a log costs: python bench/logs.py [--lines 1000000] [--shape NAME]…

A log of each shape is made (the same bytes every time), read through `observe.log.read_log` in a process of
its own, and the lines read per CPU-second, the seconds and the peak memory printed. Shapes are those that
deployments have: an engine's own lines with rank prefixes, terminal colours, Docker's JSON, kubectl's time
stamps, and all of them mixed. The wording is that of the engines' format strings; the numbers are
made.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LINES = 1_000_000
_EPOCH = 8 * 86_400  # the first stamp is of the 8th day of a month


def _clock(at: int) -> str:
    """`MM-DD hh:mm:ss`; a thousand lines share a minute."""
    seconds = _EPOCH + at * 60 // 1000
    day, rest = divmod(seconds, 86_400)
    return f"06-{day % 30 + 1:02d} {rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def sglang_lines(at: int) -> str:
    """One line of a hybrid model's server of two data-parallel ranks."""
    stamp = f"[2026-{_clock(at)} DP{at % 2} TP0]"
    kind, hundredths = at % 20, f"{at % 100:02d}"
    pools = f"full token usage: 0.{20 + at % 60}"
    if kind < 12:
        return (
            f"{stamp} Decode batch, #running-req: {30 + at % 7}, #full token: {50_000 + at % 9_973}, "
            f"{pools}, mamba num: {100 + at % 30}, mamba usage: 0.{50 + at % 40}, cuda graph: True, "
            f"gen throughput (token/s): {600 + at % 97}.{hundredths}, #queue-req: {at % 13}"
        )
    if kind < 16:
        return (
            f"{stamp} Prefill batch, #new-seq: {1 + at % 3}, #new-token: {512 + at % 2048}, "
            f"#cached-token: {at % 31}, {pools}, mamba usage: 0.{50 + at % 40}, #running-req: {30 + at % 7}, "
            f"#queue-req: {at % 13}, #pending-token: {at % 9_000}, cuda graph: False, "
            f"input throughput (token/s): {9000 + at % 997}.{hundredths}"
        )
    if kind < 19 or at % 1000 != 19:
        return f"[2026-{_clock(at)}] {_request(at)}"
    return (
        f"{stamp} KV cache pool is full. Retract requests. #retracted_reqs: 1, "
        f"#new_tokens_gained: {900 + at % 99}, #mamba_num_gained: 4, "
        f"#new_token_ratio: 0.2310 -> 0.41{hundredths}"
    )


def _request(at: int) -> str:
    client = f"10.0.{at % 200}.{at % 250}:{20_000 + at % 40_000}"
    return f'INFO:     {client} - "POST /v1/completions HTTP/1.1" 200 OK'


def vllm_lines(at: int) -> str:
    """One line of a server of two engines with speculation."""
    kind, tenth, hundredths = at % 20, at % 10, f"{at % 100:02d}"
    process = f"(APIServer pid={1 + at // 400_000}) "
    if kind < 12:
        return (
            f"{process}INFO {_clock(at)} [loggers.py:271] Engine {at % 2:03d}: "
            f"Avg prompt throughput: {800 + at % 97}.{tenth} tokens/s, "
            f"Avg generation throughput: {1400 + at % 83}.{tenth} tokens/s, Running: {60 + at % 7} reqs, "
            f"Waiting: {at % 120} reqs, GPU KV cache usage: {60 + at % 39}.{tenth}%, "
            f"Prefix cache hit rate: {at % 40}.{tenth}%"
        )
    if kind < 16:
        return (
            f"{process}INFO {_clock(at)} [metrics.py:101] SpecDecoding metrics: "
            f"Mean acceptance length: 2.{hundredths}, "
            f"Accepted throughput: {40 + at % 60}.{hundredths} tokens/s, "
            f"Drafted throughput: {90 + at % 60}.{hundredths} tokens/s, "
            f"Accepted: {400 + at % 99} tokens, Drafted: {900 + at % 99} tokens, "
            f"Per-position acceptance rate: 0.{700 + at % 99}, 0.{400 + at % 99}, "
            f"Avg Draft acceptance rate: {50 + at % 40}.{tenth}%"
        )
    return f"{process}{_request(at)}"


def coloured(line: str) -> str:
    """The line as a terminal shows it."""
    return f"\x1b[32m{line[:40]}\x1b[0m{line[40:]}"


def docker(line: str, at: int) -> str:
    """The line as Docker's json-file driver stores it."""
    return json.dumps(
        {
            "log": line + "\n",
            "stream": "stderr",
            "time": f"2026-{_clock(at).replace(' ', 'T')}.{at % 1_000_000_000:09d}Z",
        },
        separators=(",", ":"),
    )


def kubectl(line: str, at: int) -> str:
    """The line as `kubectl logs --timestamps --prefix` shows it."""
    return f"[pod/llm-{at % 2}/server] 2026-{_clock(at).replace(' ', 'T')}.{at % 1_000_000_000:09d}Z {line}"


_WRAPPINGS: tuple[Callable[[str, int], str], ...] = (
    lambda line, at: line,
    lambda line, at: line,
    lambda line, at: coloured(line),
    docker,
    kubectl,
)
SHAPES: dict[str, Callable[[int], str]] = {
    "sglang": sglang_lines,
    "sglang-docker": lambda at: docker(sglang_lines(at), at),
    "sglang-mixed": lambda at: _WRAPPINGS[at // 20 % 5](sglang_lines(at), at),
    "vllm": vllm_lines,
    "vllm-docker": lambda at: docker(vllm_lines(at), at),
    "vllm-colour": lambda at: coloured(vllm_lines(at)),
    "vllm-mixed": lambda at: _WRAPPINGS[at // 20 % 5](vllm_lines(at), at),
}


def lines_of(shape: str, count: int) -> Iterator[str]:
    """The lines of one log, without their ends."""
    make = SHAPES[shape]
    return (make(at) for at in range(count))


def read_one(path: Path) -> None:
    """Reads one log in this process and prints what it cost, as JSON."""
    from headrace.engines.log_reader import LogReader
    from headrace.observe.log import collect

    before_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    wall, cpu = time.perf_counter(), time.process_time()
    reader = LogReader(path)
    collect(reader, path.name)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    after_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps(
            {
                "lines": reader.lines,
                "understood": reader.understood,
                "wall": wall,
                "cpu": cpu,
                "before_mib": before_mib,
                "after_mib": after_mib,
            }
        )
    )


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    asked.add_argument("--lines", type=int, default=LINES)
    asked.add_argument("--shape", action="append", choices=list(SHAPES), help="default: all")
    asked.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = asked.parse_args()
    if options.read:
        read_one(options.read)
        return
    with tempfile.TemporaryDirectory() as folder:
        for shape in options.shape or SHAPES:
            path = Path(folder) / f"{shape}.log"
            with path.open("w") as sink:
                sink.writelines(line + "\n" for line in lines_of(shape, options.lines))
            told = subprocess.run(
                [sys.executable, __file__, "--read", str(path)], stdout=subprocess.PIPE, check=True
            )
            cost = json.loads(told.stdout)
            print(
                f"{shape:14} {cost['lines']:>9,} lines, {cost['understood'] / cost['lines']:.2%} understood: "
                f"{cost['lines'] / cost['cpu']:>9,.0f} lines per CPU-second, {cost['cpu']:5.2f} s CPU, "
                f"{cost['wall']:5.2f} s, peak memory + {cost['after_mib'] - cost['before_mib']:.0f} MiB"
            )
            path.unlink()


if __name__ == "__main__":
    main()
