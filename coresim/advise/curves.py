"""Curves over core counts; what cannot matter is not simulated: far too few cores, and more than saturate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from coresim.advise.starved import short_of_cores
from coresim.advise.sweep import LARGEST_SWEEP, NOISE, Point, Study, pipeline_of, predict
from coresim.model.scenario import Scenario
from coresim.theory.bounds import binding, bounds

#: Core counts of a curve that are simulated before it is asked whether more can matter.
PART = 8


def curve(scenario: Scenario, option: int, counts: Iterable[int], study: Study) -> list[Point]:
    """The best setting at each core count, in rising order, with its estimate.

    Far from the target (`coresim.advise.starved`) the workers and what uncertain inputs add come from the bounds.
    Beyond a count whose whole interval is as low as idle can be, nothing is left to gain: the workers stay, and as
    soon as there are cores for all of them so does the estimate.
    """
    left, points = sorted(counts), list[Point]()
    while left:
        part, left = left[:PART], left[PART:]
        last = points[-1] if points and _is_least(scenario, points[-1]) else None

        def point(cores: int, last: Point | None = last) -> Point:
            found = last and _with_more(scenario, last, cores, study)
            return found or replace(short_of_cores(scenario, option, cores, study)[0], cores=cores)

        points += study.map(point, part, f"option {option}", len(points), len(points) + len(part) + len(left))
    return points


def _with_more(scenario: Scenario, point: Point, cores: int, study: Study) -> Point:
    found = predict(scenario, point.option, cores, point.workers, point.prefetch_factor, study)
    return replace(point, cores=cores, estimate=found)


def _is_least(scenario: Scenario, point: Point) -> bool:
    """Whether the point's interval ends within noise of the idle that no number of cores and workers goes below."""
    ample = pipeline_of(scenario, point.option, LARGEST_SWEEP, LARGEST_SWEEP, point.prefetch_factor)
    least = 1.0 - binding(bounds(ample)).limit_batches_per_s * scenario.accelerator.step.mean
    return point.estimate.gpu_idle_high <= max(0.0, least) + NOISE / 2
