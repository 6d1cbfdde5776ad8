"""The comparison of storage formats: the script, and the table that it recorded."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from coresim.workloads import formats as kinds

SCRIPT = Path(__file__).parents[2] / "calibration" / "formats.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("calibration_formats", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_times_are_the_least_of_the_rounds(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds.JpegImages, "count", 1)
    monkeypatch.setattr(script, "FORMATS", ("Jpeg", "Npy"))
    loads = script.workloads(str(tmp_path))
    turns = iter([3.0, 2.0, 5.0, 9.0])
    monkeypatch.setattr(script, "ROUNDS", 2)
    monkeypatch.setattr(script, "timed_sample", lambda load, index: np.full(3, next(turns)))
    times = script.cpu_times(loads)
    assert times["Jpeg"].tolist() == [[3.0] * 3] and times["Npy"].tolist() == [[2.0] * 3]


def test_cores_follow_from_the_work(script: ModuleType) -> None:
    # 1000 samples/s of 4 ms are 4 cores, and the trainer's own is one; with 8 ms the 5 % that may idle pay for it.
    assert script.cores([4e-3] * 8, ()) == "5"
    assert script.cores([8e-3] * 8, ()) == "8"
    # A read that waits holds no core, so it takes far fewer than the same time of work does.
    assert int(script.cores([4e-3] * 8, [4e-3] * 8)) <= 6


def test_the_recorded_table_adds_up(script: ModuleType) -> None:
    lines = [line for line in script.TABLE.read_text().splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    assert tuple(rows[0]) == script.HEADER
    assert [row["format"] for row in rows] == [name.lower() for name in script.FORMATS]
    for row in rows:
        parts = [float(row[f"{step}_ms"]) for step in script.STEPS]
        assert sum(parts) == pytest.approx(float(row["cpu_ms"]), abs=2e-3)
        assert float(row["warm_cores"]) >= 0.95 * float(row["cpu_ms"]) * script.RATE / 1e3 - 1e-9
    transforms = [float(row["transform_ms"]) for row in rows]
    assert max(transforms) < 1.1 * min(transforms), "the same work in every row: measure again on a quieter machine"
