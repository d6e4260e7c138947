"""A launch line from what was told of a server: its flags, and what was told beside them."""

from __future__ import annotations

from headrace.engines.launch_line import LaunchLine
from headrace.engines.plan import Planner
from headrace.engines.versions import Version
from headrace.quantities import Origin

# the spelling that every version takes, by engine: tensor parallel, data parallel, KV dtype
_FLAGS = {
    "sglang": ("--tp-size", "--dp-size", "--kv-cache-dtype"),
    "vllm": ("--tensor-parallel-size", "--data-parallel-size", "--kv-cache-dtype"),
}
_KV_DTYPES = {"sglang": "fp8_e4m3", "vllm": "fp8"}


def told_line(
    planner: Planner,
    version: Version,
    flags: str,
    *,
    tensor_parallel: int | None = None,
    kv_dtype: str | None = None,
    origin: Origin = Origin.CONFIGURED,
) -> LaunchLine:
    """Returns the launch line, with the parallelism and KV dtype told beside it where it lacks them.

    Words that belong to no flag are dropped: prose in place of a line. Replicas are servers of their own, so
    data parallelism is not added.

    Raises:
        UsageError: quotes that do not close, or a line that is too long.
    """
    parsed = LaunchLine.parse(flags.replace(";", " "), planner.table, version)
    known = tuple(flag for flag in parsed.flags if planner.table.find(flag.name, version) is not None)
    line = LaunchLine(known, parsed.environment, parsed.program, (), origin)
    given = {_field(planner, flag.name, version) for flag in known}
    wide, _, kv = _FLAGS[planner.engine]
    if tensor_parallel and tensor_parallel > 1 and _field(planner, wide, version) not in given:
        line = line.changed(f"{wide} {tensor_parallel}", planner.table, version)
    if kv_dtype and kv_dtype.lower().startswith("fp8") and _field(planner, kv, version) not in given:
        line = line.changed(f"{kv} {_KV_DTYPES[planner.engine]}", planner.table, version)
    return line


def _field(planner: Planner, name: str, version: Version) -> str:
    flag = planner.table.find(name, version)
    return planner.table.field(flag.name if flag else name)
