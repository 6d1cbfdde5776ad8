"""Memory bandwidth for real, in its quickest mode: names and rounds, never seconds; and how large its arrays are."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from kit import by_name

from coresim.measure import bandwidth, worker_pool
from coresim.measure.protocol import Context

pytestmark = pytest.mark.usefixtures("no_child_is_left")


#: Seconds between two looks at the clock, of a budget of 0.3 s.
@pytest.mark.parametrize(("later", "rounds"), [(0.0, 5), (0.2, 3), (1.0, 1)])
def test_three_rounds_stand_behind_a_bandwidth_unless_they_take_long(
    later: float, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = count()
    monkeypatch.setattr(worker_pool, "time", SimpleNamespace(monotonic=lambda: later * next(looks)))
    cpus = worker_pool.physical_cpus()[:2]
    monkeypatch.setattr(bandwidth, "physical_cpus", lambda: cpus)
    monkeypatch.setattr(bandwidth, "cache_size", lambda: 2**20)
    told: list[float] = []
    found = bandwidth.measure_bandwidth(Context(0.3, told.append))
    assert set(by_name(found)) == {f"bandwidth.triad.{k}" for k in range(1, len(cpus) + 1)}
    assert all(value > 1e8 for m in found for value in m.flat)
    assert {len(m.flat) for m in found} == {rounds}
    assert told == sorted(told) and told[0] == 0.0 and told[-1] < 1.0


def test_bandwidth_arrays_leave_memory_to_others(tmp_path: Path) -> None:
    assert bandwidth.array_bytes(cache=2**20, processes=4, memory=2**34) == 2**20
    assert bandwidth.array_bytes(cache=2**30, processes=4, memory=12 * 2**30) == 2**28
    for index, size in enumerate(("32K", "1024K", "36608K")):
        folder = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{index}"
        folder.mkdir(parents=True)
        for name, text in {"size": size, "level": f"{index + 1}", "shared_cpu_list": "0-3"}.items():
            (folder / name).write_text(text + "\n")
    assert bandwidth.cache_size(tmp_path) == 36608 * 1024
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("300\n")
    assert bandwidth.available_memory(tmp_path) == 700
    assert bandwidth.cache_size(tmp_path / "none") == bandwidth.USUAL_CACHE
