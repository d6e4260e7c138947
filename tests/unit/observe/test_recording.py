"""Recordings: what is written is read back, whole up to a crash, without a secret, as live looks say it."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from headrace.clock import VirtualClock
from headrace.durable.disk import RealDisk
from headrace.durable.recording import Loss, RecordingDisk, after_crash
from headrace.engines.metrics import Page
from headrace.errors import InputError
from headrace.observe.live import observe_through
from headrace.observe.recording.form import ABOUT, Answers, InFlight, segments
from headrace.observe.recording.observed import read_recorded
from headrace.observe.recording.reading import read_recording
from headrace.observe.recording.recorder import ServerLooks
from headrace.observe.recording.writer import RecordingWriter
from headrace.observe.target import Options, read_target
from tests.unit.observe.recorded import Recorded

SECRET = "sk-planted-secret-1234567890"


def writer(
    folder: Path, clock: VirtualClock, disk: RealDisk | None = None, **more: object
) -> RecordingWriter:
    return RecordingWriter(folder, disk or RealDisk(), clock, every_seconds=1.0, **more)  # type: ignore[arg-type]


def page(running: float, tokens: float) -> Page:
    return Page(gauges={"running": running, "queued": 0.0}, counters={"output_tokens": tokens}, seen=3)


def test_columns_come_back_as_they_went(tmp_path: Path) -> None:
    clock = VirtualClock()
    into = writer(tmp_path / "r", clock)
    for second in range(100):
        into.add("http://a", into.at(), page(32.0 if second != 50 else 31.0, 640.0 * second + 0.125))
        clock.advance(1.0)
        if second % 10 == 9:
            into.flush()
    into.close()
    found = read_recording(tmp_path / "r")
    assert found.gauges["http://a"].seconds.tolist() == list(range(100))
    assert found.gauges["http://a"].columns["running"].tolist() == [32.0] * 50 + [31.0] + [32.0] * 49
    assert found.counters["http://a"].columns["output_tokens"][99] == 640.0 * 99 + 0.125
    assert found.notes == []


def test_it_can_be_read_by_any_reader_while_it_is_written(tmp_path: Path) -> None:
    clock = VirtualClock()
    into = writer(tmp_path / "r", clock)
    into.add("http://a", 0.0, page(1, 0))
    into.flush()
    (segment,) = segments(tmp_path / "r")
    lines = [json.loads(line) for line in gzip.decompress(segment.read_bytes()).splitlines()]
    assert [line["type"] for line in lines] == ["segment", "server"]
    assert lines[1]["gauges"]["running"] == 1


@pytest.mark.parametrize("loss", list(Loss))
def test_a_power_cut_costs_no_flushed_sample(tmp_path: Path, loss: Loss) -> None:
    clock, disk = VirtualClock(), RecordingDisk()
    into = writer(tmp_path / "r", clock, disk)
    for second in range(6):
        into.add("http://a", float(second), page(8, second))
        into.flush()
        disk.mark(second)
    for count in range(len(disk.events) + 1):
        files, _, marks = after_crash(disk.events[:count], loss)
        left = tmp_path / f"after-{loss}-{count}"
        left.mkdir()
        for path, data in files.items():
            if path.parent == tmp_path / "r":
                (left / path.name).write_bytes(data)
        if not marks:
            continue
        found = read_recording(left)
        times = found.gauges["http://a"].seconds.tolist()
        assert times[: marks[-1] + 1] == list(range(marks[-1] + 1))


def test_a_torn_end_is_left_out_and_told(tmp_path: Path) -> None:
    clock = VirtualClock()
    into = writer(tmp_path / "r", clock)
    for second in range(3):
        into.add("http://a", float(second), page(8, second))
        into.flush()
    into.close()
    (segment,) = segments(tmp_path / "r")
    segment.write_bytes(segment.read_bytes()[:-7])
    found = read_recording(tmp_path / "r")
    assert found.gauges["http://a"].seconds.tolist() == [0, 1]
    assert "not whole" in found.notes[0]


def test_a_recording_goes_on_in_a_new_segment_on_the_same_clock(tmp_path: Path) -> None:
    clock = VirtualClock()
    first = writer(tmp_path / "r", clock)
    first.add("http://a", first.at(), page(8, 100))
    first.close()
    clock.advance(3600.0)
    second = writer(tmp_path / "r", clock)
    second.add("http://a", second.at(), page(8, 5))
    second.close()
    assert len(segments(tmp_path / "r")) == 2
    assert read_recording(tmp_path / "r").gauges["http://a"].seconds.tolist() == [0, 3600]


@pytest.mark.parametrize(
    "about", [b"{}", b"[1]", b"{", b'{"schema":"headrace.recording","version":9}', b"\xff"]
)
def test_what_is_no_recording_is_refused(tmp_path: Path, about: bytes) -> None:
    (tmp_path / ABOUT).write_bytes(about)
    with pytest.raises(InputError, match=r"recording\.json"):
        read_recording(tmp_path)


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.observe.recording.reading.MAX_MEMBER_BYTES", 1_000_000)
    into = writer(tmp_path, VirtualClock())
    into.flush()
    (tmp_path / "samples-0001.jsonl.gz").write_bytes(gzip.compress(b" " * 20_000_000))
    with pytest.raises(InputError, match="no headrace wrote this"):
        read_recording(tmp_path)


def info() -> bytes:
    states = [{"effective_max_running_requests_per_dp": 40, "api_key": SECRET}]
    return json.dumps(
        {"version": "0.5.12", "model_path": "m", "tp_size": 1, "dp_size": 1, "api_key": SECRET,
         "admin_api_key": SECRET,
         "served_model_name": SECRET, "tokenizer_path": f"/x/{SECRET}", "mem_fraction_static": 0.85,
         "max_total_num_tokens": 50_000, "internal_states": states}
    ).encode()  # fmt: skip


def loads(running: int) -> bytes:
    rank = {"num_running_reqs": running, "num_waiting_reqs": 0, "token_usage": 0.4,
            "max_total_num_tokens": 50_000, "max_running_requests": 40, "text": SECRET}  # fmt: skip
    return json.dumps({"version": "0.5.12", "loads": [rank]}).encode()


def metrics(tokens: float) -> bytes:
    lines = (
        f'sglang:num_running_reqs{{model_name="m",prompt="{SECRET}"}} 30',
        f'sglang:realtime_tokens_total{{mode="decode"}} {tokens}',
        f'sglang:unknown_family{{text="{SECRET}"}} 1',
    )
    return "\n".join(lines).encode()


def served() -> Recorded:
    pages = [metrics(0), *(metrics(1000.0 * second) for second in range(60))]
    return Recorded({"/metrics": pages, "/server_info": [info()], "/v1/loads": [loads(30)]})


def test_it_says_what_a_live_look_says_and_holds_no_secret(tmp_path: Path) -> None:
    clock = VirtualClock()

    async def sleep(duration: float) -> None:
        clock.advance(duration)

    live = asyncio.run(observe_through(served().fetch, "http://a", 30, clock=clock, sleep=sleep))

    async def recorded() -> None:
        into = writer(tmp_path / "r", clock)
        looks = ServerLooks("http://a", served().fetch)
        assert await looks.find()
        for _ in range(31):
            await looks.look(into)
            clock.advance(1.0)
        into.close()

    asyncio.run(recorded())
    (kept,) = read_target(str(tmp_path / "r"), Options(seconds=0)).servers
    for word in ("running", "queued", "output_tokens_per_s", "kv_usage", "cap", "kv_capacity_tokens"):
        assert kept.value(word) == pytest.approx(live.value(word)), word
        assert kept.get(word).source == live.get(word).source, word  # type: ignore[union-attr]
    assert (kept.engine, kept.engine_version, kept.gpus, kept.flags) == ("sglang", "0.5.12", 1, live.flags)
    assert kept.settings == live.settings
    assert kept.phases is not None
    everything = (tmp_path / "r" / ABOUT).read_bytes() + b"".join(
        gzip.decompress(path.read_bytes()) for path in segments(tmp_path / "r")
    )
    assert SECRET.encode() not in everything
    assert b"planted" not in everything


def test_a_recorded_job_tells_lengths_with_what_is_in_flight(tmp_path: Path) -> None:
    # 256 slots over 8 servers, 50 ms a step (20 tok/s each), gamma lengths of mean 2,600 and spread 0.3,
    # 280 s from an empty start: as in test_lengths, but tokens in flight come of elapsed time
    random = np.random.default_rng(2)
    ends = np.cumsum(random.gamma(1 / 0.09, 2600 * 0.09, (256, 12)), axis=1) / 20.0
    clock = VirtualClock()
    into = writer(tmp_path / "r", clock, sources={"math": None})
    names = [f"http://s{number}" for number in range(8)]
    for second in range(0, 281, 10):
        for name in names:
            into.add(name, float(second), page(32.0, 640.0 * second))
    flights: dict[str, list[float]] = {}
    for slot, of in enumerate(ends):
        server, begun = names[slot % 8], np.concatenate(([0.0], of))[:-1]
        done = of <= 280
        into.add_line(
            Answers("math", server, begun[done].tolist(), (of - begun)[done].tolist(),
                    np.round(20 * (of - begun)[done]).astype(int).tolist())
        )  # fmt: skip
        flights.setdefault(server, []).append(float(begun[~done][0]))
    into.add_line(InFlight(280.0, 256, 654_676, {"math": flights}))
    into.add_line(Answers("math", names[0], [270.0], [20.0], [99_999]))  # ended later: not counted
    into.close()
    seen = read_recorded(tmp_path / "r")
    assert seen.client is not None
    client, told = seen.client.readings, seen.client.lengths["math"]
    assert "elapsed decode time" in str(told.by)
    assert client["mean_output_tokens"].low < 2600 < client["mean_output_tokens"].high  # type: ignore[operator]
    assert client["mean_output_tokens_finished_only"].value < 0.97 * 2600
    # finished and in flight together are what the slots made: 256 × 20 tok/s × 280 s
    finished = client["output_tokens_per_s_finished_only"].value * 280
    assert finished + client["in_flight_tokens"].value == pytest.approx(256 * 20 * 280, rel=0.01)
    assert finished < 0.85 * 256 * 20 * 280
    (first, *_) = seen.servers
    assert first.phases is not None
    assert first.phases.latency_seconds == pytest.approx(130, rel=0.05)
    assert first.phases.steady_seconds is None  # 280 s: two latencies have passed, not one turn more
    assert first.phases.ready_in_seconds == pytest.approx(110, abs=20)


def test_every_line_of_the_form_survives_the_round_trip(tmp_path: Path) -> None:
    into = writer(tmp_path / "r", VirtualClock())
    into.add(
        "http://a",
        0.0,
        Page(gauges={"running": 1}, by_rank={"running": {"0": 1.0, "1": 0.0}}, ranks=2, seen=1),
    )
    into.missed("http://b")
    into.add_gpu("host/0", "NVIDIA H200", 0.0, {"gpu_power_w": 612.5})
    into.close()
    found = read_recording(tmp_path / "r")
    assert found.ranks["http://a"].columns["running/1"].tolist() == [0.0]
    assert found.missed == {"http://b": 1}
    assert found.gpus["host/0"].columns["gpu_power_w"].tolist() == [612.5]
    assert found.about.gpus == {"host/0": "NVIDIA H200"}
    assert msgspec.json.decode((tmp_path / "r" / ABOUT).read_bytes())["schema"] == "headrace.recording"
