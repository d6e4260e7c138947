"""Where real engines lie on this machine, and how they get there: by the shared recipes, once.

Engines are kept under $XDG_CACHE_HOME/headrace/engines (HEADRACE_ENGINES names another folder). A lock file
keeps two test runs apart; a stamp written last says that an installation is whole, so one that was
interrupted, or made by an older recipe, is made again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SETUP_LIMIT_SECONDS = 1800  # llama.cpp compiles for 7 minutes on two quiet cores


class CannotInstall(Exception):
    """This machine cannot have the engine, through no fault of the project; the message says why."""


@dataclass(frozen=True)
class Recipe:
    """How one engine is installed.

    Attributes:
        name: folder under the engines' folder.
        commands: run one after another; `{at}` is that folder, `{shared}` the shared recipes' folder.
        files: of the shared recipes, whose change means a new installation.
        needs: programs that must be on PATH.
        not_to_be_had: words in a failed command's output that mean "not on this machine" rather than a fault.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    files: tuple[str, ...]
    needs: tuple[str, ...] = ()
    not_to_be_had: tuple[str, ...] = ()


VLLM = Recipe(
    name="vllm",
    commands=(("bash", "{shared}/vllm/setup.sh", "{at}"),),
    files=("vllm/setup.sh", "vllm/make_models.py"),
    needs=("python3.11",),
    not_to_be_had=("no folder with torch 2.13.0+cpu", "no version of torch==2.13.0+cpu"),
)
SGLANG = Recipe(
    name="sglang-0.5.12",
    commands=(("bash", "{shared}/sglang/setup.sh", "{at}", "0.5.12"),),
    files=("sglang/setup.sh", "sglang/req-0.5.12.txt"),
    needs=("python3",),
    not_to_be_had=("No matching distribution found for torch==2.13.0",),
)
SGLANG_MODELS = Recipe(
    name="sglang-models",
    commands=(("{engines}/sglang-0.5.12/bin/python", "{shared}/sglang/mkmodel.py", "{at}"),),
    files=("sglang/mkmodel.py",),
)
LLAMACPP = Recipe(
    name="llamacpp",
    commands=(("bash", "{shared}/llamacpp/setup.sh", "{at}"),),
    files=("llamacpp/setup.sh",),
    needs=("g++", "python3"),
)


def engines_folder() -> Path:
    """Where engines are kept."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("HEADRACE_ENGINES") or cache / "headrace" / "engines")


def install(recipe: Recipe, shared: Path) -> Path:
    """The folder in which the engine lies whole; installs it where it does not.

    Raises:
        CannotInstall: what it needs is not to be had here.
        AssertionError: the recipe failed otherwise; the end of what it said is in the message.
    """
    engines = engines_folder()
    engines.mkdir(parents=True, exist_ok=True)
    at = engines / recipe.name
    stamp = at / ".whole"
    key = _key(recipe, shared / "engines")
    with _locked(engines / f".{recipe.name}.lock"):
        if stamp.is_file() and stamp.read_text() == key:
            return at
        for program in recipe.needs:
            if shutil.which(program) is None:
                raise CannotInstall(f"{recipe.name}: {program} is not on PATH")
        shutil.rmtree(at, ignore_errors=True)
        for command in recipe.commands:
            words = [word.format(at=at, shared=shared / "engines", engines=engines) for word in command]
            _run(recipe, words, engines / f".{recipe.name}.log")
        stamp.write_text(key)
        return at


def _run(recipe: Recipe, command: Sequence[str], log: Path) -> None:
    with log.open("w") as sink:
        done = subprocess.run(
            command,
            stdout=sink,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=plain_environment(),
            timeout=SETUP_LIMIT_SECONDS,
        )
    if done.returncode == 0:
        return
    said = log.read_text(errors="replace")
    for words in recipe.not_to_be_had:
        if words in said:
            raise CannotInstall(f"{recipe.name}: {words} (its recipe ended with {done.returncode})")
    raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{said[-3000:]}")


def _key(recipe: Recipe, recipes: Path) -> str:
    parts = [repr(recipe.commands).encode()]
    parts += [(recipes / file).read_bytes() for file in recipe.files]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def plain_environment(**more: str) -> dict[str, str]:
    """The environment without this test run's own Python: an engine brings its own."""
    drop = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {**{name: value for name, value in os.environ.items() if name not in drop}, **more}


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
