"""Turn the measurements of a profile into evidence for `coresim.model.speed`, and this into s(k).

=================== =====================================================================================
measurement          what it is
=================== =====================================================================================
``scaling.K``        CPU time of one sample, with its part of the collation, with K cores at work
``bandwidth.triad.K``  bytes per second of K streaming cores together
``pressure.P``       the job's CPU time on one core beside streams that are worth P % of one core's
``spin.K``           CPU time of a loop that touches no memory, on K cores at once; not on a virtual machine
``sibling.T``        CPU time of one sample with T hardware threads of one core at work on the job
=================== =====================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from coresim import stats
from coresim.errors import InputError
from coresim.machines.machines import channels_of
from coresim.model.host import HostFacts
from coresim.model.measurement import Measurement
from coresim.model.profile_scenario import relative_error
from coresim.model.speed import SpeedTable, fit
from coresim.model.speed_draws import Evidence, SpeedPoint

#: A measured ratio is known no better than this: clocks, heat, placement.
LEAST_DEVIATION = 0.01
#: And a bandwidth no better than this, so that the ratio of two is known within 5.7 %: the bandwidth of two cores over
#: that of one was 0.96, 1.05, 1.06, 1.07 and 1.12 in five measurements in a row on a quiet virtual machine. Taken as
#: exact, the lowest made s(10) 0.53, the others 0.77 to 0.81.
BANDWIDTH_DEVIATION = 0.04
#: s(k) is given for so many cores, or for as many as were measured.
MOST_CORES = 64
#: A hypervisor that moves its CPUs lets two of them share a path to the memory at one moment, and have one each at the
#: next. On one such machine two streamed 1.04 to 2.17 times as much as one, and samples beside a stream mostly took
#: 1.05 to 1.3 times as long (1.75 at most), within minutes. These are half of the usual ranges, as relative standard
#: uncertainties with two CPUs. The places of more CPUs even out: divided by the root of their number.
PLACED_BANDWIDTH, PLACED_PRESSURE = 0.3, 0.1
TRIAD = "bandwidth.triad."


def speed_table(found: Sequence[Measurement], host: HostFacts, sample_bytes: float | None = None) -> SpeedTable:
    """s(1), s(2), ... of a job on this host.

    ``sample_bytes``: bytes that preparing one sample reads and writes at the least; None where not known.

    Raises:
        InputError: ``scaling.1`` is not among the measurements.
    """
    known = evidence(found, host, sample_bytes)
    table = fit(known, max(MOST_CORES, *(int(point.at) for point in known.speeds)))
    if not host.hypervisor or not (known.bandwidth or known.pressure):
        return table
    moved = f"a hypervisor may move its CPUs: what two stream together is known within {PLACED_BANDWIDTH:.0%}"
    return replace(table, provenance=(*table.provenance, moved))


def evidence(found: Sequence[Measurement], host: HostFacts, sample_bytes: float | None = None) -> Evidence:
    """The measurements as evidence, and what the host's own facts add.

    On a virtual machine the clock is no evidence, because other cores of the processor work, or rest, meanwhile. In
    eight measurements within ten minutes, two cores of such a machine spun 0.64 to 1.12 times as fast as one.
    """
    scaling = _named(found, "scaling.")
    if 1 not in scaling:
        raise InputError("no scaling.1 among the measurements: measure the scaling again, from one core up")
    noise = _noise(scaling.values())
    alone = stats.median(scaling[1].flat)
    # A virtual machine shows its own share of the cores that share its memory and its power.
    whole = host.physical_cores is not None and host.hypervisor is False
    rates = _named(found, TRIAD)
    deviations = {k: max(BANDWIDTH_DEVIATION, _noise([m])) for k, m in rates.items()}
    bandwidth = [SpeedPoint(k, stats.median(m.flat), deviations[k]) for k, m in rates.items()] if 1 in rates else []
    pressure = [point._replace(at=point.at / 100) for point in _ratios(_named(found, "pressure."), 0)]
    if host.hypervisor:
        bandwidth = [_placed(point, PLACED_BANDWIDTH, point.at - 1) for point in bandwidth]
        pressure = [_placed(point, PLACED_PRESSURE, point.at) for point in pressure]
    return Evidence(
        speeds=tuple(SpeedPoint(k, alone / stats.median(m.flat), noise) for k, m in scaling.items()),
        bandwidth=tuple(bandwidth),
        droop=() if host.hypervisor else _ratios(_named(found, "spin."), 1, faster=True) or _clocks(host),
        pressure=tuple(pressure),
        sibling=tuple(p._replace(value=2.0 / p.value) for p in _ratios(_named(found, "sibling."), 1)),
        channels=channels_of(host.cpu_model, host.sockets) if whole else None,
        moved=sample_bytes / alone if sample_bytes else None,
        cores=host.physical_cores if whole else None,
        threads_per_core=host.threads_per_core or 1,
    )


def _named(found: Sequence[Measurement], prefix: str) -> dict[int, Measurement]:
    """The measurements by the number at the end of their names, in order."""
    named = {m.name.removeprefix(prefix): m for m in found if m.name.startswith(prefix)}
    return {int(number): named[number] for number in sorted((n for n in named if n.isdecimal()), key=int)}


def _ratios(named: Mapping[int, Measurement], base: int, *, faster: bool = False) -> tuple[SpeedPoint, ...]:
    """How much longer it took than at ``base``, or how much faster it was; empty where there is no base."""
    if base not in named:
        return ()
    noise, alone = _noise(named.values()), stats.median(named[base].flat)
    taken = {number: stats.median(m.flat) / alone for number, m in named.items() if number != base}
    return tuple(SpeedPoint(number, 1 / value if faster else value, noise) for number, value in taken.items())


def _clocks(host: HostFacts) -> tuple[SpeedPoint, ...]:
    """The clock with all cores busy beside that of one, as the system states it; for where no spin was measured."""
    low, high, cores = host.clock_base_hz, host.clock_max_hz, host.physical_cores
    return (all_core_clock(low, high, cores),) if low and high and cores and low < high else ()


def all_core_clock(low: float, high: float, cores: int) -> SpeedPoint:
    """All cores together run about half-way between the base clock ``low`` and the highest of one, in one unit."""
    return SpeedPoint(cores, (1 + low / high) / 2, (1 - low / high) / 4)


def _placed(point: SpeedPoint, deviation: float, others: float) -> SpeedPoint:
    """The point with the uncertainty that the unknown places of so many other CPUs add."""
    more = deviation / math.sqrt(max(1.0, others)) if others > 0 else 0.0
    return point._replace(uncertainty=math.hypot(point.uncertainty, more))


def _noise(measurements: Iterable[Measurement]) -> float:
    """Relative standard error of a mean, pooled over the measurements; `LEAST_DEVIATION` at least.

    With one process, its values are the repeats. With several, the processes are: their places and neighbours differ.
    """
    return max(LEAST_DEVIATION, math.sqrt(stats.mean([relative_error(m.values) ** 2 for m in measurements])))
