"""The decision of a recommendation: each option's curve and answer, the chosen one, and the host's own cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coresim.advise.candidates import spaced
from coresim.advise.curves import curve
from coresim.advise.own_host import OwnHost, own_host
from coresim.advise.refine import CONFIDENCE, EVERY, LIKELY, OptionAnswer, fewest_of, fewest_workers, refine
from coresim.advise.sweep import (
    LARGEST_SWEEP,
    Point,
    Study,
    best_point,
    lowest_idle,
    memory_cap,
    predict,
    sensible_maximum,
)
from coresim.errors import InputError
from coresim.model.option import Option, read_option
from coresim.model.scenario import Scenario
from coresim.sim.estimate import STARVED


@dataclass(frozen=True)
class Decision:
    """The recommended setting and what it was chosen from, before its evidence.

    Attributes:
        scenario: what it is for.
        point: the recommended setting, with the fewest cores that meet the target as likely as not; where no core
            count does, the knee of the best option.
        options: each option's curve and answer.
        own_host: the same job on the host's own cores, if the scenario says how many there are.
    """

    scenario: Scenario
    point: Point
    options: tuple[OptionAnswer, ...]
    own_host: OwnHost | None

    @property
    def chosen(self) -> OptionAnswer:
        """The answer of the recommended option."""
        return next(option for option in self.options if option.option == self.point.option)

    @property
    def sure(self) -> Point | None:
        """Of all options, the setting with the fewest cores that meet the target with the confidence asked for."""
        return fewest_of((option.sure for option in self.options), self.point.option)

    @property
    def probability(self) -> float:
        """Probability that the true GPU idle at ``point`` is within the target."""
        return self.point.estimate.probability(self.scenario.target.gpu_idle)

    @property
    def meets_target(self) -> bool:
        """Whether ``point`` is within the target as likely as not."""
        return self.probability >= LIKELY


def decide(
    scenario: Scenario,
    study: Study,
    options: Sequence[int] | None = None,
    max_cores: int | None = None,
    confidence: float = CONFIDENCE,
) -> Decision:
    """Decide on cores and settings for `recommend`, without its evidence; each setting has one estimate throughout."""
    if max_cores is not None and max_cores < 1:
        raise InputError(f"max_cores = {max_cores}: at least 1 is needed")
    target = scenario.target.gpu_idle
    near = study.planned(target=target)
    # A pipeline of the user's own is one option, whatever it is called.
    kinds = (Option.STAGED,) if scenario.stages else map(read_option, options or scenario.preset.options)
    answers = tuple(_answer(scenario, option, max_cores, confidence, near) for option in kinds)
    point = _choose(answers, target)
    sure = fewest_of((found.sure for found in answers), point.option)
    if point.estimate.probability(target) >= LIKELY:
        same = sure is not None and (sure.option, sure.cores) == (point.option, point.cores)
        point = fewest_workers(scenario, point, confidence if same else LIKELY, near)
        sure = point if same else sure and fewest_workers(scenario, sure, confidence, near)
    point = _narrowed(scenario, point, confidence, study)
    if point.estimate.probability(target) >= confidence:
        # The setting with the fewest workers may idle less than the one that the search had found.
        sure = point
    curve = next(answer.curve for answer in answers if answer.option == point.option)
    own = own_host(scenario, curve, sure, point, study)
    there = own.point if own and own.cores == own.point.cores else None
    return Decision(scenario, point, tuple(_agreed(answer, sure, there, point) for answer in answers), own)


def _agreed(answer: OptionAnswer, sure: Point | None, *others: Point | None) -> OptionAnswer:
    """The answer of an option with the points that are shown elsewhere too in place of its own."""
    mine = {found.cores: found for found in (sure, *others) if found is not None and found.option == answer.option}

    def same(found: Point | None) -> Point | None:
        return None if found is None else mine.get(found.cores, found)

    curve = tuple(mine.get(found.cores, found) for found in answer.curve)
    surest = fewest_of((answer.sure, sure if sure and sure.option == answer.option else None))
    return replace(answer, curve=curve, answer=same(answer.answer), sure=same(surest))


def _narrowed(scenario: Scenario, point: Point, confidence: float, study: Study) -> Point:
    """The point with noise as narrow as near the target, where it is far from it and stays on its side of it."""
    if point.estimate.simulation_half_high <= study.plan.half_width:
        return point
    target, idle = scenario.target.gpu_idle, point.estimate.gpu_idle
    # As if its own idle were asked about: then its runs are as long as those that it has, and go on from them.
    found = predict(point.at(scenario), study.planned(target=idle if idle <= target + STARVED else None))
    # What was said of the point with the wider noise, that it meets the target and how surely, still holds.
    chances = found.probability(target), point.estimate.probability(target)
    same = all((chances[0] >= share) == (chances[1] >= share) for share in (LIKELY, confidence))
    return replace(point, estimate=found) if same else point


def _answer(scenario: Scenario, option: Option, max_cores: int | None, confidence: float, study: Study) -> OptionAnswer:
    most = max_cores or sensible_maximum(scenario)
    # The counts that decide are simulated more closely when the curve is refined, and the same runs serve for both.
    points = curve(scenario, option, spaced(most, EVERY), study.first_pass)
    refined = refine(scenario, points, confidence, study)
    if refined.answer is None and max_cores is None and most < LARGEST_SWEEP and _can(scenario, option, study):
        return _answer(scenario, option, min(LARGEST_SWEEP, 2 * most), confidence, study)
    return replace(refined, capped=memory_cap(scenario, refined.answer or refined.curve[-1], study))


def _can(scenario: Scenario, option: Option, study: Study) -> bool:
    """Whether more cores than are sensible, as many as a sweep may have, meet the target."""
    target = scenario.target.gpu_idle
    if lowest_idle(scenario, option, LARGEST_SWEEP) > target:
        return False
    return best_point(scenario, option, LARGEST_SWEEP, study).estimate.probability(target) >= LIKELY


def _choose(answers: tuple[OptionAnswer, ...], target: float) -> Point:
    """Fewest cores within the target, the simpler option at a tie; else the knee of the option that idles least."""
    found = [answer.answer for answer in answers if answer.answer]
    if fewest := fewest_of(found):
        return next((point for point in found if _as_good(point, fewest, answers, target)), fewest)
    return min((answer.knee for answer in answers), key=lambda point: (round(point.estimate.gpu_idle, 2), point.cores))


def _as_good(point: Point, fewest: Point, answers: tuple[OptionAnswer, ...], target: float) -> bool:
    """Whether a simpler option may need as few cores: at ``fewest.cores`` uncertain inputs hide what it lacks."""
    if point.cores > min((answer.sure.cores for answer in answers if answer.sure), default=point.cores):
        return False
    curve = next(answer.curve for answer in answers if answer.option == point.option)
    there = max((found for found in curve if found.cores <= fewest.cores), key=lambda found: found.cores).estimate
    return point.option < fewest.option and there.gpu_idle - there.input_half_low <= target and there.input_half_low > 0
