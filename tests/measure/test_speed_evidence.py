"""From measurements to s(k): names, shapes, and how exact each is taken to be."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from coresim.errors import InputError
from coresim.measure.speed_evidence import (
    BANDWIDTH_DEVIATION,
    PLACED_BANDWIDTH,
    PLACED_PRESSURE,
    evidence,
    speed_table,
)
from coresim.model.host import CoreTerm, HostFacts
from coresim.model.measurement import Measurement
from coresim.model.profile_scenario import relative_error

HOST = HostFacts(
    (CoreTerm("physical", 16, ""),), physical_cores=16, sockets=2, threads_per_core=2, hypervisor=False,
    cpu_model="AMD EPYC 7742 64-Core Processor",
)  # fmt: skip


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


def test_a_bandwidth_is_known_no_better_than_it_repeats() -> None:
    scaling = measured("scaling.", {1: 0.01})
    found = evidence(scaling + measured("bandwidth.triad.", {1: 10e9, 2: 19e9}), HOST)
    assert [point.uncertainty for point in found.bandwidth] == [BANDWIDTH_DEVIATION] * 2
    noisy = Measurement("bandwidth.triad.1", "", ((10e9,), (15e9,)), "made up")
    known = evidence([*scaling, noisy], HOST).bandwidth
    assert known[0].uncertainty == pytest.approx(relative_error(noisy.values)) and known[0].uncertainty > 0.1
