"""Say what binds a fleet, in a page too, and watch it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.diagnose.context import Context
    from headrace.diagnose.document import Diagnosis
    from headrace.hardware.catalogue import Ask
    from headrace.observe.observation import Observation
    from headrace.observe.recording.kept import Kept
    from headrace.report.watch_document import WatchDocument

KEY_SECONDS = 0.1  # how long a watch may take to notice that it is left
_MAX_DIAGNOSIS_BYTES = 64 * 1024 * 1024


def diagnose(
    targets: str | Path | Sequence[str | Path],
    *,
    engine: str = "",
    engine_version: str = "",
    gpu: str = "",
    model: str = "",
    flags: str = "",
    load: str = "",
    expect: str | Sequence[str] = (),
    window: float | str = "20s",
    allow_accuracy_change: bool = False,
    strict: bool = False,
    api_key_env: str = "",
    ask: Ask | None = None,
) -> Diagnosis:
    """What binds a fleet, why, and what to change: read-only, from whatever evidence there is.

    It is found as `headrace.api.diagnose` only, because `headrace.diagnose` is the package of the method. The
    keywords are the options of `headrace diagnose`; `window` is its `--for`.

    Args:
        targets: server URLs, logs, saved metrics pages, `-`, a facts file, a recording or a job folder.
        window: how long to watch servers: seconds, or 60s, 2m; 0 is one look.
        ask: chooses among the devices that an ambiguous GPU name fits; None goes on with their range.

    Raises:
        UsageError, InputError, UnreachableError: as the command.
    """
    from headrace.diagnose.pipeline import diagnose as diagnosed

    observation, context = _observed(
        targets,
        engine=engine,
        engine_version=engine_version,
        gpu=gpu,
        model=model,
        flags=flags,
        load=load,
        expect=expect,
        window=window,
        allow_accuracy_change=allow_accuracy_change,
        strict=strict,
        api_key_env=api_key_env,
        ask=ask,
    )
    return diagnosed(observation, context)


def report(
    targets: str | Path | Sequence[str | Path],
    *,
    html: str | Path | None = None,
    against: str | Path | Sequence[str | Path] | None = None,
    written_at: str = "",
    engine: str = "",
    engine_version: str = "",
    gpu: str = "",
    model: str = "",
    flags: str = "",
    load: str = "",
    expect: str | Sequence[str] = (),
    window: float | str = "20s",
    strict: bool = False,
    api_key_env: str = "",
) -> dict[str, Any]:
    """The report document: a diagnosis as JSON, and what lies beside it; with `html` it is a page as well.

    It is found as `headrace.api.report` only, because `headrace.report` is a package. Keys beside those of
    `Diagnosis.to_json()`: `series` (columns over time, where the evidence has them), `against` (what changed
    from another diagnosis), `report` (version, and when).

    Args:
        targets: as for `diagnose`, or one file that `diagnose --json` or `report --json` wrote.
        html: file to write the page to. One that is there is replaced only if it is a headrace report.
        against: another diagnosis to hold it against, named in the same ways.
        written_at: when, as text, for the foot of the page.
        engine, engine_version, gpu, model, flags, load, expect, window, strict, api_key_env: as for
            `diagnose`; a file that holds a diagnosis has nothing to be told.

    Raises:
        UsageError: the extra [report] is missing, or as `diagnose`.
        InputError: a file is no diagnosis; `html` is there and is something else.
        StorageError: the page cannot be written.
    """
    from headrace import __version__
    from headrace.diagnose.against import against as held_against

    options = {
        "engine": engine,
        "engine_version": engine_version,
        "gpu": gpu,
        "model": model,
        "flags": flags,
        "load": load,
        "expect": expect,
        "window": window,
        "strict": strict,
        "api_key_env": api_key_env,
    }
    document = _report_document(targets, options)
    if against is not None:
        document["against"] = held_against(document, _report_document(against, options))
    else:
        document.pop("against", None)
    document["report"] = {"headrace": __version__, "written_at": written_at}
    if html is not None:
        _write_page(Path(html), document)
    return document


def watch(
    targets: str | Path | Sequence[str | Path],
    *,
    on_look: Callable[[WatchDocument], object],
    every_seconds: float = 2.0,
    looks: int | None = None,
    leave: Callable[[], bool] = lambda: False,
    engine: str = "",
    engine_version: str = "",
    gpu: str = "",
    model: str = "",
    flags: str = "",
    load: str = "",
    api_key_env: str = "",
) -> None:
    """Looks at servers and jobs again and again, and gives each moment to `on_look`.

    Read-only, and cheap for the servers. It ends after `looks` looks, where `leave` says so (it is asked ten
    times a second), or when every job that is watched has ended; else never.

    Args:
        targets: server URLs, also with a range of ports, and job folders.
        every_seconds: between the beginnings of two looks; a look that takes longer is waited for.
        engine, engine_version, gpu, model, flags, load: as for `diagnose`, told of all servers.

    Raises:
        UsageError: a target is neither a server nor a job folder.
    """
    import asyncio

    from headrace.clock import SystemClock
    from headrace.diagnosing import key_in, load_word
    from headrace.net.http import HttpClient
    from headrace.watching import Watching

    key, clock = key_in(api_key_env), SystemClock()
    named = [targets] if isinstance(targets, str | Path) else targets
    told = {
        "engine": engine,
        "engine_version": engine_version,
        "gpu": gpu,
        "model": model,
        "flags": flags,
        "load": load_word(load),
    }

    async def go() -> None:
        async with HttpClient(key) as http:
            watching = Watching([str(target) for target in named], http, clock, told)
            count = 0
            while True:
                began = clock.monotonic()
                on_look(await watching.look())
                count += 1
                if leave() or watching.ended or (looks is not None and count >= looks):
                    return
                while (left := began + every_seconds - clock.monotonic()) > 0:
                    await asyncio.sleep(min(left, KEY_SECONDS))
                    if leave():
                        return

    asyncio.run(go())


def record(
    targets: str | Sequence[str],
    *,
    out: str | Path,
    duration: float | str | None = None,
    every: float | str = "1s",
    api_key_env: str = "",
    on_sample: Callable[[int], None] | None = None,
) -> Kept:
    """What was recorded, after recording servers, GPUs or a Prometheus server into the folder `out`.

    Without `duration` (`--for`) it goes on until SIGINT or SIGTERM; a recording that is there is continued.

    Args:
        targets: server URLs; `nvml:`, `nvidia-smi:`, `dcgm:URL`, `prometheus:URL?match=…`.
        duration: seconds, or 60s, 10m, 2h; None: until it is interrupted.
        every: between two samples of a server.
        on_sample: called about once a second with the samples so far.

    Raises:
        UsageError, UnreachableError, InputError, StorageError: as the command.
    """
    from headrace.diagnosing import key_in, seconds_of
    from headrace.observe.recording.kept import record_targets

    named = [targets] if isinstance(targets, str) else list(targets)
    return record_targets(
        named,
        Path(out),
        for_seconds=None if duration is None else seconds_of(str(duration)),
        every_seconds=seconds_of(str(every)),
        api_key=key_in(api_key_env),
        on_sample=on_sample,
    )


def _report_document(targets: str | Path | Sequence[str | Path], options: dict[str, Any]) -> dict[str, Any]:
    from headrace.diagnose.pipeline import diagnose as diagnosed
    from headrace.net.redact import redact_document
    from headrace.observe.series import series_document

    named = [targets] if isinstance(targets, str | Path) else list(targets)
    if len(named) == 1 and (found := _diagnosis_file(Path(named[0]))) is not None:
        return found
    observation, context = _observed(targets, **options)
    document = diagnosed(observation, context).to_json()
    if (series := series_document(observation)) is not None:
        document["series"] = series
    clean: dict[str, Any] = redact_document(document)
    return clean


def _diagnosis_file(path: Path) -> dict[str, Any] | None:
    """The document in a file that `--json` wrote, None where it is some other target."""
    import msgspec

    from headrace.errors import InputError
    from headrace.net.redact import redact_document
    from headrace.report.html.shape import checked_diagnosis

    try:
        if path.suffix.lower() != ".json" or not path.is_file():
            return None
        if path.stat().st_size > _MAX_DIAGNOSIS_BYTES:
            raise InputError(f"{path}: is larger than {_MAX_DIAGNOSIS_BYTES:,} bytes: no diagnosis is.")
        found = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}. Check its rights.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # a log of JSON lines, perhaps: those who read logs say what it is
    if not isinstance(found, dict) or "schema" not in found:
        return None
    document: dict[str, Any] = redact_document(checked_diagnosis(found, str(path)))
    return document


def _write_page(path: Path, document: dict[str, Any]) -> None:
    from headrace.durable.disk import RealDisk
    from headrace.errors import InputError, StorageError
    from headrace.report.html.page import MARK, page

    try:
        if path.is_dir():
            raise InputError(f"{path}: is a folder. Name a file, like {path / 'report.html'}.")
        if path.exists() and not _has(path, MARK):
            raise InputError(
                f"{path}: is there, and is no headrace report. Name another file, or move it away."
            )
        text = page(document)
        RealDisk().write_atomic(path, text.encode())
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror}. Choose another place.") from None


def _has(path: Path, mark: str) -> bool:
    with path.open("rb") as file:
        return mark.encode() in file.read(4096)


def _observed(
    targets: str | Path | Sequence[str | Path],
    *,
    engine: str = "",
    engine_version: str = "",
    gpu: str = "",
    model: str = "",
    flags: str = "",
    load: str = "",
    expect: str | Sequence[str] = (),
    window: float | str = "20s",
    allow_accuracy_change: bool = False,
    strict: bool = False,
    api_key_env: str = "",
    ask: Ask | None = None,
) -> tuple[Observation, Context]:
    """The evidence with what was told beside it, and the context that it names."""
    from headrace.diagnosing import context_of, key_in, load_word, seconds_of, with_told
    from headrace.observe.target import Options, read_targets

    word, key = load_word(load), key_in(api_key_env)
    named = [targets] if isinstance(targets, str | Path) else targets
    options = Options(engine or None, engine_version or None, strict, seconds_of(str(window)), key)
    observation = with_told(
        read_targets([str(target) for target in named], options),
        engine=engine,
        engine_version=engine_version,
        gpu=gpu,
        model=model,
        flags=flags,
        load=word,
    )
    context = context_of(
        observation,
        expectations=(expect,) if isinstance(expect, str) else tuple(expect),
        allow_accuracy_change=allow_accuracy_change,
        ask=ask,
    )
    return observation, context
