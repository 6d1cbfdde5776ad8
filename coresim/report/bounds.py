"""What theory allows a setting, beside what is simulated."""

from __future__ import annotations

from coresim.model.pipeline import Pipeline
from coresim.theory.balanced import batch_rate_bounds
from coresim.theory.bounds import binding, bounds


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
