"""The fenced blocks of README.md and docs/, for the tests that check or run them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "bench" / "README.md")
# How a block may be marked: the first three are checked or run, `text` is output.
LANGUAGES = ("console", "yaml", "python", "text")
_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block and where it stands."""

    where: str
    language: str
    text: str


def blocks(*languages: str) -> list[Block]:
    """All blocks in these languages; all blocks when none is named."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in _FENCE.finditer(text):
            line = text[: match.start()].count("\n") + 1
            block = Block(f"{page.relative_to(ROOT)}:{line}", match[1].strip(), match[2])
            if not languages or block.language in languages:
                found.append(block)
    return found
