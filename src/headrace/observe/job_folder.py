"""A job folder as an Observation: what the driver's status.json says of the client's side and its servers."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headrace.drive.status import EndpointStatus, JobStatus
from headrace.errors import InputError
from headrace.net.redact import redact, without_user
from headrace.observe.observation import ClientFacts, Event, Observation, ServerObservation
from headrace.observe.readings import CLIENT, READINGS
from headrace.quantities import Origin, Quantity

STATUS = "status.json"
_MAX_BYTES = 64 * 1024 * 1024
_TROUBLED = {"broken": "failure", "refusing": "failure", "limited": "warning"}
RUNNING = ("starting", "running", "paused", "draining")


def is_job_folder(path: Path) -> bool:
    """Whether a folder holds a job's status."""
    return (path / STATUS).is_file()


def read_job_folder(path: Path) -> tuple[Observation, bool]:
    """The Observation of a job, and whether it says that the job runs (so that its servers can be asked).

    Raises:
        InputError: the status cannot be read.
    """
    status = path / STATUS
    try:
        if status.stat().st_size > _MAX_BYTES:
            raise InputError(f"{status} is larger than {_MAX_BYTES:,} bytes: this is no job's status.")
        told = msgspec.json.decode(status.read_bytes(), type=JobStatus)
    except OSError as error:
        raise InputError(f"{status}: cannot be read: {error.strerror}. Name the job's own folder.") from None
    except msgspec.DecodeError as error:
        raise InputError(f"{status}: is no job's status: {error}. Was it written by this version?") from None
    notes = [redact(note) for note in told.notes]
    if told.message:
        notes.append(redact(told.message))
    if not told.settled and told.output_tokens_per_second_finished is not None:
        notes.append("finished requests alone do not tell the rate yet: two latencies have not passed.")
    observation = Observation(
        servers=tuple(_server(endpoint) for endpoint in told.endpoints)
        or (ServerObservation(name=str(path)),),
        client=_client(told),
        notes=tuple(notes),
        source=str(path),
    )
    return observation, told.phase in RUNNING


def _client(told: JobStatus) -> ClientFacts:
    values = {
        "in_flight": told.in_flight,
        "completed": told.done_this_run,
        "elapsed_s": told.elapsed_seconds,
        "prompts_total": told.rows,
        "mean_output_tokens": told.mean_output_tokens,
        "in_flight_tokens": told.in_flight_tokens,
        "output_tokens_per_s_finished_only": told.output_tokens_per_second_finished,
    }
    readings = {
        word: Quantity(float(value), CLIENT[word], Origin.MEASURED, "the job's status.json")
        for word, value in values.items()
        if value is not None
    }
    return ClientFacts(load="free", readings=readings)


def _server(endpoint: EndpointStatus) -> ServerObservation:
    readings: dict[str, Quantity] = {}
    for word, value, origin, source in (
        ("running", endpoint.running, Origin.REPORTED, "running"),
        ("queued", endpoint.queued, Origin.REPORTED, "queued"),
        (
            "output_tokens_per_s",
            endpoint.output_tokens_per_second,
            Origin.MEASURED,
            "output_tokens_per_second (finished and in flight, by the driver)",
        ),
        ("latency_s", endpoint.median_latency_seconds, Origin.MEASURED, "median_latency_seconds"),
    ):
        if value is not None:
            readings[word] = Quantity(float(value), READINGS[word].unit, origin, f"status.json: {source}")
    cap = endpoint.cap
    capacities = (
        {"cap": Quantity(float(cap), "requests", Origin.REPORTED, "status.json: cap")}
        if cap is not None
        else {}
    )
    why = redact(without_user(endpoint.why))[:400]
    events = (
        [Event(f"endpoint_{endpoint.state}", _TROUBLED[endpoint.state], 1, why)]
        if endpoint.state in _TROUBLED
        else []
    )
    events += [
        Event(f"client_error_{kind}", "warning", count, f"{count} tries failed: {kind}")
        for kind, count in endpoint.errors.items()
        if count > 0
    ]
    return ServerObservation(
        name=redact(without_user(endpoint.url)),
        readings=readings,
        capacities=capacities,
        events=tuple(events),
    )
