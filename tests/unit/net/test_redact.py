"""Secrets leave text before it is kept."""

from __future__ import annotations

import pytest

from headrace.net.redact import redact


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abcDEF123456", "Authorization: Bearer [redacted]"),
        ('{"api_key":"s3cr3t","port":30000}', '{"api_key":"[redacted]","port":30000}'),
        (
            "ServerArgs(admin_api_key='xyz789', tp_size=1)",
            "ServerArgs(admin_api_key='[redacted]', tp_size=1)",
        ),
        ("key sk-0123456789abcdefgh failed", "key [redacted] failed"),
        ("token hf_abcdefghijklmnopqrst", "token [redacted]"),
        ("max_tokens: 4096 is too many tokens", "max_tokens: 4096 is too many tokens"),
    ],
)
def test_redact(text: str, shown: str) -> None:
    assert redact(text) == shown
