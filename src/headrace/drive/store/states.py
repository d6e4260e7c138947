"""The states of a prompt, one byte each in memory."""

from __future__ import annotations

from enum import IntEnum


class State(IntEnum):
    """Where a prompt stands."""

    PENDING = 0  # to be asked
    DONE = 1  # its row is durable
    FAILED = 2  # given up; in failed/
    DUPLICATE = 3  # the same as another prompt, whose answer it will share
    EXCLUDED = 4  # answered elsewhere, as the job says
    GONE = 5  # no longer in the input, and never answered
    UNREADABLE = 6  # the source row cannot be read; counted as failed


FAILED_STATES = (State.FAILED, State.UNREADABLE)
NO_SOURCE = 0xFFFF  # the source of a row whose source is no longer part of the job
