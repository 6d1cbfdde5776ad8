"""Plain text of one simulated setting."""

from __future__ import annotations

from collections.abc import Mapping

from coresim.report.text import interval_sources
from coresim.report.words import interval, percent, plural
from coresim.sim.estimate import Estimate
from coresim.units import format_duration


def estimate_text(estimate: Estimate, setting: Mapping[str, object]) -> str:
    """One simulated setting."""
    title = ", ".join(f"{name} {value}" for name, value in setting.items() if value is not None)
    lines = [
        f"Simulated: {title}",
        f"GPU idle {interval(estimate)}, throughput {estimate.throughput_samples_per_s:.1f} samples/s,"
        f" makespan {format_duration(estimate.makespan_s)}, {estimate.busy_cores:.2f} cores busy",
        "Accelerator: " + _list(estimate.accelerator),
        "Trainer:     " + _list(estimate.trainer),
    ]
    if any(estimate.starved_by.values()):
        lines.append("Starved by:  " + _list(estimate.starved_by))
    for station in estimate.stations:
        shares = {name: share for name, share in station.items() if name not in ("name", "servers")}
        lines.append(f"{station['name']} ({plural(station['servers'], 'server')}): {_list(shares)}")
    return "\n".join([*lines, interval_sources(estimate)])


def _list(shares: Mapping[str, float]) -> str:
    shown = {name.replace("_", " "): value for name, value in shares.items() if value >= 0.0005}
    return ", ".join(f"{name} {percent(value)}" for name, value in shown.items()) or "nothing"
