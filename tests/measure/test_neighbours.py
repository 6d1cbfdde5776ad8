"""What neighbours do to a core, and the clock of the machine: shapes and names, never seconds."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from coresim.measure import host, neighbours, topology
from coresim.measure.protocol import Context
from coresim.measure.system_root import SystemRoot
from coresim.measure.worker_pool import physical_cpus, press, serve, worker_pool
from coresim.model.host import HostFacts

CPUS = physical_cpus()[:2]


pytestmark = pytest.mark.usefixtures("no_child_is_left")


def test_the_clock_range_of_the_first_cpu_that_tells(tmp_path: Path) -> None:
    def tells(cpu: int, **files: str) -> None:
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text)

    tells(0, cpuinfo_max_freq="3400000\n")
    assert topology.clock_range(SystemRoot(tmp_path), [0, 1]) == (None, None)
    tells(1, cpuinfo_max_freq="3400000\n", base_frequency="2400000\n")
    assert topology.clock_range(SystemRoot(tmp_path), [0, 1]) == (2_400_000_000, 3_400_000_000)
    (tmp_path / "sys/devices/system/cpu/online").write_text("0-1\n")
    facts = host.read_host(tmp_path, sleep=lambda _: None)
    again = HostFacts.from_dict(facts.to_dict())
    assert (again.clock_base_hz, again.clock_max_hz) == (2_400_000_000, 3_400_000_000)


def test_pressures_end_with_all_other_cores() -> None:
    assert neighbours.pressures(0) == []
    assert neighbours.pressures(1) == [(1, 0.5), (1, 1.0)]
    assert neighbours.pressures(6) == [(1, 0.5), (1, 1.0), (2, 1.0), (4, 1.0), (6, 1.0)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of two cores and a small cache."""
    monkeypatch.setattr(neighbours, "physical_cpus", lambda: CPUS)
    monkeypatch.setattr(neighbours, "cache_size", lambda: 2**20)


@pytest.mark.skipif(len(CPUS) < 2, reason="one core presses on nobody")
def test_a_job_under_pressure_stays_on_its_core_and_goes_back(small: None) -> None:
    places: set[frozenset[int]] = set()
    usual = os.sched_getaffinity(0)

    def work() -> None:
        places.add(frozenset(os.sched_getaffinity(0)))
        sum(range(20_000))

    told: list[float] = []
    found = neighbours.measure_pressure(work, Context(0.3, told.append))
    assert [m.name for m in found] == ["pressure.0", "pressure.50", "pressure.100"]
    assert all(value > 0 for m in found for value in m.flat)
    assert places == {frozenset(CPUS[:1])} and os.sched_getaffinity(0) == usual
    assert told == sorted(told) and 0 <= told[0] <= told[-1] <= 1


@pytest.mark.skipif(len(CPUS) < 2, reason="one core presses on nobody")
def test_streams_stream_when_told_and_rest_when_told(small: None) -> None:
    def busy(process: psutil.Process) -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    before = set(psutil.Process().children())
    pool = worker_pool(serve, neighbours.pieces, 1 << 22, cpus=CPUS[1:], doing="pressing")
    with pool as children:
        (child,) = set(psutil.Process().children()) - before
        press(children, 1, 1.0)
        start = busy(child)
        while busy(child) < start + 0.05:
            pass
        press(children, 0, 1.0)
        rested = busy(child)
        sum(range(3_000_000))
        assert busy(child) - rested < 0.05


def test_one_core_presses_and_spins_with_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "physical_cpus", lambda: CPUS[:1])
    assert neighbours.measure_pressure(lambda: None, Context(0.1)) == [] == neighbours.measure_droop(Context(0.1))


@pytest.mark.skipif(len(CPUS) < 2, reason="all cores are one")
def test_a_spin_on_one_and_on_all_cores(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a clock that stands still all rounds are made, so that each process has its turn, however busy the machine is.
    monkeypatch.setattr("coresim.measure.worker_pool.time", SimpleNamespace(monotonic=lambda: 0.0))
    told: list[float] = []
    found = neighbours.measure_droop(Context(0.2, told.append))
    assert [m.name for m in found] == ["spin.1", "spin.2"]
    assert [len(m.values) for m in found] == [2, 2] and all(value > 0 for m in found for value in m.flat)
    assert "all" in found[0].how and told


def test_an_interrupted_measurement_leaves_the_process_where_it_was(small: None) -> None:
    class Stop(Exception):
        pass

    usual = os.sched_getaffinity(0)

    def stop(done: float) -> Any:
        raise Stop

    if len(CPUS) > 1:
        with pytest.raises(Stop):
            neighbours.measure_pressure(lambda: None, Context(0.1, stop))
    assert os.sched_getaffinity(0) == usual


def test_siblings_are_two_allowed_threads_of_one_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cpu, text in {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}.items():
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(text + "\n")
    for allowed, pair in (({0, 1, 2, 3}, [0, 2]), ({0, 1, 3}, [1, 3]), ({0, 1}, None)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, allowed=allowed: allowed)
        assert neighbours.sibling_cpus(tmp_path) == pair
        assert neighbours.sibling_cpus(tmp_path / "none") is None


def test_the_same_work_on_both_threads_of_a_core_and_nobody_is_left_behind() -> None:
    usual = os.sched_getaffinity(0)
    places: list[frozenset[int]] = []

    def work() -> None:
        places.append(frozenset(os.sched_getaffinity(0)))
        sum(range(20_000))

    found = neighbours.measure_siblings(work, (CPUS[0], CPUS[-1]), Context(0.1))
    assert [m.name for m in found] == ["sibling.1", "sibling.2"] and all(v > 0 for m in found for v in m.flat)
    assert set(places) == {frozenset(CPUS[:1])} and os.sched_getaffinity(0) == usual


def test_an_interruption_leaves_no_work_on_the_other_thread() -> None:
    calls = iter(range(10**9))

    def work() -> None:
        if next(calls) == 40:
            raise KeyboardInterrupt
        sum(range(20_000))

    with pytest.raises(KeyboardInterrupt):
        neighbours.measure_siblings(work, (CPUS[0], CPUS[-1]), Context(600.0))
