"""Commands whose options are checked all at once: each mistake with the option, the value, the limit.

Typer stops at the first value that does not convert and does not show it. Here every option is looked at, and
what is wrong with any of them becomes one `UsageError`, a line each, as everything else that is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from headrace.errors import UsageError, nearest

PROBLEMS = "headrace.problems"  # in a context's `meta`: what the command itself is to tell with its own
_Refused: type[Any] = typer.BadParameter.__mro__[1]  # what the parser of a command line raises
_SHOWN = 60


def plainly_shown(params: list[Any]) -> list[Any]:
    """The parameters; switches, and arguments with a metavar, have no `<bool>` or `<path>` beside them."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
        if _is_argument(param) and param.metavar is not None:
            param.display_type_rich = _no_type
    return params


def _no_type(ctx: Any) -> None:
    return None


class CheckedCommand(TyperCommand):
    """A command that refuses all wrong options at once."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, as help shows them."""
        return plainly_shown(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments left over, as any command.

        Raises:
            UsageError: with every mistake at once.
        """
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        problems: list[str] = []
        known, rest, taken_out = self._read(ctx, list(args), problems)
        for param in sorted(self.get_params(ctx), key=lambda one: not one.is_eager):
            try:
                _, rest = param.handle_parse_result(ctx, known, rest)
            except typer.BadParameter as refused:
                ctx.params[param.name] = None
                value = known.get(param.name)
                if value is not None:
                    problems += _said(param, value, refused)
                elif not taken_out:
                    problems.append(_missing(param))
        if rest and not taken_out:
            problems.append(self._too_many(ctx, rest))
        self._refuse(ctx, problems)
        ctx.args = []
        return []

    def _read(self, ctx: Any, args: list[str], problems: list[str]) -> tuple[dict[str, Any], list[str], bool]:
        """Values by parameter, words left over, and whether words that nobody knows had to be taken out."""
        taken_out = False
        while True:
            parser = self.make_parser(ctx)
            try:
                known, rest, _ = parser.parse_args(args=list(args))
            except _Refused as refused:
                word = getattr(refused, "option_name", None)
                at = _place(args, word)
                if at is None:
                    raise
                problems.append(self._unusable(ctx, refused, str(word)))
                taken_out = True
                valued = "=" not in args[at] and args[at + 1 : at + 2] and not args[at + 1].startswith("-")
                del args[at : at + (2 if valued else 1)]
            else:
                ctx._opt_prefixes.update(parser._opt_prefixes)
                return known, rest, taken_out

    def _unusable(self, ctx: Any, refused: Any, word: str) -> str:
        if hasattr(refused, "possibilities"):
            names = [name for param in self.get_params(ctx) for name in param.opts]
            return f"{word} is no option of {ctx.command_path}.{nearest(word, names) or _see(ctx)}"
        text = str(refused.message).rstrip(".")
        if "requires" in text:
            return f"{word} needs a value{_of(self._named(ctx, word))}."
        return f"{text[:1].lower()}{text[1:]}."

    def _named(self, ctx: Any, word: str) -> Any:
        return next((param for param in self.get_params(ctx) if word in param.opts), None)

    def _too_many(self, ctx: Any, rest: Sequence[str]) -> str:
        taken = [param.metavar or param.name for param in self.get_params(ctx) if _is_argument(param)]
        words = ", ".join(map(_short, rest))
        takes = f"it takes {' '.join(taken)} and options" if taken else "it takes options only"
        are = "is" if len(rest) == 1 else "are"
        return f"{words} {are} too much for {ctx.command_path}: {takes}.{_see(ctx)}"

    def _refuse(self, ctx: Any, problems: list[str]) -> None:
        if problems:
            raise UsageError(problems)


class CheckedGroup(TyperGroup):
    """A group of commands, which refuses one that it does not have in a line, as all that is refused."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As of any group.

        Raises:
            UsageError: no such command.
        """
        try:
            return super().resolve_command(ctx, args)
        except _Refused:
            if ctx.resilient_parsing or not args or args[0].startswith("-"):
                raise
            near = nearest(args[0], self.list_commands(ctx))
            raise UsageError(
                f"{_short(args[0])} is no command of {ctx.command_path}.{near or _see(ctx)}"
            ) from None

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, as help shows them."""
        return plainly_shown(super().get_params(ctx))


class JobCommand(CheckedCommand):
    """A command that describes a job: mistakes in its options are told together with the job's own."""

    def _refuse(self, ctx: Any, problems: list[str]) -> None:
        ctx.meta[PROBLEMS] = problems


def refuse_with(problems: Sequence[str], check: Callable[[], Any]) -> Any:
    """What `check` returns.

    Raises:
        UsageError: with `problems` and those that `check` finds, if there are any.
    """
    try:
        found = check()
    except UsageError as more:
        raise UsageError([*problems, *more.problems]) from None
    if problems:
        raise UsageError(problems)
    return found


def _place(args: list[str], word: object) -> int | None:
    """Where the option stands among the words."""
    if not isinstance(word, str):
        return None
    for at, given in enumerate(args):
        if given == word or given.startswith(f"{word}=") or (len(word) == 2 and given.startswith(word)):
            return at
    return next((at for at, given in enumerate(args) if word[-1:] in given[1:] and given[:1] == "-"), None)


def _is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def _name(param: Any) -> str:
    return str(param.metavar or param.name) if _is_argument(param) else str(max(param.opts, key=len))


def _of(param: Any) -> str:
    told = str(getattr(param, "help", None) or "").rstrip(".")
    return f": {told if told[1:2].isupper() else told[:1].lower() + told[1:]}" if told else ""


def _see(ctx: Any) -> str:
    return f" `{ctx.command_path} --help` lists them."


def _missing(param: Any) -> str:
    value = "" if _is_argument(param) else f" {param.metavar or ''}".rstrip()
    return f"{_name(param)}{value} is missing{_of(param)}."


def _said(param: Any, given: Any, refused: Any) -> list[str]:
    """A sentence for each value that the parameter does not take."""
    kind, limits = _kind(param)
    values = list(given) if isinstance(given, list | tuple) else [given]
    wrong = [problem for value in values if (problem := _problem(str(value), kind, limits)) is not None]
    if not wrong:  # a check of the parameter's own
        told = str(refused.message).rstrip(".")
        return [f"{_name(param)} is {_short(', '.join(map(str, values)))}: {told}."]
    return [f"{_name(param)} is {problem}" for problem in wrong]


def _kind(param: Any) -> tuple[Any, tuple[float | None, float | None]]:
    """The type of one value, and its limits."""
    described = getattr(param, "type_descriptor", None)
    kind = getattr(described, "annotation", str)
    if get_origin(kind) is list:
        kind = get_args(kind)[0]
    info = getattr(described, "parameter_info", None)
    return kind, (getattr(info, "min", None), getattr(info, "max", None))


def _problem(value: str, kind: Any, limits: tuple[float | None, float | None]) -> str | None:
    """What is wrong with the value, from the value on; None where all is well."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        known = [str(one.value) for one in kind]
        return (
            None if value in known else f"{_short(value)}; known: {', '.join(known)}.{nearest(value, known)}"
        )
    if kind not in (int, float):
        return None
    noun = "a whole number" if kind is int else "a number"
    number = _number(value)
    low, high = limits
    allowed = f"{noun}{_range(low, high)}"
    if number is None:
        return f"{_short(value)}; {allowed} is expected."
    if kind is int and not number.is_integer():
        return f"{value}; {allowed} is expected. The nearest is {_shown(_inside(round(number), low, high))}."
    near = _inside(number, low, high)
    return None if near == number else f"{value}; {allowed} is allowed. The nearest is {_shown(near)}."


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if number - number == 0 else None  # neither infinite nor not a number


def _inside(number: float, low: float | None, high: float | None) -> float:
    number = number if low is None else max(number, low)
    return number if high is None else min(number, high)


def _range(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return ""
    if low is not None and high is not None:
        return f" from {_shown(low)} to {_shown(high)}"
    return f" of at least {_shown(low)}" if low is not None else f" of at most {_shown(high)}"


def _shown(number: float | None) -> str:
    return f"{number:,.10g}"


def _short(value: str) -> str:
    return f"'{value}'" if len(value) <= _SHOWN else f"'{value[: _SHOWN - 1]}…'"
