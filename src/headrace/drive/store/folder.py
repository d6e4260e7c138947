"""Where things lie in a job folder (OUT)."""

from __future__ import annotations

import re
from pathlib import Path

_LEFTOVERS = (  # what a crash may leave half written, by folder; nothing else there is headrace's to remove
    (".", ("status.json.tmp", "ledger-at.tmp", "job.json.tmp")),
    ("open", ("part-*.tmp", "rows-*.tmp")),
    ("failed", ("failed.jsonl.tmp",)),
    ("prompts", ("scan-*.tmp",)),
)
_SPOOL = re.compile(r"spool(?:-\d+)?\.jsonl")
_SEGMENT = re.compile(r"rows-(\d{6,})\.jsonl")
_SHARD = re.compile(r"part-(\d{6,})\.(?:parquet|jsonl\.zst)")


class JobFolder:
    """The paths of a job folder; nothing here touches the disk but the listings."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.completions = out / "completions"
        self.open = out / "open"
        self.failed = out / "failed"
        self.prompts = out / "prompts"
        self.failed_rows = self.failed / "failed.jsonl"
        self.lock = out / "lock"
        self.ledger = out / "ledger.db"
        self.ledger_at = out / "ledger-at"
        self.job = out / "job.json"

    def folders(self) -> tuple[Path, ...]:
        """All folders of the job, the outermost first."""
        return (self.out, self.completions, self.open, self.failed, self.prompts)

    def segment(self, number: int) -> Path:
        """The open file of durable rows that are not yet in a shard."""
        return self.open / f"rows-{number:06}.jsonl"

    def shard(self, number: int, suffix: str) -> Path:
        """The finished shard of segment `number`; `suffix` is `parquet` or `jsonl.zst`."""
        return self.completions / f"part-{number:06}.{suffix}"

    def spool(self, generation: int) -> Path:
        """Source rows that cannot be read again in place; a scan of changed sources begins a new one."""
        return self.prompts / ("spool.jsonl" if generation <= 1 else f"spool-{generation}.jsonl")

    def spools(self) -> list[Path]:
        """All spool files there are."""
        if not self.prompts.is_dir():
            return []
        return [path for path in self.prompts.iterdir() if _SPOOL.fullmatch(path.name)]

    def leftovers(self) -> list[Path]:
        """Files that a crash left half written."""
        return [
            path
            for folder, patterns in _LEFTOVERS
            for pattern in patterns
            for path in (self.out / folder).glob(pattern)
        ]

    def segments(self) -> dict[int, Path]:
        """The open files by number, in order."""
        return _numbered(self.open, _SEGMENT)

    def shards(self) -> dict[int, Path]:
        """The finished shards by number, in order."""
        return _numbered(self.completions, _SHARD)


def _numbered(folder: Path, pattern: re.Pattern[str]) -> dict[int, Path]:
    if not folder.is_dir():
        return {}
    found = ((pattern.fullmatch(path.name), path) for path in folder.iterdir())
    return dict(sorted((int(match[1]), path) for match, path in found if match))
