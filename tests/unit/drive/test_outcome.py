"""HTTP answers, sorted by what can be done about them. Error bodies have the shapes of real engines."""

from __future__ import annotations

import json

import pytest

from headrace.drive.outcome import Answered, Later, Refused, ServerFault, Unauthorised, outcome_of, words_of
from headrace.net.http import Response

CHAT = "/v1/chat/completions"


def response(status: int, body: object, retry_after: float | None = None) -> Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Response(status, content, retry_after, "application/json")


def sort(status: int, body: object, retry_after: float | None = None) -> object:
    return outcome_of(response(status, body, retry_after), CHAT, keep_token_ids=False)


def done(finish: str) -> dict[str, object]:
    return {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": finish}]
    }


def test_a_completion_is_answered() -> None:
    assert isinstance(sort(200, done("stop")), Answered)
    assert isinstance(sort(200, done("length")), Answered)


@pytest.mark.parametrize("finish", ["abort", "error"])
def test_an_answer_broken_off_by_the_server_is_no_answer(finish: str) -> None:
    fault = sort(200, done(finish))
    assert isinstance(fault, ServerFault)
    assert fault.kind == "server_error"


def test_half_an_answer_is_the_servers_fault() -> None:
    fault = sort(200, json.dumps(done("stop")).encode()[:-5])
    assert isinstance(fault, ServerFault)
    assert fault.kind == "bad_answer"


@pytest.mark.parametrize("status", [429, 503])
def test_busy_means_later(status: int) -> None:
    assert sort(status, {"object": "error", "message": "The request queue is full."}, 3.0) == Later(
        status, 3.0
    )


@pytest.mark.parametrize("status", [400, 404, 405, 413, 422])
def test_other_four_hundreds_are_refusals(status: int) -> None:
    refused = sort(status, {"error": {"message": "The input (5000 tokens) is longer than the context."}})
    assert refused == Refused(status, "The input (5000 tokens) is longer than the context.")


def test_keys() -> None:
    assert sort(401, {"error": "Unauthorized"}) == Unauthorised(401)
    assert sort(403, b"") == Unauthorised(403)


@pytest.mark.parametrize("status", [500, 502, 504, 599])
def test_five_hundreds_are_the_servers_fault(status: int) -> None:
    fault = sort(status, b"Internal Server Error")
    assert fault == ServerFault("server_error", f"{status}: Internal Server Error", status)


def test_redirects_are_not_followed() -> None:
    fault = sort(302, b"")
    assert isinstance(fault, ServerFault)
    assert fault.kind == "bad_answer"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "a b"}}', "a b"),
        (b'{"object": "error", "message": "m"}', "m"),
        (b'{"detail": "d"}', "d"),
        (b'{"error": "plain"}', "plain"),
        (b"two\n lines", "two lines"),
        (b"", "(nothing said)"),
        (
            b'{"message": "Authorization: Bearer abcdef123456 is wrong"}',
            "Authorization: Bearer [redacted] is wrong",
        ),
        (b"[" * 5000, ("[" * 2000)),
    ],
)
def test_the_servers_own_words(body: bytes, words: str) -> None:
    assert words_of(body) == words
