"""The client's side of a recording of `headrace run`: answers, what is in flight, and how long it all is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from headrace.observe.lengths import (
    Lengths,
    MadeSoFar,
    TokensBy,
    joined,
    lengths,
    lengths_by_source,
    tokens_from_elapsed,
    tokens_from_own_rate,
)
from headrace.observe.observation import ClientFacts, Column
from headrace.observe.readings import CLIENT
from headrace.observe.recording.reading import Recording
from headrace.observe.recording.series import series_of
from headrace.quantities import Origin, Quantity

WHOLE = "all sources"


@dataclass(frozen=True, slots=True)
class JobSide:
    """What the job's own lines tell.

    Attributes:
        client: None where the recording is of servers alone.
        mean_length: the survival estimate of output tokens, None where it cannot be told.
        began_empty: True: the run began with nothing in flight; None: not told.
    """

    client: ClientFacts | None = None
    mean_length: float | None = None
    began_empty: bool | None = None
    notes: tuple[str, ...] = field(default=())


def job_side(recording: Recording) -> JobSide:
    """The job's side. Only the last run's requests in flight count: those of a run that died are lost."""
    job = recording.job
    if recording.about.sources is None and not job.answers:
        return JobSide()
    now = _end(recording)
    limits = {name: float(most) if most else None for name, most in (recording.about.sources or {}).items()}
    # what ended after the look at what is in flight would count twice
    answers = {source: _until(now, columns) for source, columns in job.answers.items()}
    made = _made(recording, answers, now)
    finished = {source: columns["tokens"] for source, columns in answers.items()}
    by_source = lengths_by_source(finished, made, limits)
    every = np.concatenate(list(finished.values())) if finished else np.empty(0)
    known_limits = {limits.get(source) for source in (*finished, *made)}
    whole = lengths(
        every,
        joined(list(made.values())),
        known_limits.pop() if len(known_limits) == 1 else None,
    )
    began = max((at for at in job.runs_seconds if at <= now), default=0.0)
    sent_now = np.concatenate([columns["sent"] for columns in answers.values()]) if finished else every
    this_run = sent_now >= began
    readings = _readings(
        recording, whole, made, float(every[this_run].sum()), int(this_run.sum()), now - began
    )
    found: dict[str, Lengths] = {source: one for source, one in by_source.items() if one is not None}
    if whole is not None:
        found = {WHOLE: whole, **found}
    return JobSide(
        client=ClientFacts(load="free", readings=readings, lengths=found),
        mean_length=whole.mean.value if whole is not None else None,
        began_empty=len(job.runs_seconds) == 1 or None,
        notes=_notes(whole, made, by_source),
    )


def _end(recording: Recording) -> float:
    last = [columns.seconds[-1] for columns in recording.gauges.values() if len(columns.seconds)]
    if recording.job.at_seconds is not None:
        return recording.job.at_seconds
    return float(max(last, default=0.0))


def _until(now: float, columns: Mapping[str, Column]) -> dict[str, Column]:
    ended = columns["sent"] + columns["seconds"] <= now
    return {name: values[ended] for name, values in columns.items()}


def _made(
    recording: Recording, answers: Mapping[str, Mapping[str, Column]], now: float
) -> dict[str, MadeSoFar]:
    """Source → tokens made so far by its requests in flight, each by its own server's pace."""
    look = recording.job.in_flight
    if look is None:
        return {}
    answered = [columns for columns in answers.values() if len(columns["tokens"])]
    tokens = np.concatenate([columns["tokens"] for columns in answered]) if answered else np.empty(0)
    seconds = np.concatenate([columns["seconds"] for columns in answered]) if answered else np.empty(0)
    shares: dict[str, float] = {}
    found: dict[str, list[MadeSoFar]] = {source: [] for source in look.sent}
    servers = {server for by_server in look.sent.values() for server in by_server}
    for server in servers:
        sent = {source: np.array(by[server]) for source, by in look.sent.items() if server in by}
        every = np.concatenate(list(sent.values()))
        whole = _on_server(recording, server, now, every)
        if whole is None:
            whole = tokens_from_own_rate(now - every, tokens, seconds)
        if whole is None:
            continue
        shares[server] = whole.error
        at = 0
        for source, part in sent.items():
            piece = whole.tokens[at : at + len(part)]
            found[source].append(MadeSoFar(piece, whole.error, whole.by, whole.against_server))
            at += len(part)
    return {source: joined(parts) for source, parts in found.items() if parts}


def _on_server(recording: Recording, server: str, now: float, sent: Column) -> MadeSoFar | None:
    series = series_of(recording, server)
    if series is None:
        return None
    running, rate = series.gauges.get("running"), series.rate()
    if running is None or rate is None:
        return None

    def newest(word: str) -> float | None:
        values = series.gauges.get(word)
        finite = values[np.isfinite(values)] if values is not None else np.empty(0)
        return float(finite[-1]) if len(finite) else None

    def mean(top: str, bottom: str) -> float | None:
        above, below = series.counters.get(top), series.counters.get(bottom)
        if above is None or below is None or not np.isfinite(below[-1]) or not below[-1] > 0:
            return None
        return float(above[-1] / below[-1])

    runs = newest("running")
    resident = newest("decode_context_tokens") or newest("kv_used_tokens")
    if resident is not None and runs is not None and runs < len(sent):
        resident *= len(sent) / runs if runs > 0 else 0.0  # those that wait hold nothing; theirs is set apart
    return tokens_from_elapsed(
        now,
        sent,
        series.seconds,
        rate,
        running,
        waited_seconds=mean("ttft_seconds", "ttft_count") or 0.0,
        resident_tokens=resident if runs == len(sent) else None,
        prompt_tokens=mean("input_length_tokens", "input_length_count"),
    )


def _readings(
    recording: Recording,
    whole: Lengths | None,
    made: Mapping[str, MadeSoFar],
    tokens: float,
    completed: int,
    elapsed: float,
) -> dict[str, Quantity]:
    source = "the job's recording"
    look = recording.job.in_flight
    # now; of a job that is over, what it usually had
    totals = recording.job.in_flight_totals
    in_flight = (totals[-1] or float(np.median([one for one in totals if one] or [0]))) if totals else None
    so_far = sum(float(one.tokens.sum()) for one in made.values()) if made else None
    values: dict[str, float | None] = {
        "in_flight": in_flight,
        "completed": completed,
        "elapsed_s": elapsed if elapsed > 0 else None,
        "prompts_total": completed + look.pending if look else None,
        "in_flight_tokens": so_far,
        "mean_output_tokens_finished_only": whole.naive_mean if whole else None,
        "output_tokens_per_s_finished_only": tokens / elapsed if elapsed > 0 and completed else None,
    }
    found = {
        word: Quantity(float(value), CLIENT[word], Origin.MEASURED, source)
        for word, value in values.items()
        if value is not None
    }
    if whole is not None:
        found["mean_output_tokens"] = Quantity(
            whole.mean.value,
            "tokens",
            Origin.DERIVED,
            f"survival estimate of {whole.finished:,} answers and {whole.in_flight:,} in flight ({whole.by})",
            low=whole.mean.low,
            high=whole.mean.high,
        )
    return found


def _notes(
    whole: Lengths | None, made: Mapping[str, MadeSoFar], by_source: Mapping[str, Lengths | None]
) -> tuple[str, ...]:
    notes = []
    if whole is not None and whole.in_flight:
        notes.append(
            f"answers have {whole.mean.value:,.0f} tokens ({whole.mean.low:,.0f} to {whole.mean.high:,.0f}); "
            f"those that are finished {whole.naive_mean:,.0f}: what is in flight is longer."
        )
        if whole.by is TokensBy.SCALED:
            notes.append("tokens in flight by elapsed time differ from the servers' own sum, which was used.")
    unseen = [source for source in made if by_source.get(source) is None]
    if unseen:
        notes.append(f"too few answers yet to tell the lengths of: {', '.join(sorted(unseen)[:8])}.")
    return tuple(notes)
