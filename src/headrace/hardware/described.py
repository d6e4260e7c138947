"""A device that a person describes in a YAML file, for hardware that is not in the table."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headrace.errors import InputError
from headrace.hardware.device import Device
from headrace.hardware.rows import GIB, free_from, usable_from
from headrace.quantities import Origin, Quantity

_MAX_BYTES = 64 * 1024
_DTYPES = ("bf16", "fp16", "fp8", "fp4", "int8")


class DescribedDevice(BaseModel):
    """The fields of a device file. Only name and memory are needed; what is missing is unknown, never
    guessed."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    name: str = Field(max_length=200, description="what reports call it")
    memory_gib: float = Field(gt=0, le=100_000, description="whole memory in GiB; nvidia-smi's MiB ÷ 1024")
    usable_gib: float | None = Field(
        None, gt=0, description="torch.cuda.mem_get_info()[1] ÷ 2^30, where known"
    )
    free_before_load_gib: float | None = Field(None, gt=0, description="free once the server's process is up")
    bandwidth_gb_per_second: float | None = Field(None, gt=0, description="memory bandwidth, 10^9 bytes/s")
    dense_tflops: dict[str, float] = Field(
        default_factory=dict, description=f"by dtype ({', '.join(_DTYPES)}); never a figure 'with sparsity'"
    )
    sms: int | None = Field(None, gt=0, description="streaming multiprocessors or compute units")
    l2_mb: float | None = Field(None, gt=0, description="last-level cache, MiB")
    power_watts: float | None = Field(None, gt=0)
    interconnect: str = Field("", max_length=200, description="in words")
    interconnect_gb_per_second: float | None = Field(None, gt=0, description="one direction, per device")
    vendor: str = Field("", max_length=100)
    architecture: str = Field("", max_length=100)
    compute_capability: float | None = Field(None, gt=0, description="NVIDIA: 12.0 for sm_120")
    source: str = Field("", max_length=500, description="where the figures come from")


def described_device(path: Path) -> Device:
    """Returns the device that a YAML file describes; every figure has the origin user.

    Raises InputError: no such file, too large, not YAML, a field unknown or out of range (all problems at
    once).
    """
    try:
        with path.open("rb") as stream:
            raw = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}; give a GPU's name or a YAML file"
        ) from error
    if len(raw) > _MAX_BYTES:
        raise InputError(f"{path}: larger than {_MAX_BYTES // 1024} KiB; a device file has a dozen lines")
    try:
        fields = DescribedDevice.model_validate(_plain(yaml.safe_load(raw), path))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not YAML: {str(error)[:200]}; docs/gpus.md has an example") from error
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc']))}: {item['msg'].lower()}" for item in error.errors()[:10]
        )
        raise InputError(
            f"{path}: {problems}; known fields: {', '.join(DescribedDevice.model_fields)}"
        ) from error
    unknown = set(fields.dense_tflops) - set(_DTYPES)
    if unknown:
        raise InputError(
            f"{path}: dense_tflops has {', '.join(sorted(unknown))}; known are {', '.join(_DTYPES)}"
        )
    return _device(fields, path)


def _plain(document: object, path: Path) -> object:
    if not isinstance(document, dict):
        raise InputError(f"{path}: a mapping of fields is needed; docs/gpus.md has an example")
    return document


def _device(fields: DescribedDevice, path: Path) -> Device:
    source = fields.source or str(path)

    def told(value: float | None, unit: str, factor: float = 1.0) -> Quantity | None:
        return None if value is None else Quantity(value * factor, unit, Origin.USER, source)

    memory = Quantity(fields.memory_gib * GIB, "bytes", Origin.USER, source)
    usable = told(fields.usable_gib, "bytes", GIB) or usable_from(memory)
    return Device(
        name=fields.name,
        vendor=fields.vendor,
        architecture=fields.architecture,
        compute_capability=fields.compute_capability,
        memory_bytes=memory,
        usable_bytes=usable,
        free_before_load_bytes=told(fields.free_before_load_gib, "bytes", GIB) or free_from(usable),
        memory_bytes_per_second=told(fields.bandwidth_gb_per_second, "bytes/s", 1e9),
        dense_flops_per_second={
            dtype: Quantity(value * 1e12, "FLOP/s", Origin.USER, source)
            for dtype, value in fields.dense_tflops.items()
        },
        measured={},
        sm_count=told(fields.sms, "units"),
        l2_bytes=told(fields.l2_mb, "bytes", 2**20),
        power_watts=told(fields.power_watts, "W"),
        interconnect=fields.interconnect,
        interconnect_bytes_per_second=told(fields.interconnect_gb_per_second, "bytes/s", 1e9),
        source=source,
        marketed_gb=fields.memory_gib,
    )
