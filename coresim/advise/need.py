"""The fewest cores within the target by bisection: one number where a whole curve would cost too much."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache

from coresim.advise.sweep import Point, Study, pipeline_of, predict, sensible_maximum, worker_candidates
from coresim.model.scenario import Scenario
from coresim.sim.estimate import Estimate
from coresim.theory.bounds import tightest

#: How a setting is simulated: `coresim.advise.sweep.predict`, or one that takes shorter runs.
Predict = Callable[[Scenario, int, float, int, int, Study], Estimate]


def cores_needed(scenario: Scenario, option: int, study: Study, predicted: Predict = predict) -> Point | None:
    """The setting with the fewest cores per accelerator whose GPU idle is within the target; None: none has it.

    At every core count the workers that no bound forbids are scanned, those nearest to the cores first, until one is
    within the target. Over core counts idle is bisected, from the bound that no schedule beats to `useful_cores`: up to
    there another core does not lengthen a run. ``predicted`` simulates one setting.
    """
    most = useful_cores(scenario)
    if not _allows(scenario, option, most, most):
        return None
    low = bisect_left(range(1, most), True, key=lambda cores: _allows(scenario, option, cores, most)) + 1
    return _bisect(scenario, option, low, most, study, predicted)


def _allows(scenario: Scenario, option: int, cores: float, workers: int) -> bool:
    """Whether no bound forbids the target; all bounds grow with the cores."""
    pipeline = pipeline_of(scenario, option, cores, workers, scenario.loader.prefetch_factor)
    # Rounding must not turn "just enough" into "too few".
    return least_idle(scenario, tightest(pipeline)[1]) <= scenario.target.gpu_idle + 1e-12


def least_idle(scenario: Scenario, limit: float) -> float:
    """The least GPU idle that any schedule can have where its batches/s are limited so."""
    device = scenario.accelerator
    return 1.0 - limit * device.step.mean * max(device.slowdown)


def _bisect(scenario: Scenario, option: int, low: int, high: int, study: Study, predicted: Predict) -> Point | None:
    """Doubling steps upward from the bound, which is often close, then bisection in the last step."""
    step, found = 1, None
    while low <= high:
        cores = (low + high) // 2 if found else min(high, low + step - 1)
        point = _within(scenario, option, cores, study, predicted)
        if point:
            found, high = point, cores - 1
        else:
            low, step = cores + 1, 2 * step
    return found


def _within(scenario: Scenario, option: int, cores: int, study: Study, predicted: Predict) -> Point | None:
    factor = scenario.loader.prefetch_factor
    for workers in sorted(worker_candidates(scenario, option, cores), key=lambda count: abs(count - cores)):
        if not _allows(scenario, option, cores, workers):
            continue
        estimate = predicted(scenario, option, cores, workers, factor, study)
        if estimate.gpu_idle <= scenario.target.gpu_idle:
            return Point(option, cores, workers, factor, estimate)
    return None


@lru_cache(maxsize=16)
def useful_cores(scenario: Scenario) -> int:
    """Cores per accelerator beyond which none helps: the sensible maximum, or where k s(k) is largest.

    Beyond the largest k s(k) memory bandwidth makes more busy cores do less work together.
    """
    speed = scenario.host.speed
    work = [k * rate for k, rate in enumerate(speed, start=1)]
    best = 1 + max(range(len(work)), key=work.__getitem__)
    most = sensible_maximum(scenario)
    # The last speed holds on beyond the table, so that a table that still grows at its end sets no limit.
    return most if best == len(speed) else max(1, min(most, math.ceil(best / scenario.accelerator.count)))
