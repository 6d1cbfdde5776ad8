"""From measurements to s(k), and the micro-benchmarks behind it: shapes and names, never seconds."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from coresim.errors import InputError
from coresim.measure import host, neighbours, topology, worker_pool
from coresim.measure.protocol import Context
from coresim.measure.speed import (
    BANDWIDTH_DEVIATION,
    PLACED_BANDWIDTH,
    PLACED_PRESSURE,
    evidence,
    speed_table,
)
from coresim.measure.system_root import SystemRoot
from coresim.model.host import CoreTerm, HostFacts
from coresim.model.measurement import Measurement
from coresim.model.profile_tables import relative_error

CPUS = worker_pool.physical_cpus()[:2]
HOST = HostFacts(
    (CoreTerm("physical", 16, ""),), physical_cores=16, sockets=2, threads_per_core=2, hypervisor=False,
    cpu_model="AMD EPYC 7742 64-Core Processor",
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def measured(prefix: str, values: dict[int, float], processes: int = 2) -> list[Measurement]:
    return [Measurement(f"{prefix}{k}", "", ((value,),) * processes, "made up") for k, value in values.items()]


def test_each_measurement_is_the_evidence_that_it_is() -> None:
    found = evidence(
        measured("scaling.", {1: 0.010, 2: 0.0125, 10: 0.02})
        + measured("bandwidth.triad.", {1: 10e9, 2: 19e9})
        + measured("bandwidth.copy.", {1: 8e9})  # as older profiles have it
        + measured("pressure.", {0: 0.02, 50: 0.021, 100: 0.024})
        + measured("spin.", {1: 0.001, 16: 0.00125})
        + measured("sibling.", {1: 0.01, 2: 0.016}),
        HOST,
        sample_bytes=1e6,
    )
    assert [point[:2] for point in found.speeds] == [(1, 1.0), (2, pytest.approx(0.8)), (10, pytest.approx(0.5))]
    assert [point[:2] for point in found.bandwidth] == [(1, 10e9), (2, 19e9)]
    assert [point[:2] for point in found.pressure] == [(0.5, pytest.approx(1.05)), (1.0, pytest.approx(1.2))]
    assert [point[:2] for point in found.droop] == [(16, pytest.approx(0.8))]
    assert [point[:2] for point in found.sibling] == [(2, pytest.approx(1.25))]
    assert found.moved == pytest.approx(1e8) and (found.cores, found.threads_per_core) == (16, 2)
    assert found.channels == pytest.approx(2 * 204.8e9)


def test_a_virtual_machine_shows_its_own_share_of_a_host_that_is_not_known() -> None:
    virtual = replace(HOST, hypervisor=True)
    found = evidence(measured("scaling.", {1: 0.01}), virtual)
    assert found.cores is None and found.channels is None


def test_where_a_hypervisor_moves_its_cpus_two_streams_say_little_and_many_say_more() -> None:
    found = (
        measured("scaling.", {1: 0.01, 2: 0.0105})
        + measured("bandwidth.triad.", {1: 10e9, 2: 11e9, 10: 30e9})
        + measured("pressure.", {0: 0.02, 50: 0.021, 100: 0.024, 900: 0.04})
    )
    known, moved = (evidence(found, replace(HOST, hypervisor=virtual)) for virtual in (False, True))
    added = [
        math.sqrt(b.uncertainty**2 - a.uncertainty**2) for a, b in zip(known.bandwidth, moved.bandwidth, strict=True)
    ]
    assert added == pytest.approx([0.0, PLACED_BANDWIDTH, PLACED_BANDWIDTH / 3], abs=1e-9)
    added = [
        math.sqrt(b.uncertainty**2 - a.uncertainty**2) for a, b in zip(known.pressure, moved.pressure, strict=True)
    ]
    assert added == pytest.approx([PLACED_PRESSURE, PLACED_PRESSURE, PLACED_PRESSURE / 3])
    assert known.speeds == moved.speeds


def test_an_answer_hardly_follows_where_a_hypervisor_put_two_cpus() -> None:
    """The two states of one machine: two CPUs that share a path to the memory, and two that have one each."""
    virtual = HostFacts((CoreTerm("affinity", 2, ""),), hypervisor=True)
    scaling, alone = measured("scaling.", {1: 0.0040, 2: 0.0041}), {1: 36e9}
    shared, apart = (
        speed_table(
            scaling
            + measured("bandwidth.triad.", alone | {2: together})
            + measured("pressure.", {0: 0.0150, 50: 0.0150 * half, 100: 0.0150 * full}),
            host,
        )
        for together, half, full, host in ((40e9, 1.12, 1.25, virtual), (72e9, 1.03, 1.05, virtual))
    )
    assert shared.values[9] == pytest.approx(apart.values[9], rel=0.05)
    assert "a hypervisor may move its CPUs" in shared.provenance[-1]


def test_clock_tables_stand_in_where_nothing_was_spun() -> None:
    told = replace(HOST, clock_base_hz=2_000_000_000, clock_max_hz=3_000_000_000)
    point = evidence(measured("scaling.", {1: 0.01}), told).droop[0]
    assert (point.at, point.value) == (16, pytest.approx(5 / 6)) and point.uncertainty == pytest.approx(1 / 12)
    spun = evidence(measured("scaling.", {1: 0.01}) + measured("spin.", {1: 1.0, 16: 1.0}), told)
    assert spun.droop[0].value == 1.0


def test_a_virtual_machine_says_nothing_of_the_clock() -> None:
    virtual = replace(HOST, hypervisor=True, clock_base_hz=2_000_000_000, clock_max_hz=3_000_000_000)
    found = measured("scaling.", {1: 0.010, 2: 0.0106}) + measured("spin.", {1: 0.0005, 2: 0.0009})
    assert evidence(found, virtual).droop == ()
    table = speed_table(found, virtual)
    assert table.values[1] == pytest.approx(1 / 1.06, rel=0.03)
    assert "assumed" in table.provenance[1]


def test_processes_that_differ_are_less_exact() -> None:
    steady = measured("scaling.", {1: 0.01, 2: 0.01})
    restless = [Measurement("scaling.2", "", ((0.009,), (0.011,)), "made up")]
    calm, rough = (evidence(found, HOST).speeds[0].uncertainty for found in (steady, steady[:1] + restless))
    assert calm == 0.01 and rough > 0.05


def test_a_table_needs_one_core() -> None:
    with pytest.raises(InputError, match=r"scaling\.1"):
        speed_table(measured("scaling.", {2: 0.01}), HOST)
    assert len(speed_table(measured("scaling.", {1: 0.01, 80: 0.02}), HOST).values) == 80


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
    with neighbours.streams(CPUS[1:]) as press:
        (child,) = set(psutil.Process().children()) - before
        press(1, 1.0)
        start = busy(child)
        while busy(child) < start + 0.05:
            pass
        press(0, 1.0)
        rested = busy(child)
        sum(range(3_000_000))
        assert busy(child) - rested < 0.05


def test_one_core_presses_and_spins_with_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "physical_cpus", lambda: CPUS[:1])
    assert neighbours.measure_pressure(lambda: None, Context(0.1)) == [] == neighbours.measure_droop(Context(0.1))


@pytest.mark.skipif(len(CPUS) < 2, reason="all cores are one")
def test_a_spin_on_one_and_on_all_cores(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a clock that stands still all rounds are made, so that each process has its turn, however busy the machine is.
    monkeypatch.setattr(worker_pool, "time", SimpleNamespace(monotonic=lambda: 0.0))
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
    for allowed, pair in (({0, 1, 2, 3}, (0, 2)), ({0, 1, 3}, (1, 3)), ({0, 1}, None)):
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


def test_a_bandwidth_is_known_no_better_than_it_repeats() -> None:
    scaling = measured("scaling.", {1: 0.01})
    found = evidence(scaling + measured("bandwidth.triad.", {1: 10e9, 2: 19e9}), HOST)
    assert [point.uncertainty for point in found.bandwidth] == [BANDWIDTH_DEVIATION] * 2
    noisy = Measurement("bandwidth.triad.1", "", ((10e9,), (15e9,)), "made up")
    known = evidence([*scaling, noisy], HOST).bandwidth
    assert known[0].uncertainty == pytest.approx(relative_error(noisy.values)) and known[0].uncertainty > 0.1
