"""Say what binds a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.diagnose.document import Diagnosis
    from headrace.hardware.catalogue import Ask


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
        targets: server URLs, logs, saved metrics pages, `-`, a facts file or a job folder.
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
