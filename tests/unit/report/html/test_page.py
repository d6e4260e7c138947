"""The page: every number is the document's, nothing from outside is more than text, nothing is loaded."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace import api
from headrace.report.html.page import page
from headrace.report.html.shape import checked_diagnosis
from tests.unit.diagnose.stories import HYBRID
from tests.unit.report.html.reading import PageReader, resolve

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg/onload=alert(3)>{{7*7}}"


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    path = tmp_path / "facts.yaml"
    path.write_text(yaml.safe_dump(HYBRID))
    return path


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("story") / "facts.yaml"
    path.write_text(yaml.safe_dump(HYBRID))
    return api.report(path, expect="25% of a B200")


@pytest.fixture
def document(diagnosed: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(diagnosed)


def test_every_number_and_text_is_the_documents_own(document: dict[str, Any]) -> None:
    read = PageReader(page(document))
    assert len(read.numbers) > 60
    for where, value in read.numbers:
        assert json.loads(value) == resolve(document, where), where
    assert len(read.texts) > 40
    for where, text in read.texts:
        assert text == resolve(document, where), where


def test_its_numbers_are_those_of_diagnose(facts: Path, document: dict[str, Any]) -> None:
    told = api.diagnose(facts, expect="25% of a B200").to_json()
    for where, value in PageReader(page(document)).numbers:
        assert json.loads(value) == resolve(told, where), where


def test_the_numbers_in_drawings_are_the_documents_own(document: dict[str, Any]) -> None:
    drawn = PageReader(page(document)).drawn
    assert any(said.startswith("/ladder/") for said in drawn)
    assert any(said.startswith("/roofline/reached_flop_per_s") for said in drawn)
    assert any(said.startswith("/decomposition/remainder_seconds") for said in drawn)
    for said in drawn:
        where, _, value = said.partition(" = ")
        assert json.loads(value) == resolve(document, where), where


def test_no_number_stands_outside_of_an_id(document: dict[str, Any]) -> None:
    loose = PageReader(page(document)).loose
    told = [text for text in loose if re.search(r"(?<![A-Za-z_])\d", text)]
    assert not told, told[:5]


def test_nothing_is_loaded_and_nothing_runs(document: dict[str, Any]) -> None:
    text = page(document)
    read = PageReader(text)
    tags = {tag for tag, _ in read.tags}
    assert not tags & {"script", "iframe", "link", "object", "embed", "img", "base", "form"}
    for _, attributes in read.tags:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("href", "src", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    ids = [attributes["id"] for _, attributes in read.tags if attributes.get("id")]
    assert len(ids) == len(set(ids)), "a drawing's ids are its own"
    assert set(re.findall(r"url\(#([^)]*)\)", text)) <= set(ids)
    assert not re.search(
        r"url\((?!#)|@import|https?://(?!www\.w3\.org/)", re.sub(r'xmlns\S*="[^"]*"', "", text)
    )
    assert len(text.encode()) < 3_000_000


def _poisoned(value: Any) -> Any:
    """The document with hostile text in each of its texts but those that its shape fixes."""
    if isinstance(value, dict):
        return {
            key: inner if key in ("schema", "origin", "unit", "answer") else _poisoned(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_poisoned(inner) for inner in value]
    return HOSTILE + value if isinstance(value, str) else value


def test_what_comes_from_outside_is_text(document: dict[str, Any]) -> None:
    poisoned = _poisoned(copy.deepcopy(document))
    numbers = poisoned["baseline"]["numbers"]
    numbers[HOSTILE] = {**numbers["running"], "inputs": {HOSTILE: numbers["running"]}}
    poisoned["comparison"]["floor"]["part_seconds"][HOSTILE] = {
        "value": 0.01,
        "unit": "s",
        "origin": "derived",
    }
    poisoned["against"] = {
        "subject": {"source": HOSTILE},
        "binding": poisoned["binding"],
        "changes": [
            {"id": HOSTILE, "name": HOSTILE, "unit": HOSTILE, "before": 1.0, "after": 2.0, "ratio": 2.0,
             "within_range": False}
        ],
    }  # fmt: skip
    text = page(poisoned)
    read = PageReader(text)
    tags = {tag for tag, _ in read.tags}
    assert not tags & {"script", "img"}
    assert not any(name.startswith("on") for _, attributes in read.tags for name in attributes)
    assert "{{7*7}}" in text, "a template in a text stays a text"
    assert any(HOSTILE in said for _, said in read.texts)


def test_control_characters_do_not_reach_the_page(document: dict[str, Any]) -> None:
    document["binding"]["evidence"] = ["a\x1b[31mred\x00 bell\x07\u202e"]
    text = page(document)
    assert not re.search("[\x00\x07\x1b\u202e]", text)


def test_views_without_numbers_are_left_out(document: dict[str, Any]) -> None:
    bare = {
        **document,
        "ladder": [],
        "roofline": None,
        "throughput_by_running": [],
        "decomposition": {},
        "proposals": [],
    }
    text = page(bare)
    assert "<figure" not in text
    assert "<svg" not in text
    assert "Nothing to propose" in text
    assert text.count("How to read this") >= 3


def test_every_view_says_how_to_read_it(document: dict[str, Any]) -> None:
    text = page(document)
    for figure in re.findall(r"<figure.*?</figure>", text, re.DOTALL):
        assert "How to read this" in figure
    for section in re.findall(r"<section.*?</section>", text, re.DOTALL):
        if 'class="tiles"' not in section:
            assert "How to read this" in section, section[:80]


def test_the_course_over_time_is_drawn_where_there_is_one(document: dict[str, Any]) -> None:
    assert "plot-pools" not in page(document)
    seconds = [0.0, 2.0, 4.0, 6.0]
    servers = [{"name": HOSTILE, "seconds": seconds, "columns": {"kv_usage": [0.1, None, 0.3, 0.4]}}]
    text = page({**document, "series": {"servers": servers, "left_out": 0}})
    assert "plot-pools" in text
    assert "plot-requests" not in text


def test_light_dark_and_print(document: dict[str, Any]) -> None:
    text = page(document)
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    colours = set(re.findall(r'(?:fill|stroke)="(#[0-9a-fA-F]+)"', text))
    assert not colours, f"colours that dark mode cannot change: {colours}"


@pytest.mark.parametrize("value", [0.0, -1.0, 1e308, 5e-324, None])
@pytest.mark.parametrize(
    "where",
    [
        "/ladder/0/limit",
        "/baseline/numbers/running/value",
        "/decomposition/step_seconds/value",
        "/decomposition/floor_seconds/value",
        "/roofline/intensity/value",
        "/roofline/compute_achievable/value",
        "/throughput_by_running/0/bound_tokens_per_s",
    ],
)
def test_odd_numbers_of_a_file_are_drawn_or_left_out(
    document: dict[str, Any], where: str, value: Any
) -> None:
    *keys, last = where.split("/")[1:]
    resolve(document, "/" + "/".join(keys))[last] = value
    read = PageReader(page(checked_diagnosis(document, "file")))
    assert {json.loads(told) for at, told in read.numbers if at == where} <= {value}
