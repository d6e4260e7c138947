"""A Prometheus server's answers as servers: the documented form of /api/v1/query and query_range."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from headrace.clock import VirtualClock
from headrace.durable.disk import RealDisk
from headrace.errors import UnreachableError, UsageError
from headrace.observe.prometheus import PrometheusSource, parse_source, read_range
from headrace.observe.recording.observed import read_recorded
from headrace.observe.recording.writer import RecordingWriter

SOURCE = 'prometheus:http://user:pw@host:9090?match=job="sglang"&since=10m&step=15s'


def series(name: str, instance: str, points: list[tuple[float, float]], **labels: str) -> dict[str, Any]:
    metric = {"__name__": name, "instance": instance, "job": "sglang", "model_name": "m", **labels}
    return {"metric": metric, "values": [[at, str(value)] for at, value in points]}


class Server:
    """Answers queries as Prometheus does; keeps what was asked."""

    def __init__(self, result: list[dict[str, Any]]) -> None:
        self._result = result
        self.asked: list[dict[str, list[str]]] = []

    async def fetch(self, path: str) -> bytes | None:
        parts = urlsplit(path)
        query = parse_qs(parts.query)
        self.asked.append(query)
        if "sglang" not in query["query"][0].split('"')[1]:
            return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": []}}).encode()
        if parts.path.endswith("query_range"):
            return json.dumps({"status": "success", "data": {"result": self._result}}).encode()
        newest = [
            {"metric": one["metric"], "value": one["values"][len(self.asked) // 3]} for one in self._result
        ]
        return json.dumps({"status": "success", "data": {"result": newest}}).encode()


def recorded() -> list[dict[str, Any]]:
    times = [1000.0 + 15 * step for step in range(41)]
    found = []
    for instance in ("a:30000", "b:30000"):
        found += [
            series("sglang:num_running_reqs", instance, [(at, 30) for at in times], tp_rank="0"),
            series("sglang:num_running_reqs", instance, [(at, 30) for at in times], tp_rank="1"),
            series("sglang:token_usage", instance, [(at, 0.9) for at in times]),
            series("sglang:full_token_usage", instance, [(at, 0.4) for at in times]),
            series(
                "sglang:realtime_tokens_total",
                instance,
                [(at, 1000 * (at - 1000)) for at in times],
                mode="decode",
            ),
        ]
    return found


def test_a_range_is_one_server_per_instance() -> None:
    server = Server(recorded())
    seen = asyncio.run(read_range(parse_source(SOURCE), server.fetch, VirtualClock(wall_seconds=1600.0)))
    assert [one.name for one in seen.servers] == ["a:30000", "b:30000"]
    first = seen.servers[0]
    assert (first.engine, first.value("running"), first.value("kv_usage")) == ("sglang", 30, 0.4)
    assert first.value("output_tokens_per_s") == pytest.approx(1000)
    assert len(first.seconds) == 41
    assert "pw" not in seen.source
    asked = server.asked[0]
    assert (asked["start"], asked["end"], asked["step"]) == (["1000.000"], ["1600.000"], ["15"])
    assert 'job="sglang"' in asked["query"][0]
    assert "_bucket" in asked["query"][0]


def test_it_can_be_recorded(tmp_path: Path) -> None:
    clock = VirtualClock()
    writer = RecordingWriter(tmp_path / "r", RealDisk(), clock, every_seconds=15.0)
    source = PrometheusSource(parse_source(SOURCE), Server(recorded()).fetch)
    for _ in range(3):
        asyncio.run(source.sample(writer))
        clock.advance(15.0)
    writer.close()
    seen = read_recorded(tmp_path / "r")
    assert [one.value("running") for one in seen.servers] == [30, 30]
    assert seen.servers[0].seconds.tolist() == [0, 15, 30]


def test_nothing_stored_and_no_answer_are_told() -> None:
    asked = parse_source("prometheus:http://host:9090")
    with pytest.raises(UnreachableError, match="no family of a known engine"):
        asyncio.run(read_range(asked, Server([]).fetch, VirtualClock()))

    async def silent(path: str) -> bytes | None:
        return None

    with pytest.raises(UnreachableError, match="does not answer"):
        asyncio.run(read_range(asked, silent, VirtualClock()))


@pytest.mark.parametrize(
    "text",
    [
        "prometheus:host:9090",
        "prometheus:http://host?match=up} or vector(1) #",
        "prometheus:http://host?since=1y",
        "prometheus:http://host?wrong=1",
        "prometheus:http://host?since=30d&step=15s",
    ],
)
def test_what_is_no_source_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="prometheus:"):
        parse_source(text)


@pytest.mark.parametrize(
    "result",
    [
        [{"metric": None, "values": 1}],
        [{"metric": {"__name__": "sglang:num_running_reqs"}, "values": [["x", "y"], [1], None]}],
        [{"metric": {"__name__": "sglang:num_running_reqs", "instance": "a"}, "values": [[1e400, "NaN"]]}],
        ["text", 5],
    ],
)
def test_hostile_answers_are_no_crash(result: list[Any]) -> None:
    server = Server([])
    server._result = result
    with pytest.raises(UnreachableError):
        asyncio.run(read_range(parse_source("prometheus:http://h"), server.fetch, VirtualClock()))
