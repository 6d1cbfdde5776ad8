"""Cores for a rate of samples, and the inputs that make the number of cores uncertain.

Where cores bind, a batch of B samples that takes D CPU seconds in steps of g seconds needs C = (1 - idle) D / (g s)
cores that each do s CPU seconds per second (`coresim.theory.bounds`). To first order the relative variance of C is the
sum of those of g and of s and, for each time in D, of that time's as its share of D. Cores per 1,000 samples/s,
1000 D / (B s), do not depend on g.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from coresim import stats
from coresim.advise.sweep import Point, pipeline_of
from coresim.model.pipeline import Pipeline
from coresim.model.scenario import Scenario
from coresim.theory.bounds import demands
from coresim.theory.capacity import most_work

LEVEL = 0.95


@dataclass(frozen=True)
class Uncertain:
    """An input, its relative standard uncertainty, and its share of the variance of the number of cores."""

    name: str
    uncertainty: float
    share: float


@dataclass(frozen=True)
class PerRate:
    """Cores that 1,000 samples/s take, with the interval that uncertain inputs give it."""

    cores: float
    low: float
    high: float


def per_rate(scenario: Scenario, point: Point) -> PerRate:
    """Cores for each 1,000 samples/s that are prepared and handed over, with the cores and workers of ``point``.

    A trainer that spins while it waits takes one more, however many samples there are.
    """
    line = pipeline_of(point.at(scenario))
    cores = float(line.width)
    speed = most_work(line.speed, cores, max(1, math.ceil(cores))) / cores * (1.0 - line.sharing_loss)
    needed = 1000.0 * math.fsum(_costs(line).values()) / line.batch_size / speed
    spread = math.sqrt(math.fsum(_variances(line).values()))
    moved = math.exp(stats.normal_quantile(0.5 + LEVEL / 2) * spread)
    return PerRate(needed, needed / moved, needed * moved)


def uncertain(scenario: Scenario, point: Point) -> tuple[Uncertain, ...]:
    """The inputs that leave the number of cores uncertain, what adds most first; none: it is known."""
    line = pipeline_of(point.at(scenario))
    step = line.step.service.uncertainty
    variances = {"step": step**2, **_variances(line)}
    total = math.fsum(variances.values())
    own = {phase.name: phase.service.uncertainty for _, phase, _ in line.phases()}
    own |= {"step": step, "speed": line.speed_uncertainty}
    found = (Uncertain(name, own[name], variance / total) for name, variance in variances.items() if variance > 0.0)
    return tuple(sorted(found, key=lambda one: -one.share))


def _costs(line: Pipeline) -> dict[str, float]:
    """CPU seconds of a batch by key of the phase."""
    return {row.name: row.seconds for row in demands(line) if row.resource == "cores"}


def _variances(line: Pipeline) -> dict[str, float]:
    """Relative variance of the work of a batch and of the speed of busy cores, by name of the phase."""
    costs = _costs(line)
    total = math.fsum(costs.values())
    names = {key: (phase.name, phase.service.uncertainty) for key, phase, _ in line.phases()}
    found = {"speed": line.speed_uncertainty**2 if float(line.width) > 1 else 0.0}
    for key, cost in costs.items():
        name, spread = names[key]
        found[name] = found.get(name, 0.0) + (spread * cost / total) ** 2
    return found
