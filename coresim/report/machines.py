"""Machines as a text table, as CSV and as JSON-ready records."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from coresim.model.machines import CERTAINTIES, Machine
from coresim.report.text import plural

_HEADER = (
    "machine", "GPUs", "GPU", "cores", "cores/GPU", "threads/core", "CPU", "memory GiB", "GB/s", "USD/h", "USD/GPU h",
    "price of", "certainty",
)  # fmt: skip
_NUMERIC = ("GPUs", "cores", "cores/GPU", "threads/core", "memory GiB", "GB/s", "USD/h", "USD/GPU h")
_PARTS = ("gpu", "cores", "cpu", "memory", "bandwidth", "price")


def machine_table(machines: Sequence[Machine]) -> str:
    """One line for each machine; cores are physical; then what the letters of certainty mean."""
    cells = [_HEADER, *(_cells(machine) for machine in machines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [_line(row, widths) for row in cells]
    words = "\n".join(f"  {name[0]} {name}: {meaning}" for name, meaning in CERTAINTIES.items())
    count = plural(len(machines), "machine")
    legend = (
        f"{count}. Cores are physical; GB/s is the theoretical peak of all sockets, of which\n"
        "an instance on a shared host gets a part; prices are on demand, on the day given, and change.\n"
        f"Certainty of {', '.join(_PARTS)}, one letter each:\n{words}\n"
        "--json and --csv give every field, with the source of each row and price."
    )
    return "\n".join([*lines, "", legend])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    columns = zip(_HEADER, row, widths, strict=True)
    parts = (cell.rjust(width) if name in _NUMERIC else cell.ljust(width) for name, cell, width in columns)
    return "  ".join(parts).rstrip()


def _cells(machine: Machine) -> tuple[str, ...]:
    return (
        machine.id,
        str(machine.gpu_count),
        machine.gpu,
        str(machine.physical_cores),
        f"{machine.cores_per_gpu:.4g}",
        _shown(machine.threads_per_core),
        machine.cpu or "?",
        _shown(machine.memory_gib),
        _shown(machine.bandwidth_gb_s),
        _shown(machine.price_usd_per_h),
        _shown(machine.price_per_gpu_h),
        machine.price_date or "?",
        "".join(getattr(machine, f"certainty_{part}")[0] for part in _PARTS),
    )


def _shown(value: float | None) -> str:
    return "?" if value is None else f"{value:.4g}"


def machines_document(machines: Sequence[Machine]) -> dict[str, Any]:
    """The machines with every field, units in the keys, under a format name and version."""
    return {"format": "coresim-machines", "schema_version": 1, "machines": [asdict(machine) for machine in machines]}


def machines_csv(machines: Sequence[Machine]) -> str:
    """The machines as `coresim.model.machines.read_machines` reads them back; an unknown fact is empty."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [item.name for item in fields(Machine)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(machine) for machine in machines)
    return stream.getvalue()
