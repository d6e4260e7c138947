"""Flags that a memory plan does not resolve but a step model needs, as they were written."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.engines.flags import FlagTable
from headrace.engines.settings import EngineSettings


@dataclass(frozen=True)
class WrittenFlags:
    """The words of each flag on a line, by setting; spellings of one setting are one."""

    settings: EngineSettings
    table: FlagTable

    def words(self, field: str) -> tuple[str, ...] | None:
        """Returns the words after a setting's flag, None where the line does not have it."""
        version = self.settings.rules.version
        for given in self.settings.line.flags:
            found = self.table.find(given.name, version)
            if self.table.field(found.name if found else given.name) == field:
                return given.words
        return None

    def has(self, field: str) -> bool:
        """Returns whether a switch is on the line."""
        return self.words(field) is not None

    def number(self, field: str, default: int) -> int:
        """Returns a whole number as written, the default where there is none that can be read."""
        words = self.words(field)
        try:
            return int(words[0]) if words else default
        except ValueError:
            return default

    def numbers(self, field: str) -> tuple[int, ...]:
        """Returns a list of whole numbers as written, ascending; empty where there is none."""
        words = self.words(field) or ()
        return tuple(sorted({int(word) for word in words if word.isdigit() and int(word) > 0}))


def version_of(settings: EngineSettings) -> tuple[int, ...]:
    """Returns the version as told where it can be read, else the one whose rules were used."""
    from headrace.engines.versions import Version

    version = Version.parse(settings.rules.told) if settings.rules.told else None
    version = version or settings.rules.version
    return (version.major, version.minor, version.patch)


def kv_bytes(dtype: str) -> float:
    """Returns bytes per KV element by the name of its dtype.

    Sparse MLA's row in vLLM is 656 bytes for 576 elements (fp8 latent, bf16 rotary part, scales).
    """
    if dtype == "fp8_ds_mla":
        return 656.0 / 576.0
    if dtype.startswith(("fp8", "mxfp8", "int8")):
        return 1.0
    return 0.5625 if dtype.startswith(("fp4", "nvfp4")) else 2.0


def state_bytes(dtype: str) -> float:
    """Returns bytes per element of a recurrent state by the name of its dtype."""
    return 4.0 if dtype in ("float32", "fp32") else 2.0


def weights_dtype(words: tuple[str, ...] | None) -> str | None:
    """Returns what --quantization makes of the weights, None where it is absent or not one that is known."""
    from headrace.perf.widths import dtype_named

    word = (words[0] if words else "").lower()
    return "nvfp4" if "fp4" in word and "mx" not in word else dtype_named(word)
