"""A log line out of its wrappings: who printed it, when, on which rank, at which level, and what it says.

The wrappings met, in any order and depth: terminal colours, progress bars, Docker's and journald's JSON,
CRI (`…Z stdout F `), `kubectl --timestamps` and `--prefix`, `docker compose`, journald and syslog lines,
Ray's and vLLM's `(Name pid=1)`, and the two engines' own headers. A prefix nobody knows (stern, srun, a
pasted quote) is passed over where an engine's header follows it. Everything is data: nothing is evaluated,
layers and lengths are limited.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from headrace.engines.log_event import NO_RANKS
from headrace.engines.log_fields import scrub
from headrace.engines.log_times import instant

MAX_LINE_CHARACTERS = 262_144  # SGLang prints its settings as one line of 30,000
_MAX_LAYERS = 8
SHORTEST_HEADER = 21  # characters of SGLang's header without ranks
_DOCKER_CUT = 4096  # characters: 16 KiB of the widest
_SEARCH = 400  # characters in which an engine's header is looked for behind an unknown prefix
YEAR_UNTOLD = 2000  # vLLM writes no year; a leap year, so that 29 February exists

_COLOUR = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_SGLANG = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?((?: [A-Z_]{2,10}\d{1,6})*)\] ?")
_SGLANG_CUT = re.compile(  # as pasted without its first character
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?((?: [A-Z_]{2,10}\d{1,6})*)\] ?"
)
_VLLM = re.compile(
    r"(DEBUG|INFO|WARNING|ERROR|CRITICAL) (?:(\d{4})-)?(\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?"
    r" \[?([\w./-]{1,120}\.py):\d{1,6}\] ?"
)
_PROCESS = re.compile(r"\(([^()\n]{0,120}?)\s?\bpid=\d+(?:, ip=([0-9A-Fa-f.:]{2,45}))?\) ?")
_VLLM_PROCESS = re.compile("A(?:PI|pi)Server|EngineCore|VllmWorker|DPCoordinator|Worker(?:_[A-Z]|$)")
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?"
    r"(?: (?:stdout|stderr) ([FP]))?"
)
_JOURNAL_TIME = re.compile(r"([A-Z][a-z]{2}) ([ \d]\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,9}))? ")
_JOURNAL_UNIT = re.compile(r" ?([\w.-]{1,100}) ([\w.@:/\\-]{1,100})\[\d{1,10}\]: ")
_POD = re.compile(r"\[(pod/[^\]\s]{1,250})\] ")
_COMPOSE = re.compile(r"([A-Za-z0-9][\w.-]{0,99}) *\| ")
_LEVEL = re.compile(
    r"[ :|-]{0,4}\[?(DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\]?(?: \d{1,10})?[ :|-]{1,8}"
    r"(?:\[?[\w./-]{1,120}\.py:\d{1,6}\]?[ :|-]{0,4})?"
)
_REPEATED = re.compile(r" ?\[repeated (\d{1,6})x across (?:all )?cluster\].*$")
_RANK = re.compile(r"(ATTN_CP|MOE_DP|DCP|PCP|DP|PP|TP|EP)(\d{1,6})")
_LEVEL_LETTERS = frozenset("IWECF")
_HOST = re.compile(r"[\w.:,/<>()\[\] -]{1,100}")
_BARE_RANKS = re.compile(r"(?:(?<![A-Za-z])[A-Z_]{2,10}\d{1,6} ?){1,6}\] ?$")
_MONTHS = {
    name: 1 + at // 3
    for at in range(0, 36, 3)
    for name in ("JanFebMarAprMayJunJulAugSepOctNovDec"[at : at + 3],)
}


class LogLine:
    """One line without its wrappings.

    Attributes:
        message: what the program said.
        time_seconds: of the outermost wrapping that has a time (it is the finer one), see `LogEvent`.
        has_year: whether that time was written with its year.
        ranks: as labelled.
        level: DEBUG, INFO, WARNING, ERROR, CRITICAL, or "" where none was written.
        engine: `sglang` or `vllm` where the header is that engine's, else "".
        process: the engine whose process labelled the line, where its header is another program's; else "".
        file: the source file that vLLM names, else "".
        host: pod, container, node or address; "" where nothing says.
        repeated: how many lines it stands for.
        continues: a piece of a line that the container runtime cut; the rest follows.
    """

    # defaults on the class: most lines set three of them
    time_seconds: float | None = None
    has_year = True
    ranks: Mapping[str, int] = NO_RANKS
    level = ""
    engine = ""
    process = ""
    file = ""
    host = ""
    repeated = 1
    continues = False

    def __init__(self, message: str) -> None:
        self.message = message


class _Record(msgspec.Struct):
    """The fields of a line in JSON that are looked at: Docker's, journald's, and what collectors write."""

    log: str | None = None
    time: str | int | float | None = None
    message: str | None = None
    msg: str | None = None
    line: str | None = None
    text: str | None = None
    timestamp: str | int | float | None = None
    ts: str | int | float | None = None
    MESSAGE: str | None = None
    realtime: str | None = msgspec.field(default=None, name="__REALTIME_TIMESTAMP")
    level: str | int | None = None
    levelname: str | None = None


_RECORD = msgspec.json.Decoder(_Record)


def unwrap(text: str) -> LogLine:
    """Returns the line without its wrappings. Never raises: what is not understood stays in the message."""
    if len(text) > MAX_LINE_CHARACTERS:
        text = text[:MAX_LINE_CHARACTERS]
    # the common case first: SGLang's own header, nothing around it
    if text[:2] != "[2" or "\x1b" in text or "\r" in text:
        text = _clean(text)
    line = LogLine(text)
    found = _SGLANG.match(text) if text[:2] == "[2" else None
    if found:
        _take_sglang(line, found)
        if line.message[:1] in _LEVEL_LETTERS:
            _take_inner_header(line)
        if "[repeated " in line.message:
            _take_repeated(line)
        return line
    for _ in range(_MAX_LAYERS):
        if not _peel(line):
            break
    if not line.engine:
        _search_header(line)
    if "[repeated " in line.message:
        _take_repeated(line)
    return line


def _take_repeated(line: LogLine) -> None:
    found = _REPEATED.search(line.message)
    if found:
        line.repeated = int(found[1])
        line.message = line.message[: found.start()]


def bare_ranks(prefix: str) -> Mapping[str, int]:
    """Returns the ranks of a header that lost its beginning: `… DP0 TP1] `."""
    found = _BARE_RANKS.search(prefix[-60:])
    return _ranks(found[0]) if found else NO_RANKS


def second_header(text: str) -> int:
    """Returns where, behind its own, a further header of SGLang begins in the line; 0 where none does."""
    at = text.find("[20", SHORTEST_HEADER)
    return at if at > 0 and _SGLANG.match(text, at) else 0


def uncoloured(text: str) -> str:
    """Returns the text without a terminal's colours and other commands."""
    return _COLOUR.sub("", text)


def _clean(text: str) -> str:
    if "\x1b" in text:
        text = uncoloured(text)
    text = text.rstrip("\r\n")
    if "\r" in text:  # a progress bar was drawn over; the last drawing counts
        text = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    if text[:1] in ("\ufeff", ">", "`"):
        text = text.lstrip("\ufeff>` ")
    return text


def _peel(line: LogLine) -> bool:
    """Takes one wrapping off; False where none is left to take."""
    text = line.message
    first = text[:1]
    if first == "[":
        found = _SGLANG.match(text)
        if found and not line.engine:
            _take_sglang(line, found)
            if line.message[:1] in _LEVEL_LETTERS:
                _take_inner_header(line)
            return False
        return _take_pod(line)
    if first == "(":
        return _take_process(line)
    if first == "{":
        return _take_record(line)
    if first.isdigit():
        found = None if line.engine else _SGLANG_CUT.match(text)
        if found:
            _take_sglang(line, found)
            return False
        return _take_iso(line)
    if line.engine:
        return False
    if first.isalpha():
        found = _VLLM.match(text)
        if found:
            _take_vllm(line, found)
            return False
        return _take_journal(line) or _take_compose(line) or (_take_level(line) and False)
    return False


def _take_sglang(line: LogLine, found: re.Match[str]) -> None:
    line.engine = "sglang"
    stamp, fraction, ranks = found.groups()
    if line.time_seconds is None or not line.has_year:
        line.time_seconds = instant(stamp, fraction)
        line.has_year = True
    if ranks:
        line.ranks = _ranks(ranks)
    line.message = line.message[found.end() :]


def _take_inner_header(line: LogLine) -> None:
    """A level behind SGLang's header; or vLLM's whole header, where something else wrote a date before it."""
    found = _VLLM.match(line.message)
    if found:
        _take_vllm(line, found)
    else:
        _take_level(line)


def _take_vllm(line: LogLine, found: re.Match[str]) -> None:
    line.engine = "vllm"
    line.level = found[1]
    if line.time_seconds is None:
        line.time_seconds = instant(f"{found[2] or YEAR_UNTOLD}-{found[3]}", found[4])
        line.has_year = found[2] is not None
    line.file = found[5].rpartition("/")[2]
    line.message = line.message[found.end() :]


def _take_process(line: LogLine) -> bool:
    found = _PROCESS.match(line.message)
    if not found:
        return False
    ranks = _ranks(found[1])
    if ranks:
        line.ranks = {**line.ranks, **ranks}
    if _VLLM_PROCESS.match(found[1]):
        line.process = "vllm"
    line.host = found[2] or line.host
    line.message = line.message[found.end() :]
    return True


def _take_pod(line: LogLine) -> bool:
    found = _POD.match(line.message)
    if not found:
        return False
    line.host = line.host or found[1]
    line.message = line.message[found.end() :]
    return True


def _take_compose(line: LogLine) -> bool:
    found = _COMPOSE.match(line.message)
    if not found or found[1] in ("INFO", "WARNING", "ERROR", "DEBUG", "srv", "slot"):
        return False
    line.host = line.host or found[1]
    line.message = line.message[found.end() :]
    return True


def _take_iso(line: LogLine) -> bool:
    found = _ISO.match(line.message)
    if not found:
        return False
    rest = line.message[found.end() :]
    if rest and rest[0] not in " :|,-":
        return False
    if line.time_seconds is None:
        line.time_seconds = instant(found[1], found[2], found[3])
    line.continues = found[4] == "P"
    line.message = rest[1:] if rest[:1] == " " else rest
    unit = _JOURNAL_UNIT.match(line.message)
    if unit:
        line.host = line.host or unit[1]
        line.message = line.message[unit.end() :]
    elif not _VLLM.match(line.message):  # whose header begins with a level too
        _take_level(line)
    return True


def _take_journal(line: LogLine) -> bool:
    found = _JOURNAL_TIME.match(line.message)
    if not found or found[1] not in _MONTHS:
        return False
    unit = _JOURNAL_UNIT.match(line.message, found.end())
    if not unit:
        return False
    if line.time_seconds is None:
        day = f"{YEAR_UNTOLD}-{_MONTHS[found[1]]:02d}-{int(found[2]):02d}"
        line.time_seconds = instant(f"{day} {found[3]}", found[4])
        line.has_year = False
    line.host = line.host or unit[1]
    line.message = line.message[unit.end() :]
    return True


def _take_level(line: LogLine) -> bool:
    """Python's and uvicorn's `INFO:     `, `WARNING - `."""
    if line.message.startswith("INFO:     "):  # uvicorn's record of every request
        line.level = "INFO"
        line.message = line.message[10:]
        return True
    found = _LEVEL.match(line.message)
    if not found:
        return False
    line.level = {"WARN": "WARNING", "FATAL": "CRITICAL"}.get(found[1], found[1])
    line.message = line.message[found.end() :]
    return True


def _take_record(line: LogLine) -> bool:
    try:
        record = _RECORD.decode(line.message)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    inner = next(
        (
            part
            for part in (record.log, record.MESSAGE, record.message, record.msg, record.line, record.text)
            if part is not None
        ),
        None,
    )
    if inner is None:
        return False
    if line.time_seconds is None:
        line.time_seconds = _record_time(record)
    level = str(record.levelname or record.level or "").upper()
    if level in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
        line.level = level
    # Docker cuts at 16 KiB; others write whole lines without their end
    line.continues = record.log is not None and not inner.endswith("\n") and len(inner) >= _DOCKER_CUT
    line.message = _clean(inner)
    return True


def _record_time(record: _Record) -> float | None:
    if record.realtime is not None:
        return int(record.realtime) / 1e6 if record.realtime[:20].isdigit() else None
    for stamp in (record.time, record.timestamp, record.ts):
        if isinstance(stamp, str):
            found = _ISO.match(stamp)
            if found:
                return instant(found[1], found[2], found[3])
        elif stamp is not None and 0 < stamp < 1e20:
            return stamp / 1e9 if stamp > 1e17 else stamp / 1e3 if stamp > 1e11 else float(stamp)
    return None


def _search_header(line: LogLine) -> None:
    """Looks for an engine's header behind a prefix that nobody knows."""
    text = line.message
    at = text.find("] ", 0, _SEARCH)
    if at < 0:
        return
    found = _SGLANG.search(text, 0, _SEARCH)
    if found:
        line.host = line.host or _host(text[: found.start()])
        _take_sglang(line, found)
        return
    found = _VLLM.search(text, 0, _SEARCH)
    if found:
        process = _PROCESS.search(text, 0, found.start())
        if process:
            line.ranks = _ranks(process[1]) or line.ranks
        else:
            line.host = line.host or _host(text[: found.start()])
        _take_vllm(line, found)


@lru_cache(maxsize=1024)
def _host(prefix: str) -> str:
    """An unknown prefix where it looks like a name, else nothing: it may be anything."""
    found = _HOST.fullmatch(prefix.strip())
    return scrub(found[0], 100) if found else ""


@lru_cache(maxsize=4096)
def _ranks(label: str) -> Mapping[str, int]:
    """The ranks in ` DP0 TP1` or `Worker_TP0_DCP1`."""
    return {name.lower(): int(number) for name, number in _RANK.findall(label)} or NO_RANKS
