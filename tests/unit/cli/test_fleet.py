"""`headrace fleet`: what is asked of the running job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main
from headrace.drive import control


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, dict[str, Any]]]:
    seen: list[tuple[Path, dict[str, Any]]] = []

    def send(out: Path, command: dict[str, Any]) -> dict[str, Any]:
        seen.append((out, command))
        return {"done": f"{command['url']} was added"}

    monkeypatch.setattr(control, "send_command", send)
    return seen


def test_ranges_are_asked_one_by_one(
    asked: list[tuple[Path, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fleet", "add", "http://h:1-2", "http://h:2", "--job", "out"])
    assert ended.value.code == 0
    assert asked == [
        (Path("out"), {"command": "add", "url": "http://h:1"}),
        (Path("out"), {"command": "add", "url": "http://h:2"}),
    ]
    assert capsys.readouterr().out == "http://h:1 was added\nhttp://h:2 was added\n"


def test_nothing_is_asked_when_an_address_is_wrong(
    asked: list[tuple[Path, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fleet", "drain", "http://h:1", "h:2", "ftp://h", "--job", "out"])
    assert (ended.value.code, asked) == (2, [])
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_no_running_job_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fleet", "remove", "http://h:1", "--job", str(tmp_path)])
    assert ended.value.code == 5
    assert "no job runs on" in capsys.readouterr().err
