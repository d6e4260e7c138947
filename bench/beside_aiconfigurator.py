"""headrace predict beside aiconfigurator, on aiconfigurator's own sample of end-to-end measurements.

    python bench/beside_aiconfigurator.py rows SAMPLE.csv ROWS.csv
    AIC_PYTHON bench/beside_aiconfigurator.py theirs SAMPLE.csv THEIRS.csv [every] [first]
    python bench/beside_aiconfigurator.py compare ROWS.csv THEIRS.csv

`rows` makes the sample a table for `headrace predict`; `theirs` asks aiconfigurator 0.12.0 about every n-th
row; `compare` puts both beside each other. SAMPLE.csv is `systems/silicon_sample.csv` of the wheel
aiconfigurator-core 0.12.0; AIC_PYTHON a Python of its own environment with aiconfigurator==0.12.0 in it.
Aggregated rows; exact copies are left out. Its call is `cli_estimate` with every field the row states, newest
operator data, its defaults for the rest.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path
from statistics import median
from typing import Any

SYSTEMS = {
    "b200_sxm": "B200 SXM",
    "b300_sxm": "B300 SXM",
    "h100_sxm": "H100 SXM",
    "h200_sxm": "H200 SXM",
    "a100_sxm": "A100 SXM 80GB",
    "gb200": "GB200",
    "gb300": "GB300",
    "l40s": "L40S",
    "rtx_pro_6000_server": "RTX PRO 6000 Blackwell Server",
}
ENGINES = {"trtllm": "tensorrt-llm"}
FORMS = {"int4_wo": "int4", "nvfp4": "fp4", "fp8_block": "fp8", "bfloat16": "bf16"}
COLUMNS = (
    *("id", "gpu", "n_gpus", "tp", "pp", "dp", "ep", "model", "weights_dtype", "engine", "engine_version"),
    *("load_kind", "concurrency", "input_len", "output_len", "tpot_ms", "source"),
)
MULTIPLIED = {16: 4, 64: 8}  # tp × ep multiplied in the sample: TP4/EP4, TP8/EP8


def sample(path: Path) -> list[dict[str, str]]:
    """Returns the aggregated rows that are no copies of an earlier one."""
    seen: set[tuple[str, ...]] = set()
    rows = []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = tuple(row[name] for name in row if name not in ("id", "silicon_data_source"))
            if row["mode"] == "agg" and key not in seen:
                seen.add(key)
                rows.append(row)
    return rows


def whole(row: dict[str, str], name: str) -> int:
    return int(float(row[name] or 1))


def write_rows(source: Path, target: Path) -> None:
    """Writes the sample as a benchmark table."""
    with target.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in sample(source):
            tp, pp, dp, ep = (
                whole(row, name) for name in ("tp_size", "pp_size", "attention_dp_size", "moe_ep_size")
            )
            stated = re.search(r"silicon_concurrency=(\d+)", row["silicon_data_source"])
            moe = row["moe_quant_mode"]
            form = (
                "mxfp4" if "mxfp4" in moe else moe if moe in ("int4_wo", "nvfp4") else row["gemm_quant_mode"]
            )
            form = form or row["precision"]
            engine = ENGINES.get(row["backend"], row["backend"])
            writer.writerow(
                {
                    "id": row["id"],
                    "gpu": SYSTEMS.get(row["system"], row["system"]),
                    "n_gpus": tp * pp * dp,
                    "tp": tp,
                    "pp": pp,
                    "dp": dp,
                    "ep": ep,
                    "model": row["model_path"],
                    "weights_dtype": FORMS.get(form, form),
                    "engine": engine,
                    "engine_version": row["backend_version"],
                    "load_kind": "closed_loop_concurrency",
                    "concurrency": stated.group(1) if stated else float(row["batch_size"]) * dp,
                    "input_len": row["isl"],
                    "output_len": row["osl"],
                    "tpot_ms": row["silicon_tpot_ms"],
                    "source": "aiconfigurator silicon_sample.csv",
                }
            )


def write_theirs(source: Path, target: Path, every: int, first: int) -> None:
    """Appends what aiconfigurator says of every n-th row; "" where it does not answer."""
    import logging
    import warnings

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    from aiconfigurator.cli.api import cli_estimate  # type: ignore[import-not-found]

    rows = sorted(
        sample(source)[first::every], key=lambda row: (row["system"], row["backend"], row["model_path"])
    )
    fresh = not target.exists()
    with target.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if fresh:
            writer.writerow(("id", "tpot_ms", "error"))
        for row in rows:
            file.flush()
            tp = whole(row, "tp_size")
            asked: dict[str, Any] = {
                "model_path": row["model_path"],
                "system_name": row["system"],
                "backend_name": row["backend"],
                "isl": whole(row, "isl"),
                "osl": whole(row, "osl"),
                "batch_size": whole(row, "batch_size"),
                "tp_size": MULTIPLIED.get(tp, tp),
                "pp_size": whole(row, "pp_size"),
                "attention_dp_size": whole(row, "attention_dp_size"),
            }
            if row["moe_tp_size"] and row["moe_ep_size"]:
                asked |= {"moe_tp_size": whole(row, "moe_tp_size"), "moe_ep_size": whole(row, "moe_ep_size")}
            if row["moe_quant_mode"]:
                asked["moe_quant_mode"] = row["moe_quant_mode"]
            if row["gemm_quant_mode"]:
                asked["gemm_quant_mode"] = row["gemm_quant_mode"]
            if tp in MULTIPLIED and "moe_ep_size" in asked:
                asked |= {"moe_tp_size": 1, "moe_ep_size": MULTIPLIED[tp]}
            try:
                tpot = float(cli_estimate(**asked).tpot)
                writer.writerow((row["id"], f"{tpot:.6g}", ""))
            except (Exception, SystemExit) as error:  # noqa: BLE001  whatever it raises: it does not answer
                writer.writerow((row["id"], "", f"{type(error).__name__}: {error}"[:160].replace("\n", " ")))


def compare(table: Path, theirs: Path) -> None:
    """Prints the error of both, on the rows that both answer, and each alone."""
    from headrace.forecast.table import predict_table

    with theirs.open(newline="", encoding="utf-8") as file:
        said = {row["id"]: float(row["tpot_ms"]) if row["tpot_ms"] else None for row in csv.DictReader(file)}
    judged = {each.prediction.id: each for each in predict_table(table).rows}
    groups: dict[str, list[tuple[float | None, float | None]]] = {}
    for name, their_tpot in said.items():
        each = judged[name]
        measured = each.row.number("tpot_ms")
        if not measured:
            continue
        their = abs(their_tpot / measured - 1.0) if their_tpot else None
        for group in ("all rows", each.row.engine, each.row.gpu):
            groups.setdefault(group, []).append((each.error, their))
    print(
        "| rows | asked | both answer | headrace median | aiconfigurator median | headrace ≤ 30 % | theirs |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for group, errors in groups.items():
        both = [(ours, their) for ours, their in errors if ours is not None and their is not None]
        if len(both) < 5:
            continue
        ours, their = [each[0] for each in both], [each[1] for each in both]
        near = [sum(error <= 0.3 for error in each) / len(both) for each in (ours, their)]
        print(
            f"| {group} | {len(errors)} | {len(both)} | {median(ours):.1%} | {median(their):.1%} "
            f"| {near[0]:.0%} | {near[1]:.0%} |"
        )


def main() -> int:
    words = sys.argv[1:]
    if len(words) >= 3 and words[0] == "rows":
        write_rows(Path(words[1]), Path(words[2]))
    elif len(words) >= 3 and words[0] == "theirs":
        every, first = (int(word) for word in [*words[3:], *("1", "0")[len(words) - 3 :]])
        write_theirs(Path(words[1]), Path(words[2]), every, first)
    elif len(words) == 3 and words[0] == "compare":
        compare(Path(words[1]), Path(words[2]))
    else:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
