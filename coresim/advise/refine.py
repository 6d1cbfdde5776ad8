"""Refine a curve at its decisive counts: the fewest cores within the target, and the fewest that surely are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from coresim.advise.candidates import candidates, ladder
from coresim.advise.memory import MemoryCap
from coresim.advise.starved import FAR, short_of_cores, short_of_reads
from coresim.advise.sweep import Point, Study, choose, least_idle, lowest_idle, predict, sure_enough
from coresim.errors import InputError
from coresim.model.option import Option
from coresim.model.scenario import Scenario
from coresim.sim.noise import NOISE

#: The probability of what is as likely as not.
LIKELY = 0.5
#: Probability of the surer of two answers: nine in ten.
CONFIDENCE = 0.9
#: In a whole search each setting that is simulated in full has so many times the memory of the one before.
STRIDE = 2.0
#: Idle beyond its bound, a share, up to which a setting is near it.
NEAR = 0.03
#: Core counts up to which a curve has every one; beyond it those that differ by an eighth.
EVERY = 16


@dataclass(frozen=True)
class OptionAnswer:
    """One option: its curve, its points within the target with the fewest cores, and where memory stops it.

    Attributes:
        answer: within the target as likely as not; None: no point is.
        sure: within it with the confidence that is asked for; None: no point is.
        capped: where memory stops the answer, or the most cores tried; None: more workers and credits would not help.
    """

    option: Option
    curve: tuple[Point, ...]
    answer: Point | None
    sure: Point | None = None
    capped: MemoryCap | None = None

    @property
    def knee(self) -> Point:
        """Fewest cores whose idle is within a point of the curve's best."""
        return knee(self.curve)


def check_confidence(confidence: float) -> None:
    """Check that it can be the probability of the surer answer.

    Raises:
        InputError: it cannot.
    """
    if not LIKELY <= confidence < 1.0:
        raise InputError(f"confidence = {confidence:g}: at least {LIKELY:g} and less than 1 is needed, such as 0.9")


def knee(points: Iterable[Point]) -> Point:
    """The fewest cores whose idle is within a point of the least."""
    ordered = sorted(points, key=lambda point: point.cores)
    least = min(point.estimate.gpu_idle for point in ordered)
    return next(point for point in ordered if point.estimate.gpu_idle <= least + 0.01)


def fewest_of(points: Iterable[Point | None], option: Option | None = None) -> Point | None:
    """The setting with the fewest cores; of several that of ``option``, else the simplest one; None: no setting."""
    there = (point for point in points if point is not None)
    return min(there, key=lambda point: (point.cores, point.option != option, point.option), default=None)


def refine(scenario: Scenario, points: Sequence[Point], confidence: float, study: Study) -> OptionAnswer:
    """Search every setting at the counts that decide.

    A curve's points are the best of a few settings, at some counts. With the same setting another core never lengthens
    a run, so two counts are decisive: the fewest that reaches a probability, and the most that does not. There all
    workers and credits are tried. `coresim.advise.decide` fills in ``capped``.
    """
    option, target = points[0].option, scenario.target.gpu_idle
    found = {point.cores: point for point in points}
    whole = set[tuple[int, float]]()

    def reaches(cores: int, share: float) -> bool:
        """Whether the point that was found does, simulated as closely as this study asks for."""
        point = found.get(cores)
        if point is None or point.estimate.probability(target) < share:
            return False
        closer = predict(point.at(scenario), study)
        found[cores] = replace(point, estimate=closer)
        return closer.probability(target) >= share

    def searched_reaches(cores: int, share: float) -> bool:
        # The settings that no bound keeps from the target.
        possible = (cores, share) not in whole and lowest_idle(scenario, option, cores) <= target
        able = [one for one in candidates(scenario, option, cores) if least_idle(one) <= target] if possible else []
        if able:
            whole.add((cores, share))
            reaches(cores, share)
            found[cores] = _better(found.get(cores), choose(able, study, STRIDE, share), target, share)
        return reaches(cores, share)

    first = _fewest(found, LIKELY, 1, reaches, searched_reaches)
    if first is None:
        for cores in (max(found), knee(found.values()).cores):
            # Where reads are too slow, and the setting that was tried is near the bound, no other one is much better.
            near = found[cores].estimate.gpu_idle <= lowest_idle(scenario, option, cores) + NEAR
            if near and short_of_reads(scenario, option, cores):
                continue
            best = choose(candidates(scenario, option, cores), study, STRIDE)
            found[cores] = _better(found[cores], best, target, LIKELY)
    else:
        searched_reaches(first, LIKELY)
        if first > 1 and first - 1 not in found:
            found[first - 1] = short_of_cores(scenario, option, first - 1, study)[0]
        _never_worse(scenario, found, first, study)
    sure = None if first is None else _fewest(found, confidence, first, reaches, searched_reaches)
    curve = tuple(found[cores] for cores in sorted(found))
    # Where as many cores are surely enough, the settings that make them so are the answer's.
    return OptionAnswer(option, curve, None if first is None else found[first], None if sure is None else found[sure])


def _fewest(
    curve: Iterable[int],
    share: float,
    least: int,
    reaches: Callable[[int, float], bool],
    searched_reaches: Callable[[int, float], bool],
) -> int | None:
    """The fewest cores, ``least`` or more, that reach a probability; None: no count of the ``curve`` does.

    Other settings than the curve's may reach it with fewer cores than the curve says. They are searched below these,
    twice as far each time until a count is too few, and then by bisection.
    """
    counts = sorted(cores for cores in curve if cores >= least)
    good = next((cores for cores in counts if reaches(cores, share)), None)
    if good is None:
        if searched_reaches(least, share):
            return least
        if not searched_reaches(counts[-1], share):
            return None
        good = counts[-1]
    below, step = [least - 1, *(cores for cores in counts if cores < good)], 1
    while below[-1] >= least and searched_reaches(below[-1], share):
        good, below, step = below[-1], below[:-step] or below[:1], 2 * step
    bad = below[-1]
    while good - bad > 1:
        cores = (good + bad) // 2
        good, bad = (cores, bad) if searched_reaches(cores, share) else (good, cores)
    return good


def searched(scenario: Scenario, option: Option, cores: float, study: Study) -> Point:
    """The best of all settings with so many cores; far from the target, of a few."""
    if lowest_idle(scenario, option, cores) > scenario.target.gpu_idle + FAR:
        return short_of_cores(scenario, option, cores, study)[0]
    return choose(candidates(scenario, option, cores), study, STRIDE, LIKELY)


def fewest_workers(scenario: Scenario, best: Point, share: float, study: Study) -> Point:
    """The setting with the fewest workers, and of these with the least memory, that is as good with the same cores.

    *As good* means within the target with probability ``share``, and the same idle within the noise of simulating.
    Short runs of worker counts that differ by an eighth show which may be. These are simulated until one is as good,
    with what uncertain inputs add only where the setting does not idle more without it.
    """
    target = scenario.target.gpu_idle
    alone = study.planned(most=study.plan.least, inputs=0)
    noise = max(NOISE, best.estimate.simulation_half_high)
    most, last = min(target, best.estimate.gpu_idle + noise), 0
    tried = (one for one in candidates(scenario, best.option, best.cores) if one.workers < best.workers)
    for one in sorted(tried, key=lambda one: (one.workers, one.cost)):
        if last < one.workers < last + max(1, last // 8) or least_idle(one) > most:
            continue
        last = one.workers
        if predict(one, study.rough).gpu_idle > most + NOISE:
            continue
        few = predict(one, study.brief)
        if few.gpu_idle - few.simulation_half_low > most or predict(one, alone).gpu_idle > most:
            continue
        found = sure_enough(one, share, study)
        if found.gpu_idle <= most and found.probability(target) >= share:
            return Point.of(one, found)
    return best


def _better(point: Point | None, best: Point, target: float, share: float) -> Point:
    """The point of the search, unless the curve had a better one; what reaches the probability is better.

    Where neither does, what is within the target as likely as not is better: the answer may rest on it.
    """
    if point is None:
        return best
    chances = [one.estimate.probability(target) for one in (point, best)]
    reach = [(chance >= share, chance >= LIKELY) for chance in chances]
    if reach[0] != reach[1]:
        return max((reach[0], point), (reach[1], best), key=itemgetter(0))[1]
    return best if best.estimate.gpu_idle <= point.estimate.gpu_idle + NOISE else point


def agreeing(there: Point | None, found: Point, answer: Point, target: float) -> Point:
    """The better of a search and the curve's point at its cores; the curve's where the search denies the answer."""
    denies = found.cores < answer.cores and found.estimate.probability(target) >= LIKELY
    return there if there is not None and denies else _better(there, found, target, LIKELY)


def _never_worse(scenario: Scenario, found: dict[int, Point], first: int, study: Study) -> None:
    """More cores are never worse: no later point may idle more than the one before it."""
    before = found[first]
    for cores in sorted(count for count in found if count > first):
        point = found[cores]
        noise = max(NOISE, point.estimate.simulation_half_high)
        if point.estimate.gpu_idle > before.estimate.gpu_idle + noise:
            same = replace(before.at(scenario), cores=cores)
            again = choose([same, *ladder(scenario, point.option, cores)], study)
            better = again.estimate.gpu_idle <= before.estimate.gpu_idle
            found[cores] = again if better else replace(before, cores=cores)
        before = found[cores]
