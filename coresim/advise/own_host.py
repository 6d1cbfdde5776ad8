"""The recommended option on the cores that the host has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from coresim.advise.candidates import JobSetting
from coresim.advise.refine import LIKELY, agreeing, searched
from coresim.advise.sweep import Point, Study, predict
from coresim.advise.verdict import Verdict, judge
from coresim.model.option import Option
from coresim.model.scenario import Scenario


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


def own_host(
    scenario: Scenario, curve: Iterable[Point], sure: Point | None, answer: Point, study: Study
) -> OwnHost | None:
    """The best setting on the host's own cores, beside the setting that the scenario gives; None: it has no cores.

    ``curve``: of the recommended option; ``sure``, ``answer``: the surer and the recommended point. If one of these has
    as many cores as the host, it is the answer.
    """
    if scenario.host.cores is None:
        return None
    cores, target = scenario.host.cores / scenario.accelerator.count, scenario.target.gpu_idle
    near = study.planned(target=target)
    same = (found for found in (answer, sure) if found is not None and found.option == answer.option)
    own = next((found for found in same if found.cores == cores), None)
    if own is None:
        there = next((found for found in curve if found.cores == cores), None)
        own = agreeing(there, searched(scenario, answer.option, cores, near), answer, target)
    met = own.estimate.probability(target) >= LIKELY
    verdict = judge(replace(own.at(scenario), cores=cores), study, met)
    return OwnHost(cores, own, verdict, _today(scenario, cores, own, near))


def _today(scenario: Scenario, cores: float, best: Point, study: Study) -> Point | None:
    """The scenario's own workers and prefetch factor; option 1 where it has no workers."""
    workers, factor = scenario.loader.workers, scenario.loader.prefetch_factor
    if workers is None or scenario.stages:
        return None
    option = Option.NO_OVERLAP if workers == 0 else scenario.preset.usual_option
    if (option, workers, factor) == (best.option, best.workers, best.prefetch_factor):
        return best
    setting = JobSetting(scenario, option, cores, workers, factor)
    return Point.of(setting, predict(setting, study))
