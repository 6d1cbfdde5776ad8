"""The recommendation: fewest cores per accelerator within the target, for each option and over all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coresim.advise.candidates import widest
from coresim.advise.decide import Decision, decide
from coresim.advise.epochs import EpochStart, epoch_start
from coresim.advise.refine import CONFIDENCE, check_confidence
from coresim.advise.sensitivity import Elasticity, elasticities
from coresim.advise.sweep import Point, Study, pipeline_of
from coresim.advise.threads import Unlimited, unlimited
from coresim.advise.uncertain import PerRate, Uncertain, per_rate, uncertain
from coresim.advise.verdict import Verdict, judge
from coresim.model.scenario import Scenario
from coresim.theory.bounds import LowerBound, lower_bound_cores
from coresim.theory.capacity import saturation

#: From this ratio of the two answers' cores on, the recommendation names the input that sets them apart.
WIDE = 1.25


@dataclass(frozen=True)
class Recommendation(Decision):
    """The answer and its evidence.

    Attributes:
        confidence: the probability that ``sure`` has.
        cores_low, cores_high: fewest cores whose interval reaches, and lies within, the target; None if there are none.
        verdict: what binds at ``point``; where none meets the target, at the most cores that were tried.
        lower_bound: cores below which no schedule reaches the target.
        saturating_cores: fewest cores that do 95 % of the work that any number can do; None: s(k) does not tell.
        elasticities: what moves GPU idle at ``point``, the strongest first.
        epoch_start: what each start of an epoch costs at ``point``; None for option 1.
        unlimited: what library threads do to ``point`` where nothing limits them; None: nothing, or not known.
        per_rate, uncertain: what `coresim.advise.uncertain` says of the number of cores.
    """

    confidence: float
    cores_low: int | None
    cores_high: int | None
    verdict: Verdict
    lower_bound: LowerBound
    saturating_cores: int | None
    elasticities: tuple[Elasticity, ...]
    epoch_start: EpochStart | None
    unlimited: Unlimited | None
    per_rate: PerRate
    uncertain: tuple[Uncertain, ...]

    @property
    def doubt(self) -> Uncertain | None:
        """The input to know better first, if the two answers are more than a quarter apart; otherwise None."""
        apart = self.sure is None or self.sure.cores > WIDE * self.point.cores
        return next(iter(self.uncertain), None) if self.meets_target and apart else None

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
        options: which options to consider; by default those that the loader's preset can be.
        max_cores: largest core count per accelerator to try, instead of the sensible maximum.
        confidence: probability of the surer of the two answers.
    """
    check_confidence(confidence)
    target = scenario.target.gpu_idle
    decision = decide(scenario, study, options, max_cores, confidence)
    point, chosen = decision.point, decision.chosen
    # At the knee cores bind as much as what else binds: without an answer, ask where cores are ample.
    judged = point if decision.meets_target else chosen.curve[-1]
    return Recommendation(
        **vars(decision),
        confidence=confidence,
        cores_low=next((found.cores for found in chosen.curve if found.estimate.gpu_idle_low <= target), None),
        cores_high=next((found.cores for found in chosen.curve if found.estimate.gpu_idle_high <= target), None),
        verdict=judge(judged.at(scenario), study, decision.meets_target),
        lower_bound=_lower_bound(scenario, point, target),
        saturating_cores=saturation(scenario.host.speed),
        elasticities=elasticities(point.at(scenario), study),
        epoch_start=epoch_start(scenario, point, study),
        unlimited=unlimited(scenario, point, study),
        per_rate=per_rate(scenario, point),
        uncertain=uncertain(scenario, point),
    )


def _lower_bound(scenario: Scenario, point: Point, target: float) -> LowerBound:
    """The bound with the most workers and credits that were tried; of the shared host, per accelerator."""
    pipeline = pipeline_of(widest(scenario, point.option, point.cores))
    found, count = lower_bound_cores(pipeline, target), scenario.accelerator.count
    if count == 1 or found.whole is None:
        return found
    each = f"{found.numbers}; for each of {count} accelerators {found.cores / count:.5g}"
    return replace(found, cores=found.cores / count, whole=math.ceil(found.cores / count), numbers=each)
