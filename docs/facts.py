"""The tables of docs/gpus.md and docs/models.md, made from the device table and the built-in geometries."""

from __future__ import annotations

from docs.generate import table


def device_table() -> str:
    """Every device: memory, bandwidth, dense compute, power."""
    from headrace.hardware.rows import devices
    from headrace.report.gpu_view import device_cells

    heads = ("GPU", "GiB", "GB/s", "bf16", "fp8", "fp4", "units", "W")
    return table(heads, (device_cells(device) for device in devices()))


def described_fields() -> str:
    """The fields of a file that describes a device."""
    from headrace.hardware.described import DescribedDevice

    rows = []
    for name, field in DescribedDevice.model_fields.items():
        needed = "**required**" if field.is_required() else ""
        rows.append((f"`{name}`", needed, field.description or ""))
    return table(("field", "", "meaning"), rows)


def families() -> str:
    """The model_types that are known."""
    from headrace.models.traits import FAMILIES

    return ", ".join(f"`{name}`" for name in sorted(FAMILIES)) + "\n"


def model_table() -> str:
    """Every built-in model: parameters, weights, KV and state bytes."""
    from headrace.models.catalogue import built_in, model_ids
    from headrace.report.amounts import scaled

    rows = []
    for model_id in model_ids():
        model = built_in(model_id)
        state = model.state_bytes_per_request(4.0).value
        rows.append(
            (
                model_id,
                f"{model.total_parameters / 1e9:,.1f}",
                f"{model.active_parameters / 1e9:,.1f}",
                model.quantisation.method or model.quantisation.plain_dtype,
                f"{model.weight_bytes().value / 1e9:,.1f}",
                scaled(model.kv_bytes_per_token().value, "bytes"),
                scaled(state, "bytes") if state else "",
            )
        )
    heads = (
        "model",
        "B parameters",
        "B active",
        "stored as",
        "GB served",
        "KV per token, bf16",
        "state, float32",
    )
    return table(heads, rows)
