"""A job as lines."""

from __future__ import annotations

import json

import msgspec

from headrace.drive.status import JobStatus
from headrace.report.job_lines import found_line, json_line, note_line, plain_line
from tests.unit.report.statuses import endpoint, status


def test_a_plain_line_can_be_grepped() -> None:
    job = status(endpoints=[endpoint(0), endpoint(1, state="broken")], message='disk "full"\nwaiting')
    assert plain_line(job) == (
        "[01:06:40] running done=123456 failed=44 pending=175500 rows=300000 in_flight=76/80 servers=1/2 "
        "requests_per_second=31.25 output_tokens_per_second=12040 finished_only=8002 eta_seconds=8040 "
        "flags=empty:2,truncated:400 errors=503:12,timeout:3 failures=refused:44 "
        'message="disk \\"full\\" waiting"'
    )


def test_what_is_not_known_is_left_out() -> None:
    job = status(
        requests_per_second=None,
        output_tokens_per_second=None,
        output_tokens_per_second_finished=None,
        eta_seconds=None,
        flags={},
        errors={},
        failures={},
        elapsed_seconds=100_000.0,
    )
    assert plain_line(job) == (
        "[27:46:40] running done=123456 failed=44 pending=175500 rows=300000 in_flight=76/80 servers=2/2"
    )


def test_rows_of_another_input_stand_in_the_line() -> None:
    assert " other_rows=605" in plain_line(status(other_rows=605))
    assert "other_rows" not in plain_line(status())


def test_a_json_line_is_the_whole_document() -> None:
    line = json_line(status())
    assert "\n" not in line
    assert json.loads(line)["sources"][1]["name"] == "gsm8k"
    assert msgspec.json.decode(line, type=JobStatus) == status()


def test_a_note_has_a_line_of_its_own() -> None:
    assert note_line(status(), 'ledger "remade"\x1b[1m') == '[01:06:40] note="ledger \\"remade\\" [1m"'


def test_a_status_that_was_found_says_how_before_the_document() -> None:
    found = json.loads(found_line(status(notes=["a network disk"]), True, 0.12345))
    assert list(found)[:3] == ["live", "age_seconds", "schema_version"]
    assert (found["live"], found["age_seconds"], found["notes"]) == (True, 0.123, ["a network disk"])
    assert found["sources"][1]["name"] == "gsm8k"
