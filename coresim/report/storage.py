"""The recorded storage tiers as a text table and as JSON-ready records; what the page cache misses, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from coresim.model.scenario import Scenario
from coresim.model.storage import Tier, data_bytes, misses_of, tiers
from coresim.units import format_bytes, format_duration

_HEADER = ("storage", "tier", "latency", "bandwidth", "reads/s", "at once", "120 kB read", "certainty", "what it is")
#: A JPEG of a usual size, to compare tiers by.
_SHOWN = 120e3


def storage_table(rows: Sequence[Tier]) -> str:
    """One line per tier, then where each is published."""
    cells = [_HEADER, *(_cells(tier) for tier in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    sources = [f"  {tier.name}: {tier.source}. {tier.notes}." for tier in rows]
    return "\n".join([*(line.rstrip() for line in lines), "", "Published in, and what was taken from it", *sources])


def storage_document(rows: Sequence[Tier]) -> dict[str, Any]:
    """The rows with every field, units in the keys, under a format name and version."""
    return {"format": "coresim-storage", "schema_version": 1, "rows": [asdict(tier) for tier in rows]}


def _cells(tier: Tier) -> tuple[str, ...]:
    low, high = format_duration(tier.latency_low_s), format_duration(tier.latency_high_s)
    rate = tier.stream_bytes_per_s or tier.bandwidth_bytes_per_s or 0.0
    streams = tier.streams(_SHOWN)
    return (
        tier.name,
        tier.tier,
        low if low == high else f"{low} to {high}",
        f"{format_bytes(rate)}/s{' each' if tier.stream_bytes_per_s else ''}",
        "" if tier.iops is None else f"{tier.iops:g}",
        "" if streams is None else f"{streams:.3g}",
        format_duration(tier.read_time(_SHOWN).mean),
        tier.certainty,
        tier.what,
    )


def storage_lines(scenario: Scenario) -> list[str]:
    """What an answer rests on: the tier that samples are read from, and what the page cache misses."""
    lines, fetch = [], scenario.workload.fetch
    if scenario.host.storage is not None:
        tier = tiers()[scenario.host.storage]
        lines.append(f"samples from {tier.what} ({tier.certainty}: {tier.source})")
    misses = misses_of(scenario)
    if misses is None:
        return lines
    size, memory = format_bytes(data_bytes(scenario) or 0.0), format_bytes(scenario.host.memory_bytes or 0.0)
    sizes = f"a data set of {size} in {memory}"
    if misses.share and not fetch.is_zero:
        lines.append(
            f"{sizes} of memory: {100 * misses.share:.0f} % of reads miss the page cache"
            f" (+-{200 * misses.uncertainty:.0f} points; fewer bytes are left for it when the job itself needs memory)"
        )
    elif scenario.host.storage is not None and fetch.is_zero:
        lines.append(
            f"{sizes} of memory stays there: storage is read in the first epoch only, which is not predicted; is the"
            " real set larger, set workload.dataset_bytes"
        )
    return lines
