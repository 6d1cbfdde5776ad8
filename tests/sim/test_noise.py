"""Runs in which nothing takes any time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coresim.errors import InputError
from coresim.model.build import build
from coresim.model.pipeline import Pipeline
from coresim.model.scenario import read_scenario
from coresim.model.service import ZERO
from coresim.sim.estimate import Plan, estimate
from coresim.sim.fast import simulate

TABLES = {"workload": {"batch_size": 2, "preprocess": "0 ms"}, "accelerator": {"step": "1 ms"}}


def without_time() -> Pipeline:
    pipeline = build(read_scenario(TABLES), 2, 2.0, 1)
    return replace(pipeline, step=replace(pipeline.step, service=ZERO))


def test_steps_that_take_no_time_are_told_and_not_divided_by() -> None:
    with pytest.raises(InputError, match="every time in the scenario is zero"):
        estimate(without_time(), Plan(steps=20), simulate)
