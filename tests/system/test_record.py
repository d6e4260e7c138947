"""Recording emulated fleets over loopback: `record`, what `run` records by itself, and what is made of it."""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path

import pytest

import headrace
from headrace import api
from headrace.drive.status import JobStatus
from headrace.errors import InputError, UnreachableError, UsageError
from headrace.observe.recording.form import segments
from headrace.observe.recording.observed import read_recorded
from headrace.observe.target import Options, read_target
from headrace.simulate.emulate import EmulatorOptions, ThreadedFleet

PLANTED = "planted-prompt-text"
CAP = 8


def prompts(folder: Path, count: int) -> Path:
    file = folder / "prompts.jsonl"
    file.write_text("".join(json.dumps({"question": f"{PLANTED} {row}"}) + "\n" for row in range(count)))
    return file


def content(folder: Path) -> bytes:
    return (
        b"".join(gzip.decompress(path.read_bytes()) for path in segments(folder))
        + (folder / "recording.json").read_bytes()
    )


def test_a_job_records_itself_and_others_record_beside_it(tmp_path: Path) -> None:
    options = EmulatorOptions(replicas=2, cap=CAP, speed=40, mean_output_tokens=300)
    last: list[JobStatus] = []
    with ThreadedFleet(options) as fleet:

        def run() -> None:
            last.append(
                headrace.run(
                    prompts=prompts(tmp_path, 400), server=fleet.urls, out=tmp_path / "out", in_flight=CAP,
                    max_tokens=2000, record_every="0.5s",
                )
            )  # fmt: skip

        job = threading.Thread(target=run)
        job.start()
        kept = api.record(fleet.urls, out=tmp_path / "beside", duration="3s", every="0.2s")
        job.join()
    assert kept.servers == 2
    assert kept.samples >= 10
    (status,) = last
    assert status.done == 400
    assert status.notes == []
    for folder in (tmp_path / "beside", tmp_path / "out" / "recording"):
        assert PLANTED.encode() not in content(folder)
    seen = read_target(str(tmp_path / "out"), Options(seconds=0))
    assert [server.name for server in seen.servers] == fleet.urls
    for server in seen.servers:
        assert server.value("cap") == CAP
        assert server.value("running") == pytest.approx(CAP, abs=1)
        assert server.phases is not None
        assert server.phases.began_with_ramp
    assert seen.client is not None
    told = seen.client.lengths["all sources"]
    assert told.finished == 400
    assert told.mean.value == pytest.approx(status.mean_output_tokens, rel=0.01)
    beside = read_target(str(tmp_path / "beside"), Options(seconds=0))
    assert {server.name for server in beside.servers} == set(fleet.urls)
    assert api.diagnose(tmp_path / "beside").to_json()["schema"] == "headrace.diagnosis"


def test_a_running_job_tells_lengths_of_what_is_in_flight(tmp_path: Path) -> None:
    options = EmulatorOptions(replicas=1, cap=CAP, speed=10, mean_output_tokens=400)
    with ThreadedFleet(options) as fleet:
        seen = []

        def look(status: JobStatus) -> None:
            if status.done_this_run >= 30 and not seen:
                seen.append(read_recorded(tmp_path / "out" / "recording"))

        headrace.run(
            prompts=prompts(tmp_path, 80), server=fleet.urls, out=tmp_path / "out", in_flight=CAP,
            max_tokens=2000, record_every="0.3s", on_status=look,
        )  # fmt: skip
    client = seen[0].client
    assert client is not None
    assert (
        client.readings["mean_output_tokens"].value
        >= client.readings["mean_output_tokens_finished_only"].value
    )
    assert client.readings["in_flight_tokens"].value > 0


def test_a_job_without_recording_leaves_none(tmp_path: Path) -> None:
    with ThreadedFleet(EmulatorOptions(replicas=1, cap=CAP, speed=100, mean_output_tokens=50)) as fleet:
        headrace.run(
            prompts=prompts(tmp_path, 5),
            server=fleet.urls,
            out=tmp_path / "out",
            record_every=0,
            max_tokens=100,
        )
    assert not (tmp_path / "out" / "recording").exists()


def test_a_broken_recording_costs_the_job_nothing(tmp_path: Path) -> None:
    (tmp_path / "out" / "recording").mkdir(parents=True)
    (tmp_path / "out" / "recording" / "recording.json").write_text("{")
    with ThreadedFleet(EmulatorOptions(replicas=1, cap=CAP, speed=100, mean_output_tokens=50)) as fleet:
        status = headrace.run(
            prompts=prompts(tmp_path, 5), server=fleet.urls, out=tmp_path / "out", max_tokens=100
        )
    assert status.done == 5
    assert any("the job goes on without a recording" in note for note in status.notes)


def test_record_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="no server answers"):
        api.record("http://127.0.0.1:9", out=tmp_path / "r", duration=1)
    assert not (tmp_path / "r").exists()
    with pytest.raises(UsageError, match="nothing that can be recorded"):
        api.record("ftp://h", out=tmp_path / "r", duration=1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(InputError, match="other things"):
        api.record("http://127.0.0.1:9", out=tmp_path / "full", duration=1)
