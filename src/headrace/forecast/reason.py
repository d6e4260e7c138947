"""Why a row cannot be judged."""

from __future__ import annotations


class CannotJudge(Exception):
    """A row does not say enough, or says what the model does not cover; the message is the row's `reason`."""
