"""Makes docs/accuracy.md from the labelled public cases and the public table of measurements in the shared folder
(HEADRACE_SHARED, or beside this).

    python docs/accuracy.py            prints the page
    python docs/accuracy.py --write    writes it

The cases themselves stay where they are; only counts come into the page.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from headrace.diagnose.pipeline import diagnose
from headrace.diagnosing import context_of
from headrace.forecast.table import predict_table
from headrace.observe.target import read_target

PAGE = Path(__file__).with_name("accuracy.md")
_BUCKETS = ((0.0, 0.5), (0.5, 0.7), (0.7, 0.85), (0.85, 1.01))
_HEAD = """# Accuracy

How often the first answer of `headrace diagnose` is right, on public reports whose cause is known: only what the
reporter could see before the fix is given. Made by `docs/accuracy.py`; a test keeps it up to date where the cases
are at hand. Labels were set by reading. Scored cases have a measured or confirmed cause; the others are a reading of
the report. The rules were written with these
cases at hand, so this is the friendliest figure there is; as many cases again are held back to score it.

## On reports never seen before

The honest figure is lower. In 11/2026, other public reports (threads on SGLang, vLLM, llama.cpp and what is built on
them) were labelled before anything was run on them. Each row is the first pass, with the rules as they then were; after
it the rules were widened on what was missed, so that no report of an earlier row is unseen in a later one:

| reports | number | first answer right | right or acceptable | named what it must not |
| --- | --- | --- | --- | --- |
| rare causes on purpose, most of them words | 112 | 40 (36%) | 52 (46%) | 5 |
| all causes, words and a figure or two | 66 | 35 (53%) | 35 (53%) | 2 |
| all causes, most with figures, flags and load | 31 | 21 (68%) | 24 (77%) | 2 |
| the same; a few with figures filled in that the thread leaves out | 35 | 26 (74%) | 30 (86%) | 1 |
| the same, figures as the thread gives them, GPU or load assumed where it is silent | 29 | 21 (72%) | 23 (79%) | 2 |

Most of what was not right was `unknown`. Expect about the second row of a report in words, and the last of one with
running, queued, pool usage and flags. The labels are a reading of the thread by who wrote the rules, with one to four
causes allowed as right, which flatters. Of the 116 answers of the last four rows that named a cause, by the weight of
what they rest on: below 0.5 33 of 45 were right, up to 0.7 15 of 19, up to 0.85 32 of 36, above it all 16. The
confidence that is told since then follows half of that. Of 45 times `unknown`, 11 were right or acceptable.

What the answers rest on, by leaving it out: without any of the reporter's claims 28 of the 34 scored cases below are
still right, without the flags 30, without the notes all 34.

## On the cases at hand
"""


@dataclass(frozen=True)
class Scored:
    """One case: what was said, how surely, and what would have been right."""

    id: str
    scored: bool
    said: str
    confidence: float
    right: tuple[str, ...]
    acceptable: tuple[str, ...]
    must_not: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        return self.said in self.right

    @property
    def is_acceptable(self) -> bool:
        return self.is_right or self.said in self.acceptable


def score(cases: Path) -> Iterator[Scored]:
    """Yields every case that has a label and is more than a log to parse."""
    for folder in sorted(path for path in cases.iterdir() if (path / "expect.yaml").is_file()):
        expected: dict[str, Any] = yaml.safe_load((folder / "expect.yaml").read_text(encoding="utf-8"))
        kind = (folder / "kind").read_text() if (folder / "kind").is_file() else _kind(folder)
        if kind.strip() == "parse_only" or not expected.get("binding"):
            continue
        seen = read_target(str(folder / "facts.yaml"))
        found = diagnose(seen, context_of(seen))
        yield Scored(
            folder.name,
            bool(expected.get("scored")),
            str(found.binding.constraint),
            found.binding.confidence,
            tuple(expected["binding"]),
            tuple(expected.get("also_acceptable") or ()),
            tuple(expected.get("must_not") or ()),
        )


def _kind(folder: Path) -> str:
    for line in (folder.parent / "INDEX.csv").read_text(encoding="utf-8").splitlines():
        if line.startswith(folder.name + ","):
            return line.split(",")[1]
    return "diagnose"


def page(found: Sequence[Scored]) -> str:
    """Returns the page."""
    lines = [_HEAD]
    lines += _table(
        ("cases", "number", "first answer right", "right or acceptable", "named what it must not"),
        [
            _counts("scored", [case for case in found if case.scored]),
            _counts("not scored", [case for case in found if not case.scored]),
        ],
    )
    lines += ["", "## Confusion", "", "Scored cases; a cell is a number of cases.", ""]
    pairs = Counter(
        (case.right[0], case.said if not case.is_right else "right") for case in found if case.scored
    )
    rows = []
    for right in sorted({right for right, _ in pairs}):
        others = [
            f"{said} {count}"
            for (one, said), count in sorted(pairs.items())
            if one == right and said != "right"
        ]
        rows.append((f"`{right}`", str(pairs[right, "right"]), ", ".join(others)))
    lines += _table(("cause", "named first", "named something else first"), rows)
    lines += [
        "",
        "## Reliability",
        "",
        "All cases: how often an answer given with that confidence is right.",
        "",
    ]
    rows = []
    for low, high in _BUCKETS:
        inside = [case for case in found if low <= case.confidence < high and case.said != "unknown"]
        if inside:
            right = sum(case.is_right for case in inside)
            mean = sum(case.confidence for case in inside) / len(inside)
            rows.append(
                (
                    f"{low:.2f} to {min(high, 1.0):.2f}",
                    str(len(inside)),
                    f"{mean:.2f}",
                    f"{right / len(inside):.2f}",
                )
            )
    lines += _table(("confidence", "answers", "mean confidence", "share right"), rows)
    unknown = [case for case in found if case.said == "unknown"]
    lines += [
        "",
        f"`unknown` was answered {len(unknown)} times; in {sum(case.is_acceptable for case in unknown)} of them that is "
        "right or acceptable.",
    ]
    return "\n".join(lines) + "\n"


def _counts(name: str, found: Sequence[Scored]) -> tuple[str, ...]:
    whole = max(1, len(found))
    right, acceptable = sum(case.is_right for case in found), sum(case.is_acceptable for case in found)
    wrong = sum(case.said in case.must_not for case in found)
    return (
        name,
        str(len(found)),
        f"{right} ({right / whole:.0%})",
        f"{acceptable} ({acceptable / whole:.0%})",
        str(wrong),
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(heads) + " |",
        "|" + " --- |" * len(heads),
        *("| " + " | ".join(r) + " |" for r in rows),
    ]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from bench.null_server import shared_folder
    from docs.step_accuracy import section

    text = page(list(score(shared_folder() / "cases")))
    measured = predict_table(shared_folder() / "data" / "benchmarks.csv.gz").rows
    text += "\n".join(section(measured)) + "\n"
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
