"""The fewest cores that meet the target, found by bisection."""

from __future__ import annotations

import pytest

from coresim.advise.minimum_cores import minimum_cores, useful_cores
from coresim.advise.recommend import recommend
from coresim.advise.sweep import Study
from coresim.model.scenario import read_scenario
from coresim.sim.estimate import Plan
from coresim.sim.fast import simulate


@pytest.mark.parametrize("preprocess", ["0.5 ms", "6 ms", "15 ms"])
def test_bisection_finds_what_the_whole_curve_finds(preprocess: str) -> None:
    tables = {"workload": {"batch_size": 64, "preprocess": preprocess}, "accelerator": {"step": "100 ms"}}
    scenario, study = read_scenario(tables), Study(simulate, Plan(steps=150, least=2, most=2, inputs=0))
    found = minimum_cores(scenario, 2, study)
    assert found is not None and found.cores == recommend(scenario, study, (2,)).options[0].answer.cores  # type: ignore[union-attr]


def test_no_core_count_is_none() -> None:
    tables = {
        "workload": {"batch_size": 64, "preprocess": "1 ms", "consumer": "80 ms"},
        "accelerator": {"step": "50 ms"},
    }
    assert minimum_cores(read_scenario(tables), 2, Study(simulate, Plan(inputs=0))) is None


def test_cores_beyond_the_most_work_are_of_no_use() -> None:
    tables = {"workload": {"batch_size": 64, "preprocess": "15 ms"}, "accelerator": {"step": "100 ms"}}
    scenario = read_scenario(tables | {"host": {"speed": [1.0, 0.9, 0.6, 0.3]}})
    assert useful_cores(scenario) == 2  # k s(k): 1, 1.8, 1.8, 1.2
