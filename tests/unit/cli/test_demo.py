"""The demo's prompts and its child process."""

from __future__ import annotations

import json
import os
from pathlib import Path

from headrace.drive.job.file import load_job
from headrace.drive.sources import NoSpool, peek, scan
from headrace.simulate.demo import JOB
from headrace.simulate.demo_prompts import write_prompts


def test_prompts_are_as_many_as_asked_and_always_the_same(tmp_path: Path) -> None:
    files = write_prompts(tmp_path / "a", 301)
    again = write_prompts(tmp_path / "b", 301)
    assert {name: path.read_bytes() for name, path in files.items()} == {
        name: path.read_bytes() for name, path in again.items()
    }
    counts = {name: len(path.read_text().splitlines()) for name, path in files.items()}
    assert counts == {"shop": 151, "trips": 91, "teacher": 60}  # trips.csv has a heading
    first = json.loads(files["shop"].read_text().splitlines()[0])
    assert first["id"] == "shop-00000"


def test_right_files_stay_untouched(tmp_path: Path) -> None:
    path = write_prompts(tmp_path, 10)["shop"]
    os.utime(path, (1, 1))
    assert write_prompts(tmp_path, 10)["shop"].stat().st_mtime == 1
    assert write_prompts(tmp_path, 12)["shop"].stat().st_mtime > 1


def test_the_job_file_of_the_demo_is_a_good_one(tmp_path: Path) -> None:
    write_prompts(tmp_path / "prompts", 30)
    (tmp_path / "job.yaml").write_text(JOB.format(servers="http://127.0.0.1:1, http://127.0.0.1:2"))
    job = load_job(tmp_path / "job.yaml").job
    assert [source.name for source in job.sources] == ["shop", "trips", "teacher"]
    kinds = [peek(source).kind.value for source in job.sources]
    assert kinds == ["prompt", "prompt", "chat"]
    numbers = {path: 1 for source in job.sources for path in source.paths}
    rows = [row for source in job.sources for row in scan(source, numbers, NoSpool())]
    assert len(rows) == 30
    assert all(row.error is None for row in rows)
