"""The many names of a GPU: a person's, nvidia-smi's, a cloud's. Text in, candidates out.

A name is cut into words; words that say nothing (vendor, memory technology, "GPU") are dropped; a memory
size and an architecture are checked against the device instead of compared as words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from headrace.hardware.device import Device

MAX_NAME = 200
_NOISE = frozenset(
    [
        "nvidia",
        "geforce",
        "tesla",
        "amd",
        "ati",
        "radeon",
        "instinct",
        "intel",
        "habana",
        "google",
        "cloud",
        "gpu",
        "gpus",
        "graphics",
        "card",
        "corporation",
        "generation",
        "edition",
        "accelerator",
        "tensor",
        "core",
        "hbm",
        "hbm2",
        "hbm2e",
        "hbm3",
        "hbm3e",
        "gddr6",
        "gddr6x",
        "gddr7",
        "lpddr5x",
        "ac",
        "memory",
        "datacenter",
        "lovelace",
        "the",
    ]
)
_VENDORS = frozenset(
    [
        "nvidia",
        "geforce",
        "tesla",
        "amd",
        "instinct",
        "intel",
        "habana",
        "google",
        "gpu",
        "generation",
        "edition",
    ]
)
_ARCHITECTURES = frozenset(
    ["blackwell", "hopper", "ada", "ampere", "volta", "turing", "cdna1", "cdna2", "cdna3", "cdna4"]
)
_COUNT = re.compile(r"^\s*\d{1,3}\s*[x×*]\s*(?=[a-z])|(?:\s+|(?<=\d))[x×*]\s*\d{1,3}\s*$")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)(?:g|gb|gib)")
_MEMORY_TOLERANCE = 0.07  # "141 GB" and "144 GB" are one H200, 80 and 94 GB are two H100s


@dataclass(frozen=True, slots=True)
class Name:
    """A name, cut up."""

    words: frozenset[str]
    memory_gb: float | None
    architecture: str | None


@lru_cache(maxsize=512)
def parse(text: str) -> Name:
    """Returns the words of a name, the memory size and the architecture it states."""
    lower = _COUNT.sub(" ", text[:MAX_NAME].lower())
    lower = lower.replace("max-q", "maxq").replace("max q", "maxq").replace("®", " ").replace("™", " ")
    memory = architecture = None
    words: set[str] = set()
    pieces = [piece for piece in re.split(r"[^a-z0-9.]+", lower) if piece]
    for position, piece in enumerate(pieces):
        size = _MEMORY.fullmatch(piece)
        if size is None and position + 1 < len(pieces) and pieces[position + 1] in {"gb", "gib"}:
            size = re.fullmatch(r"(\d+(?:\.\d+)?)", piece)
        if size is not None:
            memory = float(size.group(1))
        elif piece in _ARCHITECTURES:
            architecture = piece
        elif piece not in _NOISE and piece not in {"gb", "gib"}:
            words.add(re.sub(r"^(sxm|pcie)\d$", r"\1", piece))
    return Name(frozenset(words), memory, architecture)


def matching(text: str, devices: Iterable[Device]) -> tuple[Device, ...]:
    """Returns the devices that a name fits, by the first rule that finds any:

    1. it is a name or an alias, spaces and vendor aside ("NVIDIA H100 80GB HBM3" is the SXM card alone);
    2. it has the words of a name or an alias, in any order, and no word more or less;
    3. all its words are the device's: the fewer words, the more candidates;
    4. written without spaces, it begins a device's name.
    """
    name, squeezed = parse(text), squeeze(text)
    if not name.words:
        return ()
    known = [(device, (device.name, *device.aliases)) for device in devices]
    exact = [device for device, names in known if squeezed in map(squeeze, names)]
    if exact:
        return tuple(exact)
    same = [device for device, names in known if _same(name, names) and _agrees(name, device, names)]
    within = [
        device for device, names in known if _within(name, device, names) and _agrees(name, device, names)
    ]
    if (
        same
        and name.architecture is None
        and {d.architecture[:3] for d in within} != {d.architecture[:3] for d in same}
    ):
        return tuple(within)  # "RTX 6000" is not only the Ada card
    if same or within:
        return tuple(same or within)
    return tuple(
        device for device, names in known if len(squeezed) >= 3 and squeeze(names[0]).startswith(squeezed)
    )


def _same(name: Name, names: Sequence[str]) -> bool:
    """Returns whether the words are those of the device's name, or of an alias that says nothing of
    memory."""
    if name.words == parse(names[0]).words:
        return True
    others = (parse(alias) for alias in names[1:] if "hbm" not in alias.lower())
    return any(name.words == other.words and other.memory_gb in {None, name.memory_gb} for other in others)


def _within(name: Name, device: Device, names: Sequence[str]) -> bool:
    words = frozenset[str]().union(*(parse(other).words for other in names))
    if device.interconnect.startswith("PCIe"):
        words |= {"pcie"}
    if device.vendor in {"AMD", "Intel Habana"}:
        words |= {"oam"}
    return name.words <= words


def _agrees(name: Name, device: Device, names: Sequence[str]) -> bool:
    """Returns whether the memory and architecture that the name states are the device's."""
    if name.architecture is not None and name.architecture not in device.architecture.lower():
        return False
    if name.memory_gb is None:
        return True
    stated = {size for other in names if (size := parse(other).memory_gb)}
    sizes = (*stated, device.marketed_gb, device.memory_bytes.value / 2**30)
    return any(abs(name.memory_gb - size) <= _MEMORY_TOLERANCE * size for size in sizes if size)


def squeeze(text: str, between: str = "") -> str:
    """Returns a name's letters and digits without vendor words, in lower case."""
    words = re.split(r"[^a-z0-9]+", text[:MAX_NAME].lower())
    return between.join(word for word in words if word and word not in _VENDORS)
