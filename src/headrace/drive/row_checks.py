"""What is wrong with an answered row: the flags. Microseconds a row, whatever its length."""

from __future__ import annotations

from headrace.drive.answer import Answer
from headrace.words import Flag

# A loop is called runaway when the text ends in at least MIN_REPEATS copies of one piece that together
# fill LOOP_CHARACTERS. 600 characters (about 150 tokens) of pure repetition at the very end do not occur in
# the GSM8K and HumanEval reference answers; a model stuck in a loop fills thousands until max_tokens.
LOOP_CHARACTERS = 600
MIN_REPEATS = 6
PROBE_CHARACTERS = 24  # the text's last characters, looked for further up to find the period


def flags_of(answer: Answer) -> list[str]:
    """The flags of an answer, in the order of `Flag`; empty for a good one."""
    flags: list[str] = []
    if not answer.tool_calls and (not answer.text or answer.text.isspace()):
        flags.append(Flag.EMPTY.value)
    if answer.finish_reason == "length":
        flags.append(Flag.TRUNCATED.value)
    if answer.leaked:
        flags.append(Flag.THINK_TAG.value)
    if ends_in_loop(answer.text) or (answer.reasoning is not None and ends_in_loop(answer.reasoning)):
        flags.append(Flag.REPETITION.value)
    return flags


def ends_in_loop(text: str) -> bool:
    """Whether the text ends in a runaway repetition of one piece (of 1 to LOOP_CHARACTERS characters).

    The distance from the text's last characters to their previous occurrence is the only candidate
    period, so the cost is one backward search over a few kilobytes and one comparison.
    """
    text = text.rstrip()
    size = len(text)
    if size < LOOP_CHARACTERS:
        return False
    window = max(0, size - LOOP_CHARACTERS - PROBE_CHARACTERS)
    previous = text.rfind(text[-PROBE_CHARACTERS:], window, size - 1)
    if previous < 0:
        return False
    period = size - PROBE_CHARACTERS - previous
    needed = max(LOOP_CHARACTERS, MIN_REPEATS * period)
    return needed <= size and text[-needed:-period] == text[period - needed :]
