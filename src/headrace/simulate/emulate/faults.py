"""What can be wrong with an emulated server, and which request it hits."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headrace.errors import UsageError
from headrace.simulate.emulate.draws import fingerprint, uniform

Outcome = Literal["ok", "500", "503", "429", "drop", "drop_middle", "truncate", "html"]


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The faults of one replica; the default is a healthy one.

    Percentages are of POST requests for generation, drawn one after the other from one throw: their sum is
    at most 100. The throw depends on the seed, the request's body and how often that body came before, not
    on timing: a retry gets a new throw, a second run the same ones.

    Attributes:
        error_500, error_503, error_429: answered at once with that status, in percent.
        retry_after_seconds: the Retry-After header of 429 answers.
        drop: connection closed before any answer, in percent.
        drop_middle: closed in the middle of the finished answer's body, in percent.
        truncate: a whole HTTP answer whose JSON (or event stream) is cut short, in percent.
        html: status 200 with an HTML page of some proxy, in percent.
        slow: this replica is so many times slower.
        hang: `posts`: generation requests are accepted and never answered; `all`: every request is.
        refuse: the port is closed and every connection cut, until healed.
        crash_after: after so many answered requests everything in flight is lost and the port closed.
        back_after_seconds: how long a crash lasts; None = until healed.
        max_prompt_tokens: longer prompts are refused as over-long (400), below the context length.
    """

    error_500: float = 0.0
    error_503: float = 0.0
    error_429: float = 0.0
    retry_after_seconds: float = 1.0
    drop: float = 0.0
    drop_middle: float = 0.0
    truncate: float = 0.0
    html: float = 0.0
    slow: float = 1.0
    hang: Literal["no", "posts", "all"] = "no"
    refuse: bool = False
    crash_after: int | None = None
    back_after_seconds: float | None = None
    max_prompt_tokens: int | None = None

    def __post_init__(self) -> None:
        shares = self.shares()
        for name, percent in shares:
            if not 0 <= percent <= 100:
                field = f"error_{name}" if name.isdigit() else name
                raise ValueError(f"{field} is {percent:g} percent; give 0 to 100")
        total = sum(percent for _, percent in shares)
        if total > 100:
            raise ValueError(f"the fault percentages add up to {total:g}; they may add up to 100")
        if self.slow <= 0:
            raise ValueError(f"slow is {self.slow:g}; give a factor above 0 (8 = eight times slower)")
        if self.crash_after is not None and self.crash_after < 0:
            raise ValueError(f"crash_after is {self.crash_after}; give 0 or more requests")

    def shares(self) -> tuple[tuple[Outcome, float], ...]:
        """The drawn outcomes and their percentages, in the order of the throw."""
        return (
            ("500", self.error_500),
            ("503", self.error_503),
            ("429", self.error_429),
            ("drop", self.drop),
            ("drop_middle", self.drop_middle),
            ("truncate", self.truncate),
            ("html", self.html),
        )


def faults_from(document: Any) -> Faults:
    """Returns the faults that a JSON-like object names; raises UsageError for one that is not valid."""
    try:
        return msgspec.convert(document, Faults)
    except msgspec.ValidationError as error:
        known = ", ".join(Faults.__struct_fields__)
        raise UsageError(f"faults not understood: {error}. Known fields: {known}") from error


class FaultDraw:
    """Draws the outcome of each request of one replica, by seed and body."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._seen: dict[int, int] = {}  # body hash → times; filled only while a percentage is set

    def outcome(self, faults: Faults, body: bytes) -> Outcome:
        """Returns what shall happen to the request with this body."""
        shares = faults.shares()
        if not any(percent for _, percent in shares):
            return "ok"
        name = fingerprint(self._seed, body)
        times = self._seen.get(name, 0)
        self._seen[name] = times + 1
        throw = 100 * uniform(
            fingerprint(self._seed, name.to_bytes(8, "little"), times.to_bytes(4, "little"))
        )
        for outcome, percent in shares:
            if throw < percent:
                return outcome
            throw -= percent
        return "ok"
