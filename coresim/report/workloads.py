"""The built-in workloads as a text table and as JSON-ready records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coresim.workloads.registry import DEFAULT, Listing

_HEADER = ("name", "batch", "steps", "what for")
_LEGEND = (
    f"All make their own small data on the spot. Default: {DEFAULT}. For example: coresim recommend --workload tiny\n"
    "To add one in twenty lines: python -m pydoc coresim.workloads. A dataset that you have: --dataset module:name"
)


def workloads_table(found: Sequence[Listing]) -> str:
    """One line per workload: name, samples per batch, steps, what it is for; then how to use them."""
    cells = [_HEADER, *(_cells(entry) for entry in found)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    return "\n".join([*(line.rstrip() for line in lines), "", _LEGEND])


def workloads_document(found: Sequence[Listing]) -> dict[str, Any]:
    """The list under a format name and version; ``batch_size`` in samples."""
    rows = [{**entry._asdict(), "steps": list(entry.steps)} for entry in found]
    return {"format": "coresim-workloads", "schema_version": 1, "default": DEFAULT, "workloads": rows}


def _cells(entry: Listing) -> tuple[str, ...]:
    needs = f" (needs {entry.needs})" if entry.needs else ""
    return entry.name, str(entry.batch_size), ", ".join(entry.steps), entry.purpose + needs
