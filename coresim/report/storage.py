"""Where samples are read from and what the page cache misses, in words."""

from __future__ import annotations

from coresim.model.scenario import Scenario
from coresim.model.storage import data_bytes, misses_of, tiers
from coresim.units import format_bytes


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
