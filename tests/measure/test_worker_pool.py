"""At which counts of cores is measured, and on which CPUs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coresim.measure import worker_pool

pytestmark = pytest.mark.usefixtures("no_child_is_left")


def test_many_cores_are_measured_at_some_counts() -> None:
    assert worker_pool.levels(1) == [1] and worker_pool.levels(8) == list(range(1, 9))
    assert worker_pool.levels(64) == [1, 2, 3, 4, 5, 6, 7, 8, 12, 18, 27, 40, 60, 64]


def test_one_hardware_thread_per_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cpu, siblings in {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5", 6: "2,6"}.items():
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 4, 5, 6, 9})
    assert worker_pool.physical_cpus(tmp_path) == (0, 1, 6, 9)
