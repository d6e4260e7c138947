"""Lengths of requests as a person tells them: tokens in and out, or the context alone."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import UsageError

_UNSTATED_CONTEXT = 2048.0


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of a request, on average. `cached_tokens` of the input are found in the prefix cache."""

    input_tokens: float
    output_tokens: float
    cached_tokens: float = 0.0

    @property
    def context_tokens(self) -> float:
        """Tokens that a running request holds on average: its input and half its output."""
        return self.input_tokens + self.output_tokens / 2.0

    @classmethod
    def of_context(cls, context_tokens: float) -> Lengths:
        """Returns lengths that hold that many tokens and have no prompts to compute: decoding alone."""
        return cls(0.0, 2.0 * context_tokens)


def lengths_of(
    context_tokens: float | None, input_tokens: float | None, output_tokens: float | None
) -> tuple[Lengths, str]:
    """Returns the lengths as told, and a sentence on what nobody told ("" where nothing is missing)."""
    if input_tokens is not None and output_tokens is not None:
        return Lengths(input_tokens, output_tokens), ""
    if input_tokens is not None or output_tokens is not None:
        raise UsageError(
            "--input-tokens and --output-tokens go together: one of them alone does not say how much of the "
            "time goes to prompts; give both, or --context-tokens alone"
        )
    if context_tokens is not None:
        return Lengths.of_context(context_tokens), (
            "prompts are left out of the throughput: --input-tokens and --output-tokens put them in."
        )
    return Lengths.of_context(_UNSTATED_CONTEXT), (
        f"no lengths were told: {_UNSTATED_CONTEXT:,.0f} tokens per running request are assumed, and no "
        "prompts (--input-tokens and --output-tokens set them)."
    )
