"""Lines that speak of trouble, the same under every engine: traces, exceptions, catalogued texts, levels."""

from __future__ import annotations

import re
from functools import lru_cache

from headrace.engines.failures import Catalogue, Failure
from headrace.engines.log_event import LogEvent, Value
from headrace.engines.log_fields import number, scrub
from headrace.engines.log_lines import LogLine

_ACCESS = re.compile(
    r'[\w.:\[\]-]{1,60} - "([A-Z]{3,7}) ([^\s"?]{1,200})[^"]{0,4000}" (\d{3})'
)  # uvicorn's: the query is left out
_FRAME = re.compile(r'\s*File "[^"]{1,500}", line \d+')
_CARETS = re.compile(r"[\s~^]*\^[\s~^]*$")
_TRACE_STARTS = (
    "Traceback (most recent call last)",
    "During handling of the above exception",
    "The above exception was the direct cause",
    "  + Exception Group Traceback",
)
_EXCEPTION = re.compile(
    r"(?:\|\s+)?([A-Za-z_][\w.]{0,120}(?:Error|Exception|Exit|Interrupt|Timeout|Expired|Failure))(?:: |:?$)"
)


def event(line: LogLine, engine: str, kind: str, values: dict[str, Value] | None = None) -> LogEvent:
    """Returns an event with the line's time, ranks and host; without its text."""
    return LogEvent(
        kind,
        engine,
        line.time_seconds,
        line.ranks,
        values if values is not None else {},
        host=line.host,
        repeated=line.repeated,
    )


def told(line: LogLine, engine: str, kind: str, values: dict[str, Value] | None = None) -> LogEvent:
    """Returns an event as `event` does, with the scrubbed text."""
    found = event(line, engine, kind, values)
    found.text = scrub(line.message)
    return found


def access(line: LogLine, engine: str) -> LogEvent | None:
    """Returns an `access` event where the line is uvicorn's record of a request, else None."""
    if ' - "' not in line.message[:80]:
        return None
    found = _ACCESS.match(line.message)
    if not found:
        return None
    return event(
        line, engine, "access", {"method": found[1], "path": _path(found[2]), "status": float(found[3])}
    )


@lru_cache(maxsize=1024)
def _path(path: str) -> str:
    return scrub(path, 64)


def is_trace(line: LogLine) -> bool:
    """Whether the line belongs to an error's trace by its own looks."""
    message = line.message
    if message.startswith(_TRACE_STARTS) or _FRAME.match(message):
        return True
    if line.level == "ERROR":
        return not message.strip() or message[0] in " \t" or bool(_CARETS.match(message))
    return False


def trouble(line: LogLine, engine: str, catalogue: Catalogue) -> LogEvent | None:
    """Returns what the line says of warnings, errors and crashes; None where it says nothing of them."""
    message = line.message
    if is_trace(line):
        return event(line, engine, "traceback")
    if not message or message[0] in " \t":
        return None
    entry = catalogue.find(message)
    if entry is not None:
        return catalogued(line, engine, entry)
    found = _EXCEPTION.match(message)
    if found:
        thrown = told(line, engine, "failure", {"exception": found[1][-64:]})
        thrown.failure = "exception"
        return thrown
    if line.level == "WARNING":
        return told(line, engine, "warning")
    if line.level in ("ERROR", "CRITICAL"):
        return told(line, engine, "failure")
    return None


def catalogued(line: LogLine, engine: str, entry: Failure) -> LogEvent:
    """Returns the event of an entry, with the numbers and words that its pattern names."""
    values: dict[str, Value] = {}
    if entry.compiled is not None:
        found = entry.compiled.search(line.message[:4000])
        if found:
            for name, raw in found.groupdict().items():
                if raw is not None:
                    value = number(raw)
                    values[name] = scrub(raw, 64) if value is None else value
    said = told(line, engine, str(entry.severity), values)
    said.failure = entry.id
    return said
