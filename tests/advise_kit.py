"""A job in a few words and what is recommended for it, for tests of advice."""

from __future__ import annotations

from typing import Any

from coresim.advise.recommend import Recommendation, recommend
from coresim.advise.sweep import Study
from coresim.model.scenario import Scenario, read_scenario
from coresim.sim.estimate import Plan
from coresim.sim.fast import simulate


def job(batch: int, mean: str, cv: float, step: str, **sections: Any) -> Scenario:
    """A job that preprocesses and steps; ``sections`` are merged into those of its scenario."""
    preprocess = {"mean": mean, "cv": cv, "distribution": "lognormal"} if cv else mean
    workload = {"batch_size": batch, "preprocess": preprocess, **sections.pop("workload", {})}
    device = {"step": step, "sync": "block", **sections.pop("accelerator", {})}
    return read_scenario({"workload": workload, "accelerator": device, **sections})


def answer(scenario: Scenario, **more: Any) -> Recommendation:
    """What is recommended for option 2."""
    return recommend(scenario, Study(simulate, Plan()), options=(2,), **more)
