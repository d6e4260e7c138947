"""Prompts for the demo: small word problems from templates, the same ones for the same number of rows."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path

_PEOPLE = (
    "Amina",
    "Bruno",
    "Chiara",
    "Dmitri",
    "Elif",
    "Farah",
    "Goran",
    "Hanna",
    "Imani",
    "Jorge",
    "Kaito",
    "Leila",
)
_THINGS = (
    "notebook",
    "lemon",
    "candle",
    "screw",
    "postcard",
    "bread roll",
    "light bulb",
    "tea bag",
    "pencil",
    "tile",
)
_PLACES = ("the mill", "the harbour", "the market", "the library", "the ridge", "the ferry", "the old bridge")
_WHYS = (
    "ice floats on water",
    "the sky turns red in the evening",
    "bread rises before it is baked",
    "a boat made of steel does not sink",
    "the moon changes its shape",
    "bicycles stay upright when they roll",
    "salt melts the ice on a road",
    "an echo comes back later from a far wall",
)
_TEACHER = "You are a patient teacher. Answer in at most five sentences and use one example."
SHARES = (("shop", 0.5), ("trips", 0.3), ("teacher", 0.2))


def write_prompts(folder: Path, rows: int) -> dict[str, Path]:
    """The files of the three sources by name, together `rows` rows; right ones stay untouched."""
    counts = {name: int(rows * share) for name, share in SHARES}
    counts["shop"] += rows - sum(counts.values())
    files = {
        "shop": (folder / "shop.jsonl", _lines(_shop(counts["shop"]))),
        "trips": (folder / "trips.csv", _table(_trips(counts["trips"]))),
        "teacher": (folder / "teacher.jsonl", _lines(_teacher(counts["teacher"]))),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.values():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return {name: path for name, (path, _) in files.items()}


def _shop(count: int) -> Iterator[dict[str, object]]:
    """JSON lines with an id of their own and the question in a column `question`."""
    draw = random.Random(11)
    for number in range(count):
        pieces, cents, note = draw.randint(2, 9), draw.randint(3, 240) * 5, draw.choice((20, 50, 100))
        person, thing = draw.choice(_PEOPLE), draw.choice(_THINGS)
        question = (
            f"{person} buys {pieces} {thing}s at {cents / 100:.2f} each and one for a friend at half the "
            f"price, and pays with a note of {note}. How much does {person} get back, or how much is missing?"
        )
        yield {"id": f"shop-{number:05}", "question": question, "pieces": pieces, "cents": cents}


def _trips(count: int) -> Iterator[dict[str, object]]:
    """A table with a column `prompt`."""
    draw = random.Random(12)
    for _ in range(count):
        speed, minutes, pause = draw.randint(4, 30), draw.randint(15, 240), draw.randint(0, 6) * 5
        person, start = draw.choice(_PEOPLE), f"{draw.randint(5, 20):02}:{draw.randint(0, 11) * 5:02}"
        away, there = draw.sample(_PLACES, 2)
        prompt = (
            f"{person} leaves {away} at {start} and reaches {there} after {minutes} minutes at {speed} km/h, "
            f"with a pause of {pause} minutes on the way. How far is it, and when does {person} arrive?"
        )
        yield {"prompt": prompt, "speed": speed, "start": start}


def _teacher(count: int) -> Iterator[dict[str, object]]:
    """Chats with a system turn."""
    draw = random.Random(13)
    for _ in range(count):
        who = f"a {draw.randint(6, 70)}-year-old named {draw.choice(_PEOPLE)}"
        asked = f"Explain to {who} why {draw.choice(_WHYS)}."
        yield {"messages": [{"role": "system", "content": _TEACHER}, {"role": "user", "content": asked}]}


def _lines(rows: Iterator[dict[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _table(rows: Iterator[dict[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, ("prompt", "speed", "start"), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
