"""The effect of threads inside workers on a recommended setting, if nothing limits them."""

from __future__ import annotations

from dataclasses import dataclass

from coresim.advise.sweep import Point, Study, predict
from coresim.advise.transforms import keys
from coresim.model.crowding import Crowding, crowding
from coresim.model.scenario import Scenario
from coresim.sim.estimate import Estimate


@dataclass(frozen=True)
class Unlimited:
    """The setting with as many library threads in every worker as the libraries take by themselves.

    Attributes:
        each: threads of one worker.
        crowding: threads of all workers on the host's cores, and what they cost.
        estimate: the prediction with them.
    """

    each: int
    crowding: Crowding
    estimate: Estimate


def unlimited(scenario: Scenario, point: Point, study: Study) -> Unlimited | None:
    """The setting without a limit; None if libraries run no more threads than predicted, or all fit on the cores."""
    each = scenario.loader.default_threads
    if each <= scenario.loader.library_threads or scenario.stages:
        return None
    left = keys("loader", library_threads=each)(scenario)
    crowded = crowding(left, point.workers, point.cores * scenario.accelerator.count)
    if crowded is None:
        return None
    return Unlimited(each, crowded, predict(point.at(left), study))
