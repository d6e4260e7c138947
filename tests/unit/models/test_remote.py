"""Fetching a config and headers, with the real huggingface_hub against a loopback server."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headrace.errors import UsageError
from headrace.models.remote import fetch_model

CONFIG = {
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 32,
}
HEADER = json.dumps({"w": {"dtype": "F32", "shape": [1000], "data_offsets": [0, 4000]}}).encode()
FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "model.safetensors": struct.pack("<Q", len(HEADER)) + HEADER + b"\0" * 4000,
}


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as one model needs: file listing, resolve with ranges."""

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        name = self.path.split("?")[0].rsplit("/", 1)[-1]
        if self.path.startswith("/api/models/me/mine"):
            found = json.dumps(
                {"id": "me/mine", "siblings": [{"rfilename": name} for name in FILES]}
            ).encode()
        elif self.path.startswith("/me/mine/resolve/") and name in FILES:
            found = FILES[name]
        else:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.send_header("X-Error-Code", "EntryNotFound" if "/me/mine/" in self.path else "RepoNotFound")
            self.end_headers()
            return
        wanted = self.headers.get("Range")
        status = 200
        total = len(found)
        if wanted:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            found, status = found[int(first) : int(last) + 1 if last else None], 206
        self.send_response(status)
        self.send_header("Content-Length", str(len(found)))
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{int(first) + len(found) - 1}/{total}")
        self.send_header("ETag", '"abc"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.end_headers()
        if body:
            self.wfile.write(found)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def fetched(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Fetches in a process of its own, whose hub is a server on loopback; returns what it said."""
    pytest.importorskip(
        "huggingface_hub", reason="huggingface_hub is not installed: fetching cannot be tested"
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    here = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(tmp_path)}
    environment = {**os.environ, **here, "HF_HUB_DISABLE_XET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}

    def fetch(model_id: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, model_id],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.stdout + done.stderr

    yield fetch
    server.shutdown()
    thread.join()
    server.server_close()


SCRIPT = """
import sys
from headrace.errors import HeadraceError
from headrace.models.remote import fetch_model
try:
    model = fetch_model(sys.argv[1])
    print(model.hidden, model.weight_bytes().value)
except HeadraceError as error:
    print(type(error).__name__, error)
"""


def test_config_and_headers_are_read(fetched: Callable[[str], str]) -> None:
    assert fetched("me/mine").split() == ["8", "4000.0"]


def test_a_model_that_is_not_there(fetched: Callable[[str], str]) -> None:
    assert "InputError me/yours: is not there" in fetched("me/yours")


@pytest.mark.parametrize("name", ["mine", "../../etc/passwd", "a/b/c", "a/b?c", ""])
def test_what_is_no_id(name: str) -> None:
    with pytest.raises(UsageError, match="owner/name"):
        fetch_model(name)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UsageError, match=r"headrace\[hf\]"):
        fetch_model("me/mine")
