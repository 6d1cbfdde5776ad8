"""How long a trial lasts: as long as chance needs, within bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coresim.sim.fast import simulate
from coresim.validate.grid import Setting
from coresim.validate.predict import LONGEST, MOST_CHANCE, Costs, chance, long_enough, trial_length

SETTING = Setting(
    workload="made up", batch_size=4, option=2, workers=4, cores=2, prefetch_factor=2, ratio=1.0, step_s=0.01
)


def costs(**read: float) -> Costs:
    fetch = {"mean": "10 ms", "cv": read["cv"], "distribution": "lognormal"} if read["cv"] else "10 ms"
    workload = {"batch_size": 4, "preprocess": "0.1 ms", "fetch": fetch}
    return Costs({"workload": workload, "accelerator": {"step": "10 ms"}, "host": {"cores": 2}})


def test_where_samples_are_alike_a_trial_lasts_as_long_as_it_is_told() -> None:
    length = trial_length(costs(cv=0.0), SETTING, seconds=2.0)
    assert long_enough(costs(cv=0.0), SETTING, length, simulate) == length


def test_where_reads_differ_a_trial_lasts_longer_and_chance_is_less() -> None:
    heavy = costs(cv=3.0)
    length = trial_length(heavy, SETTING, seconds=2.0)
    longer = long_enough(heavy, SETTING, length, simulate)
    assert chance(heavy, SETTING, length, simulate) > MOST_CHANCE
    assert length.warm_up == longer.warm_up
    counted, more = length.steps - length.warm_up, longer.steps - longer.warm_up
    assert counted < more <= LONGEST * counted + SETTING.workers
    assert more % SETTING.workers == counted % SETTING.workers == 0  # whole rounds of all workers
    assert chance(heavy, SETTING, longer, simulate) < chance(heavy, SETTING, length, simulate)


def test_chance_is_what_simulated_trials_differ_by() -> None:
    length = trial_length(costs(cv=1.0), SETTING, seconds=2.0)
    assert chance(costs(cv=0.0), SETTING, length, simulate) == pytest.approx(0.0, abs=1e-9)
    short = replace(length, steps=length.warm_up + (length.steps - length.warm_up) // 4)
    assert chance(costs(cv=1.0), SETTING, short, simulate) > chance(costs(cv=1.0), SETTING, length, simulate) > 0.0
