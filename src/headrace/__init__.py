"""headrace: feeds a fleet of inference servers with an offline generation job and says what holds it back."""

from __future__ import annotations

__version__ = "0.1.0"
