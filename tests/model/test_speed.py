"""s(k): what is measured is found again, evidence narrows what is assumed, and nothing is claimed beyond it."""

from __future__ import annotations

import math

import pytest

from coresim.errors import InputError
from coresim.model.lock import longer
from coresim.model.speed import SpeedTable, fit
from coresim.model.speed_draws import ASSUMED, CORNER, Evidence, SpeedPoint, Spread

CORES = 16


def stretch(streams: float, ceiling: float) -> float:
    return ((1 + (streams / ceiling) ** CORNER) / (1 + ceiling**-CORNER)) ** (1 / CORNER)


def true_speed(k: float, memory: float, ceiling: float, droop: float = 0.0, overhead: float = 0.0) -> float:
    clock = 1 - droop * (k - 1) / (CORES - 1)
    slowed = 1 - memory + memory * stretch(k, ceiling)
    return clock / slowed / (1 + overhead * (1 - 1 / k))


def curve(counts: range, exact: float = 0.01, **job: float) -> tuple[SpeedPoint, ...]:
    return tuple(SpeedPoint(k, true_speed(k, **job), exact) for k in counts)


def bandwidth(counts: range, ceiling: float) -> tuple[SpeedPoint, ...]:
    return tuple(SpeedPoint(k, 10e9 * k / stretch(k, ceiling), 0.02) for k in counts)


def widths(table: SpeedTable) -> float:
    return table.uncertainties[CORES - 1]


@pytest.mark.parametrize("memory", [0.05, 0.3, 0.7])
def test_a_curve_measured_to_the_end_is_found_again(memory: float) -> None:
    job = {"memory": memory, "ceiling": 6.0, "droop": 0.1, "overhead": 0.05}
    found = fit(Evidence(speeds=curve(range(1, CORES + 1), **job), cores=CORES), CORES)
    for k in range(1, CORES + 1):
        assert found.values[k - 1] == pytest.approx(true_speed(k, **job), rel=0.03)
    assert found.values[0] == 1.0 and found.uncertainties[0] == 0.0


@pytest.mark.parametrize("memory", [0.05, 0.3, 0.7])
def test_pressure_and_bandwidth_on_few_cores_tell_of_many(memory: float) -> None:
    """Four cores of a host whose memory six of them fill: bandwidth gives the ceiling, pressure the fraction."""
    ceiling, job = 3.0, {"memory": memory, "ceiling": 3.0}
    pressure = tuple(SpeedPoint(m, 1 - memory + memory * stretch(1 + m, ceiling), 0.01) for m in (1, 2, 3))
    evidence = Evidence(
        speeds=curve(range(1, 5), **job), bandwidth=bandwidth(range(1, 5), ceiling), pressure=pressure,
        droop=(SpeedPoint(4, 1.0, 0.01),), cores=CORES,
    )  # fmt: skip
    found = fit(evidence, CORES)
    truth = true_speed(CORES, **job)
    assert abs(math.log(found.values[-1] / truth)) < 2.5 * widths(found)
    assert found.values[-1] == pytest.approx(truth, rel=0.25)
    blind = fit(Evidence(speeds=evidence.speeds[:1], cores=CORES), CORES)
    if memory > 0.1:
        assert blind.values[-1] > 1.3 * truth


def test_two_measured_cores_count() -> None:
    slow, fast = (
        fit(Evidence(speeds=(SpeedPoint(1, 1.0, 0.01), SpeedPoint(2, second, 0.01)), cores=CORES), CORES)
        for second in (0.85, 0.99)
    )
    assert slow.values[1] == pytest.approx(0.85, abs=0.02) and fast.values[1] == pytest.approx(0.99, abs=0.02)
    assert slow.values[15] < fast.values[15] - 0.05
    assert slow.uncertainties[1] < 0.03


def test_a_job_bound_by_memory_keeps_what_was_measured_of_it() -> None:
    """Measured within 4 %: a loss of 8 % is noise in part, one of 30 % is none."""
    noise = 0.04

    def second(value: float) -> float:
        return fit(Evidence(speeds=(SpeedPoint(1, 1.0, noise), SpeedPoint(2, value, noise)))).values[1]

    assert second(0.7) == pytest.approx(0.7, abs=0.02)
    assert 0.93 < second(0.92) < 0.95 < second(0.98) < 0.98


def test_the_unit_of_the_speeds_does_not_matter() -> None:
    seconds = Evidence(speeds=(SpeedPoint(1, 1.0, 0.02), SpeedPoint(2, 0.9, 0.02)), cores=8)
    rates = Evidence(speeds=(SpeedPoint(1, 250.0, 0.02), SpeedPoint(2, 225.0, 0.02)), cores=8)
    assert fit(seconds).values == pytest.approx(fit(rates).values)


def test_work_never_falls_back_and_speed_never_rises() -> None:
    for cores in (None, 2, 8, 48):
        found = fit(Evidence(cores=cores))
        assert list(found.values) == sorted(found.values, reverse=True)
        work = [k * speed for k, speed in enumerate(found.values, start=1)]
        assert work == sorted(work)
        assert all(0 < u < 0.3 for u in found.uncertainties[1:])


def test_a_known_ceiling_holds_and_is_not_passed_by_a_root() -> None:
    """All eight cores of a host stream no more than three alone: a job that only moves memory gains nothing beyond."""
    evidence = Evidence(
        speeds=curve(range(1, 9), memory=1.0, ceiling=3.0), bandwidth=bandwidth(range(1, 9), 3.0), moved=10e9, cores=8
    )
    found = fit(evidence, 64)
    assert 64 * found.values[63] == pytest.approx(3.0, rel=0.25)


def test_where_the_host_hides_its_cores_a_larger_host_is_meant() -> None:
    hidden, small = fit(Evidence(), 64), fit(Evidence(cores=4), 64)
    assert hidden.values[63] > 1.3 * small.values[63]
    assert "does not say" in hidden.provenance[0] and "4 cores" in small.provenance[0]


def test_the_clock_at_work_replaces_what_is_assumed() -> None:
    held = fit(Evidence(droop=(SpeedPoint(CORES, 1.0, 0.005),), cores=CORES), CORES)
    falls = fit(Evidence(droop=(SpeedPoint(CORES, 0.8, 0.005),), cores=CORES), CORES)
    # Both at once: the clock falls by a fifth, and less than before is left for nothing.
    assert falls.values[-1] / held.values[-1] == pytest.approx(0.82, abs=0.04)
    assert "from its clock" in held.provenance[1] and "assumed" in fit(Evidence(cores=4)).provenance[1]


def test_bytes_that_a_sample_moves_are_memory_time_at_least() -> None:
    alone = (SpeedPoint(1, 10e9, 0.02),)
    light, heavy = (fit(Evidence(bandwidth=alone, moved=moved, cores=CORES), CORES) for moved in (0.1e9, 6e9))
    assert light.values == pytest.approx(fit(Evidence(bandwidth=alone, cores=CORES), CORES).values, rel=0.01)
    assert heavy.values[-1] < 0.85 * light.values[-1]


def test_memory_channels_give_a_ceiling_to_one_core() -> None:
    alone = (SpeedPoint(1, 10e9, 0.02),)
    narrow, wide = (fit(Evidence(bandwidth=alone, channels=c, cores=CORES), CORES) for c in (50e9, 400e9))
    assert narrow.values[-1] < wide.values[-1]


def test_memory_channels_of_a_known_processor_count_where_no_bandwidth_was_measured() -> None:
    narrow, wide = (fit(Evidence(channels=c, cores=CORES), CORES) for c in (50e9, 400e9))
    assumed = fit(Evidence(cores=CORES), CORES)
    assert narrow.values[-1] < assumed.values[-1] < wide.values[-1]
    # Known less exactly than where one core's bandwidth was measured, and so nearer to what is assumed.
    alone = (SpeedPoint(1, ASSUMED.stream.value, 0.02),)
    assert fit(Evidence(bandwidth=alone, channels=50e9, cores=CORES), CORES).values[-1] < narrow.values[-1]


@pytest.mark.parametrize(
    ("measured", "channels", "told"),
    [
        (0, None, "assumed from its cores"),
        (1, None, "assumed from its cores"),
        (0, 100e9, "from what one core usually streams and the processor's memory channels"),
        (1, 100e9, "from one core's bandwidth and the processor's memory channels"),
        (2, None, "from the bandwidth"),
        (2, 100e9, "from the bandwidth and the processor's memory channels"),
    ],
)
def test_the_provenance_says_where_the_ceiling_comes_from(measured: int, channels: float | None, told: str) -> None:
    bandwidth = tuple(SpeedPoint(count, 10e9 * count, 0.04) for count in range(1, measured + 1))
    found = fit(Evidence(bandwidth=bandwidth, channels=channels, cores=CORES), 2)
    assert next(line for line in found.provenance if line.startswith("ceiling")).endswith(told)


def test_siblings_add_what_is_measured_and_nothing_where_there_are_none() -> None:
    assert fit(Evidence(cores=8), 8).sibling == 0.0
    found = fit(Evidence(sibling=(SpeedPoint(2, 1.2, 0.01),), cores=8, threads_per_core=2), 8)
    # Of a core's memory time, which its thread shares with seven other cores, a sibling adds nothing.
    assert 0.12 < found.sibling < 0.2


def test_evidence_that_cannot_be_is_taken_to_be_less_exact() -> None:
    found = fit(
        Evidence(speeds=curve(range(1, 3), memory=0.1, ceiling=8.0), droop=(SpeedPoint(8, 3.0, 1e-3),), cores=8)
    )
    assert all(map(math.isfinite, (*found.values, *found.uncertainties)))


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        ({"speeds": (SpeedPoint(1, 0.0, 0.1),)}, "speeds"), ({"pressure": (SpeedPoint(1, 1.1, 0.0),)}, "pressure"),
        ({"droop": (SpeedPoint(4, math.nan, 0.1),)}, "droop"),
        ({"bandwidth": (SpeedPoint(2, 1e9, 0.1),)}, "one core's"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused(bad: dict[str, tuple[SpeedPoint, ...]], match: str) -> None:
    with pytest.raises(InputError, match=match):
        Evidence(**bad)  # type: ignore[arg-type]


def test_every_factor_is_in_the_provenance_with_where_it_comes_from() -> None:
    told = fit(Evidence(threads_per_core=2, cores=8)).provenance
    assert [line.split(":")[0] for line in told] == ["s(k)", "droop", "memory", "ceiling", "overhead", "siblings"]
    assert all("assumed" in line or "usual" in line for line in told[1:])
    measured = fit(
        Evidence(
            speeds=curve(range(1, 3), memory=0.1, ceiling=8.0), bandwidth=bandwidth(range(1, 3), 8.0), moved=1e9,
            pressure=(SpeedPoint(1, 1.02, 0.02),), droop=(SpeedPoint(2, 0.99, 0.01),),
            sibling=(SpeedPoint(2, 1.1, 0.02),),
            cores=8, threads_per_core=2,
        )
    ).provenance  # fmt: skip
    assert not [line for line in measured if "assumed" in line or "usual" in line]


def test_what_is_assumed_can_be_replaced() -> None:
    sure = fit(Evidence(cores=8), 8, ASSUMED._replace(memory=Spread(0.5, 0.05)))
    assert sure.values[-1] < fit(Evidence(cores=8), 8).values[-1]


def test_threads_under_one_lock_lose_more_than_they_wait() -> None:
    """github:facebookresearch/spdl docs/source/plots/data_format.txt: 717 arrays/s by one thread."""
    assert longer(1) == 1.0 and longer(1000, 0.0) == 1.0
    for threads, published in ((2, 631), (4, 597), (8, 565), (32, 544)):
        assert 1 / longer(threads, 0.3) == pytest.approx(published / 717, rel=0.025)
