"""Ctrl-C in the first moments, while modules are still loaded."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130  # as `headrace.errors.Interrupted` has it; nothing is imported here that can be spared


@contextmanager
def interrupts_end_at_once() -> Iterator[None]:
    """Within, Ctrl-C ends the process without a word: imports broken off half-way fail in their own ways.

    Does nothing where Ctrl-C is ignored or somebody else's.
    """
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
