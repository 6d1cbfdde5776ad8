"""What every start of an epoch costs, and what keeping the workers alive saves."""

from __future__ import annotations

from dataclasses import dataclass, replace

from coresim import stats
from coresim.advise.sweep import Point, Study, pipeline_of
from coresim.advise.transforms import keys
from coresim.model.option import Option
from coresim.model.pipeline import Pipeline
from coresim.model.scenario import Scenario
from coresim.sim.draws import draw
from coresim.sim.run import RunLength

EPOCHS, REPLICATIONS = 4, 3


@dataclass(frozen=True)
class EpochStart:
    """Seconds by which an epoch is longer than its steps in steady state; mean of a few epochs, the first included.

    Attributes:
        persistent_s: with workers that live from epoch to epoch.
        respawned_s: with workers that are started anew.
    """

    persistent_s: float
    respawned_s: float


def epoch_start(scenario: Scenario, point: Point, study: Study) -> EpochStart | None:
    """Simulate short epochs at one setting; None for option 1, which starts no workers.

    An epoch is long enough for the line to fill and to run on, so that what its start costs no longer depends on its
    length: a longer one loses the same.
    """
    if point.option == Option.NO_OVERLAP or scenario.stages:
        return None
    line = pipeline_of(point.at(endless(scenario)))
    batches = 4 * (line.credits or 8)
    steady = _seconds(line, RunLength((EPOCHS + 1) * batches, batches), study) / (EPOCHS * batches)
    whole = RunLength(EPOCHS * batches)
    kept, anew = (
        _seconds(replace(line, epoch_batches=batches, persistent=persistent), whole, study) / EPOCHS - batches * steady
        for persistent in (True, False)
    )
    return EpochStart(max(0.0, kept), max(0.0, anew))


def endless(scenario: Scenario) -> Scenario:
    """The same in one epoch without end."""
    return keys("workload", samples_per_epoch=None)(scenario)


def _seconds(line: Pipeline, length: RunLength, study: Study) -> float:
    """Mean seconds of the window, over a few replications with the same draws for every line."""
    spans = []
    for number in range(REPLICATIONS):
        run = study.engine(line, draw(line, length.steps, study.plan.seed, number, cache=study.cache), length)
        begin = min(float(rank.begin) for rank in run.ranks) if length.warm_up else 0.0
        spans.append(max(float(rank.end) for rank in run.ranks) - begin)
    return stats.mean(spans)
