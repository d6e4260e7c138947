"""Secrets leave text and documents before they are kept, whatever they look like; other words stay."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.net import redact as rules
from headrace.net.redact import redact, redact_document, remember, without_user


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
        ("http://me:pw@node:30000/x", "http://[redacted]@node:30000/x"),
        ("--api-key hunter22 --tp 4", "--api-key [redacted] --tp 4"),
        ("GET /x?token=hunter22&n=1", "GET /x?token=[redacted]&n=1"),
    ],
)
def test_redact(text: str, shown: str) -> None:
    assert redact(text) == shown


SHAPES = [
    "api_key={}",
    "--api-key {}",
    "--api-key={} --tp 4",
    "'api_key': '{}'",
    '"api_key":"{}"',
    r"{{\"api_key\": \"{}\"}}",
    "'api_key': ['another', '{}']",
    "['--api-key', '{}']",
    "api-key: {}",
    "X-API-Key: {}",
    "Incorrect API key provided: {}.",
    "ServerArgs(admin_api_key='{}', tp_size=1)",
    "ssl_keyfile_password='{}'",
    "--ssl-keyfile-password {}",
    "DB_PASSWORD={}",
    "password='three words {}'",
    "client_secret={}",
    "aws_secret_access_key = {}",
    "AWS_SESSION_TOKEN={}",
    "HF_TOKEN={}",
    "export MY_TOKEN='{}'",
    "os.environ['OPENAI_API_KEY'] = '{}'",
    "Authorization: Bearer {}",
    "Authorization: Basic {}",
    "Proxy-Authorization: Basic {}",
    "-H 'Authorization: Bearer {}'",
    "[(b'authorization', b'Bearer {}')]",
    "Cookie: session={}",
    "http://user:{}@host:30000/v1",
    "https://{}@host/",
    "curl -u admin:{}@host.example",
    "/v1/models?api_key={}&x=1",
    "https://bucket/x?X-Amz-Signature={}",
    "sk-{}",
    "sk-proj-{}",
    "hf_abcdefgh{}",
    "ghp_abcdefgh{}",
    "<td>API_KEY</td><td class='code'><pre>{}</pre></td>",
    "&quot;password&quot;: &quot;{}&quot;",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
    "eyJhbGciOiJI.{}.signature",
]
SECRETS = st.text(string.ascii_letters + string.digits, min_size=10, max_size=40).filter(
    lambda text: any(letter.isdigit() for letter in text) and any(letter.isalpha() for letter in text)
)
AROUND = st.sampled_from(
    ["", " ", "\n", "[2026-03-04 05:06:07 TP0] ", "INFO: ", "<p>", "{'a': 1, ", "token usage: 0.12, "]
)


@given(st.sampled_from(SHAPES), SECRETS, AROUND, AROUND)
@example("sk-{}", "000000000A", "", "")
def test_no_shape_lets_a_secret_through(shape: str, secret: str, before: str, after: str) -> None:
    text = before + shape.format(secret) + after
    shown = redact(text)
    assert secret not in shown
    assert redact(shown) == shown


@given(st.sampled_from(SHAPES), SECRETS, st.integers(0, 120))
def test_a_cut_leaves_no_half_of_a_secret(shape: str, secret: str, limit: int) -> None:
    shown = redact(shape.format(secret), limit)
    assert len(shown) <= limit
    assert secret[:8] not in shown


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 4096 is too many tokens",
        "Decode batch, #running-req: 1, #token: 137, token usage: 0.12, #new-token: 103",
        "Avg prompt throughput: 0.0 tokens/s",
        "ssl_keyfile=None, ssl_keyfile_password=None, api_key=None, tp_size=4",
        "'api_key': None, 'served_model_name': 'm'",
        "tokenizer_path='/models/x', tokenizer_mode='auto', stop_token_ids=[1, 2]",
        "eos_token: '</s>', pad_token='<pad>'",
        "http://host:3000/v1?model=x",
        "api_key_env: MY_KEY",
        "api_key_file: /run/keys/x",
        "password is wrong",
        "basic understanding required; authorized by x",
        "KeyError: 'layers.0.weight'",
        "https://github.com/a/b@v1 and name@host.example",
        "[2026-01-01 10:00:00 DP0 TP0] x",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_what_the_process_knows_goes_whatever_its_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "_known", set())
    remember('pa"ss wörd/1')
    assert redact('said pa"ss wörd/1 and pa%22ss%20w%C3%B6rd%2F1') == "said [redacted] and [redacted]"


def test_what_the_environment_holds_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "_known", set())
    monkeypatch.setenv("SOME_API_KEY", "plainwords")
    monkeypatch.setenv("SOME_API_KEY_FILE", "otherwords")
    rules._read_environment.cache_clear()
    assert redact("plainwords otherwords") == "[redacted] otherwords"
    monkeypatch.undo()
    rules._read_environment.cache_clear()


def test_a_document_loses_values_under_secret_names_and_in_texts() -> None:
    document = {
        "api_key": "x1",
        "admin_api_key": ["a", "b"],
        "api_key_env": "NAME",
        "max_tokens": 5,
        "inner": [{"password": "p", "text": "Bearer abcdef123"}],
        "secret": 5,
        "token": {"a": 1},
    }
    assert redact_document(document) == {
        "api_key": "[redacted]",
        "admin_api_key": "[redacted]",
        "api_key_env": "NAME",
        "max_tokens": 5,
        "inner": [{"password": "[redacted]", "text": "Bearer [redacted]"}],
        "secret": 5,
        "token": {"a": 1},
    }


def test_a_url_without_its_user() -> None:
    assert without_user("see http://me:pw@node:1/x and ftp://you@y") == "see http://node:1/x and ftp://y"
