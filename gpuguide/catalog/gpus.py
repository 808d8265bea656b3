"""Accelerators from `gpus.csv`: vendor units in, bytes, bytes/s and FLOP/s out, converted here and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuguide.columns import Columns
from gpuguide.spec.hardware import Gpu
from gpuguide.spec.precision import COMPUTE_PRECISIONS
from gpuguide.units import GB, GIB, TFLOP

if TYPE_CHECKING:
    import pandas as pd

DRIVER_RESERVE_GIB = 0.6
"""Difference of the driver's and the process's view of the card; 0.42 to 0.85 GiB where both were published
(`docs/formulas.md`, "Usable memory"): A100 0.85, B200 0.71, RTX 3090 0.42, RTX 5090 0.47, L40S 0.55. [GiB]"""
UNMEASURED_SHARE = 0.985
"""Driver total over marketed size where no log was seen: marketed 'GB' are nearly GiB, less up to 1.5 %. [-]"""
ECC_SHARE = 15 / 16
"""What error correction leaves of GDDR memory on data-centre cards: 24564 -> 23028 MiB, 49140 -> 46068 MiB. [-]"""

PCIE_BYTES_PER_S = {3.0: 12.0e9, 4.0: 25.0e9, 5.0: 55.0e9, 6.0: 110.0e9}
"""Achieved on 16 lanes, one direction: 55 GB/s (88 %) measured on PCIe 5, other generations at that share. [bytes/s]"""
DEFAULT_PCIE_BYTES_PER_S = PCIE_BYTES_PER_S[4.0]
PCIE_LANES = 16.0


def gpus_from_table(table: pd.DataFrame | Columns) -> dict[str, Gpu]:
    """All rows of `gpus.csv` by name."""
    return {row["gpu"]: gpu_from_row(row) for row in Columns.of(table).records()}


def gpu_from_row(row: Mapping[Any, Any]) -> Gpu:
    """One row of `gpus.csv`."""
    return Gpu(
        name=row["gpu"],
        vendor=row["vendor"],
        architecture=row["architecture"],
        memory_gb=float(row["memory_gb"]),
        memory_bytes=_usable_gib(row) * GIB,
        memory_type=row["memory_type"],
        is_hbm=bool(row["is_hbm"]),
        memory_bandwidth_bytes_per_s=_number(row["bandwidth_gb_s"]) * GB,
        flops={name: _number(row[column]) * TFLOP for name, column in _RATES.items()},
        measured_bf16_flops=_number(row["measured_bf16_tflops"]) * TFLOP,
        measured_bandwidth_bytes_per_s=_number(row["measured_bandwidth_gb_s"]) * GB,
        link=_text(row["link_type"]),
        link_bytes_per_s=_number(row["nvlink_gb_s"]) * GB,
        pcie_bytes_per_s=_pcie_bytes_per_s(row),
        tdp_w=_number(row["tdp_w"]),
        compute_capability=_text(row["compute_capability"]),
        form_factor=_text(row["form_factor"]),
        tier=_text(row["class"]),
    )


_RATES = {
    name: f"{name}_tops_dense" if name == "int8" else "fp32_tflops" if name == "fp32" else f"{name}_tflops_dense"
    for name in COMPUTE_PRECISIONS
}


def _pcie_bytes_per_s(row: Mapping[Any, Any]) -> float:
    """Host link, one direction; cards with eight lanes have half of it. [bytes/s]"""
    lanes = _number(row["pcie_lanes"])
    full = PCIE_BYTES_PER_S.get(_number(row["pcie_gen"]), DEFAULT_PCIE_BYTES_PER_S)
    return full * (lanes / PCIE_LANES if lanes == lanes else 1.0)


def _usable_gib(row: Mapping[Any, Any]) -> float:
    """What a process can allocate: its own report where seen, else the driver's total less its reserve. [GiB]"""
    seen_by_process = _number(row["torch_total_gib"])
    if not math.isnan(seen_by_process):
        return seen_by_process
    driver_total = _number(row["memory_gib_usable"])
    if math.isnan(driver_total):
        ecc = ECC_SHARE if row["memory_type"].startswith("GDDR") and row["class"] == "datacenter" else 1.0
        driver_total = float(row["memory_gb"]) * UNMEASURED_SHARE * ecc
    return driver_total - DRIVER_RESERVE_GIB


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
