"""Facts files: what a person types, with the mistakes a person makes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import InputError
from headrace.observe.facts import parse_facts, read_facts
from headrace.observe.facts_schema import json_schema
from headrace.observe.observation import Observation
from headrace.quantities import Origin

FLEET = """
engine: SGLang
engine_version: "0.5.17"
gpu: H100 SXM
gpus: 12
replicas: 3
tensor_parallel: 4
model: some/model
flags: "--tp 4 --max-running-requests 48; one prompt per request"
observed:
  scope: fleet
  running: 120
  queued: 9
  cap: 144
  kv_usage: 0.5
  output_tokens_per_s: 3000
  cuda_graph: true
client:
  in_flight: 129
  completed: 70
claims: ["should be twice as fast"]
"""


def read(text: str, folder: Path = Path("."), **options: bool) -> Observation:
    return parse_facts(text, "facts.yaml", folder, **options)[0]


def test_a_fleets_readings_become_one_servers() -> None:
    seen = read(FLEET)
    (server,) = seen.servers
    assert (server.engine, server.replicas, server.gpus, seen.gpus) == ("sglang", 3, 4, 12)
    assert server.value("running") == 40
    assert server.value("output_tokens_per_s") == 1000
    assert server.capacities["cap"].value == 48
    assert server.value("kv_usage") == 0.5  # a fraction is no sum
    assert server.value("cuda_graph") == 1
    running = server.readings["running"]
    assert running.origin is Origin.DERIVED
    assert running.inputs["fleet"].value == 120
    assert server.flags == "--tp 4 --max-running-requests 48"
    assert seen.notes == ("flags: one prompt per request",)
    assert seen.client is not None
    assert seen.client.value("in_flight") == 129
    assert seen.client.readings["completed"].origin is Origin.MEASURED


def test_a_ranks_readings_become_the_servers() -> None:
    server = read(
        "data_parallel: 4\nobserved:\n  scope: per DP rank\n  running: 7\n  kv_usage: 0.3\n"
    ).servers[0]
    assert server.value("running") == 28
    assert server.value("kv_usage") == 0.3


def test_values_per_gpu_have_a_mean_and_a_range() -> None:
    server = read("observed:\n  gpu_power_w: [300, 500]\n  time_s_by_rank: {0: 10.5, 3: 20}\n").servers[0]
    power = server.readings["gpu_power_w"]
    assert (power.value, power.range) == (400, (300, 500))
    assert server.by_rank["gpu_power_w_by_rank"] == {"0": 300, "1": 500}
    assert server.by_rank["time_s_by_rank"] == {"0": 10.5, "3": 20}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("runing: 4", "'runing' is no key of a facts file, and is not read. "
                      "Did you mean 'running' under 'observed'?"),
        ("observed:\n  quued: 4", "Did you mean 'queued'?"),
        ("observed:\n  in_flight: 4", "It belongs under 'client'."),
        ("observed:\n  kv_usage: 61", "observed.kv_usage is 61; read as 0.61: fractions are 0…1."),
        ("observed:\n  kv_usage: 250", "a fraction lies between 0 and 1."),
        ("observed:\n  running: many", "observed.running is many; it takes a number of requests."),
        ("observed:\n  running: 37%", "it takes a number of requests."),
        ("observed:\n  running: -3", "from 0 to 1e+18 is read."),
        ("observed:\n  running: .nan", ".nan is not a finite number."),
        ("observed: 4", "'observed' is 4; it takes keys and values, one a line."),
        ("replicas: 2.5", "'replicas' is 2.5; a whole number from 1 to 1,000,000 is read."),
        ("gpus: 7\nreplicas: 2", "7 GPUs do not divide among 2 servers."),
        ("client:\n  load: fre", "'load' is 'fre'; known: free, given. Did you mean 'free'?"),
        ("logs: ../secrets.txt", "leads out of the facts file's folder"),
        ("logs: /etc/passwd", "leads out of the facts file's folder"),
        ("logs: none-such.txt", "no such file in the facts file's folder"),
        ("model: [a, b]", "'model' takes text, not a list."),
    ],
)  # fmt: skip
def test_what_is_odd_is_told_and_is_an_error_when_strict(text: str, said: str, tmp_path: Path) -> None:
    (note,) = read(text, tmp_path).notes
    assert said in note
    assert "facts.yaml:" in note
    with pytest.raises(InputError, match=re.escape(note)):
        read(text, tmp_path, strict=True)


@pytest.mark.parametrize("text", ["", "- a\n- b", "just words", "{", "a: b: c", "&a [*a]", "\0"])
def test_what_is_no_facts_file_is_an_input_error(text: str) -> None:
    with pytest.raises(InputError):
        read(text)


def test_numbers_as_people_write_them() -> None:
    server = read(
        'observed:\n  kv_capacity_tokens: "250,905"\n  kv_usage: "61.5%"\n  running: "37"\n'
    ).servers[0]
    assert [server.value(word) for word in ("kv_capacity_tokens", "kv_usage", "running")] == [
        250905,
        0.615,
        37,
    ]


def test_load_is_free_unless_one_request_is_in_flight() -> None:
    for text, free in (
        ("in_flight: 1", False),
        ("in_flight: 2", True),
        ("completed: 1", True),
        ("in_flight: 1\n  load: free", True),
        ("in_flight: 9\n  load: given", False),
    ):
        client = read(f"client:\n  {text}\n").client
        assert client is not None
        assert client.is_free is free, text


def test_no_secret_gets_through() -> None:
    secret = "zq9-very-secret-zq9"
    text = f"""
model: https://user:{secret}@host/model
flags: "--api-key {secret} --admin-api-key={secret} --dist-init-addr http://u:{secret}@h:1 HF_TOKEN={secret}"
notes: "api_key={secret}"
claims: ["password: {secret}"]
unknown_password: {secret}
"""
    assert secret not in json.dumps(read(text).to_json())


def test_the_log_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("x")
    assert parse_facts("logs: log.txt", "facts.yaml", tmp_path)[1] == tmp_path / "log.txt"


def test_every_public_case_is_read(shared: Path) -> None:
    cases = sorted((shared / "cases").glob("*/facts.yaml"))
    assert len(cases) >= 82
    for path in cases:
        seen, log = read_facts(path, strict=True)
        told = yaml.safe_load(path.read_text())
        server = seen.servers[0]
        json.dumps(seen.to_json(), allow_nan=False)
        assert server.engine == told["engine"]
        assert (log is not None) == ("logs" in told)
        observed = {k: v for k, v in told.get("observed", {}).items() if isinstance(v, int | float)}
        for word, value in observed.items():
            quantity = server.get(word)
            assert quantity is not None, (path, word)
            read_as = quantity.inputs or {"": quantity}
            assert next(iter(read_as.values())).value == value, (path, word)
        for word, value in told.get("client", {}).items():
            if word != "load":
                assert seen.client is not None
                assert seen.client.value(word) == value


def test_the_schema_knows_every_key_of_the_cases(shared: Path) -> None:
    properties = json_schema()["properties"]
    for path in (shared / "cases").glob("*/facts.yaml"):
        told = yaml.safe_load(path.read_text())
        assert set(told) <= set(properties)
        for section in ("observed", "client"):
            assert set(told.get(section, {})) <= set(properties[section]["properties"])


QUICK = settings(max_examples=60, deadline=None)
TEXT = st.text(st.characters(max_codepoint=0x17F), max_size=12)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["engine", "gpus", "replicas", "flags", "observed", "client", "claims", "logs", "notes", "model", "x"]
)
READINGS = st.dictionaries(
    st.sampled_from(
        ["running", "cap", "kv_usage", "scope", "gpu_power_w", "time_s_by_rank", "load", "in_flight"]
    ),
    ANY,
    max_size=5,
)


@QUICK
@given(st.dictionaries(KEYS, ANY | READINGS, max_size=6))
def test_no_facts_crash_the_reader_and_no_number_is_made_up(facts: dict[str, object]) -> None:
    try:
        seen = read(yaml.safe_dump(facts, allow_unicode=True), Path(os.sep) / "nowhere")
    except InputError:
        return
    json.dumps(seen.to_json(), allow_nan=False)
    (server,) = seen.servers
    for quantity in (*server.readings.values(), *server.capacities.values()):
        assert 0 <= quantity.value < float("inf")


@QUICK
@given(st.text(st.characters(max_codepoint=0x17F), max_size=300))
def test_no_text_crashes_the_reader(text: str) -> None:
    try:
        read(text)
    except InputError:
        pass
