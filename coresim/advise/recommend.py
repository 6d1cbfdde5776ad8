"""The recommendation: fewest cores per accelerator within the target, for each option and over all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from coresim.advise.candidates import widest
from coresim.advise.curves import curve
from coresim.advise.epochs import EpochStart, epoch_start
from coresim.advise.memory import MemoryCap
from coresim.advise.refine import LIKELY, fewest_of, knee, refine, searched, spaced
from coresim.advise.sensitivity import Elasticity, elasticities
from coresim.advise.sweep import (
    LARGEST_SWEEP,
    Point,
    Study,
    best_point,
    lowest_idle,
    memory_cap,
    pipeline_of,
    predict,
    sensible_maximum,
)
from coresim.advise.threads import Unlimited, unlimited
from coresim.advise.uncertain import PerRate, Uncertain, per_rate, uncertain
from coresim.advise.verdict import JudgedSetting, Verdict, judge
from coresim.errors import InputError
from coresim.model.option import Option, read_option
from coresim.model.scenario import Scenario
from coresim.theory.bounds import LowerBound, lower_bound_cores
from coresim.theory.capacity import saturation

#: Probability of the surer of the two answers: nine in ten.
CONFIDENCE = 0.9
#: From this ratio of the two answers' cores on it is said what leaves them apart.
WIDE = 1.25


@dataclass(frozen=True)
class OptionAnswer:
    """One option: its curve, its points within the target with the fewest cores, and where memory stops it.

    Attributes:
        answer: within the target as likely as not; None: no point is.
        sure: within it with the confidence that is asked for; None: no point is.
        capped: of the answer, or of the most cores that were tried; None: more workers and credits would not help.
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


@dataclass(frozen=True)
class OwnHost:
    """The job on the cores that the host has now (``cores`` per accelerator, perhaps fractional).

    Attributes:
        point: the best workers and prefetch factor there.
        verdict: what binds at ``point``.
        today: the scenario's own workers and prefetch factor there; None where it does not say how many workers.
    """

    cores: float
    point: Point
    verdict: Verdict
    today: Point | None = None

    @property
    def gain(self) -> float | None:
        """Relative gain in samples/s of ``point`` over ``today``; None where today's setting is not known."""
        if self.today is None:
            return None
        return self.point.estimate.throughput_samples_per_s / self.today.estimate.throughput_samples_per_s - 1.0


@dataclass(frozen=True)
class Recommendation:
    """The answer and its evidence.

    Attributes:
        scenario: what it is for.
        point: the recommended setting, with the fewest cores that meet the target as likely as not; where no core
            count does, the knee of the best option.
        confidence: the probability that ``sure`` has.
        sure: of all options, the setting with the fewest cores that meet the target with that probability; or None.
        cores_low, cores_high: fewest cores whose interval reaches, and lies within, the target; None: none does.
        verdict: what binds at ``point``; where none meets the target, at the most cores that were tried.
        options: each option's curve and answer.
        lower_bound: cores below which no schedule reaches the target.
        saturating_cores: fewest cores that do 95 % of the work that any number can; None: not known by its s(k).
        own_host: the same job on the host's own cores, if the scenario says how many there are.
        elasticities: what moves GPU idle at ``point``, the strongest first.
        epoch_start: what each start of an epoch costs at ``point``; None for option 1.
        unlimited: what library threads do to ``point`` where nothing limits them; None: nothing, or not known.
        per_rate, uncertain: what `coresim.advise.uncertain` says of the number of cores.
    """

    scenario: Scenario
    point: Point
    confidence: float
    sure: Point | None
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
    per_rate: PerRate
    uncertain: tuple[Uncertain, ...]

    @property
    def doubt(self) -> Uncertain | None:
        """The input to know better first, where the two answers are more than a quarter apart; None: they are not."""
        apart = self.sure is None or self.sure.cores > WIDE * self.point.cores
        return next(iter(self.uncertain), None) if self.meets_target and apart else None

    @property
    def probability(self) -> float:
        """That the true GPU idle at ``point`` is within the target."""
        return self.point.estimate.probability(self.scenario.target.gpu_idle)

    @property
    def meets_target(self) -> bool:
        """Whether ``point`` is within the target as likely as not."""
        return self.probability >= LIKELY

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
    scenario: Scenario,
    study: Study,
    options: Sequence[int] | None = None,
    max_cores: int | None = None,
    confidence: float = CONFIDENCE,
) -> Recommendation:
    """Simulate the options over core counts and choose.

    Args:
        scenario: the job.
        study: engine, plan and executor.
        options: which options to consider; by default those that the loader's preset can be.
        max_cores: largest core count per accelerator to try, instead of the sensible maximum.
        confidence: probability of the surer of the two answers.
    """
    if not LIKELY <= confidence < 1.0:
        raise InputError(f"confidence = {confidence:g}: at least {LIKELY:g} and less than 1 is needed, such as 0.9")
    target = scenario.target.gpu_idle
    answers = _answers(scenario, study, options, max_cores, confidence)
    point = _narrowed(scenario, _choose(answers, target), study)
    chosen = next(answer for answer in answers if answer.option == point.option)
    met = point.estimate.probability(target) >= LIKELY
    # At the knee cores bind as much as what else binds: without an answer, ask where cores are ample.
    judged = point if met else chosen.curve[-1]
    return Recommendation(
        scenario,
        point=point,
        confidence=confidence,
        sure=fewest_of((found.sure for found in answers), point.option),
        cores_low=_fewest(chosen, lambda found: found.estimate.gpu_idle_low <= target),
        cores_high=_fewest(chosen, lambda found: found.estimate.gpu_idle_high <= target),
        verdict=judge(_setting(scenario, judged), target, study, met),
        options=answers,
        lower_bound=_lower_bound(scenario, point, target),
        saturating_cores=saturation(scenario.host.speed),
        own_host=_own_host(scenario, chosen, point, study),
        elasticities=elasticities(_setting(scenario, point), study),
        epoch_start=epoch_start(scenario, point, study),
        unlimited=unlimited(scenario, point, study),
        per_rate=per_rate(scenario, point),
        uncertain=uncertain(scenario, point),
    )


def best_option(scenario: Scenario, study: Study) -> Option:
    """The option that `recommend` chooses, without its evidence."""
    # What a study keeps of short runs is of one scenario, and it may have been asked for others.
    fresh = replace(study, cache={})
    return _choose(_answers(scenario, fresh, None, None, CONFIDENCE), scenario.target.gpu_idle).option


def _answers(
    scenario: Scenario, study: Study, options: Sequence[int] | None, max_cores: int | None, confidence: float
) -> tuple[OptionAnswer, ...]:
    """The curve of each option."""
    if max_cores is not None and max_cores < 1:
        raise InputError(f"max_cores = {max_cores}: at least 1 is needed")
    asked = replace(study, plan=replace(study.plan, target=scenario.target.gpu_idle))
    # A pipeline of the user's own is one option, whatever it is called.
    kinds = (Option.STAGED,) if scenario.stages else map(read_option, options or scenario.preset.options)
    return tuple(_answer(scenario, option, max_cores, confidence, asked) for option in kinds)


def _narrowed(scenario: Scenario, point: Point, study: Study) -> Point:
    """The point with noise as narrow as near the target, where it is far from it and stays on its side of it."""
    if point.estimate.simulation_half_high <= study.plan.half_width:
        return point
    target = scenario.target.gpu_idle
    found = predict(scenario, point.option, point.cores, point.workers, point.prefetch_factor, study)
    same = (found.gpu_idle <= target) == (point.estimate.gpu_idle <= target)
    return replace(point, estimate=found) if same else point


def _lower_bound(scenario: Scenario, point: Point, target: float) -> LowerBound:
    """With the most workers and credits that were tried; of the host that all accelerators share, for each."""
    most = widest(scenario, point.option, point.cores)
    pipeline = pipeline_of(scenario, point.option, point.cores, max(1, most.workers), most.prefetch_factor)
    found, count = lower_bound_cores(pipeline, target), scenario.accelerator.count
    if count == 1 or found.whole is None:
        return found
    each = f"{found.numbers}; for each of {count} accelerators {found.cores / count:.5g}"
    return replace(found, cores=found.cores / count, whole=math.ceil(found.cores / count), numbers=each)


def _answer(scenario: Scenario, option: Option, max_cores: int | None, confidence: float, study: Study) -> OptionAnswer:
    most = max_cores or sensible_maximum(scenario)
    points = curve(scenario, option, spaced(most), study)
    refined = refine(scenario, points, confidence, study)
    if refined.answer is None and max_cores is None and most < LARGEST_SWEEP and _can(scenario, option, study):
        return _answer(scenario, option, min(LARGEST_SWEEP, 2 * most), confidence, study)
    capped = memory_cap(scenario, refined.answer or refined.curve[-1], study)
    return OptionAnswer(option, refined.curve, refined.answer, refined.sure, capped)


def _can(scenario: Scenario, option: Option, study: Study) -> bool:
    """Whether more cores than are sensible, as many as a sweep may have, meet the target."""
    target = scenario.target.gpu_idle
    if lowest_idle(scenario, option, LARGEST_SWEEP) > target:
        return False
    return best_point(scenario, option, LARGEST_SWEEP, study).estimate.probability(target) >= LIKELY


def _choose(answers: tuple[OptionAnswer, ...], target: float) -> Point:
    """Fewest cores within the target, the simpler option at a tie; else the knee of the option that idles least."""
    found = [answer.answer for answer in answers if answer.answer]
    if found:
        fewest = min(found, key=lambda point: (point.cores, point.option))
        return next((point for point in found if _as_good(point, fewest, answers, target)), fewest)
    return min((answer.knee for answer in answers), key=lambda point: (round(point.estimate.gpu_idle, 2), point.cores))


def _as_good(point: Point, fewest: Point, answers: tuple[OptionAnswer, ...], target: float) -> bool:
    """Whether a simpler option may need as few cores: at ``fewest.cores`` uncertain inputs hide what it lacks."""
    if point.cores > min((answer.sure.cores for answer in answers if answer.sure), default=point.cores):
        return False
    curve = next(answer.curve for answer in answers if answer.option == point.option)
    there = max((found for found in curve if found.cores <= fewest.cores), key=lambda found: found.cores).estimate
    return point.option < fewest.option and there.gpu_idle - there.input_half_low <= target and there.input_half_low > 0


def _fewest(answer: OptionAnswer, holds: Callable[[Point], bool]) -> int | None:
    return next((point.cores for point in answer.curve if holds(point)), None)


def _setting(scenario: Scenario, point: Point) -> JudgedSetting:
    return JudgedSetting(scenario, point.option, point.cores, point.workers, point.prefetch_factor)


def _own_host(scenario: Scenario, chosen: OptionAnswer, point: Point, study: Study) -> OwnHost | None:
    """The best that the chosen option does on the cores that are there, beside the setting that the scenario gives."""
    if scenario.host.cores is None:
        return None
    cores, target = scenario.host.cores / scenario.accelerator.count, scenario.target.gpu_idle
    near = replace(study, plan=replace(study.plan, target=target))
    own = point if cores == point.cores else searched(scenario, point.option, cores, near)
    setting = replace(_setting(scenario, own), cores=cores)
    met = own.estimate.probability(target) >= LIKELY
    return OwnHost(cores, own, judge(setting, target, study, met), _today(scenario, cores, near))


def _today(scenario: Scenario, cores: float, study: Study) -> Point | None:
    """The scenario's own workers and prefetch factor; option 1 where it has no workers."""
    workers, factor = scenario.loader.workers, scenario.loader.prefetch_factor
    if workers is None or scenario.stages:
        return None
    option = Option.NO_OVERLAP if workers == 0 else scenario.preset.usual_option
    estimate = predict(scenario, option, cores, workers, factor, study)
    return Point(option, math.ceil(cores), workers, factor, estimate)
