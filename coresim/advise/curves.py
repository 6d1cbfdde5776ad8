"""Curves over core counts, without simulating those that cannot matter: far too few cores, and more than saturate."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from coresim.advise.starved import short_of_cores
from coresim.advise.sweep import LARGEST_SWEEP, Point, Study, lowest_idle
from coresim.model.option import Option
from coresim.model.scenario import Scenario
from coresim.sim.noise import NOISE

#: Core counts of a curve that are simulated before it is asked whether more can matter.
PART = 8


def curve(scenario: Scenario, option: Option, counts: Iterable[int], study: Study) -> list[Point]:
    """The best setting at each core count, in rising order, with its estimate.

    Far from the target (`coresim.advise.starved`) the workers and what uncertain inputs add come from the bounds.
    Once nothing is left to gain at some count, its setting and estimate stand for all later counts: another core never
    makes a run longer, so they are within noise of the later ones.
    """
    left, points = sorted(counts), list[Point]()
    most, total = left[-1] if left else 0, len(left)

    def point(cores: int) -> Point:
        return replace(short_of_cores(scenario, option, cores, study)[0], cores=cores)

    while left:
        enough = next((point for point in points[-PART:] if _is_least(scenario, point, most, study)), None)
        if enough:
            fewer = [point for point in points if point.cores <= enough.cores]
            more = [*(point.cores for point in points[len(fewer) :]), *left]
            return fewer + [replace(enough, cores=cores) for cores in more]
        part, left = left[:PART], left[PART:]
        for found in (study.executor.map if study.executor else map)(point, part):
            points.append(found)
            if study.progress:
                study.progress(f"option {option}", len(points) / total)
    return points


def _is_least(scenario: Scenario, point: Point, most: int, study: Study) -> bool:
    """Whether idle and its interval end within noise of what no number of cores and workers goes below.

    That is the bound of ample cores or, where what binds is no bound, the best setting with the most cores. What the
    model itself misses is the same for all of them, so that it is left out.
    """
    found, least = point.estimate, lowest_idle(scenario, point.option, LARGEST_SWEEP)
    if found.gpu_idle + math.hypot(found.simulation_half_high, found.input_half_high) <= least + NOISE / 2:
        return True
    last = short_of_cores(scenario, point.option, most, study)[0].estimate
    gained = max(found.gpu_idle - last.gpu_idle, found.gpu_idle_high - last.gpu_idle_high)
    return gained <= NOISE / 2
