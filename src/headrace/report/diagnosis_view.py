"""A diagnosis in the terminal: the first screen at 80 columns, and `--all`, which unfolds the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.diagnose.compare import Answer
from headrace.diagnose.document import Diagnosis
from headrace.diagnose.estimate import spelled
from headrace.diagnose.finding import Finding
from headrace.diagnose.ladder import LadderRung
from headrace.diagnose.proposal import Proposal
from headrace.quantities import Quantity
from headrace.report.amounts import amount, digits, origin, scaled
from headrace.report.constraint_words import HEADLINES, sureness
from headrace.report.figures import printable, several
from headrace.words import Constraint

MOST_ACTIONS = 3
_LABEL = 10
_ANSWERS = {
    Answer.HOLDS: "holds",
    Answer.DOES_NOT: "does not hold",
    Answer.CANNOT_TELL: "cannot be told",
}
_READ = (
    "How to read this: throughput is running × rate per running request. The ladder lists every cap on "
    "running requests, each without the lower ones, and ends with what sets the time of a step. "
)
_MORE = (
    "Marks: ● sure, ◐ likely, ○ possible. --all shows all evidence, --explain NAME unfolds a number, "
    "--json has everything."
)


def diagnosis_view(
    diagnosis: Diagnosis, *, everything: bool = False, allow_accuracy: bool = False
) -> RenderableType:
    """Returns the first screen, or with `everything` all that the document has."""
    rows: list[tuple[str, list[Text]]] = [
        ("VERDICT", list(_verdict(diagnosis, everything))),
        ("YOU", list(_you(diagnosis))),
        ("BOUND", list(_bound(diagnosis, everything))),
        ("LADDER", list(_ladder(diagnosis, everything))),
        ("DO", list(_do(diagnosis, everything, allow_accuracy))),
        ("CLAIMS", list(_claims(diagnosis, everything))),
        ("RULED OUT", list(_ruled_out(diagnosis, everything))),
        (
            "IF",
            [] if everything else _listed(text for text in diagnosis.assumptions if text.startswith("if ")),
        ),
        ("MISSING", _listed(diagnosis.missing, None if everything else 4)),
    ]
    if everything:
        rows += [
            ("ALSO", list(_also(diagnosis))),
            ("ASSUMED", _listed(diagnosis.assumptions)),
            ("NOTES", _listed(diagnosis.notes)),
            ("SERVERS", list(_servers(diagnosis))),
            ("NUMBERS", list(_numbers(diagnosis))),
        ]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    table.add_column(width=_LABEL, no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for label, lines in rows:
        for index, line in enumerate(lines):
            table.add_row(label if index == 0 else "", line)
    read = _READ + _MORE if len(diagnosis.ladder) > 1 else _MORE
    return Group(table, Text(read, style="dim"))


def _text(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)


def _listed(texts: Iterable[str], most: int | None = None) -> list[Text]:
    found = list(texts)
    shown = [_text(f"· {text}") for text in (found if most is None else found[:most])]
    if most is not None and len(found) > most:
        shown.append(_text(f"… and {len(found) - most} more (--all)", "dim"))
    return shown


def _verdict(diagnosis: Diagnosis, everything: bool) -> Iterator[Text]:
    binding = diagnosis.binding
    mark, word = sureness(binding.confidence)
    if binding.constraint is Constraint.UNKNOWN:
        yield _text(f"? unknown: {HEADLINES[binding.constraint]}", "bold")
    else:
        yield _text(f"{mark} {binding.constraint}: {HEADLINES[binding.constraint]}", "bold").append(
            f"  ({word}, {binding.confidence:.2f})", style="dim"
        )
    for text in binding.evidence if everything else binding.evidence[:3]:
        yield _text(text)
    if binding.would_refute and binding.constraint is not Constraint.UNKNOWN:
        yield _text(
            f"wrong if: {'; '.join(binding.would_refute if everything else binding.would_refute[:1])}", "dim"
        )
    if diagnosis.also:
        named = ", ".join(
            f"{finding.constraint} {finding.confidence:.2f}"
            for finding in diagnosis.also[: None if everything else 3]
        )
        yield _text(f"also: {named}")
    for text in diagnosis.comparison.contradictions:
        yield _text(f"! {text}", "yellow")


def _you(diagnosis: Diagnosis) -> Iterator[Text]:
    subject, baseline = diagnosis.subject, diagnosis.baseline
    fleet = several(subject.servers, "server")
    gpu = (
        f"{subject.gpus:,} × {subject.gpu}" if subject.gpus and subject.gpu else subject.gpu or "GPU unknown"
    )
    engine = " ".join(part for part in (subject.engine, subject.engine_version) if part) or "engine unknown"
    yield _text(f"{subject.model or 'model unknown'}, {engine}, {fleet} on {gpu}; load {_load(diagnosis)}")
    rate = baseline.get("output_tokens_per_s_fleet")
    if rate is not None:
        text = f"{_ranged(rate)} output tok/s"
        each = baseline.get("output_tokens_per_s_per_gpu")
        if each is not None:
            text += f", {_ranged(each)} per GPU"
        if "output_tokens_per_s" in baseline.lower_bounds:
            text += " at least (finished requests only)"
        yield _text(f"{text}; window: {baseline.window}")
        finished = baseline.get("output_tokens_per_s_finished_only_fleet")
        if finished is not None and baseline.get("output_tokens_per_s_finished_only") is not None:
            yield _text(
                f"{digits(finished.value)} counts finished requests only; the rest is in flight, by the "
                f"pool's reading"
            )
    parts = []
    for name, word in (
        ("running", "running"),
        ("queued", "queued"),
        ("cap", "cap"),
        ("in_flight_per_server", "in flight"),
    ):
        found = baseline.get(name)
        if found is not None:
            parts.append(f"{digits(found.value) if found.value % 1 else f'{found.value:,.0f}'} {word}")
    for name, word in (("kv_usage", "KV"), ("state_usage", "states"), ("cache_hit_rate", "hits")):
        found = baseline.get(name)
        if found is not None:
            parts.append(f"{word} {found.value:.0%}")
    if parts:
        yield _text("per server: " + ", ".join(parts))
    if (baseline.value("gpu_utilization") or 0.0) >= 0.95:
        yield _text("GPUs busy 100 % says only that a kernel was there, not that it did much", "dim")


def _load(diagnosis: Diagnosis) -> str:
    word = "free" if diagnosis.subject.load_is_free else "given"
    return word if diagnosis.subject.load_stated else f"{word} (assumed)"


def _ranged(quantity: Quantity, factor: float = 1.0) -> str:
    low, high = quantity.range
    text = digits(quantity.value * factor)
    if high - low <= 0.005 * abs(quantity.value):
        return text
    return f"{text} ({digits(low * factor)} … {digits(high * factor)})"


def _expected(step: Quantity, usual: Quantity, unexplained: Quantity | None) -> str:
    """`expected step 45 (37 … 56) ms, measured 50: nothing unexplained`."""
    text = f"expected step {_ranged(usual, 1e3)} ms, measured {digits(step.value * 1e3)}"
    if unexplained is None:
        return text
    if unexplained.value > 0:
        return f"{text}: {digits(unexplained.value * 1e3)} unexplained: kernels slow for this, or the host"
    if step.range[1] < usual.range[0]:
        return f"{text}: faster than expected; is model, GPU or batch as told?"
    return f"{text}: nothing unexplained"


def _bound(diagnosis: Diagnosis, everything: bool) -> Iterator[Text]:
    comparison, split = diagnosis.comparison, diagnosis.decomposition
    servers = diagnosis.baseline.value("servers") or 1.0
    bound, floor = comparison.bound, comparison.floor
    if bound is None or floor is None:
        yield _text("unknown: the floor of a step needs the model, the GPU and how many run", "dim")
        return
    roof = "compute" if floor.bound_by_compute else "memory bandwidth"
    text = f"{digits(bound.value * servers)} tok/s at achievable {roof} for this batch"
    text += f", {digits(bound.range[1] * servers)} by the data sheet"
    if comparison.reached is not None:
        text += f"; you are at {min(comparison.reached.value, 9.99):.0%}"
    yield _text(text)
    step = split.step
    if step is not None and split.floor is not None and split.remainder is not None:
        yield _text(
            f"step {_ranged(step, 1e3)} ms = floor {digits(split.floor.value * 1e3)} (data sheet "
            f"{digits(floor.datasheet.value * 1e3)}) + remainder {_ranged(split.remainder, 1e3)}"
        )
    if step is not None and split.expected_step is not None:
        yield _text(_expected(step, split.expected_step, split.unexplained))
    if everything and split.calibration is not None:
        yield _text(f"step model, corrected by that step: {split.calibration.reason}", "dim")
    parts = " + ".join(f"{name} {part.value / 1e9:,.1f}" for name, part in floor.parts.items())
    yield _text(f"bytes per step and GPU: {parts} = {floor.bytes.value / 1e9:,.1f} GB", "dim")


def _ladder(diagnosis: Diagnosis, everything: bool) -> Iterator[Text]:
    if not diagnosis.ladder:
        yield _text("unknown: no cap is known", "dim")
        return
    if everything:
        for rung in diagnosis.ladder:
            limit = f"{rung.limit.value:>7,.0f}" if rung.limit is not None else "      –"
            yield _text(f"{limit}  {rung.constraint}: {rung.term}{_made(rung)}")
        return
    rungs = [
        f"{rung.constraint} {rung.limit.value:,.0f}{_made_in_short(rung)}"
        if rung.limit is not None
        else f"{rung.constraint}"
        for rung in diagnosis.ladder
    ]
    yield _text(" ▸ ".join(rungs))


def _made(rung: LadderRung) -> str:
    if rung.output is None:
        return ""
    low, mid, high = (digits(each) for each in (rung.output.low, rung.output.mid, rung.output.high))
    return f"; {mid} tok/s" if low == high else f"; {mid} tok/s ({low} … {high})"


def _made_in_short(rung: LadderRung) -> str:
    return f" ({digits(rung.output.mid)} tok/s)" if rung.output is not None else ""


def _do(diagnosis: Diagnosis, everything: bool, allow_accuracy: bool) -> Iterator[Text]:
    actions = [found for found in diagnosis.proposals if allow_accuracy or not found.accuracy]
    held = [found for found in diagnosis.proposals if found.accuracy and not allow_accuracy]
    if not actions:
        yield _text("nothing to propose on this evidence; MISSING says what would help", "dim")
    for index, proposal in enumerate(actions if everything else actions[:MOST_ACTIONS], 1):
        yield from _proposal(index, proposal, everything)
    if len(actions) > MOST_ACTIONS and not everything:
        yield _text(f"… and {len(actions) - MOST_ACTIONS} more (--all)", "dim")
    if held:
        yield _text(
            f"kept back, accuracy choices: {'; '.join(found.flags or found.change for found in held)}"
            " (--allow-accuracy-change)",
            "dim",
        )


def _proposal(index: int, proposal: Proposal, everything: bool) -> Iterator[Text]:
    yield _text(f"{index}. {proposal.change}")
    parts = []
    if proposal.gain is not None:
        parts.append(spelled(proposal.gain))
    if proposal.estimate is not None:
        low, high = proposal.estimate.low, proposal.estimate.high
        parts.append(f"{digits(low)} … {digits(high)} tok/s")
    parts.append("restart" if proposal.needs_restart else "no restart")
    if proposal.costs:
        parts.append(f"gives up: {'; '.join(proposal.costs)}")
    if proposal.checks:
        parts.append(f"check first: {'; '.join(proposal.checks)}")
    yield _text(f"   {' · '.join(parts)}", "dim")
    if everything and proposal.launch_line:
        yield _text(f"   line: {proposal.launch_line}")
    if everything and proposal.effects:
        yield _text(f"   with it: {'; '.join(proposal.effects)}", "dim")
    if everything and proposal.narrows:
        yield _text(f"   narrowed by: {proposal.narrows}", "dim")


def _claims(diagnosis: Diagnosis, everything: bool) -> Iterator[Text]:
    told: set[str] = set()
    for answer in diagnosis.comparison.claims:
        yield _text(f"“{answer.claim}” {_ANSWERS[answer.answer]}")
        because = answer.because if everything else _telling(answer.because)
        known = [] if everything else [text for text in because if text in told]
        for text in because:
            if text not in known:
                yield _text(f"  {text}", "dim")
        if known and len(known) == len(because):
            yield _text("  by the same figures as above", "dim")
        told.update(because)


def _telling(because: tuple[str, ...]) -> tuple[str, ...]:
    """The first two reasons, and the one that says what was seen."""
    rest = [text for text in because[2:] if text.startswith(("seen:", "like for like"))]
    return (*because[:2], *rest)


def _ruled_out(diagnosis: Diagnosis, everything: bool) -> Iterator[Text]:
    if not diagnosis.ruled_out:
        return
    if everything:
        for constraint, because in diagnosis.ruled_out:
            yield _text(f"✕ {constraint}: {because}")
        return
    yield _text(" · ".join(f"{constraint} ({because})" for constraint, because in diagnosis.ruled_out[:6]))


def _also(diagnosis: Diagnosis) -> Iterator[Text]:
    for finding in diagnosis.also:
        yield from _finding(finding)


def _finding(finding: Finding) -> Iterator[Text]:
    mark, word = sureness(finding.confidence)
    yield _text(
        f"{mark} {finding.constraint} ({word}, {finding.confidence:.2f}): {HEADLINES[finding.constraint]}"
    )
    for text in finding.evidence:
        yield _text(f"  {text}")
    if finding.would_refute:
        yield _text(f"  wrong if: {'; '.join(finding.would_refute)}", "dim")


def _servers(diagnosis: Diagnosis) -> Iterator[Text]:
    for server in diagnosis.servers:
        yield _text(f"{server.name}: {server.constraint} {server.confidence:.2f}")


def _numbers(diagnosis: Diagnosis) -> Iterator[Text]:
    for name, quantity in all_numbers(diagnosis).items():
        yield _text(
            f"{name} = {scaled(quantity.value, quantity.unit)} ({origin(quantity)}: {quantity.source})"
        )


def all_numbers(diagnosis: Diagnosis) -> dict[str, Quantity]:
    """Every number of the document that can be unfolded, by the name that `--explain` takes."""
    found = dict(diagnosis.baseline.numbers)
    split, comparison = diagnosis.decomposition, diagnosis.comparison
    more = {
        "floor_seconds": split.floor,
        "remainder_seconds": split.remainder,
        "floor_share": split.floor_share,
        "prefill_share": split.prefill_share,
        "expected_step_seconds": split.expected_step,
        "unexplained_seconds": split.unexplained,
        "bound_output_tokens_per_s": comparison.bound,
        "reached": comparison.reached,
    }
    found |= {name: quantity for name, quantity in more.items() if quantity is not None}
    if comparison.floor is not None:
        found["bytes_per_step"] = comparison.floor.bytes
        found["datasheet_seconds"] = comparison.floor.datasheet
    for rung in diagnosis.ladder:
        if rung.limit is not None:
            found[f"ladder.{rung.constraint}"] = rung.limit
    return found


def explanation(name: str, quantity: Quantity) -> RenderableType:
    """Returns a number unfolded to its formula and inputs, as a tree."""
    return Group(*_unfold(name, quantity, 0))


def _unfold(name: str, quantity: Quantity, depth: int) -> Iterator[Text]:
    yield _text(f"{'  ' * depth}{name} = {amount(quantity)}  [{origin(quantity)}] {quantity.source}")
    for key, inner in quantity.inputs.items():
        yield from _unfold(key, inner, depth + 1)
