"""The fewest cores within the target by bisection: one number where a whole curve would cost too much."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache

from coresim.advise.candidates import JobSetting, ladder
from coresim.advise.sweep import Point, Study, least_idle, lowest_idle, predict, sensible_maximum
from coresim.model.option import Option
from coresim.model.scenario import Scenario
from coresim.sim.estimate import Estimate

#: How a setting is simulated: `coresim.advise.sweep.predict`, or one that takes shorter runs.
Predict = Callable[[JobSetting, Study], Estimate]
#: Rounding must not turn "just enough" into "too few".
ROUNDING = 1e-12


def minimum_cores(scenario: Scenario, option: Option, study: Study, predicted: Predict = predict) -> Point | None:
    """The setting with the fewest cores per accelerator whose GPU idle is within the target; None if there is none.

    At every core count the workers and credits that no bound forbids are scanned, those with about one worker for each
    core first, until one is within the target. Over core counts idle is bisected, from the bound that no schedule beats
    to `useful_cores`: up to there another core does not lengthen a run. ``predicted`` simulates one setting, which must
    be within the target as likely as not.
    """
    most, target = useful_cores(scenario), scenario.target.gpu_idle

    def allowed(cores: int) -> bool:
        return lowest_idle(scenario, option, cores) <= target + ROUNDING

    if not allowed(most):
        return None
    low, high = bisect_left(range(1, most), True, key=allowed) + 1, most

    def within(cores: int) -> Point | None:
        for one in sorted(ladder(scenario, option, cores), key=lambda one: (abs(one.workers - cores), one)):
            if least_idle(one) > target + ROUNDING:
                continue
            estimate = predicted(one, study)
            if estimate.probability(target) >= 0.5:
                return Point.of(one, estimate)
        return None

    # Doubling steps upward from the bound, which is often close, then bisection in the last step.
    step, found = 1, None
    while low <= high:
        cores = (low + high) // 2 if found else min(high, low + step - 1)
        if point := within(cores):
            found, high = point, cores - 1
        else:
            low, step = cores + 1, 2 * step
    return found


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
