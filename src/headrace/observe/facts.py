"""Reads a facts file: what a person knows of a fleet, typed by hand, into an Observation.

Evidence is read leniently: a key that nobody knows, a value that cannot be, a percentage where a fraction
belongs are each a warning that names the nearest key or the limit; `strict` makes them errors. No number
is made up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.drive.job.text import MAX_FILE_BYTES, Key, PlacedText, parse_placed, shorten
from headrace.errors import InputError, UsageError, nearest
from headrace.net.redact import redact, without_user
from headrace.observe import facts_schema as schema
from headrace.observe.flags_text import read_flags
from headrace.observe.observation import ClientFacts, Observation, ServerObservation
from headrace.observe.readings import BY_RANK, CLIENT, READINGS, Scope, largest
from headrace.quantities import Origin, Quantity, derived

_NUMBER = re.compile(r"\s*([-+]?[\d,_]*\.?\d+(?:[eE][-+]?\d+)?)\s*(%)?\s*$")
MAX_NUMBER = 1e18


def read_facts(path: Path, *, strict: bool = False) -> tuple[Observation, Path | None]:
    """The Observation of a facts file, and the log file that it names, or None.

    Raises:
        InputError: the file cannot be read or is no facts file at all; with `strict`, anything odd in it.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(
                f"{path}: a facts file of {path.stat().st_size:,} bytes; the limit is {MAX_FILE_BYTES:,}. "
                "Put log lines into a file of their own and name it under 'logs'."
            )
        text = path.read_bytes().decode("utf-8-sig", "replace")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}. Check the path.") from None
    return parse_facts(text, str(path), path.absolute().parent, strict=strict)


def parse_facts(
    text: str, name: str, folder: Path, *, strict: bool = False
) -> tuple[Observation, Path | None]:
    """As `read_facts`, of a text; `name` stands before every line number."""
    try:
        placed = parse_placed(text, name, folder, "facts file")
    except UsageError as problem:
        raise InputError(str(problem)) from None
    reader = _Reader(placed, list(placed.problems))
    observation = reader.observation(name)
    log = reader.log_file(folder)
    if strict and reader.warnings:
        raise InputError("\n".join(reader.warnings))
    return replace(observation, notes=(*observation.notes, *reader.warnings)), log


@dataclass(slots=True)
class _Reader:
    placed: PlacedText
    warnings: list[str] = field(default_factory=list)

    def observation(self, source: str) -> Observation:
        self._unknown((), self.placed.value, schema.TOP)
        flags = read_flags(
            self._text("flags"), engine_word(self._text("engine")), self._text("engine_version")
        )
        notes = [redact(self._text("notes"))] if self._text("notes") else []
        return Observation(
            servers=(self._server(flags.flags),),
            client=self._client(),
            claims=self._claims(),
            notes=(*notes, *flags.notes),
            source=source,
        )

    def log_file(self, folder: Path) -> Path | None:
        """The file named under `logs`; it must lie beside the facts file or below."""
        name = self._text("logs")
        if not name:
            return None
        if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
            self._warn(("logs",), f"'{shorten(name)}' leads out of the facts file's folder; put it there.")
            return None
        path = folder / name
        try:
            inside = path.resolve().is_relative_to(folder.resolve()) and path.is_file()
        except (OSError, ValueError):
            inside = False
        if not inside:
            self._warn(("logs",), f"no such file in the facts file's folder: '{shorten(name)}'.")
            return None
        return path

    # ── the server ────────────────────────────────────────────────────────────────────────────────────────
    def _server(self, flags: str) -> ServerObservation:
        counts = {key: self._count(key) for key in schema.COUNTS}
        replicas = counts["replicas"] or 1
        observed = self._section("observed")
        self._unknown(("observed",), observed, schema.OBSERVED)
        by_rank = {key: ranks for key in BY_RANK if (ranks := self._ranks(key, observed.get(key)))}
        scope = self._choice(("observed", "scope"), observed.get("scope"), schema.SCOPES) or "replica"
        found: dict[str, Quantity] = {}
        for word, meaning in READINGS.items():
            value = observed.get(word)
            if value is None:
                continue
            if isinstance(value, list):
                quantity, ranks = self._list(word, value, meaning.unit)
                if ranks:
                    by_rank[f"{word}_by_rank"] = ranks
            else:
                quantity = self._quantity(("observed", word), value, meaning.unit)
            if quantity is not None:
                one = self._per_server(word, quantity, scope, replicas, counts["data_parallel"])
                if one.value > largest(word):
                    self._warn(
                        ("observed", word),
                        f"observed.{word} is {one.value:g} per server; up to {largest(word):g} is read.",
                    )
                    continue
                found[word] = one
        return ServerObservation(
            name="server",
            engine=engine_word(self._text("engine")),
            engine_version=self._text("engine_version") or None,
            model=self._text("model") or None,
            gpu=self._text("gpu") or None,
            gpus=self._gpus(counts, replicas),
            replicas=replicas,
            tensor_parallel=counts["tensor_parallel"],
            data_parallel=counts["data_parallel"],
            weights_dtype=self._text("weights_dtype") or None,
            kv_dtype=self._text("kv_dtype") or None,
            flags=flags,
            readings={word: quantity for word, quantity in found.items() if not READINGS[word].capacity},
            capacities={word: quantity for word, quantity in found.items() if READINGS[word].capacity},
            by_rank=by_rank,
            scope=scope,
        )

    def _gpus(self, counts: Mapping[str, int | None], replicas: int) -> int | None:
        """GPUs of one server: the total by the replicas, else what tensor parallelism says."""
        total = counts["gpus"]
        if total is None:
            return counts["tensor_parallel"] if counts["data_parallel"] in (None, 1) else None
        if total % replicas:
            self._warn(("gpus",), f"{total} GPUs do not divide among {replicas} servers.")
            return None
        return total // replicas

    def _per_server(
        self, word: str, quantity: Quantity, scope: str, replicas: int, ranks: int | None
    ) -> Quantity:
        """A reading of a fleet or of a rank as one server's, where it adds up."""
        if READINGS[word].scope is not Scope.SUM:
            return quantity
        if scope == "fleet" and replicas > 1:
            return derived(
                quantity.value / replicas,
                quantity.unit,
                f"fleet's {word} ÷ {replicas} servers",
                fleet=quantity,
            )
        if scope == "per DP rank" and ranks is not None and ranks > 1:
            return derived(
                quantity.value * ranks, quantity.unit, f"a rank's {word} × {ranks} ranks", rank=quantity
            )
        return quantity

    # ── the client ────────────────────────────────────────────────────────────────────────────────────────
    def _client(self) -> ClientFacts | None:
        if "client" not in self.placed.value:
            return None
        client = self._section("client")
        self._unknown(("client",), client, schema.CLIENT_KEYS)
        readings = {
            word: quantity
            for word, unit in CLIENT.items()
            if (quantity := self._quantity(("client", word), client.get(word), unit, Origin.MEASURED))
            is not None
        }
        load = self._choice(("client", "load"), client.get("load"), schema.LOADS)
        return ClientFacts(load=load, readings=readings)

    def _claims(self) -> tuple[str, ...]:
        value = self.placed.value.get("claims")
        if value is None:
            return ()
        claims = value if isinstance(value, list) else [value]
        if len(claims) > schema.MAX_CLAIMS:
            self._warn(("claims",), f"{len(claims):,} claims; the first {schema.MAX_CLAIMS} are read.")
        return tuple(redact(str(claim))[:1000] for claim in claims[: schema.MAX_CLAIMS] if claim is not None)

    # ── values ────────────────────────────────────────────────────────────────────────────────────────────
    def _section(self, key: str) -> Mapping[str, Any]:
        value = self.placed.value.get(key)
        if isinstance(value, Mapping):
            return value
        if value is not None:
            self._warn((key,), f"'{key}' is {shorten(value)}; it takes keys and values, one a line.")
        return {}

    def _text(self, key: str) -> str:
        value = self.placed.value.get(key)
        if value is None:
            return ""
        if isinstance(value, Mapping | list):
            self._warn(
                (key,), f"'{key}' takes text, not {'a mapping' if isinstance(value, Mapping) else 'a list'}."
            )
            self.placed.value[key] = None
            return ""
        text = redact(without_user(str(value).strip()))
        if len(text) > schema.MAX_TEXT:
            self._warn((key,), f"{len(text):,} characters; the first {schema.MAX_TEXT:,} are read.")
            self.placed.value[key] = text = text[: schema.MAX_TEXT]
        return text

    def _count(self, key: str) -> int | None:
        value = self.placed.value.get(key)
        if value is None:
            return None
        number = _number(value)
        if number is None or number[1] or not 1 <= number[0] <= 1_000_000 or number[0] != int(number[0]):
            self._warn((key,), f"'{key}' is {shorten(value)}; a whole number from 1 to 1,000,000 is read.")
            return None
        return int(number[0])

    def _choice(self, key: Key, value: Any, known: tuple[str, ...]) -> str | None:
        if value is None:
            return None
        for word in known:
            if str(value).strip().lower() == word.lower():
                return word
        hint = nearest(str(value)[:60], known)
        self._warn(key, f"'{key[-1]}' is '{shorten(value)}'; known: {', '.join(known)}.{hint}")
        return None

    def _quantity(self, key: Key, value: Any, unit: str, origin: Origin = Origin.REPORTED) -> Quantity | None:
        """The value as a quantity; None, with a warning, where it cannot be one."""
        if value is None:
            return None
        name = ".".join(str(part) for part in key)
        source = f"facts file: {name}"
        if isinstance(value, bool) or (unit == "yes/no" and str(value).lower() in ("yes", "no")):
            if unit != "yes/no":
                self._warn(key, f"{name} is {shorten(value)}; it takes a number of {unit}.")
                return None
            return Quantity(float(value in (True, "yes", "Yes")), unit, origin, source)
        number = _number(value)
        if number is None:
            self._warn(key, f"{name} is {shorten(value)}; it takes a number of {unit}.")
            return None
        amount, percent = number
        if percent and unit not in ("fraction", "percent"):
            self._warn(key, f"{name} is {shorten(value)}; it takes a number of {unit}.")
            return None
        if amount < 0 or amount > MAX_NUMBER:
            self._warn(key, f"{name} is {shorten(value)}; from 0 to {MAX_NUMBER:g} is read.")
            return None
        if percent and unit != "percent":
            amount /= 100.0
        elif unit == "fraction" and amount > 1:
            if not 1.5 <= amount <= 100:
                self._warn(key, f"{name} is {shorten(value)}; a fraction lies between 0 and 1.")
                return None
            self._warn(key, f"{name} is {shorten(value)}; read as {amount / 100:g}: fractions are 0…1.")
            amount /= 100.0
        return Quantity(amount, unit, origin, source)

    def _list(self, word: str, value: list[Any], unit: str) -> tuple[Quantity | None, dict[str, float]]:
        """A reading given per GPU or rank: its mean with the range seen, and the values."""
        ranks = self._ranks(word, value, unit)
        if not ranks:
            return None, {}
        values = list(ranks.values())
        mean = math.fsum(values) / len(values)
        quantity = Quantity(
            mean, unit, Origin.REPORTED, f"facts file: observed.{word}, mean of {len(values)}"
        )
        return quantity.with_range(min(values), max(values)), ranks

    def _ranks(self, word: str, value: Any, unit: str | None = None) -> dict[str, float]:
        if value is None:
            return {}
        pairs: Iterable[tuple[Any, Any]]
        if isinstance(value, Mapping):
            pairs = value.items()
        elif isinstance(value, list):
            pairs = enumerate(value)
        else:
            self._warn(("observed", word), f"'{word}' takes one value per rank, as a mapping or a list.")
            return {}
        found: dict[str, float] = {}
        for rank, one in list(pairs)[: schema.MAX_RANKS]:
            quantity = self._quantity(("observed", word, rank), one, unit or BY_RANK[word])
            if quantity is not None:
                found[str(rank)] = quantity.value
        return found

    # ── what to say ───────────────────────────────────────────────────────────────────────────────────────
    def _unknown(self, key: Key, section: Mapping[str, Any], known: Iterable[str]) -> None:
        for name in section:
            if name in known:
                continue
            path = ".".join(str(part) for part in key)
            where = path or "a facts file"
            hint = nearest(name, known) or _elsewhere(name, path)
            self._warn(
                (*key, name), f"'{shorten(name)}' is no key of {where}, and is not read.{hint}", name=True
            )

    def _warn(self, key: Key, text: str, *, name: bool = False) -> None:
        said = redact(self.placed.at(key, text, name=name))
        if said not in self.warnings:
            self.warnings.append(said)


def _elsewhere(name: str, where: str) -> str:
    """Which section a key belongs to that stands in the wrong one, misspelt or not."""
    sections = (("", schema.TOP), ("observed", schema.OBSERVED), ("client", schema.CLIENT_KEYS))
    for section, known in sections:
        if section == where:
            continue
        place = f"under '{section}'" if section else "at the top level"
        if name in known:
            return f" It belongs {place}."
        if hint := nearest(name, known):
            return hint.replace("'?", f"' {place}?")
    return ""


def engine_word(text: str) -> str | None:
    """The engine's name as headrace spells it; None for an empty text."""
    plain = re.sub(r"[^a-z0-9]", "", text.lower())
    return next((known for known in schema.ENGINES if plain == known), text.lower()[:60] or None)


def _number(value: Any) -> tuple[float, bool] | None:
    """A number, and whether it was written as a percentage; None where it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        number = float(value)
        return (number, False) if math.isfinite(number) else None
    found = _NUMBER.match(value) if isinstance(value, str) and len(value) < 60 else None
    if not found:
        return None
    try:
        number = float(found.group(1).replace(",", "").replace("_", ""))
    except ValueError:
        return None
    return (number, bool(found.group(2))) if math.isfinite(number) else None
