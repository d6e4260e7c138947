"""What one forward pass works on: decoding requests, prompt chunks, or both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Load:
    """One pass, or many at once: every field is an array of the same length.

    Attributes:
        batch: decoding requests that count, without padding.
        padded: decoding requests that the pass computes, padding of a captured graph included.
        context: tokens resident for them, all together.
        sequences: prompts that have tokens in this pass.
        prompt: prompt tokens of the pass, all together.
        prior: tokens of each such prompt that were computed before.
    """

    batch: Numbers
    padded: Numbers
    context: Numbers
    sequences: Numbers
    prompt: Numbers
    prior: Numbers

    @classmethod
    def of(
        cls,
        batch: float | Numbers = 0.0,
        context: float | Numbers = 0.0,
        *,
        padded: float | Numbers | None = None,
        sequences: float | Numbers = 0.0,
        prompt: float | Numbers = 0.0,
        prior: float | Numbers = 0.0,
    ) -> Load:
        """Returns a load from numbers or arrays, broadcast against each other."""
        fields = np.broadcast_arrays(
            *(
                np.atleast_1d(np.asarray(each, dtype=np.float64))
                for each in (batch, batch if padded is None else padded, context, sequences, prompt, prior)
            )
        )
        return cls(*fields)


def pairs(prior: Numbers, new: Numbers, bound: Numbers) -> Numbers:
    """Returns how many (new token, token it sees) pairs a causal chunk has, itself included.

    Token i of `new` after `prior` tokens sees min(prior + i, bound) tokens:
    Σ = k·prior + k²/2 + (new − k)·bound with k = the tokens that still see everything.
    """
    whole = np.clip(bound - prior, 0.0, new)
    rest = np.where(new > whole, new - whole, 0.0)
    limit = np.where(np.isfinite(bound), bound, 0.0)
    return np.asarray(whole * prior + whole * whole / 2.0 + rest * limit)
