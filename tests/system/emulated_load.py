"""A steady load on emulated servers from a thread of its own: so many requests in flight, all the time."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def in_flight(url: str, count: int, max_tokens: int, prompt_words: int = 100) -> Iterator[None]:
    """Keeps `count` chats in flight at a server while the block runs: the next follows every answer."""
    ended = threading.Event()
    model = json.loads(urllib.request.urlopen(f"{url}/v1/models", timeout=10).read())["data"][0]["id"]

    def one(worker: int) -> None:
        turn = 0
        while not ended.is_set():
            turn += 1
            message = {"role": "user", "content": f"{worker} {turn} " + "word " * prompt_words}
            body = {"model": model, "messages": [message], "max_tokens": max_tokens, "ignore_eos": True}
            request = urllib.request.Request(
                f"{url}/v1/chat/completions",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
            try:
                urllib.request.urlopen(request, timeout=60).read()
            except OSError:
                if not ended.is_set():
                    raise

    threads = [threading.Thread(target=one, args=(worker,), daemon=True) for worker in range(count)]
    for thread in threads:
        thread.start()
        time.sleep(0.005)  # one after the other, so that their ends do not fall together
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(timeout=60)
