"""`headrace fleet`: what is asked of the running job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main
from headrace.drive import control
from headrace.errors import InputError


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


@pytest.mark.parametrize("as_json", [False, True])
def test_a_refusal_is_told_and_does_not_keep_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    def send(out: Path, command: dict[str, Any]) -> dict[str, Any]:
        if command["url"] == "http://h:2":
            raise InputError("http://h:2 is no server of this job")
        return {"done": f"{command['url']} was removed"}

    monkeypatch.setattr(control, "send_command", send)
    with pytest.raises(SystemExit) as ended:
        main(["fleet", "remove", "http://h:1-3", "--job", "out", *(["--json"] if as_json else [])])
    assert ended.value.code == 3
    out, err = capsys.readouterr()
    assert err == "headrace: http://h:2 is no server of this job\n"
    if as_json:
        answers = [json.loads(line) for line in out.splitlines()]
        assert [answer["server"] for answer in answers] == ["http://h:1", "http://h:2", "http://h:3"]
        assert answers[1]["error"] == "http://h:2 is no server of this job"
    else:
        assert out == "http://h:1 was removed\nhttp://h:3 was removed\n"


def test_nothing_is_asked_when_an_address_is_wrong(
    asked: list[tuple[Path, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fleet", "drain", "http://h:1", "h:2", "ftp://h", "--job", "out"])
    assert (ended.value.code, asked) == (2, [])
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_no_running_job_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, said in (
        (tmp_path, "no job runs on it on this host"),
        (tmp_path / "x", "there is no such folder"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["fleet", "remove", "http://h:1", "--job", str(folder)])
        assert ended.value.code == 5
        assert capsys.readouterr().err == (
            f"headrace: {folder}: {said}. Name the --out of a running job, or start it with `headrace run`.\n"
        )
