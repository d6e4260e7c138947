"""`headrace report`: a page, its document, what moved between two; and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.cli import main
from tests.unit.diagnose.stories import HYBRID
from tests.unit.report.html.reading import PageReader, resolve


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out, told.err


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    path = tmp_path / "facts.yaml"
    path.write_text(yaml.safe_dump(HYBRID))
    return path


@pytest.fixture
def diagnosis(facts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    code, out, _ = run(capsys, "diagnose", facts, "--json")
    assert code == 0
    path = tmp_path / "diagnosis.json"
    path.write_text(out)
    return path


def test_a_page_of_a_diagnosis_file_has_the_numbers_of_the_file(
    diagnosis: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    code, out, _ = run(capsys, "report", diagnosis, "--html", page)
    assert code == 0
    assert out.startswith(f"Wrote {page} (")
    told = json.loads(diagnosis.read_text())
    read = PageReader(page.read_text())
    assert len(read.numbers) > 60
    for where, value in read.numbers:
        assert json.loads(value) == resolve(told, where), where


def test_its_document_can_be_read_again(
    facts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "report", facts, "--json")
    assert code == 0
    again = tmp_path / "again.json"
    again.write_text(out)
    code, out_again, _ = run(capsys, "report", again, "--json")
    assert code == 0
    first, second = json.loads(out), json.loads(out_again)
    first.pop("report")
    second.pop("report")
    assert first == second


def test_a_log_has_its_course_over_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        f"[2026-02-03 04:05:{second:02}] Decode batch, #running-req: {running}, #token: {running * 1000}, "
        f"token usage: {running / 100:.2f}, cuda graph: True, gen throughput (token/s): {running * 20}.00, "
        f"#queue-req: 3\n"
        for second, running in zip(range(0, 50, 10), (10, 40, 60, 62, 61), strict=True)
    ]
    log, page = tmp_path / "server.log", tmp_path / "page.html"
    log.write_text("".join(lines))
    code, out, _ = run(capsys, "report", log, "--json", "--html", page)
    assert code == 0
    (server,) = json.loads(out)["series"]["servers"]
    assert server["seconds"] == [0, 10, 20, 30, 40]
    assert server["columns"]["running"] == [10, 40, 60, 62, 61]
    assert server["columns"]["kv_usage"] == [0.1, 0.4, 0.6, 0.62, 0.61]
    assert 'id="plot-pools"' in page.read_text()


def _changed(path: Path, tmp_path: Path) -> Path:
    facts: dict[str, Any] = yaml.safe_load(path.read_text())
    facts["client"]["in_flight"] = 2 * facts["client"]["in_flight"]
    there = tmp_path / "there.yaml"
    there.write_text(yaml.safe_dump(facts))
    return there


def test_what_moved_from_one_to_another(
    facts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = _changed(facts, tmp_path)
    code, out, _ = run(capsys, "report", facts, "--against", there)
    assert code == 0
    (line,) = [line for line in out.splitlines() if line.startswith("in_flight_per_server")]
    assert line.split()[-1] == "0.50", "half as many as there"
    assert "How to read this" in out
    assert max(map(len, out.splitlines())) <= 80
    code, out, _ = run(capsys, "report", facts, "--against", there, "--json")
    changes = {change["name"]: change for change in json.loads(out)["against"]["changes"]}
    assert changes["in_flight"]["ratio"] == 0.5
    assert not changes["in_flight"]["within_range"]
    assert changes["running"]["ratio"] == 1.0
    assert changes["running"]["within_range"]


def test_a_page_of_two_has_the_ids_of_both(
    facts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    code, out, _ = run(
        capsys, "report", facts, "--against", _changed(facts, tmp_path), "--html", page, "--json"
    )
    assert code == 0
    read = PageReader(page.read_text())
    assert sum(where.startswith("/against/changes/") for where, _ in read.numbers) > 20
    for where, value in read.numbers:
        assert json.loads(value) == resolve(json.loads(out), where)


def test_nothing_to_make_is_usage(facts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "report", facts)
    assert code == 2
    assert "--html FILE" in err


def test_a_file_that_is_no_report_stays(
    facts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    thesis = tmp_path / "thesis.html"
    thesis.write_text("<html>two years of work</html>")
    code, _, err = run(capsys, "report", facts, "--html", thesis)
    assert code == 3
    assert "no headrace report" in err
    assert thesis.read_text() == "<html>two years of work</html>"
    page = tmp_path / "page.html"
    assert run(capsys, "report", facts, "--html", page)[0] == 0
    assert run(capsys, "report", facts, "--html", page)[0] == 0, "its own is written anew"
    assert run(capsys, "report", facts, "--html", tmp_path)[0] == 3


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({"schema": "something.else"}, "no diagnosis"),
        ({"schema_version": 99}, "schema version 99"),
        ({"binding": {"constraint": "kv_pool"}}, "damaged"),
        ({"ladder": "none"}, "damaged"),
        ({"series": {"servers": [{"name": "a", "seconds": ["x"], "columns": {}}]}}, "damaged"),
    ],
)
def test_a_damaged_diagnosis_is_told(
    diagnosis: Path, capsys: pytest.CaptureFixture[str], edit: dict[str, Any], said: str
) -> None:
    diagnosis.write_text(json.dumps({**json.loads(diagnosis.read_text()), **edit}))
    code, _, err = run(capsys, "report", diagnosis, "--json")
    assert code == 3
    assert said in err
    assert "Traceback" not in err


def test_a_secret_in_a_file_does_not_reach_the_page(
    diagnosis: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(diagnosis.read_text())
    document["notes"] = ["started with --api-key sk-abcdef0123456789abcdef"]
    diagnosis.write_text(json.dumps(document))
    page = tmp_path / "page.html"
    assert run(capsys, "report", diagnosis, "--html", page)[0] == 0
    assert "abcdef0123456789" not in page.read_text()
