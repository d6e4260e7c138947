"""The faults of an emulated fleet as people switch them on: for every replica, or for replica R."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from headrace.errors import UsageError, nearest
from headrace.simulate.emulate.faults import Faults, faults_from

FaultSwitch = str | float | Mapping[int, str | float]  # for every replica, or by replica


def as_switches(faults: Mapping[str, FaultSwitch]) -> dict[str, list[str]]:
    """Returns faults as `faults_of` takes them, from values or mappings of replica to value.

    Raises UsageError for names that are no faults, all at once.
    """
    known = [name for name in Faults.__struct_fields__ if name != "refuse"]
    unknown = [f"'{name}' is no fault.{nearest(name, known)}" for name in faults if name not in known]
    if unknown:
        raise UsageError(unknown)
    return {
        name: [f"{replica}={one}" for replica, one in value.items()]
        if isinstance(value, Mapping)
        else [str(value)]
        for name, value in faults.items()
    }


def faults_of(
    replicas: int, switches: Mapping[str, Sequence[str] | None], refuse: Sequence[int] = ()
) -> dict[int, Faults]:
    """Returns the faults per replica that the switches ask for.

    Args:
        switches: by the name of a field of `Faults`: VALUE for every replica, or R=VALUE for replica R.
        refuse: replicas that do not listen.

    Raises:
        UsageError: with every mistake once.
    """
    fields: dict[int, dict[str, object]] = {}
    problems: list[str] = []
    for name, values in switches.items():
        option = "--" + name.replace("_", "-")
        for value in values or []:
            replica, _, amount = value.rpartition("=")
            if name == "hang" and not replica and amount.isdigit():
                replica, amount = amount, "posts"
            if replica and not (replica.isdecimal() and int(replica) < replicas):
                problems.append(
                    f"{option} {value}: '{replica}' is no replica; they are 0 to {replicas - 1}: write "
                    f"{option} {replicas - 1}={amount}"
                )
                continue
            try:
                faults_from({name: _number_or_word(amount)})
            except UsageError as error:
                problems += [f"{option} {value}: {_of_value(problem)}" for problem in error.problems]
                continue
            for index in [int(replica)] if replica else range(replicas):
                fields.setdefault(index, {})[name] = _number_or_word(amount)
    for index in refuse:
        if not 0 <= index < replicas:
            problems.append(f"--refuse {index}: there is no such replica; they are 0 to {replicas - 1}")
        fields.setdefault(index, {})["refuse"] = True
    faults: dict[int, Faults] = {}
    told: dict[str, list[int]] = {}  # what is wrong with the whole of a replica, once for all that have it
    for index, document in sorted(fields.items()):
        try:
            faults[index] = faults_from(document)
        except UsageError as error:
            for problem in error.problems:
                told.setdefault(_of_value(problem), []).append(index)
    problems += [f"{_replicas(indexes, replicas)}: {problem}" for problem, indexes in told.items()]
    if problems:
        raise UsageError(problems)
    return faults


def _of_value(problem: str) -> str:
    """What is wrong, without the words for whoever writes the JSON of faults."""
    text = problem.removeprefix("faults not understood: ").split(". Known fields:")[0].split(" - at `$")[0]
    if text.startswith("Invalid enum value"):
        return "it takes posts or all"
    said = re.fullmatch(r"Expected `([^`]*)`, got `[^`]*`", text)
    if said is None:
        return text
    kinds = {"float": "a number", "int": "a whole number"}
    return f"it takes {kinds.get(said[1].split(' | ')[0], said[1])}"


def _replicas(indexes: list[int], replicas: int) -> str:
    if len(indexes) == replicas > 1:
        return "all replicas"
    return f"replica{'s' if len(indexes) > 1 else ''} {', '.join(map(str, indexes))}"


def _number_or_word(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
