"""The reader of HTTP answers: against Python's own `http.client`, byte by byte, and on what is none.

What a well-formed answer means is taken from `http.client`, an independent reader; what must be refused from
RFC 9112 (the section stands with each case).
"""

from __future__ import annotations

import gzip
import http.client
import io
import itertools
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.net.http_answer import MAX_HEAD_BYTES, AnswerReader, CutShort, NotHttp, Response

LIMIT = 100_000


class _Socket(io.BytesIO):
    def makefile(self, *_: object) -> _Socket:  # type: ignore[override]
        return self


def by_the_library(wire: bytes) -> tuple[int, bytes]:
    """(status, body) as `http.client` reads them."""
    response = http.client.HTTPResponse(_Socket(wire), method="POST")  # type: ignore[arg-type]
    response.begin()
    return response.status, response.read()


def read(wire: bytes, cuts: list[int], limit: int = LIMIT) -> tuple[Response, AnswerReader]:
    """The answer from the bytes as they come in pieces, the connection's end behind them."""
    reader = AnswerReader(limit)
    edges = [0, *sorted(cut % (len(wire) + 1) for cut in cuts), len(wire)]
    for begin, end in itertools.pairwise(edges):
        if begin < end and (found := reader.feed(wire[begin:end])) is not None:
            return found, reader
    return reader.end(), reader


def in_chunks(body: bytes, sizes: list[int], extension: bytes, trailer: bytes) -> bytes:
    parts, at = [], 0
    for size in [*sizes, len(body)]:
        if piece := body[at : at + size]:
            parts.append(b"%X%b\r\n%b\r\n" % (len(piece), extension, piece))
        at += size
    return b"".join(parts) + b"0\r\n" + trailer + b"\r\n"


@st.composite
def wires(draw: st.DrawFn) -> bytes:
    """Well-formed answers: interim ones before them, bodies by length, chunk or connection."""
    body = draw(st.binary(max_size=300))
    status = draw(st.sampled_from([200, 201, 302, 404, 429, 500, 503]))
    head = b"HTTP/1.%d %d %b\r\n" % (
        draw(st.integers(0, 1)),
        status,
        draw(st.sampled_from([b"OK", b"", b"Not so"])),
    )
    other = draw(
        st.sampled_from([b"", b"Server: uvicorn\r\n", b"X-Y:\r\nDate: now\r\n", b"Retry-After: 3\r\n"])
    )
    framing = draw(st.sampled_from(["length", "chunks", "connection"]))
    if framing == "length":
        wire = head + other + b"Content-LENGTH:  %d \r\n\r\n" % len(body) + body
    elif framing == "chunks":
        sizes = draw(st.lists(st.integers(1, 50), max_size=8))
        extension = draw(st.sampled_from([b"", b";name=value", b' ; a="b"']))
        trailer = draw(st.sampled_from([b"", b"X-Checksum: 1\r\n"]))
        chunks = in_chunks(body, sizes, extension, trailer)
        wire = head + other + b"Transfer-Encoding: Chunked\r\n\r\n" + chunks
    else:
        wire = head + other + b"\r\n" + body
    return draw(st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n"])) + wire


@given(wires(), st.lists(st.integers(0, 2000), max_size=6))
def test_an_answer_is_read_as_the_library_reads_it_however_it_is_cut(wire: bytes, cuts: list[int]) -> None:
    found, _ = read(wire, cuts)
    assert (found.status, found.body) == by_the_library(wire)


@given(wires(), st.integers(0, 2000))
def test_an_answer_that_is_cut_short_is_never_taken_for_whole(wire: bytes, cut: int) -> None:
    cut %= len(wire)
    try:
        found, _ = read(wire[:cut], [])
    except CutShort:
        return
    whole, reader = read(wire, [])
    # only a body that the connection ends can be cut unseen, or a chunked one within its trailer
    assert found == whole or (not reader.reusable and whole.body.startswith(found.body))


@given(st.binary(max_size=200), st.lists(st.integers(0, 300), max_size=4))
def test_whatever_comes_is_an_answer_or_told(wire: bytes, cuts: list[int]) -> None:
    for begin in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        try:
            read(begin + wire, cuts)
        except (NotHttp, CutShort):
            pass


@pytest.mark.parametrize(
    ("head", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: x, Close\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n", False),  # 6.1
    ],
)
def test_whether_the_connection_can_be_used_again(head: bytes, reusable: bool) -> None:
    chunked = b"chunked" in head
    found, reader = read(head + b"\r\n" + (b"2\r\n{}\r\n0\r\n\r\n" if chunked else b"{}"), [])
    assert (found.body, reader.reusable) == (b"{}", reusable)


def test_bytes_behind_the_answer_belong_to_nobody() -> None:
    for wire in (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\nmore",
    ):
        found, reader = read(wire, [])
        assert (found.body, reader.reusable) == (b"{}", False)


def test_no_body_where_there_can_be_none() -> None:
    found, reader = read(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", [])
    assert (found.status, found.body, reader.reusable) == (204, b"", True)


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",  # 4
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",  # 5
        b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\n{}",  # 5.1: no space before the colon
        b"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n",  # 5.2
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",  # 6.3
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",  # 6.3
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",  # 6.1: not asked for
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n",  # 7.1
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n",  # 7.1
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 20_000,
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 099 Below\r\n\r\n",  # RFC 9110, 15: three digits from 100 on
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}",  # 2.2: lines end with CR LF
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD_BYTES,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
def test_what_is_no_answer(wire: bytes) -> None:
    with pytest.raises(NotHttp):
        read(wire, [])


def folded(encoding: str, body: bytes) -> bytes:
    raw = zlib.compressobj(wbits=-15)
    made = {
        "gzip": gzip.compress(body),
        "deflate": zlib.compress(body),
        "raw": raw.compress(body) + raw.flush(),
    }[encoding]
    name = "gzip" if encoding == "gzip" else "deflate"
    return b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n%b" % (
        name.encode(),
        len(made),
        made,
    )


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw"])
def test_what_comes_folded_is_unfolded_up_to_the_limit(encoding: str) -> None:
    body = b'{"a": 1}' * 1000
    assert read(folded(encoding, body), [], limit=8000)[0].body == body
    with pytest.raises(NotHttp, match="limit of 7999 bytes"):
        read(folded(encoding, body), [], limit=7999)
    ends_too_early = folded("gzip", body)[:-9].replace(b"Content-Length", b"Content-Size")
    with pytest.raises(NotHttp):
        read(ends_too_early, [])


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"7", 7.0),
        (b"0.5", 0.5),
        (b"-3", 0.0),
        (b"86400", 600.0),
        (b"nan", None),
        (b"Wed, 21 Oct 2026", None),
    ],
)
def test_retry_after(value: bytes, seconds: float | None) -> None:
    wire = b"HTTP/1.1 503 Busy\r\nRetry-After: %b\r\nContent-Length: 0\r\n\r\n" % value
    assert read(wire, [])[0].retry_after_seconds == seconds
