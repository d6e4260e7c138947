"""Server addresses: what they stand for, and what is said of those that are none."""

from __future__ import annotations

import pytest

from headrace.drive.job.servers import expand_server


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("http://127.0.0.1:30000", ["http://127.0.0.1:30000"]),
        ("http://127.0.0.1:30000/", ["http://127.0.0.1:30000"]),
        (" https://fleet.example ", ["https://fleet.example:443"]),
        ("HTTP://Host:80", ["http://host:80"]),
        ("http://gpu-7:30000-30002", [f"http://gpu-7:{port}" for port in (30000, 30001, 30002)]),
        ("http://[::1]:8000", ["http://[::1]:8000"]),
        ("http://[::1]:8000-8001", ["http://[::1]:8000", "http://[::1]:8001"]),
    ],
)
def test_addresses(text: str, urls: list[str]) -> None:
    assert expand_server(text) == urls


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("127.0.0.1:30000", "has no scheme; write http://127.0.0.1:30000"),
        ("", "has no scheme; write http://HOST:PORT"),
        ("ftp://x:1", "begins with ftp://"),
        ("http://:30000", "no usable host"),
        ("http://a b:1", "no usable host"),
        ("http://h:1/v1", "write http://h:1"),
        ("http://h:1/?a=1", "query or fragment"),
        ("http://h:1#a", "query or fragment"),
        ("http://h:0", "port outside"),
        ("http://h:70000", "is no URL|port outside"),
        ("http://h:x", "is no URL"),
        ("http://h:30007-30000", "ends \\(30000\\) before it begins \\(30007\\)"),
        ("http://h:1-9999", "9,999 servers; the limit is 4,096"),
        ("http://[::1:80", "is no URL"),
    ],
)
def test_what_is_no_address(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        expand_server(text)


def test_passwords_are_not_shown() -> None:
    with pytest.raises(ValueError, match="--api-key-env") as caught:
        expand_server("http://me:hunter2@h:1")
    assert "hunter2" not in str(caught.value)
