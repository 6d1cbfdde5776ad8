"""The accelerator catalogue as a text table and as JSON-ready records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from coresim.model.catalogue import LOADER_BOUND, StepRow
from coresim.units import format_duration

_HEADER = ("model", "GPU", "precision", "batch", "step", "samples/s", "certainty", "kind", "framework", "source")
_LEGEND = (
    "gpu_step: synthetic data on the GPU. gpu_bound: end to end, the GPU sets the rate. unproven: end to end, no "
    "evidence either way.\nestimate: scaled from another GPU. emulated: a storage benchmark's stand-in. "
    f"{LOADER_BOUND}: the loader sets the rate; never chosen."
)


def catalogue_table(rows: Sequence[StepRow]) -> str:
    """One line per row (step time per step, samples/s per GPU), then how many of each kind, and what kinds mean."""
    cells = [_HEADER, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    counts = ", ".join(f"{count} {kind}" for kind, count in Counter(row.kind for row in rows).most_common())
    return "\n".join([*(line.rstrip() for line in lines), "", f"{len(rows)} rows: {counts}", _LEGEND])


def catalogue_document(rows: Sequence[StepRow]) -> dict[str, Any]:
    """The rows with every field, units in the keys, under a format name and version."""
    return {"format": "coresim-catalogue", "schema_version": 1, "rows": [asdict(row) for row in rows]}


def _cells(row: StepRow) -> tuple[str, ...]:
    return (
        row.model,
        row.gpu,
        row.precision,
        str(row.batch_size),
        format_duration(row.step_time_s),
        f"{row.throughput_samples_per_s:.4g}",
        row.certainty,
        row.kind,
        row.framework,
        row.source,
    )
