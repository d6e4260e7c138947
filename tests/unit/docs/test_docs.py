"""What the documentation shows is right: job files validate, commands parse, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from headrace.cli.app import app
from headrace.drive.job.schema import JobKeys
from headrace.drive.job.text import parse_placed
from headrace.words import Constraint
from tests.documentation import LANGUAGES, PAGES, ROOT, Block, blocks

BLOCKS = blocks()
YAML = blocks("yaml")
COMMANDS = [
    pytest.param(line.removeprefix("$ ").split(" # ")[0], id=f"{block.where} {line[2:40]}")
    for block in blocks("console")
    for line in block.text.splitlines()
    if line.startswith("$ headrace")
]


def test_there_are_blocks_of_every_language() -> None:
    assert {block.language for block in BLOCKS} == set(LANGUAGES)
    assert COMMANDS


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.where)
def test_every_block_says_what_it_is(block: Block) -> None:
    assert block.language in LANGUAGES, f"{block.where} is marked '{block.language}'"


@pytest.mark.parametrize("block", YAML, ids=lambda block: block.where)
def test_every_job_file_shown_is_valid(block: Block) -> None:
    placed = parse_placed(block.text, block.where, Path("/"))
    assert placed.problems == []
    JobKeys.model_validate(placed.value)


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_shown_parses(line: str) -> None:
    words = shlex.split(line)[1:]
    command = get_command(app)
    context = command.make_context("headrace", words, resilient_parsing=True)
    while hasattr(command, "resolve_command"):
        rest = [*getattr(context, "_protected_args", []), *context.args]
        name, command, words = command.resolve_command(context, rest)
        context = command.make_context(name, list(words), parent=context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_every_constraint_has_its_meaning_in_the_words() -> None:
    explained = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "words.md").read_text(), re.MULTILINE)
    assert explained == [str(word) for word in Constraint]
