"""The recommendation: fewest cores per accelerator within the target, for each option and over all."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from coresim.advise.curves import curve
from coresim.advise.epochs import EpochStart, epoch_start
from coresim.advise.memory import MemoryCap
from coresim.advise.sensitivity import Elasticity, elasticities
from coresim.advise.sweep import (
    Point,
    Study,
    best_point,
    memory_cap,
    pipeline_of,
    predict,
    scan_prefetch,
    sensible_maximum,
)
from coresim.advise.threads import Unlimited, unlimited
from coresim.advise.verdict import Setting, Verdict, judge
from coresim.errors import InputError
from coresim.model.scenario import Scenario
from coresim.theory.bounds import LowerBound, lower_bound_cores
from coresim.theory.capacity import saturation


@dataclass(frozen=True)
class OptionAnswer:
    """One option: its curve, its point within the target with the fewest cores (or None), and where memory stops it.

    ``capped``: of the most cores that were tried; None: the workers worth trying there fit, or nothing is known.
    """

    option: int
    curve: tuple[Point, ...]
    answer: Point | None
    capped: MemoryCap | None = None

    @property
    def knee(self) -> Point:
        """Fewest cores whose idle is within a point of the curve's best."""
        best = min(point.estimate.gpu_idle for point in self.curve)
        return next(point for point in self.curve if point.estimate.gpu_idle <= best + 0.01)


@dataclass(frozen=True)
class OwnHost:
    """The job on the cores that the host has now (``cores`` per accelerator, perhaps fractional)."""

    cores: float
    point: Point
    verdict: Verdict


@dataclass(frozen=True)
class Recommendation:
    """The answer and its evidence.

    Attributes:
        scenario: what it is for.
        point: the recommended setting; where no core count meets the target, the knee of the best option.
        meets_target: whether it meets the target.
        probability: that its true GPU idle is within the target.
        cores_low, cores_high: fewest cores whose interval reaches, and lies wholly within, the target; None: none does.
        verdict: what binds at ``point``; where none meets the target, at the most cores that were tried.
        options: each option's curve and answer.
        lower_bound: cores below which no schedule reaches the target.
        saturating_cores: fewest cores that do 95 % of the work that any number can (memory bandwidth); None where that
            is not known, or not reached by as many cores as s(k) is known for.
        own_host: the same job on the host's own cores, if the scenario says how many there are.
        elasticities: what moves GPU idle at ``point``, the strongest first.
        epoch_start: what each start of an epoch costs at ``point``; None for option 1.
        unlimited: what library threads do to ``point`` where nothing limits them; None: nothing, or not known.
    """

    scenario: Scenario
    point: Point
    meets_target: bool
    probability: float
    cores_low: int | None
    cores_high: int | None
    verdict: Verdict
    options: tuple[OptionAnswer, ...]
    lower_bound: LowerBound
    saturating_cores: int | None
    own_host: OwnHost | None
    elasticities: tuple[Elasticity, ...]
    epoch_start: EpochStart | None
    unlimited: Unlimited | None

    @property
    def rule_of_thumb_cores(self) -> int:
        """The sum that people use, for the whole node: 1 per GPU + 1 per worker + 4 per node."""
        count = self.scenario.accelerator.count
        return count + self.point.workers * count + 4

    @property
    def hardware_threads(self) -> int:
        """The recommended physical cores as hardware threads."""
        return self.point.cores * self.scenario.host.threads_per_core


def recommend(
    scenario: Scenario, study: Study, options: tuple[int, ...] | None = None, max_cores: int | None = None
) -> Recommendation:
    """Simulate the options over core counts and choose.

    Args:
        scenario: the job.
        study: engine, plan and executor.
        options: which options to consider; by default those that the loader's preset can be.
        max_cores: largest core count per accelerator to try, instead of the sensible maximum.
    """
    target, answers = scenario.target.gpu_idle, _answers(scenario, study, options, max_cores)
    point, meets = _choose(answers, target)
    point = scan_prefetch(scenario, _narrowed(scenario, point, study), study)
    chosen = next(answer for answer in answers if answer.option == point.option)
    return Recommendation(
        scenario=scenario,
        point=point,
        meets_target=meets,
        probability=point.estimate.probability(target),
        cores_low=_fewest(chosen, lambda found: found.estimate.gpu_idle_low <= target),
        cores_high=_fewest(chosen, lambda found: found.estimate.gpu_idle_high <= target),
        # At the knee cores bind as much as what else binds: without an answer, ask where cores are ample.
        verdict=judge(_setting(scenario, point if meets else chosen.curve[-1]), target, study),
        options=answers,
        lower_bound=_lower_bound(scenario, point, target),
        saturating_cores=saturation(scenario.host.speed),
        own_host=_own_host(scenario, chosen, point, study),
        elasticities=elasticities(_setting(scenario, point), study),
        epoch_start=epoch_start(scenario, point, study),
        unlimited=unlimited(scenario, point, study),
    )


def best_option(scenario: Scenario, study: Study) -> int:
    """The option that `recommend` chooses, without its evidence."""
    # What a study keeps of short runs is of one scenario, and it may have been asked for others.
    fresh = replace(study, cache={})
    return _choose(_answers(scenario, fresh, None, None), scenario.target.gpu_idle)[0].option


def _answers(
    scenario: Scenario, study: Study, options: tuple[int, ...] | None, max_cores: int | None
) -> tuple[OptionAnswer, ...]:
    """The curve of each option."""
    if max_cores is not None and max_cores < 1:
        raise InputError(f"max_cores = {max_cores}: at least 1 is needed")
    counts = range(1, (max_cores or sensible_maximum(scenario)) + 1)
    asked = replace(study, plan=replace(study.plan, target=scenario.target.gpu_idle))
    return tuple(
        _answer(scenario, option, curve(scenario, option, counts, asked)) for option in _kinds(scenario, options)
    )


def _narrowed(scenario: Scenario, point: Point, study: Study) -> Point:
    """The point with noise as narrow as near the target, where it is far from it."""
    if point.estimate.simulation_half_width <= study.plan.half_width:
        return point
    found = predict(scenario, point.option, point.cores, point.workers, point.prefetch_factor, study)
    return replace(point, estimate=found)


def _lower_bound(scenario: Scenario, point: Point, target: float) -> LowerBound:
    """Of the host that all accelerators share, divided among them."""
    pipeline = pipeline_of(scenario, point.option, point.cores, max(1, point.workers), point.prefetch_factor)
    found, count = lower_bound_cores(pipeline, target), scenario.accelerator.count
    if count == 1 or found.whole is None:
        return found
    each = f"{found.numbers}; for each of {count} accelerators {found.cores / count:.5g}"
    return replace(found, cores=found.cores / count, whole=math.ceil(found.cores / count), numbers=each)


def _kinds(scenario: Scenario, options: tuple[int, ...] | None) -> tuple[int, ...]:
    """A pipeline of the user's own is one option, whatever it is called."""
    return (3,) if scenario.stages else options or scenario.preset.options


def _answer(scenario: Scenario, option: int, points: list[Point]) -> OptionAnswer:
    within = [point for point in points if point.estimate.gpu_idle <= scenario.target.gpu_idle]
    capped = memory_cap(scenario, option, points[-1].cores)
    return OptionAnswer(option, tuple(points), within[0] if within else None, capped)


def _choose(answers: tuple[OptionAnswer, ...], target: float) -> tuple[Point, bool]:
    """Fewest cores within the target, the simpler option at a tie; else the knee of the option that idles least."""
    found = [answer.answer for answer in answers if answer.answer]
    if found:
        fewest = min(found, key=lambda point: (point.cores, point.option))
        return next((point for point in found if _as_good(point, fewest, answers, target)), fewest), True
    return min(
        (answer.knee for answer in answers), key=lambda point: (round(point.estimate.gpu_idle, 2), point.cores)
    ), False


def _as_good(point: Point, fewest: Point, answers: tuple[OptionAnswer, ...], target: float) -> bool:
    """Whether a simpler option may need as few cores: at ``fewest.cores`` uncertain inputs hide what it lacks."""
    curve = next(answer.curve for answer in answers if answer.option == point.option)
    there = next(found.estimate for found in curve if found.cores == fewest.cores)
    return point.option < fewest.option and there.gpu_idle - there.input_half_low <= target and there.input_half_low > 0


def _fewest(answer: OptionAnswer, holds: object) -> int | None:
    return next((point.cores for point in answer.curve if holds(point)), None)  # type: ignore[operator]


def _setting(scenario: Scenario, point: Point) -> Setting:
    return Setting(scenario, point.option, point.cores, point.workers, point.prefetch_factor)


def _own_host(scenario: Scenario, chosen: OptionAnswer, point: Point, study: Study) -> OwnHost | None:
    """The best that the chosen option does on the cores that are there."""
    if scenario.host.cores is None:
        return None
    cores = scenario.host.cores / scenario.accelerator.count
    own = next((found for found in chosen.curve if found.cores == cores), None)
    own = point if cores == point.cores else own or best_point(scenario, point.option, cores, study)
    setting = Setting(scenario, own.option, cores, own.workers, own.prefetch_factor)
    return OwnHost(cores, own, judge(setting, scenario.target.gpu_idle, study))
