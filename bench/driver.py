"""The driver's figures: python bench/driver.py cpu|in-flight|big|slow-server|all.

    cpu          rows per CPU-second of the driver's process, with row checks and without
    in-flight    mean requests in flight at a server that takes 200 ms
    big          one job of --rows rows: memory over time, bytes stored per byte of answer, and, killed
                 at 95 %, the time to the first new request
    slow-server  7 servers that take 1 s and one that takes 8 s: against the best possible schedule

Each prints the lines of the table in bench/README.md. The server is the null server: 10 KB answers, all
different and incompressible. Rows are durable before they count, and nothing is switched off but where said.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.null_server import Missing, NullServer, build
from tests.driver_process import HEADRACE, environment, finished_rows

IN_FLIGHT = 256
SERVER_CPU = 1  # as for the peers' figures: the null server on a core of its own
GOLDEN_ROWS = 654_676


@dataclass
class Measured:
    """One run of the driver.

    Attributes:
        cpu_seconds: user and system time of the process, all its threads, from its start to its end.
        first_request_seconds: from its start to the first request at the server.
        resident: (rows asked, RSS bytes) over time.
        stored: (bytes of answers, bytes allocated in the output folder) over time.
        in_flight: samples of what the server had in flight, between a tenth and nine tenths of the rows.
        busy_share: of all cores' time, what was not idle while it ran, whoever used it.
    """

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_resident_bytes: int = 0
    exit_code: int = 0
    first_request_seconds: float | None = None
    resident: list[tuple[int, int]] = field(default_factory=list)
    stored: list[tuple[int, int]] = field(default_factory=list)
    in_flight: list[int] = field(default_factory=list)
    busy_share: float = 0.0


def write_prompts(file: Path, rows: int) -> Path:
    """`rows` distinct prompts of about 200 characters, as JSON lines."""
    filler = "Think it through step by step and answer with a number at the end. " * 2
    with file.open("w") as sink:
        for at in range(rows):
            sink.write(json.dumps({"prompt": f"Problem {at}: what is {at} times {at % 97}? {filler}"}) + "\n")
    return file


def drive(
    server: NullServer | list[NullServer],
    prompts: Path,
    out: Path,
    *,
    rows: int,
    flags: Iterable[object] = (),
    in_flight: int = IN_FLIGHT,
    kill_at: int | None = None,
    every_seconds: float = 0.1,
) -> Measured:
    """Runs one job and watches it from outside; SIGKILL once the server was asked `kill_at` times."""
    servers = server if isinstance(server, list) else [server]
    command = [*HEADRACE, "run", "--prompts", prompts, "--out", out, "--in-flight", in_flight]
    for one in servers:
        command += ["--server", one.url]
    log = out.with_name(f"{out.name}.log")
    measured = Measured()
    cores_before = cores_seconds()
    asked_before = sum(one.stats()["req"] for one in servers)
    with log.open("a") as sink:
        began = time.monotonic()
        process = subprocess.Popen(
            [*map(str, command), *map(str, flags), "--progress", "none"],
            stdout=sink,
            stderr=sink,
            stdin=subprocess.DEVNULL,
            env=environment(),
            start_new_session=True,
        )
    answer_bytes = None
    looked_at_disk = began
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        now = time.monotonic()
        if pid:
            measured.wall_seconds = now - began
            measured.cpu_seconds = usage.ru_utime + usage.ru_stime
            measured.exit_code = os.waitstatus_to_exitcode(status)
            process.returncode = measured.exit_code
            busy, idle = (after - before for after, before in zip(cores_seconds(), cores_before, strict=True))
            measured.busy_share = busy / (busy + idle)
            break
        stats = [one.stats() for one in servers]
        asked = sum(one["req"] for one in stats) - asked_before
        if asked > 0 and measured.first_request_seconds is None:
            measured.first_request_seconds = now - began
        if measured.first_request_seconds is None:
            time.sleep(0.002)  # a fine look until the first request, a coarse one after
            continue
        if 0.1 * rows < asked < 0.9 * rows:
            measured.in_flight.append(sum(one["inflight"] for one in stats))
        resident, peak = resident_bytes(process.pid)
        measured.resident.append((asked, resident))
        measured.peak_resident_bytes = max(measured.peak_resident_bytes, peak)
        if now - looked_at_disk > 1.0:
            looked_at_disk = now
            answer_bytes = answer_bytes or content_bytes(servers[0])
            # what is in flight is answered but may not be durable yet
            durable = asked - sum(one["inflight"] for one in stats)
            measured.stored.append((durable * answer_bytes, allocated_bytes(out)))
        if kill_at is not None and asked >= kill_at:
            os.killpg(process.pid, signal.SIGKILL)
            kill_at = None
        time.sleep(every_seconds)
    if measured.exit_code not in (0, -signal.SIGKILL):
        raise SystemExit(f"headrace run ended with {measured.exit_code}:\n{log.read_text()[-3000:]}")
    return measured


def cores_seconds() -> tuple[float, float]:
    """Seconds that all cores together have been busy, stolen ones included, and idle, since the boot."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]  # idle, iowait: proc(5)
    per_second = os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - idle) / per_second, idle / per_second


def others(run: Measured, server_cpu_seconds: float) -> str:
    """What else ran on the machine meanwhile, as a share of its cores (this script is part of it)."""
    cores = os.cpu_count() or 1
    ours = (run.cpu_seconds + server_cpu_seconds) / (cores * run.wall_seconds)
    return f"other work took {max(0.0, run.busy_share - ours):.0%} of {cores} cores"


def resident_bytes(pid: int) -> tuple[int, int]:
    """(RSS, peak RSS) of the process. `ru_maxrss` would not do: it counts the parent's memory at the fork."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    kilobytes = {
        line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("VmRSS", "VmHWM"))
    }
    return kilobytes.get("VmRSS", 0) * 1024, kilobytes.get("VmHWM", 0) * 1024


def allocated_bytes(folder: Path) -> int:
    """Bytes that the file system has given to all files under `folder`."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:  # renamed or swept meanwhile
            continue
    return total


def content_bytes(server: NullServer) -> int:
    """Bytes of text in one answer of the null server."""
    import urllib.request

    request = urllib.request.Request(f"{server.url}/v1/chat/completions", b"{}")
    with urllib.request.urlopen(request) as answer:
        found = json.loads(answer.read())
    return len(found["choices"][0]["message"]["content"].encode())


def cpu(binary: Path, scratch: Path, options: argparse.Namespace) -> None:
    """Rows per CPU-second, whole and marginal, with row checks and without."""
    few, many = options.rows // 10, options.rows
    for name, flags in (("row checks on", ()), ("row checks off", ("--no-row-checks",))):
        wholes, marginals, peaks, firsts = [], [], [], []
        for turn in range(options.repeat):
            runs = {}
            for rows in (few, many):
                prompts = write_prompts(scratch / f"{rows}.jsonl", rows)
                with NullServer(binary, vary=True, cpu=SERVER_CPU) as server:
                    out = scratch / f"cpu-{rows}-{bool(flags)}-{turn}"
                    runs[rows] = drive(server, prompts, out, rows=rows, flags=flags, every_seconds=0.25)
                    stats = server.stats()
                assert len(finished_rows(out)) == rows
                shutil.rmtree(out)
            run = runs[many]
            wholes.append(many / run.cpu_seconds)
            marginals.append((many - few) / (run.cpu_seconds - runs[few].cpu_seconds))
            peaks.append(run.peak_resident_bytes)
            firsts.append(run.first_request_seconds or 0.0)
            say(
                f"one run, {name}",
                f"{run.cpu_seconds:.1f} CPU-s, {run.wall_seconds:.1f} s wall, null server "
                f"{stats['cpu_s']:.1f} CPU-s; {others(run, stats['cpu_s'])}",
            )
        say(
            f"rows per CPU-second, {name}",
            f"{median(wholes):,.0f} over {many:,} rows ({min(wholes):,.0f}–{max(wholes):,.0f}, "
            f"{options.repeat} runs); marginal {median(marginals):,.0f} ({few:,} → {many:,} rows)",
        )
        say(f"peak RSS, {name}", f"{megabytes(max(peaks))} at most over {many:,} rows")
        say(f"start to first request, {name}", f"{median(firsts):.2f} s with {many:,} prompts")


def in_flight(binary: Path, scratch: Path, options: argparse.Namespace) -> None:
    """Mean in flight at a 200 ms server."""
    rows = options.rows
    prompts = write_prompts(scratch / "in-flight.jsonl", rows)
    means = []
    for turn in range(options.repeat):
        out = scratch / f"in-flight-{turn}"
        with NullServer(binary, vary=True, cpu=SERVER_CPU, delay_ms=200) as server:
            run = drive(server, prompts, out, rows=rows, every_seconds=0.02)
            stats = server.stats()
        shutil.rmtree(out)
        means.append(sum(run.in_flight) / len(run.in_flight))
        say(
            "one run at a 200 ms server",
            f"{means[-1]:.1f} of 256 in flight ({len(run.in_flight)} looks between 10 and 90 % of {rows:,} "
            f"rows; never more than {stats['inflight_max']}); {rows / stats['span_s']:,.0f} rows/s of 1,280; "
            f"{others(run, stats['cpu_s'])}",
        )
    say("mean in flight of 256 at a 200 ms server", f"{median(means):.1f} (median of {options.repeat} runs)")


def big(binary: Path, scratch: Path, options: argparse.Namespace) -> None:
    """Memory and stored bytes over one big job; at 95 % it is killed, and goes on."""
    rows = options.big_rows
    prompts = write_prompts(scratch / "big.jsonl", rows)
    out = scratch / "big"
    with NullServer(binary, vary=True, cpu=SERVER_CPU) as server:
        run = drive(server, prompts, out, rows=rows, kill_at=int(0.95 * rows), every_seconds=0.5)
        asked = server.stats()["req"]
        resumed = drive(server, prompts, out, rows=rows, every_seconds=0.5)
        again = server.stats()["req"] - asked
    kept = len(finished_rows(out))
    assert kept == rows, f"{kept:,} rows of {rows:,}"
    at = [(0.15, "100 k" if rows == GOLDEN_ROWS else "15 %"), (0.5, "half"), (0.94, "94 %")]
    levels = ", ".join(f"{megabytes(near(run.resident, share * rows))} at {name}" for share, name in at)
    peak = max(run.peak_resident_bytes, resumed.peak_resident_bytes)
    say(f"RSS over {rows:,} rows", f"{levels}; peak {megabytes(peak)}, the resumed run's among them")
    ratios = [stored / answers for answers, stored in run.stored if answers > 0.05 * rows * 9000]
    if ratios:
        say(
            "bytes stored per byte of answer",
            f"{sum(ratios) / len(ratios):.3f} mean, {max(ratios):.3f} most, while running; "
            f"{allocated_bytes(out) / (rows * content_bytes_of(out)):.3f} at the end",
        )
    say(
        f"resume at 95 % of {rows:,} rows",
        f"first new request after {resumed.first_request_seconds:.2f} s; "
        f"{again:,} requests for {rows - int(0.95 * rows):,} rows and what was not durable at the kill; "
        f"{resumed.cpu_seconds:.1f} CPU-s in all",
    )


def content_bytes_of(out: Path) -> int:
    """Bytes of text in one answer of a finished job."""
    import pyarrow.parquet

    shard = next(iter(sorted((out / "completions").glob("*.parquet"))))
    return len(pyarrow.parquet.read_table(shard, columns=["answer"])["answer"][0].as_py().encode()) + len(
        (pyarrow.parquet.read_table(shard, columns=["reasoning"])["reasoning"][0].as_py() or "").encode()
    )


def near(series: list[tuple[int, int]], rows: float) -> int:
    """The value of the sample nearest to `rows`."""
    return min(series, key=lambda sample: abs(sample[0] - rows))[1]


def slow_server(binary: Path, scratch: Path, options: argparse.Namespace) -> None:
    """Seven fast servers and a slow one, 8 in flight each, 300 rows."""
    rows, each = 300, 8
    prompts = write_prompts(scratch / "slow.jsonl", rows)
    servers = [NullServer(binary, vary=True, delay_ms=1000) for _ in range(7)]
    servers.append(NullServer(binary, vary=True, delay_ms=8000))
    try:
        for server in servers:
            server.__enter__()
        run = drive(servers, prompts, scratch / "slow", rows=rows, in_flight=each, every_seconds=0.05)
        answered = [server.stats()["ok"] for server in servers]
    finally:
        for server in servers:
            server.stop()
    done = finished_rows(scratch / "slow")
    assert len(done) == rows
    first = min(row["finished_at"] - row["latency_seconds"] for row in done)
    took = max(row["finished_at"] for row in done) - first
    best = best_schedule_seconds(rows, [1.0] * 7 + [8.0], each)
    say(
        "7 servers at 1 s and one at 8 s, 8 in flight each, 300 rows",
        f"{took:.2f} s from the first request to the last row; best possible schedule {best:.0f} s "
        f"(× {took / best:.2f}); process {run.wall_seconds:.1f} s; the slow server answered {answered[-1]}",
    )


def best_schedule_seconds(rows: int, latencies: list[float], each: int) -> float:
    """The shortest time in which the servers can answer `rows`, all latencies known beforehand."""
    finish = sorted(
        latency * (turn + 1) for latency in latencies for turn in range(rows) for _ in range(each)
    )
    return finish[rows - 1]


def megabytes(size_bytes: int) -> str:
    """The size in MB (10⁶ bytes)."""
    return f"{size_bytes / 1e6:.0f} MB"


def say(what: str, figure: str) -> None:
    """One line of the table."""
    print(f"| {what} | {figure} |", flush=True)


PARTS: dict[str, Callable[[Path, Path, argparse.Namespace], None]] = {
    "cpu": cpu,
    "in-flight": in_flight,
    "big": big,
    "slow-server": slow_server,
}


def main() -> int:
    """Returns 0 when everything asked for was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=[*PARTS, "all"])
    parser.add_argument("--rows", type=int, default=20_000, help="of cpu and in-flight")
    parser.add_argument("--repeat", type=int, default=3, help="runs of cpu and in-flight; the median is told")
    parser.add_argument(
        "--big-rows", type=int, default=GOLDEN_ROWS, help="of big; 7 GB of disk at the default"
    )
    parser.add_argument("--scratch", type=Path, help="folder for the jobs, on a local disk")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.scratch) as name:
        scratch = Path(name)
        binary = build(scratch)
        print(
            f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, Python {sys.version.split()[0]}"
        )
        for part in PARTS if options.part == "all" else (options.part,):
            PARTS[part](binary, scratch, options)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Missing as missing:
        sys.exit(str(missing))
