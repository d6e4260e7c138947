"""Files, folders and globs become a list of files, or a list of problems."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.drive.sources import expand, fingerprint
from headrace.errors import InputError, UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "b.jsonl",
        "a.csv.gz",
        "deep/c.parquet",
        ".hidden.jsonl",
        ".cache/d.jsonl",
        "notes.md",
        "w[1].txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    return tmp_path


def names(found: tuple[Path, ...], folder: Path) -> list[str]:
    assert all(path.is_absolute() for path in found)
    return [path.relative_to(folder).as_posix() for path in found]


def test_a_folder_is_its_known_files_by_name(folder: Path) -> None:
    assert names(expand([folder]), folder) == ["a.csv.gz", "b.jsonl", "deep/c.parquet", "w[1].txt"]


def test_job_folders_below_are_not_prompts(folder: Path) -> None:
    for name in (
        "old/completions/part-000000.parquet",
        "old/prompts/spool.jsonl",
        "old/lock",
        "old/job.json",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / "deep" / "completions").mkdir()  # a folder that is only called so
    (folder / "deep" / "completions" / "e.jsonl").write_text("x")
    assert "old" not in {name.split("/")[0] for name in names(expand([folder]), folder)}
    assert "deep/completions/e.jsonl" in names(expand([folder]), folder)
    assert names(expand([f"{folder}/**/*.jsonl"]), folder) == ["b.jsonl", "deep/completions/e.jsonl"]
    assert names(expand([folder / "old" / "completions"]), folder) == ["old/completions/part-000000.parquet"]
    assert names(expand([f"{folder}/old/completions/*"]), folder) == ["old/completions/part-000000.parquet"]
    with pytest.raises(UsageError, match=r"old is the output of a headrace job.*old/completions"):
        expand([folder / "old"])


def test_globs(folder: Path) -> None:
    assert names(expand([f"{folder}/*.jsonl"]), folder) == ["b.jsonl"]
    assert names(expand([f"{folder}/**/*.p*"]), folder) == ["deep/c.parquet"]
    assert names(expand([f"{folder}/w[1].txt"]), folder) == ["w[1].txt"]


def test_the_order_named_is_kept_and_no_file_stands_twice(folder: Path) -> None:
    found = expand([folder / "b.jsonl", str(folder), folder / "b.jsonl"])
    assert names(found, folder) == ["b.jsonl", "a.csv.gz", "deep/c.parquet", "w[1].txt"]


def test_one_path_and_paths_below_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert names(expand("b.jsonl"), folder) == ["b.jsonl"]
    assert names(expand(Path("deep")), folder) == ["deep/c.parquet"]


def test_all_problems_at_once_with_the_nearest_name(folder: Path) -> None:
    (folder / "empty").mkdir()
    given = ["c.jsonl", "*.arrow", "notes.md", "empty", "nowhere/x.jsonl"]
    with pytest.raises(UsageError) as caught:
        expand([folder / name for name in given])
    missing, no_match, unknown, empty, no_folder = caught.value.problems
    assert "c.jsonl does not exist. Did you mean 'b.jsonl'?" in missing
    assert "no file matches" in no_match
    assert "'.md' is not known" in unknown
    assert ".parquet" in unknown
    assert "holds no prompts" in empty
    assert "Nor does its folder" in no_folder


def test_a_pipe_and_a_compressed_parquet_file_are_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe.jsonl")
    with pytest.raises(UsageError, match="not a regular file"):
        expand(folder / "pipe.jsonl")
    (folder / "x.parquet.gz").write_text("")
    with pytest.raises(UsageError, match=r"'\.parquet\.gz' is not known"):
        expand(folder / "x.parquet.gz")


def test_fingerprint_changes_with_the_file(folder: Path) -> None:
    path = folder / "b.jsonl"
    before = fingerprint(path)
    assert (before.path, before.size) == (str(path), 1)
    assert fingerprint(path) == before
    path.write_text("xx")
    assert fingerprint(path) != before
    path.unlink()
    with pytest.raises(InputError, match=r"b\.jsonl"):
        fingerprint(path)
