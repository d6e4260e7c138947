"""Evidence that cannot be: a clear answer or `unknown`, never a crash, never healthy, always valid JSON."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from headrace.cli import main

DECODE = (
    "[2026-02-03 04:05:06] Decode batch, #running-req: {0}, #token: {0}, token usage: {1}, cuda graph: True, "
    "gen throughput (token/s): {0}, #queue-req: {0}\n"
)
LINES = {
    number: DECODE.format(number, number).encode() * 9
    for number in ("0", "nan", "inf", "-4", "1e999", "9" * 30)
}
EVIDENCE: dict[str, bytes] = {
    "empty": b"",
    "one zero byte": b"\0",
    "blank": b"\n" * 10,
    "binary": random.Random(0).randbytes(50_000),
    **{f"all {number[:5]}": text for number, text in LINES.items()},
    "html": b"<html><h1>502 Bad Gateway</h1></html>\n" * 50,
    "html for metrics": b"# HELP x\n<html># TYPE sglang:num_running_reqs gauge\n</html>" * 3,
    "metrics that are no numbers": b"sglang:num_running_reqs NaN\nsglang:token_usage +Inf\n",
    "metrics of zeros": b"sglang:num_running_reqs 0\nsglang:token_usage 0\n",
    "a billion": b"sglang:num_running_reqs 1e9\nsglang:num_queue_reqs 1e9\nsglang:token_usage 1e9\n",
    "UTF-16 facts": "engine: sglang\nobserved: {running: 3}\n".encode("utf-16"),
    "UTF-32": DECODE.format(5, 0.5).encode("utf-32"),
    "gzip of gzip": gzip.compress(gzip.compress(b"x" * 100)),
    "gzip of garbage": b"\x1f\x8b" + random.Random(1).randbytes(3000),
    "deep JSON": b"[" * 100_000,
    "deep JSON of keys": b'{"a":' * 50_000,
    "facts that are no numbers": b"engine: sglang\nobserved: {running: .nan, queued: .inf, cap: 1e400}\n",
    "facts of zeros": b"engine: sglang\nobserved: {running: 0, cap: 0, kv_usage: 0}\ngpus: 0\nreplicas: 0\n",
    "facts of words": b"engine: 7\ngpu: [a]\nmodel: {a: 1}\nobserved: lots\nclient: [1]\nflags: [x]\n",
    "settings without an end": b"[2026-02-03 04:05:06] server_args=ServerArgs(" + b"(" * 60_000,
}


@pytest.mark.parametrize("name", EVIDENCE)
def test_it_is_unknown(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "evidence"
    path.write_bytes(EVIDENCE[name])
    with pytest.raises(SystemExit) as ended:
        main(["diagnose", str(path), "--json"])
    assert ended.value.code == 0
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert document["binding"]["constraint"] == "unknown"
