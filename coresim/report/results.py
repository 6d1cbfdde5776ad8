"""The tidy table of a fleet plan, written row by row as pairs finish, so that a stopped plan can be continued."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from coresim.errors import CoresimError, InputError
from coresim.files import read_text, write_text
from coresim.fleet.plan import Row
from coresim.fleet.task import Outcome
from coresim.report.records import Key, Record, keys
from coresim.report.words import csv_text
from coresim.units import in_bounds

#: The columns of a row; empty, or null in JSON, where a fact is not known. Those of the outcome are what a rerun needs.
ROW = Record(
    Key("key", "text"),
    Key("workload", "text", "workload.name"),
    Key("machine", "text", "candidate.name"),
    Key("option", "option"),
    Key("gpu", "text?", lambda row: row.candidate.gpu or row.workload.gpu),
    Key("gpus", "whole", "candidate.gpu_count"),
    Key("cores_per_gpu_needed", "whole?", "outcome.minimum_cores"),
    Key("cores_per_gpu_had", "amount", "outcome.cores_had"),
    Key("workers_per_gpu", "whole", "outcome.workers"),
    *keys("whole", "prefetch_factor", of="outcome"),
    *keys("share", "gpu_idle", "gpu_idle_low", "gpu_idle_high", of="outcome"),
    Key("throughput_samples_per_s", "amount", "outcome.throughput"),
    *keys("text", "provenance", of="outcome"),
    *keys("share?", "confidence", of="outcome"),
    Key("meets_target", "truth"),
    Key("price_usd_per_h", "amount?", "price_per_h"),
    Key("price_usd_per_million_samples", "amount?", "price_per_million"),
    Key("workload_hours", "amount", "hours"),
    Key("workload_cost_usd", "amount?", "cost"),
    Key("stranded_cores", "amount?"),
    Key("idle_gpus", "amount"),
    Key("notes", "text", lambda row: "; ".join(row.notes)),
)
COLUMNS = tuple(key.name for key in ROW.keys)
#: Field of `Outcome` -> its key.
_OUTCOME = {f"{key.source}".removeprefix("outcome."): key for key in ROW.keys if f"{key.source}".startswith("outcome.")}


def table_text(rows: Iterable[Row], header: bool = True) -> str:
    """The rows as CSV."""
    return csv_text(COLUMNS, map(ROW.write, rows), header)


class ResultFile:
    """A CSV file that grows by a line for each finished row, and is put in order at the end.

    Attributes:
        path: the file.
        done: the outcomes that were in it, by key.
        problem: why rows could not be written, such as a full disk; None while all is well. Earlier rows stay, and
            nothing more is written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.done = read_results(path) if self.path.exists() else {}
        self.problem: str | None = None
        try:
            content = self.path.read_bytes() if self.path.exists() else b""
            beginning = "" if content.endswith(b"\n") else "\n"  # after a line that was cut off
            self._add(beginning if content else table_text(()))
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}; name a file that you can write") from None

    def append(self, row: Row) -> None:
        """Add a row; it is on disk when this returns, unless there is a `problem`."""
        if self.problem is None:
            self._add(table_text([row], header=False))

    def finish(self, rows: Iterable[Row]) -> None:
        """Replace the file by the whole table in the order of the fleet; if that fails, it stays as it is."""
        if self.problem is None:
            try:
                write_text(self.path, table_text(rows))
            except CoresimError as error:
                self.problem = str(error)

    def _add(self, text: str) -> None:
        with self.path.open("ab", buffering=0) as stream:
            size, left = stream.seek(0, os.SEEK_END), text.encode(errors="replace")
            try:
                while left:
                    left = left[stream.write(left) :]
            except OSError as error:
                self.problem = f"{self.path}: {error.strerror}"
                os.truncate(self.path, size)


def read_results(path: str | os.PathLike[str]) -> dict[str, Outcome]:
    """The outcomes in a table, by key; a line that was cut off is left out. InputError if it is no such table."""
    reader = csv.DictReader(read_text(path).splitlines())
    found = {}
    try:
        # Tables of an earlier coresim call this column so.
        reader.fieldnames = [{"basis": "provenance"}.get(name, name) for name in reader.fieldnames or ()] or None
        if reader.fieldnames is not None and tuple(reader.fieldnames) != COLUMNS:
            raise InputError(f"{path}: not a table of coresim plan; name another file, or move this one away")
        for record in reader:
            outcome = _outcome(record)
            if outcome:
                found[record["key"]] = outcome
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num}: {error}; name another file, or move this one away") from None
    return found


def _outcome(record: Mapping[str, str | None]) -> Outcome | None:
    if any(record[column] is None for column in COLUMNS):
        return None
    values = {name: _value(str(record[key.name]), str(key.kind)) for name, key in _OUTCOME.items()}
    # Where no core count will do, none does with any confidence.
    unknown = ("minimum_cores", "confidence") if values["minimum_cores"] is None else ()
    needed = [item.name for item in fields(Outcome) if item.name not in unknown]
    return None if any(values[name] is None for name in needed) else Outcome(**values)


def _value(text: str, kind: str) -> Any:
    """The value of a cell; None if it should be a number and is none."""
    if kind == "text":
        return text
    try:
        number = int(text) if kind.startswith("whole") else float(text)
    except ValueError:
        return None
    return number if in_bounds(number) else None
