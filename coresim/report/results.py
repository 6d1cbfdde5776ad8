"""The tidy table of a fleet plan, written row by row as pairs finish: a plan that was stopped goes on from there."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from coresim.advise.fleet import Row
from coresim.advise.task import Outcome
from coresim.errors import CoresimError, InputError
from coresim.files import read_text, write_text

#: Column -> field of `Outcome`; what a rerun needs.
_OUTCOME = {
    "cores_per_gpu_needed": "cores_needed",
    "cores_per_gpu_had": "cores_had",
    "workers_per_gpu": "workers",
    "prefetch_factor": "prefetch_factor",
    "gpu_idle": "gpu_idle",
    "gpu_idle_low": "gpu_idle_low",
    "gpu_idle_high": "gpu_idle_high",
    "throughput_samples_per_s": "throughput",
    "basis": "basis",
}
_WHOLE = ("cores_needed", "workers", "prefetch_factor")
COLUMNS = (
    "key", "workload", "machine", "option", "gpu", "gpus", *_OUTCOME, "meets_target", "price_usd_per_h",
    "price_usd_per_million_samples", "workload_hours", "workload_cost_usd", "stranded_cores", "idle_gpus", "notes",
)  # fmt: skip


def record_of(row: Row) -> dict[str, Any]:
    """The columns of a row; None where a fact is not known."""
    return {
        "key": row.key,
        "workload": row.workload.name,
        "machine": row.candidate.name,
        "option": row.option,
        "gpu": row.candidate.gpu or row.workload.gpu,
        "gpus": row.candidate.gpu_count,
        **{column: getattr(row.outcome, name) for column, name in _OUTCOME.items()},
        "meets_target": row.meets_target,
        "price_usd_per_h": row.price_per_h,
        "price_usd_per_million_samples": row.price_per_million,
        "workload_hours": row.hours,
        "workload_cost_usd": row.cost,
        "stranded_cores": row.stranded_cores,
        "idle_gpus": row.idle_gpus,
        "notes": "; ".join(row.notes),
    }


def table_text(rows: Iterable[Row], header: bool = True) -> str:
    """The rows as CSV; an unknown value is empty, numbers are as exact as they were."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(record_of(row) for row in rows)
    return stream.getvalue()


class ResultFile:
    """A CSV file that grows by a line for each finished row, and is put in order at the end."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.done = read_results(path) if self.path.exists() else {}
        try:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write("" if self.done or self.path.stat().st_size else table_text(()))
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}; name a file that you can write") from None

    def append(self, row: Row) -> None:
        """Add a row; it is on disk when this returns."""
        try:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(table_text([row], header=False))
        except OSError as error:
            raise CoresimError(f"cannot write {self.path}: {error.strerror}; the rows so far are kept") from None

    def finish(self, rows: Iterable[Row]) -> None:
        """Replace the file by the whole table in the order of the fleet."""
        write_text(self.path, table_text(rows))


def read_results(path: str | os.PathLike[str]) -> dict[str, Outcome]:
    """The outcomes in a table, by key; a line that was cut off is left out.

    Raises:
        InputError: not such a table.
    """
    reader = csv.DictReader(read_text(path).splitlines())
    if reader.fieldnames is not None and tuple(reader.fieldnames) != COLUMNS:
        raise InputError(f"{path}: not a table of coresim plan; name another file, or move this one away")
    found = {}
    for record in reader:
        outcome = _outcome(record)
        if outcome:
            found[record["key"]] = outcome
    return found


def _outcome(record: Mapping[str, str | None]) -> Outcome | None:
    if any(record[column] is None for column in COLUMNS):
        return None
    values: dict[str, Any] = {
        name: str(record[column]) if name == "basis" else _number(str(record[column]), name in _WHOLE)
        for column, name in _OUTCOME.items()
    }
    needed = [item.name for item in fields(Outcome) if item.name != "cores_needed"]
    return None if any(values[name] is None for name in needed) else Outcome(**values)


def _number(text: str, whole: bool) -> Any:
    try:
        return int(text) if whole else float(text)
    except ValueError:
        return None
