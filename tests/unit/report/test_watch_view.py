"""The watched fleet as a picture, as a line, as JSON: one document, the same figures."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from headrace.report.watch_document import ServerRow, VerdictLine, WatchDocument
from headrace.report.watch_view import watch_line, watch_view
from tests.unit.report.statuses import status

RUNNING = status()

# one server of the golden case: 32 of 37 run, 61 % of the state slots are held, 32 × 5 of 188 are reserved
ROW = ServerRow(
    "http://10.0.0.1:30000",
    "",
    "sglang",
    running=32,
    queued=4,
    cap=37,
    kv_usage=0.20,
    state_held=0.61,
    state_reserved=0.851,
    output_tokens_per_s=638.1,
    step_seconds=0.0501,
    cache_hit_rate=0.0,
)
VERDICT = VerdictLine("state_pool", 0.9, "32 running of 37 that may", 1.0)
DOCUMENT = WatchDocument(62.0, (ROW, replace(ROW, name="http://10.0.0.2:30000")), VERDICT)


def drawn(document: WatchDocument, width: int = 80, height: int | None = None) -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None, highlight=False)
    console.print(watch_view(document, width, height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def line_of(lines: list[str], word: str) -> str:
    (found,) = [line for line in lines if line.startswith(word)]
    return found


def test_a_server_is_a_line_with_its_pools_as_lanes() -> None:
    line = line_of(drawn(DOCUMENT), "10.0.0.1:30000")
    assert line.split() == [
        "10.0.0.1:30000", "32+4/37", "█▎░░░░", "20%", "███▋▒░", "61%/85%", "638", "50.1", "0%",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [70, 80, 103, 104, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    silent = replace(ROW, name="http://a-very-long-host-name.example.org:30000", problem="refused " * 40)
    power = replace(ROW, gpu_power_w=587.0, sm_clock_mhz=2317.0)
    document = replace(DOCUMENT, servers=(silent, power, ROW), job=RUNNING)
    assert max(map(len, drawn(document, width))) <= width


def test_sums_are_over_the_servers_that_answer_and_say_of_how_many() -> None:
    mute = ServerRow("http://10.0.0.3:8000", "", "vllm", running=8, output_tokens_per_s=None)
    gone = ServerRow("http://10.0.0.4:8000", "refused the connection", "sglang", running=99, cap=99)
    lines = drawn(replace(DOCUMENT, servers=(ROW, mute, gone)))
    assert line_of(lines, "headrace watch").startswith("headrace watch  2 of 3 servers answer  ✖ 1 silent")
    assert line_of(lines, "fleet") == (
        "fleet   40 running · 4 queued (1 of 2 servers) · 37 cap (1 of 2 servers) · 638 …"
    )
    assert line_of(lines, "✖ 10.0.0.4:8000") == "✖ 10.0.0.4:8000: refused the connection"


def test_what_is_not_told_is_a_dash_and_no_lane_is_drawn_for_it() -> None:
    mute = ServerRow("http://10.0.0.3:8000", "", "vllm", running=8, queued=0)
    lines = drawn(WatchDocument(1.0, (mute,)))
    assert line_of(lines, "10.0.0.3:8000").split() == ["10.0.0.3:8000", "8+0", "–", "–", "–", "–"]
    assert not any("states" in line for line in lines)
    assert line_of(lines, "verdict").split(maxsplit=1)[1] == "none yet"


def test_a_large_fleet_fits_the_terminal_with_the_troubled_ones_shown() -> None:
    rows = [replace(ROW, name=f"http://10.0.1.{number}:30000", queued=0) for number in range(200)]
    rows[150] = replace(rows[150], problem="refused the connection")
    rows[160] = replace(rows[160], queued=500)
    lines = drawn(WatchDocument(1.0, tuple(rows)), 80, 24)
    assert len(lines) <= 24
    assert any("10.0.1.150" in line for line in lines)
    assert any("10.0.1.160" in line for line in lines)
    assert any(line.startswith("and 19") for line in lines)


def test_a_servers_words_do_not_steer_the_terminal() -> None:
    hostile = ServerRow(
        "http://10.0.0.1:1", "\x1b[2Jgone\x07 [bold]x[/bold] Bearer sk-abcdef0123456789abcdef"
    )
    text = "\n".join(drawn(WatchDocument(1.0, (hostile,), VerdictLine("unknown", 0.0, "\x1b[31m", 0.0))))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "abcdef0123456789" not in text
    assert "[bold]x[/bold]" in text


def test_line_and_json_say_the_same_as_the_picture() -> None:
    assert watch_line(replace(DOCUMENT, job=RUNNING)) == (
        "[00:01:02] servers=2/2 running=64 queued=8 cap=74 output_tokens_per_s=1276 verdict=state_pool "
        f"confidence=0.90 job=running done={RUNNING.done} rows={RUNNING.rows}"
    )
    told = json.loads(json.dumps(DOCUMENT.to_json(), allow_nan=False))
    assert (told["schema"], told["schema_version"]) == ("headrace.watch", 1)
    assert told["fleet"]["running"] == {"value": 64, "servers": 2}
    assert told["fleet"]["output_tokens_per_s"] == {"value": 1276.2, "servers": 2}
    assert told["servers"][0]["state_reserved"] == 0.851
    assert told["job"] is None


def test_a_line_names_the_first_silent_servers_and_counts_the_others() -> None:
    gone = [replace(ROW, name=f"http://10.0.1.{number}:1", problem="refused") for number in range(64)]
    line = watch_line(WatchDocument(0.0, tuple(gone)))
    assert line.endswith(
        "silent=http://10.0.1.0:1,http://10.0.1.1:1,http://10.0.1.2:1,http://10.0.1.3:1,and_60_more"
    )
    assert "silent=http://10.0.1.0:1 " in watch_line(WatchDocument(0.0, (*gone[:1], ROW))) + " "


def test_json_has_null_for_what_is_no_number() -> None:
    odd = replace(ROW, step_seconds=float("inf"))
    assert json.loads(json.dumps(WatchDocument(1.0, (odd,)).to_json(), allow_nan=False))["servers"][0][
        "step_seconds"
    ] is None  # fmt: skip
