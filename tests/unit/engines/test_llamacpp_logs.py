"""llama.cpp's server log lines; every number is this file's own."""

from __future__ import annotations

import pytest

from headrace.engines.llamacpp.logs import parse_line


@pytest.mark.parametrize(
    ("text", "kind", "values"),
    [
        ("srv    load_model: initializing slots, n_slots = 6", "capacity", {"cap": 6}),
        ("llama_context: n_ctx         = 8192", "capacity", {"max_context": 8192}),
        (
            "slot print_timing: id  3 | task 12 | n_gen = 321, tg = 45.50 t/s",
            "request",
            {"output_tokens": 321, "per_user_tokens_per_s": 45.5},
        ),
        (
            "       eval time =    2000.00 ms /   100 tokens (   20.00 ms per token,    50.00 tokens "
            "per second)",
            "request",
            {"stage": "decode", "tokens": 100, "seconds": 2, "per_user_tokens_per_s": 50},
        ),
        (
            "prompt eval time =     500.00 ms /   250 tokens (    2.00 ms per token,   500.00 tokens "
            "per second)",
            "request",
            {"stage": "prefill", "tokens": 250, "seconds": 0.5},
        ),
        (
            "srv  log_server_r: request: POST /v1/chat/completions 127.0.0.1 200",
            "access",
            {"method": "POST", "path": "/v1/chat/completions", "status": 200},
        ),
        ("main: server is listening on http://127.0.0.1:8080", "ready", {}),
    ],
)
def test_a_line(text: str, kind: str, values: dict[str, float | str]) -> None:
    found = parse_line(text)
    assert found is not None
    assert (found.kind, found.engine) == (kind, "llamacpp")
    assert found.values == pytest.approx(values)


def test_a_failure_has_its_id() -> None:
    found = parse_line("llama_model_load: error loading model: tensor is missing")
    assert found is not None
    assert (found.kind, found.failure) == ("failure", "model_load_failed")


@pytest.mark.parametrize(
    "text", ["", "hello", "srv  nothing to see", "[2026-01-02 03:04:05] srv n_slots = 1"]
)
def test_what_says_nothing_is_nothing(text: str) -> None:
    assert parse_line(text) is None
