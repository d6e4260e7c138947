"""Say what binds a fleet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.diagnose.document import Diagnosis
    from headrace.hardware.catalogue import Ask
    from headrace.observe.recording.kept import Kept


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
    return diagnosed(observation, context)


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
