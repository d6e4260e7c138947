"""Lines that speak of trouble, the same under every engine: traces, exceptions, catalogued texts, levels."""

from __future__ import annotations

import re
from functools import lru_cache

from headrace.engines.failure_entry import Failure
from headrace.engines.failures import Catalogue
from headrace.engines.log_event import NOTHING, LogEvent, Value
from headrace.engines.log_fields import number, scrub
from headrace.engines.log_lines import LogLine

_LONGEST_CLIENT = 64
_STATUS = re.compile(r"[0-9]{3}(?![0-9])")
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
        {} if values is None else values,
        NOTHING,
        "",
        "",
        line.host,
        line.repeated,
    )


def told(line: LogLine, engine: str, kind: str, values: dict[str, Value] | None = None) -> LogEvent:
    """Returns an event as `event` does, with the scrubbed text."""
    found = event(line, engine, kind, values)
    found.text = scrub(line.message)
    return found


def access(line: LogLine, engine: str) -> LogEvent | None:
    """Returns an `access` event where the line is uvicorn's record of a request, else None."""
    values = request_record(line.message)
    return event(line, engine, "access", values) if values else None


def request_record(text: str, start: int = 0) -> dict[str, Value]:
    """Returns method, path and status of uvicorn's `1.2.3.4:5 - "GET /path HTTP/1.1" 200 OK`; else nothing.

    The query of the address is left out.
    """
    at = text.find(' - "', start, start + _LONGEST_CLIENT)
    end = text.rfind('" ', at)
    if at < 0 or end <= at + 4 or not _STATUS.match(text, end + 2):
        return {}
    method, space, target = text[at + 4 : end].partition(" ")
    if not space or not method.isupper():
        return {}
    path = target.partition(" ")[0].partition("?")[0]
    return {"method": method[:16], "path": request_path(path[:200]), "status": float(text[end + 2 : end + 5])}


@lru_cache(maxsize=1024)
def request_path(path: str) -> str:
    """Returns the path of a request, without secrets, at most 64 characters."""
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
