"""What a running job can be told over its control socket, and how its status is read from outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.drive.control import send_command
from headrace.drive.fleet_view import first_look
from headrace.drive.job.servers import expand_server
from headrace.drive.snapshot import snapshot
from headrace.drive.status import JobStatus
from headrace.errors import InputError, UnreachableError, nearest

if TYPE_CHECKING:
    from headrace.drive.driver import Driver

STATUS_NAME = "status.json"


async def carry_out(driver: Driver, command: dict[str, Any]) -> dict[str, Any]:
    """The reply to one command. A repeated id gets the reply of its first time and does nothing again.

    Raises:
        InputError: the command is unknown or lacks something.
    """
    word, identity = command.get("command"), command.get("id")
    if word == "status":
        return {"status": msgspec.to_builtins(snapshot(driver, driver.index))}
    act = _COMMANDS.get(word) if isinstance(word, str) else None
    if act is None:
        raise InputError(
            f"unknown command {word!r}; known: status, {', '.join(_COMMANDS)}.{nearest(str(word), _COMMANDS)}"
        )
    if not isinstance(identity, str) or not 0 < len(identity) <= 64:
        raise InputError("a command that changes something needs an `id` of 1 to 64 characters")
    ledger = driver.store.ledger
    if not ledger.journal_command(identity, driver.clock.wall(), msgspec.json.encode(command)):
        outcomes = [outcome for known, _, _, outcome in ledger.commands() if known == identity]
        if outcomes and outcomes[0] is not None:
            return msgspec.json.decode(outcomes[0], type=dict[str, Any])
    reply = await act(driver, command)
    ledger.finish_command(identity, msgspec.json.encode(reply))
    return reply


async def _add(driver: Driver, command: dict[str, Any]) -> dict[str, Any]:
    url = _one_server(command)
    seen = await first_look(driver.http, url)
    model = driver.landing.model
    if model is not None and seen.models and model not in seen.models:
        raise InputError(
            f"{url} serves {', '.join(seen.models)}, and this job asks {model}: it was not added."
            f"{nearest(model, seen.models)}"
        )
    known = url in driver.dispatcher.endpoints
    endpoint = driver.servers.add(url)
    if seen.why is not None:
        endpoint.on_silent(driver.clock.monotonic(), seen.why)
        return {"done": f"{url} was added, but does not answer yet ({seen.why}); it is asked again"}
    return {"done": f"{url} {'takes requests again' if known else 'was added'}"}


async def _drain(driver: Driver, command: dict[str, Any]) -> dict[str, Any]:
    endpoint = driver.dispatcher.endpoints[_known(driver, command)]
    endpoint.drain()
    return {"done": f"{endpoint.url} gets nothing new; {endpoint.in_flight} requests may finish there"}


async def _remove(driver: Driver, command: dict[str, Any]) -> dict[str, Any]:
    endpoint = driver.dispatcher.endpoints[_known(driver, command)]
    given_back = driver.servers.hand_back(endpoint, "the server was removed")
    endpoint.remove()
    return {"done": f"{endpoint.url} was removed; {given_back} requests in flight there are asked elsewhere"}


def _known(driver: Driver, command: dict[str, Any]) -> str:
    url = _one_server(command)
    servers = driver.dispatcher.endpoints
    if url not in servers:
        raise InputError(
            f"{url} is no server of this job; it has {', '.join(servers)}.{nearest(url, servers)}"
        )
    return url


def _one_server(command: dict[str, Any]) -> str:
    try:
        urls = expand_server(str(command.get("url", "")))
    except ValueError as error:
        raise InputError(str(error)) from None
    if len(urls) != 1:
        raise InputError(f"one server at a time; {command.get('url')} is {len(urls)}")
    return urls[0]


_COMMANDS: dict[str, Callable[[Driver, dict[str, Any]], Awaitable[dict[str, Any]]]] = {
    "add": _add,
    "drain": _drain,
    "remove": _remove,
}


def read_status(out: Path) -> tuple[JobStatus, bool]:
    """(status, live) of the job in `out`: asked over its socket, else the snapshot it left.

    Raises:
        InputError: `out` is no job folder, or its snapshot cannot be read.
    """
    try:
        reply = send_command(out, {"command": "status"})
        return msgspec.convert(reply["status"], JobStatus), True
    except UnreachableError:
        pass
    try:
        return msgspec.json.decode((out / STATUS_NAME).read_bytes(), type=JobStatus), False
    except FileNotFoundError:
        what = "is no job folder" if out.is_dir() else "does not exist"
        raise InputError(
            f"{out} {what} (it has no {STATUS_NAME}); name the --out of a `headrace run`"
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"cannot read {out / STATUS_NAME}: {error}") from None
