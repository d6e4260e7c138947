"""Server addresses as people write them: a base URL, or a range of ports at once."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

MAX_SERVERS = 4096
_DEFAULT_PORTS = {"http": 80, "https": 443}
_RANGE = re.compile(r":([0-9]+)-([0-9]+)$")


def expand_server(text: str) -> list[str]:
    """Base URLs, `scheme://host:port` without a trailing slash, that `text` stands for.

    `http://127.0.0.1:30000-30007` is eight servers; a missing port is the scheme's own.

    Raises:
        ValueError: not an address that headrace can send to; the message says why and shows no password.
    """
    bare = text.strip().rstrip("/")
    if not re.match(r"^[A-Za-z][A-Za-z0-9+.-]*://", bare):
        raise ValueError(f"'{_harmless(text)}' has no scheme; write http://{_harmless(bare) or 'HOST:PORT'}")
    found = _RANGE.search(bare)
    first_port, last_port = (int(found[1]), int(found[2])) if found else (None, None)
    try:
        parts = urlsplit(bare[: found.start()] if found else bare)
        port = first_port if found else parts.port
        host = parts.hostname
    except ValueError as error:
        raise ValueError(f"'{_harmless(text)}' is no URL: {str(error).lower()}") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError(
            f"'{_harmless(text)}' begins with {parts.scheme}://; http:// or https:// is expected"
        )
    if "@" in parts.netloc:
        raise ValueError(
            f"'{_harmless(text)}' holds a user name or password; "
            "name the key with --api-key-env or --api-key-file instead"
        )
    if not host or re.search(r"[\s\\%<>\"'{}|^`,;]", parts.netloc):
        raise ValueError(f"'{_harmless(text)}' has no usable host; write http://HOST:PORT")
    if parts.query or parts.fragment or "?" in bare or "#" in bare:
        raise ValueError(f"'{_harmless(text)}' has a query or fragment; write scheme, host and port only")
    if parts.path:
        raise ValueError(
            f"'{_harmless(text)}' has a path ('{parts.path}'); headrace adds the path itself: "
            f"write {parts.scheme}://{parts.netloc}"
        )
    if port is None:
        port = _DEFAULT_PORTS[parts.scheme]
    last = port if last_port is None else last_port
    if not (1 <= port <= 65_535 and 1 <= last <= 65_535):
        raise ValueError(f"'{_harmless(text)}' has a port outside 1…65535")
    if last < port:
        raise ValueError(f"'{_harmless(text)}': the port range ends ({last}) before it begins ({port})")
    if last - port + 1 > MAX_SERVERS:
        raise ValueError(f"'{_harmless(text)}' is {last - port + 1:,} servers; the limit is {MAX_SERVERS:,}")
    shown_host = f"[{host}]" if ":" in host else host
    return [f"{parts.scheme}://{shown_host}:{number}" for number in range(port, last + 1)]


def _harmless(text: str) -> str:
    """The text, short, with what stands before an @ hidden."""
    short = text if len(text) <= 80 else text[:79] + "…"
    return re.sub(r"(^|//)[^/@]*@", r"\1…@", short)
