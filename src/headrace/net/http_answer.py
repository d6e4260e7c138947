"""One HTTP/1.1 answer, read from the bytes of a connection as they come (RFC 9112). Pure: no I/O, no clock.

A body ends by its declared length, with its last chunk, or with the connection. gzip and deflate are
unfolded, though never asked for. Head and body are read up to limits, the body after unfolding too.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import Enum, auto

MAX_HEAD_BYTES = (
    65_536  # servers and proxies send a few hundred; most refuse more than 8 or 16 KiB themselves
)
MAX_LINE_BYTES = 4_096  # of a chunk's size or a trailer
NO_BODY = (204, 304)
_HEX = frozenset(b"0123456789abcdefABCDEF")


@dataclass(frozen=True, slots=True)
class Response:
    """A complete HTTP answer. `body` is decoded from any transfer or content encoding."""

    status: int
    body: bytes
    retry_after_seconds: float | None
    content_type: str


class NotHttp(Exception):
    """What came is no answer as HTTP/1.1 has it, or is larger than allowed; the message says what."""


class CutShort(Exception):
    """The connection ended before the answer did."""


class _Framing(Enum):
    LENGTH = auto()
    CHUNKS = auto()
    CONNECTION = auto()  # the body ends with the connection


class _At(Enum):
    SIZE = auto()
    DATA = auto()
    AFTER_DATA = auto()
    TRAILER = auto()


class AnswerReader:
    """Reads one answer.

    Args:
        max_body_bytes: of the body, as it comes and unfolded.

    Attributes:
        began: any byte of the answer has come.
        reusable: after the answer, whether its connection can carry another request.
    """

    __slots__ = (
        "_at", "_body", "_chunk_left", "_encoding", "_framing", "_length", "_limit", "_response_head",
        "_rest", "began", "reusable",
    )  # fmt: skip

    def __init__(self, max_body_bytes: int) -> None:
        self.began = False
        self.reusable = False
        self._limit = max_body_bytes
        self._rest = b""  # of a head or of a line that has not come to its end
        self._response_head: tuple[int, float | None, str] | None = None
        self._framing = _Framing.LENGTH
        self._length = 0
        self._encoding = b""
        self._body = bytearray()
        self._at = _At.SIZE
        self._chunk_left = 0

    def feed(self, data: bytes) -> Response | None:
        """Takes the next bytes of the connection; the answer, once it is complete.

        Raises:
            NotHttp: it never can be.
        """
        self.began = True
        while self._response_head is None:
            if self._rest:
                data = self._rest + data
            end = data.find(b"\r\n\r\n")
            if end > MAX_HEAD_BYTES or (end < 0 and len(data) > MAX_HEAD_BYTES):
                raise NotHttp(f"the head of the answer is larger than the limit of {MAX_HEAD_BYTES} bytes")
            if end < 0:
                if not b"HTTP/1.".startswith(data[:7]):
                    raise NotHttp(f"it begins with {data[:40]!r}")
                if b"\n\n" in data:  # to wait for more would be to wait for ever
                    raise NotHttp("the lines of its head end with LF alone, not with CR LF")
                self._rest = data
                return None
            self._rest = b""
            self._take_head(data[:end])
            data = data[end + 4 :]
        if self._framing is _Framing.CHUNKS:
            return self._feed_chunks(data)
        if self._framing is _Framing.CONNECTION:
            self._keep(data)
            return None
        if not self._body and len(data) >= self._length:  # as most do: all at once
            return self._complete(data[: self._length], beyond=len(data) > self._length)
        self._body += data
        if len(self._body) < self._length:
            return None
        return self._complete(bytes(self._body[: self._length]), beyond=len(self._body) > self._length)

    def end(self) -> Response:
        """The answer of a connection that has ended.

        Raises:
            CutShort: it was not complete.
            NotHttp: its body cannot be unfolded.
        """
        self.reusable = False
        if self._response_head is None or self._framing is not _Framing.CONNECTION:
            raise CutShort
        return self._complete(bytes(self._body), beyond=False)

    # the head

    def _take_head(self, head: bytes) -> None:
        first, *lines = head.split(b"\r\n")
        status = first[9:12]
        if not first.startswith(b"HTTP/1.") or not status.isdigit() or first[12:13] not in (b"", b" "):
            raise NotHttp(f"it begins with {first[:40]!r}")
        code, old = int(status), first[7:9] == b"0 "
        if code < 100:
            raise NotHttp(f"its status is {code}, below 100")
        length: bytes | None = None
        transfer = encoding = connection = content_type = b""
        retry_after: bytes | None = None
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon or not name or name != name.strip():
                raise NotHttp(f"its header line {line[:40]!r} is none")
            name = name.lower()
            if name == b"content-length":
                value = value.strip()
                if not value.isdigit() or len(value) > 18 or length not in (None, value):
                    raise NotHttp(f"its Content-Length is {value[:40]!r}")
                length = value
            elif name == b"content-type":
                content_type = value
            elif name == b"connection":
                connection += b"," + value.lower()
            elif name == b"transfer-encoding":
                transfer = (transfer + b"," if transfer else b"") + value.strip().lower()
            elif name == b"content-encoding":
                encoding = value.strip().lower()
            elif name == b"retry-after":
                retry_after = value
        if code < 200:
            if code == 101:
                raise NotHttp("it changes to another protocol (101)")
            return  # an interim answer: the real one follows
        tokens = {token.strip() for token in connection.split(b",")}
        self.reusable = b"keep-alive" in tokens if old else b"close" not in tokens
        self._frame(code, length, transfer)
        self._encoding = b"" if encoding == b"identity" else encoding
        self._response_head = (
            code,
            None if code < 400 or retry_after is None else _seconds(retry_after),
            content_type.partition(b";")[0].strip().lower().decode("latin-1"),
        )

    def _frame(self, code: int, length: bytes | None, transfer: bytes) -> None:
        if code in NO_BODY:
            self._framing, self._length = _Framing.LENGTH, 0
        elif transfer and transfer != b"identity":
            if transfer != b"chunked":
                raise NotHttp(f"its Transfer-Encoding is {transfer[:40]!r}, which was not asked for")
            self._framing = _Framing.CHUNKS
            if length is not None:
                self.reusable = False  # RFC 9112, 6.1: both are a sign of request smuggling
        elif length is not None:
            self._framing, self._length = _Framing.LENGTH, int(length)
            if self._length > self._limit:
                raise self._too_large()
        else:
            self._framing = _Framing.CONNECTION
            self.reusable = False

    # the body

    def _keep(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > self._limit:
            raise self._too_large()

    def _feed_chunks(self, data: bytes) -> Response | None:
        if self._rest:
            data, self._rest = self._rest + data, b""
        at = 0
        while True:
            if self._at is _At.DATA:
                piece = data[at : at + self._chunk_left]
                self._keep(piece)
                at += len(piece)
                self._chunk_left -= len(piece)
                if self._chunk_left:
                    return None
                self._at = _At.AFTER_DATA
            end = data.find(b"\r\n", at)
            if end < 0 or end - at > MAX_LINE_BYTES:
                if len(data) - at > MAX_LINE_BYTES:
                    raise NotHttp("a line between its chunks has no end")
                self._rest = data[at:]
                return None
            line, at = data[at:end], end + 2
            if self._at is _At.SIZE:
                self._chunk_left = _chunk_size(line)
                self._at = _At.DATA if self._chunk_left else _At.TRAILER
            elif self._at is _At.AFTER_DATA:
                if line:
                    raise NotHttp(f"a chunk is followed by {line[:40]!r}")
                self._at = _At.SIZE
            elif not line:
                return self._complete(bytes(self._body), beyond=at < len(data))

    def _complete(self, body: bytes, *, beyond: bool) -> Response:
        assert self._response_head is not None
        status, retry_after, content_type = self._response_head
        if beyond:  # what follows was not asked for, and belongs to no answer
            self.reusable = False
        if self._encoding and body:
            body = self._unfolded(body)
        return Response(status, body, retry_after, content_type)

    def _unfolded(self, body: bytes) -> bytes:
        if self._encoding not in (b"gzip", b"x-gzip", b"deflate"):
            raise NotHttp(f"its Content-Encoding is {self._encoding[:40]!r}, which was not asked for")
        last: zlib.error | None = None
        for bits in (47, -15):  # gzip or zlib, by what it begins with; raw deflate, as some servers send it
            unfolding = zlib.decompressobj(bits)
            try:
                unfolded = unfolding.decompress(body, self._limit + 1)
            except zlib.error as error:
                last = error
                continue
            if len(unfolded) > self._limit:
                raise self._too_large()
            if not unfolding.eof:
                raise NotHttp(f"its {self._encoding.decode()} ends too early")
            return unfolded
        raise NotHttp(f"its {self._encoding.decode()} cannot be unfolded: {last}")

    def _too_large(self) -> NotHttp:
        return NotHttp(f"the answer is larger than the limit of {self._limit} bytes")


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits or len(digits) > 15 or not _HEX.issuperset(digits):
        raise NotHttp(f"the size of a chunk is {line[:40]!r}")
    return int(digits, 16)


def _seconds(retry_after: bytes) -> float | None:
    """Seconds that a Retry-After header asks for, at most 10 minutes; None for dates and nonsense."""
    try:
        seconds = float(retry_after)
    except ValueError:
        return None
    return min(max(seconds, 0.0), 600.0) if seconds == seconds else None
