"""The comparison of storage formats: the formats, and the table that it recorded."""

from __future__ import annotations

import csv
from pathlib import Path

import formats
import numpy as np
import picture_formats
import pytest


@pytest.mark.slow
def test_times_are_the_least_of_the_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_formats.JpegImages, "count", 1)
    monkeypatch.setattr(formats, "FORMATS", ("Jpeg", "Npy"))
    loads = formats.workloads(str(tmp_path))
    turns = iter([3.0, 2.0, 5.0, 9.0])
    monkeypatch.setattr(formats, "ROUNDS", 2)
    monkeypatch.setattr(formats, "timed_sample", lambda load, index: np.full(3, next(turns)))
    times = formats.cpu_times(loads)
    assert times["Jpeg"].tolist() == [[3.0] * 3] and times["Npy"].tolist() == [[2.0] * 3]


def test_cores_follow_from_the_work() -> None:
    # 1000 samples/s of 4 ms are 4 cores, and the trainer's own is one; with 8 ms the 5 % that may idle pay for it.
    assert formats.cores([4e-3] * 8, ()) == "5"
    assert formats.cores([8e-3] * 8, ()) == "8"
    # A read that waits holds no core, so it takes far fewer than the same time of work does.
    assert int(formats.cores([4e-3] * 8, [4e-3] * 8)) <= 6


def test_the_recorded_table_adds_up() -> None:
    lines = [line for line in formats.TABLE.read_text().splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    assert tuple(rows[0]) == formats.HEADER
    assert [row["format"] for row in rows] == [name.lower() for name in formats.FORMATS]
    for row in rows:
        parts = [float(row[f"{step}_ms"]) for step in formats.STEPS]
        assert sum(parts) == pytest.approx(float(row["cpu_ms"]), abs=2e-3)
        assert float(row["warm_cores"]) >= 0.95 * float(row["cpu_ms"]) * formats.RATE / 1e3 - 1e-9
    transforms = [float(row["transform_ms"]) for row in rows]
    assert max(transforms) < 1.1 * min(transforms), "the same work in every row: measure again on a quieter machine"
