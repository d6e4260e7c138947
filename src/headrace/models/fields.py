"""Reading fields of a config.json, which is data from outside: typed, bounded, with errors that say the way
out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.errors import InputError

MAX_INTEGER = 10**9  # no dimension of a model is larger; a larger one is a broken or hostile config
MAX_LAYERS = 10_000
_KEYS_SHOWN = 12


class Fields:
    """One JSON object of a config, with the name that errors call it by."""

    def __init__(self, values: Mapping[str, Any], name: str) -> None:
        self.values = values
        self.name = name

    def has(self, *names: str) -> bool:
        """Returns whether any of the names is there and not null."""
        return any(self.values.get(name) is not None for name in names)

    def optional(self, *names: str, minimum: int = 0, maximum: int = MAX_INTEGER) -> int | None:
        """Returns the integer under the first of `names` that is there, or None.

        Raises InputError where it is not an integer between `minimum` and `maximum`.
        """
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if isinstance(value, bool) or not isinstance(value, int):
                raise InputError(
                    f"{self.name}: {name} is {str(value)[:80]!r}, an integer is needed; mend the config"
                )
            if not minimum <= value <= maximum:
                raise InputError(
                    f"{self.name}: {name} is {value}, it must lie in {minimum}…{maximum}; mend the config"
                )
            return value
        return None

    def integer(
        self, *names: str, default: int | None = None, minimum: int = 0, maximum: int = MAX_INTEGER
    ) -> int:
        """Returns the integer under the first of `names` that is there, else `default`.

        Raises InputError where there is neither.
        """
        value = self.optional(*names, minimum=minimum, maximum=maximum)
        if value is not None:
            return value
        if default is not None:
            return default
        there = ", ".join(list(self.values)[:_KEYS_SHOWN]) or "no keys"
        raise InputError(
            f"{self.name}: looked for {' or '.join(names)}, and the config has {there}; add it, or give a "
            "config.json that has it"
        )

    def number(self, name: str) -> float:
        """Returns the positive finite number under `name`. Raises InputError where there is none."""
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MAX_INTEGER:
            raise InputError(
                f"{self.name}: {name} is {str(value)[:80]!r}, a number above 0 is needed; mend the config"
            )
        return float(value)

    def text(self, *names: str) -> str | None:
        """Returns the string under the first of `names` that holds one, cut at 200 characters, or None."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, str):
                return value[:200]
        return None

    def flag(self, *names: str, default: bool = False) -> bool:
        """Returns the boolean under the first of `names` that holds one, else `default`."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, bool):
                return value
        return default

    def sequence(self, name: str) -> Sequence[Any] | None:
        """Returns the non-empty list under `name`, or None. Raises InputError beyond 10,000 entries."""
        value = self.values.get(name)
        if not isinstance(value, list) or not value:
            return None
        if len(value) > MAX_LAYERS:
            raise InputError(f"{self.name}: {name} has {len(value)} entries, at most {MAX_LAYERS} make sense")
        return value

    def inner(self, *names: str) -> Fields | None:
        """Returns the JSON object under the first of `names` that holds one, or None."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, dict):
                return Fields(value, f"{self.name}: {name}")
        return None
