"""The answer's first line: what the program does today, beside what the simulation says of its settings."""

from __future__ import annotations

from dataclasses import dataclass

from coresim.advise.sweep import Study, predict
from coresim.model.scenario import Scenario
from coresim.model.today import Today

#: Points of idle that the prediction of today may miss by; or its own interval, where that is wider.
TRUSTED = 0.05


@dataclass(frozen=True)
class Checked:
    """Today's observed idle beside the predicted one.

    Attributes:
        today: what was observed.
        predicted, low, high: the simulation's idle at the same settings, and its interval.
    """

    today: Today
    predicted: float
    low: float
    high: float

    @property
    def allowed(self) -> float:
        """The miss that is within what is stated."""
        return max(TRUSTED, (self.high - self.low) / 2)

    @property
    def trusted(self) -> bool:
        """Whether the prediction holds."""
        return abs(self.predicted - self.today.gpu_idle) <= self.allowed


def check(scenario: Scenario, today: Today, study: Study) -> Checked:
    """Predict the program's own setting; nothing of what was observed there is used."""
    option, workers = (2, today.workers) if today.workers else (1, 0)
    cores = (scenario.host.cores or 1.0) / today.ranks
    found = predict(scenario, option, cores, workers, scenario.loader.prefetch_factor, study)
    return Checked(today, found.gpu_idle, found.gpu_idle_low, found.gpu_idle_high)
