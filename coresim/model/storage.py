"""Storage of samples: recorded tiers, and the time to fetch a sample from one.

The rows are in ``coresim/data/storage.csv``: what makers and providers publish, each with its source. They stand in for
a storage that is not here to be measured; where it is, `coresim.measure.storage` measures it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from coresim.errors import InputError
from coresim.files import DATA, read_text
from coresim.model.page_cache import Misses, miss_share
from coresim.model.service import Service, empirical

if TYPE_CHECKING:
    from coresim.model.scenario import Scenario

#: Relative standard uncertainty of a published figure on another's system: a judgement, on top of a stated range.
JUDGED = 0.25
#: Number of values that give a share of misses to a simulation.
PARTS = 200
_TEXTS = ("name", "tier", "what", "certainty", "source", "notes")


@dataclass(frozen=True)
class Tier:
    """One row: a kind of storage, idle but for this job; None: the source states none."""

    name: str  # as in ``host.storage``
    tier: str  # HDD, SSD, network or object store
    what: str
    latency_low_s: float  # from asking to the first byte, as far apart as the source states
    latency_high_s: float
    stream_bytes_per_s: float | None  # what one read gets; None: all of the bandwidth
    bandwidth_bytes_per_s: float | None  # of all reads together
    iops: float | None  # reads/s of all together; None: as many as the latency allows
    concurrency: float | None  # reads that are served at once
    certainty: str  # ``data sheet`` or ``documentation`` (of a provider)
    source: str
    notes: str  # what was taken from the source, and how

    def read_time(self, size: float) -> Service:
        """Reading ``size`` bytes alone: latency (the geometric middle of its range) and transfer, s."""
        latency = math.sqrt(self.latency_low_s * self.latency_high_s)
        transfer = size / (self.stream_bytes_per_s or self.bandwidth_bytes_per_s or math.inf)
        # The range is taken as two standard deviations each way, in its logarithm.
        spread = math.log(self.latency_high_s / self.latency_low_s) / 4 * latency / (latency + transfer)
        return Service(latency + transfer, uncertainty=math.hypot(JUDGED, spread))

    def streams(self, size: float) -> float | None:
        """Reads of ``size`` bytes that run at once at full speed; None: no limit is known.

        By Little's law (reads at once = rate x time of one), from each limit on the rate; a sample is one read.
        """
        seconds = self.read_time(size).mean
        limits = [self.concurrency]
        limits.append(None if self.iops is None else self.iops * seconds)
        limits.append(None if self.bandwidth_bytes_per_s is None else self.bandwidth_bytes_per_s / size * seconds)
        return min((limit for limit in limits if limit is not None), default=None)


@lru_cache(maxsize=1)
def tiers() -> Mapping[str, Tier]:
    """Every recorded tier by name, in file order."""
    rows = csv.DictReader(read_text(DATA / "storage.csv").splitlines())
    found = (Tier(**{key: _read(key, value) for key, value in row.items()}) for row in rows)
    return MappingProxyType({tier.name: tier for tier in found})


def _read(key: str, value: str) -> Any:
    return value if key in _TEXTS else float(value) if value else None


def data_bytes(scenario: Scenario) -> float | None:
    """Bytes of the stored set: as given, or of all samples of an epoch; None where neither is known."""
    work = scenario.workload
    if work.dataset_bytes is not None or work.samples_per_epoch is None or work.sample_bytes is None:
        return work.dataset_bytes
    return work.samples_per_epoch * work.sample_bytes


def misses_of(scenario: Scenario) -> Misses | None:
    """The share of reads that the page cache misses if it has all of the memory; None: a size is not known."""
    size, memory = data_bytes(scenario), scenario.host.memory_bytes
    return None if size is None or memory is None else miss_share(size, memory)


def from_storage(scenario: Scenario) -> Scenario:
    """The scenario with reads from the tier that ``host.storage`` names, except those that the page cache serves.

    Raises:
        InputError: the size of a sample is not known.
    """
    name, size = scenario.host.storage, scenario.workload.sample_bytes
    if name is None:
        return scenario
    if size is None:
        raise InputError(f"workload.sample_bytes: missing; host.storage = {name!r} needs the bytes of a stored sample")
    fetch = missing(tiers()[name].read_time(size), misses_of(scenario))
    streams = scenario.host.storage_streams or tiers()[name].streams(size)
    work, host = replace(scenario.workload, fetch=fetch), replace(scenario.host, storage_streams=streams)
    return replace(scenario, workload=work, host=host)


def without_tier(scenario: Scenario) -> Scenario:
    """The scenario that `from_storage` turns into this one; itself, if its fetch time is not that of the tier."""
    if scenario.host.storage is None or scenario.workload.sample_bytes is None:
        return scenario
    own = replace(scenario, workload=replace(scenario.workload, fetch=Service(0.0)))
    bare = replace(own, host=replace(own.host, storage_streams=None))
    return next((found for found in (bare, own) if from_storage(found) == scenario), scenario)


def missing(read: Service, misses: Misses | None) -> Service:
    """The time that a read waits when only a share of the reads misses the page cache; without ``misses``, all do.

    The other reads wait for nothing: copying from the cache is work, and part of preprocessing.
    """
    if misses is None or misses.share >= 1.0 or read.is_zero:
        return read
    late = round(misses.share * PARTS)
    if not late:
        return Service(0.0)
    values = read.values or (read.mean,)
    chosen = tuple(values[place * len(values) // late] for place in range(late))
    spread = math.hypot(read.uncertainty, misses.uncertainty / misses.share)
    found = empirical((*chosen, *(0.0,) * (PARTS - late)), spread)
    return replace(found.scaled(read.mean * misses.share / found.mean), uncertainty=spread)


def stored(tables: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A scenario's tables with samples read from the tier ``name``, whatever they said of fetching."""
    found = {key: dict(table) if isinstance(table, Mapping) else table for key, table in tables.items()}
    for section, key in (("workload", "fetch"), ("host", "storage_streams")):
        if isinstance(found.get(section), dict):
            found[section].pop(key, None)
    host = found.setdefault("host", {})
    if isinstance(host, dict):
        host["storage"] = name
    return found
