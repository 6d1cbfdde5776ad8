"""One simulated setting as a section, with its theoretical bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coresim.model.pipeline import Pipeline
from coresim.report.content import Paragraph, Section
from coresim.report.text import interval_sources
from coresim.report.words import interval, percent, plural
from coresim.sim.estimate import Estimate
from coresim.theory.balanced import batch_rate_bounds
from coresim.theory.bounds import binding, bounds
from coresim.units import format_duration


def estimate_shares(estimate: Estimate, counted: bool = True) -> dict[str, Mapping[str, float]]:
    """The shares of their time that accelerator, trainer and each stage's servers spend in each state.

    The time without a ready batch is split by where the next batch was just then; that need not be its bottleneck.
    ``counted``: the names of stages include the number of their servers.
    """
    found: dict[str, Mapping[str, float]] = {
        "accelerator": estimate.accelerator, "starved, next batch in": estimate.starved_by, "trainer": estimate.trainer
    }  # fmt: skip
    for station in estimate.stations:
        states = {name: share for name, share in station.items() if name not in ("name", "servers")}
        servers = f" ({plural(station['servers'], 'server')})" if counted else ""
        found[f"{station['name']}{servers}"] = states
    return found


def estimate_section(estimate: Estimate, setting: Mapping[str, object], more: Iterable[str] = ()) -> Section:
    """One simulated setting with its times, and ``more`` lines."""
    title = ", ".join(f"{name} {value}" for name, value in setting.items() if value is not None)
    found = (
        f"GPU idle {interval(estimate)}, throughput {estimate.throughput_samples_per_s:.1f} samples/s,"
        f" makespan {format_duration(estimate.makespan_s)}, {estimate.busy_cores:.2f} cores busy"
    )
    shares = {group: states for group, states in estimate_shares(estimate).items() if any(states.values())}
    where = (f"{group}: {_list(states)}" for group, states in shares.items())
    lines = (f"Simulated: {title}", found, *where, interval_sources(estimate), *more)
    return Section("", tuple(map(Paragraph, lines)))


def _list(shares: Mapping[str, float]) -> str:
    shown = {name.replace("_", " "): value for name, value in shares.items() if value >= 0.0005}
    return ", ".join(f"{name} {percent(value)}" for name, value in shown.items()) or "nothing"


def bound_lines(pipeline: Pipeline) -> list[str]:
    """The tightest of the bounds on each accelerator's rate; both balanced job bounds where they hold."""
    found = bounds(pipeline)
    if not found:
        return []
    tightest, balanced = binding(found), batch_rate_bounds(pipeline)
    lines = [f"Bound by {tightest.name}: {tightest.numbers}"]
    if balanced:
        low, high = balanced
        lines.append(f"Balanced job bounds (exponential times, single servers): {low:.4g} to {high:.4g} batches/s")
    return lines
