"""The control channel of a running job: a unix socket in its folder, one JSON line in, one out.

Only the user who runs the job may speak (0600, and the peer's uid is checked). Commands are idempotent by
their id and journalled before they act.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import HeadraceError, InputError, StorageError, UnreachableError

SOCKET_NAME = "control.sock"
MAX_LINE_BYTES = 64 * 1024
ANSWER_SECONDS = 10.0

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class ControlServer:
    """Listens for commands while a job runs.

    Args:
        folder: the job's folder; the socket lies in it.
        handle: carries out one command; a HeadraceError becomes the reply's `error`.
    """

    def __init__(self, folder: Path, handle: Handler) -> None:
        self._folder = folder
        self._handle = handle
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        path = self._folder / SOCKET_NAME
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        old_mask = os.umask(0o177)
        try:
            path.unlink(missing_ok=True)  # the job's lock is held: whoever left it is gone
            with _short_name(self._folder) as name:
                listener.bind(name)
        except OSError as error:
            listener.close()
            raise StorageError(
                f"cannot listen for commands on {path}: {error}. Move what lies there away"
            ) from error
        finally:
            os.umask(old_mask)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=MAX_LINE_BYTES)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            try:
                (self._folder / SOCKET_NAME).unlink(missing_ok=True)
            except OSError:
                return  # a socket that nobody listens on: the next run removes it, if it can

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            uid = _peer_uid(writer.get_extra_info("socket"))
            if uid not in (os.getuid(), 0):
                reply: dict[str, Any] = {"error": f"uid {uid} does not own this job"}
            else:
                reply = await self._answer(await reader.readline())
            writer.write(msgspec.json.encode(reply) + b"\n")
            await writer.drain()
        except (ConnectionError, ValueError):
            return  # the other side went away, or sent a line over the limit
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            command = msgspec.json.decode(line, type=dict[str, Any])
            return await self._handle(command)
        except (msgspec.DecodeError, RecursionError) as error:
            return {"error": f"a command is one JSON object on one line: {error}"}
        except HeadraceError as error:
            return {"error": str(error)}


def send_command(out: Path, command: dict[str, Any]) -> dict[str, Any]:
    """The running job's reply to a command.

    Args:
        out: the job's folder.
        command: `command` (status, add, drain, remove) and its arguments; gets an `id` if it has none.

    Raises:
        UnreachableError: no job runs on this folder (on this host).
        InputError: the job refused the command; its own words.
    """
    command = {"id": secrets.token_hex(8), **command}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, _short_name(out) as name:
            connection.settimeout(ANSWER_SECONDS)
            connection.connect(name)
            connection.sendall(msgspec.json.encode(command) + b"\n")
            received = bytearray()
            while part := connection.recv(1 << 16):
                received += part
    except (FileNotFoundError, ConnectionRefusedError):
        what = "no job runs on it on this host" if out.is_dir() else "there is no such folder"
        raise UnreachableError(
            f"{out}: {what}. Name the --out of a running job, or start it with `headrace run`."
        ) from None
    except OSError as error:
        raise UnreachableError(
            f"the job on {out} cannot be reached: {error.strerror or error}. See whether it runs here."
        ) from None
    try:
        reply = msgspec.json.decode(bytes(received), type=dict[str, Any])
    except msgspec.DecodeError:
        raise UnreachableError(f"the job on {out} broke off its reply after {len(received)} bytes") from None
    if "error" in reply:
        raise InputError(str(reply["error"]))
    return reply


class _short_name:
    """A name for OUT/control.sock that fits the 107 bytes of a unix address, however deep OUT lies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1

    def __enter__(self) -> str:
        plain = str(self._folder / SOCKET_NAME)
        if len(os.fsencode(plain)) <= 100:
            return plain
        self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._descriptor}/{SOCKET_NAME}"

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def _peer_uid(connection: Any) -> int:
    """The uid of the process at the other end (SO_PEERCRED: pid, uid, gid)."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid: int = struct.unpack("3i", credentials)[1]
    return uid
