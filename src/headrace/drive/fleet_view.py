"""Looks at servers before and while a job runs: what they serve, whether they live, how loaded they are."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from headrace.drive.signals import LoadReader, LoadSignal
from headrace.errors import UnreachableError, UsageError, nearest
from headrace.net.http import HttpClient, HttpFailure

FIRST_LOOK_SECONDS = 10.0
PROBE_SECONDS = (
    10.0  # a server whose event loop answers nothing for 10 s, three times, with no row in between
)


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What one server said before the job began: its models (None: names none), `why` it is silent."""

    url: str
    models: tuple[str, ...] | None
    why: str | None


async def first_look(http: HttpClient, url: str) -> FirstLook:
    """What the server at `url` serves, within FIRST_LOOK_SECONDS."""
    try:
        answer = await http.get(f"{url}/v1/models", FIRST_LOOK_SECONDS)
    except HttpFailure as failure:
        return FirstLook(url, None, str(failure))
    if answer.status != 200:
        return FirstLook(url, None, None)
    try:
        models = msgspec.json.decode(answer.body, type=_Models)
    except (msgspec.DecodeError, RecursionError):
        return FirstLook(url, None, None)
    return FirstLook(url, tuple(model.id for model in models.data), None)


async def look_at_all(http: HttpClient, urls: tuple[str, ...]) -> list[FirstLook]:
    """`first_look` at every server, side by side."""
    return list(await asyncio.gather(*(first_look(http, url) for url in urls)))


def served_model(asked: str | None, looks: list[FirstLook]) -> str | None:
    """The model name to send: the one asked for, or the one that all servers serve.

    None where no server names its models (then requests carry no model).

    Raises:
        UnreachableError: no server answers at all.
        UsageError: the asked model is not served, or there are several to choose from.
    """
    if all(look.why is not None for look in looks):
        said = "; ".join(f"{look.why}" for look in looks[:4])
        raise UnreachableError(
            (f"none of the {len(looks)} servers answers" if len(looks) > 1 else "the server does not answer")
            + f": {said}. Start {'them' if len(looks) > 1 else 'it'}, or name others with --server."
        )
    named = [look for look in looks if look.models]
    if not named:
        return asked
    served = sorted({model for look in named for model in look.models or ()})
    if asked is None:
        common = set.intersection(*(set(look.models or ()) for look in named))
        if len(served) == 1:
            return served[0]
        if len(common) == 1:
            return common.pop()
        listing = "; ".join(f"{look.url}: {', '.join(look.models or ())}" for look in named[:8])
        raise UsageError(f"the servers serve several models, so --model must name one of them ({listing})")
    missing = [look.url for look in named if asked not in (look.models or ())]
    if missing:
        raise UsageError(
            f"model '{asked}' is not served by {', '.join(missing[:4])}; served there: "
            f"{', '.join(served)}.{nearest(asked, served)}"
        )
    return asked


async def look(http: HttpClient, url: str, reader: LoadReader) -> tuple[bool, LoadSignal | None]:
    """(whether the server answers at all, its load): one cheap look that never makes it generate."""
    answered = False
    silent = False

    async def fetch(path: str) -> bytes | None:
        nonlocal answered, silent
        if silent:
            return None
        try:
            answer = await http.get(url + path, PROBE_SECONDS)
        except HttpFailure:
            silent = True
            return None
        answered = True
        return answer.body if answer.status == 200 else None

    signal = await reader.read(fetch)
    if not answered and not silent:
        await fetch("/v1/models")
    return answered and not silent, signal
