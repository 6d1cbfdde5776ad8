"""The answer if the time of a training step is not known: for a rate of samples, and for a few step times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coresim.advise.recommend import Recommendation, recommend
from coresim.advise.sweep import Study
from coresim.advise.transforms import keys
from coresim.advise.uncertain import PerRate
from coresim.model.scenario import Scenario
from coresim.model.service import Service

#: Step times that cover most of what is trained, s.
STEPS = (0.01, 0.03, 0.1)


@dataclass(frozen=True)
class StepUnknown:
    """An answer for each step, and cores per 1,000 samples/s at the longest, where cores slow one another least."""

    per_rate: PerRate
    answers: tuple[Recommendation, ...]


def for_steps(
    scenario: Scenario, study: Study, options: Sequence[int] | None, max_cores: int | None, confidence: float
) -> StepUnknown:
    """Recommend for each of `STEPS`; the arguments are those of `coresim.advise.recommend.recommend`."""
    jobs = (keys("accelerator", step=Service(step), name=None)(scenario) for step in STEPS)
    answers = tuple(recommend(job, study, options, max_cores, confidence) for job in jobs)
    return StepUnknown(answers[-1].per_rate, answers)
