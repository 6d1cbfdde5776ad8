"""The machine's pace around trials, and what a hand-over takes from workers at rest and at work."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from test_validate import CALIBRATION, SETTING, ledger, measured, point

from coresim.sim.fast import simulate
from coresim.validate.calibrate import handovers
from coresim.validate.costs import NOTHING
from coresim.validate.costs import Cost as Spent
from coresim.validate.loaders import Cost
from coresim.validate.pace import FRESH_S, Pace
from coresim.validate.predict import at_work, predict, trial_length
from coresim.validate.score import at_pace, cause, effort
from coresim.validate.session import disturbance, judged
from coresim.validate.trial import Step, Trial
from coresim.workloads.base import Workload


class Work(Workload):
    """Samples that take a second each of a clock that only moves when told, times the machine's slowness."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.now, self.slower, self.drawn = 0.0, 1.0, []

    def __len__(self) -> int:
        return 100

    def fetch(self, index: int) -> int:
        return index

    def decode(self, raw: int) -> int:
        self.now += self.slower
        return raw

    def transform(self, x: int, rng: object) -> int:
        self.drawn.append((x, int(rng.integers(1000))))
        return x


def probe(work: Work, **more: object) -> Pace:
    return Pace(work, 4, clock=lambda: work.now, cpu_clock=lambda: work.now, **more)  # type: ignore[arg-type]


def test_a_probe_repeats_the_same_work_and_shows_a_slower_machine(tmp_path: Path):
    work = Work(tmp_path)
    pace = probe(work, seconds=100.0)
    usual, allowed = pace.now(), os.sched_getaffinity(0)
    first, second = work.drawn[-8:-4], work.drawn[-4:]
    assert first == second and [x for x, _ in first] == [0, 1, 2, 3]
    work.slower = 1.5
    assert pace.now() == usual  # still fresh
    work.now += FRESH_S
    assert pace.now() == pytest.approx(1.5 * usual)
    assert os.sched_getaffinity(0) == allowed


def test_a_probe_takes_fewer_samples_where_they_are_slow_and_other_cores_anew(tmp_path: Path):
    work = Work(tmp_path)
    pace = probe(work, seconds=2.0)
    assert pace.now() == pytest.approx(1.0)
    core = min(os.sched_getaffinity(0))
    work.slower = 3.0
    assert pace.now([core]) == pytest.approx(3.0) or len(os.sched_getaffinity(0)) == 1


def step(asked: float, ready: float, got: float) -> Step:
    return Step(asked, ready, got, got, got + 1.0, 0.01)


def noted(began: float, made: float, worker: int = 7) -> Cost:
    return Cost(began, made, (made - began,), (made - began,), 0.0, worker)


def test_a_hand_over_is_told_by_what_its_own_worker_does_meanwhile():
    costs = (noted(0.0, 1.0), noted(1.1, 2.0), noted(2.1, 3.0), noted(0.0, 9.0, worker=8))
    steps = (step(1.05, 1.0, 1.16), step(2.05, 2.0, 2.08), step(4.0, 3.0, 4.03), step(8.0, 9.0, 9.5))
    rest, work = handovers(Trial(0.0, steps, costs))
    assert work == pytest.approx([0.10])  # batch 1 was begun before batch 0 was in hand
    assert rest == pytest.approx([0.02, 0.02])  # the fourth was not ready: it is waited for in any case


def test_one_worker_with_time_to_spare_rests_at_every_hand_over_and_one_without_works():
    length = trial_length(CALIBRATION, replace(SETTING, workers=1), seconds=2.0)
    spare = replace(SETTING, workers=1, ratio=1.5)
    assert at_work(CALIBRATION, spare, length, simulate) == 0.0
    assert at_work(CALIBRATION, replace(spare, ratio=0.7), length, simulate) > 0.9
    slow = replace(CALIBRATION, handover=(NOTHING, Spent((0.01,)), NOTHING))
    assert predict(slow, spare, length, simulate).idle == pytest.approx(
        predict(CALIBRATION, spare, length, simulate).idle, abs=1e-9
    )
    late = predict(slow, replace(spare, ratio=0.95), length, simulate).idle
    assert late > predict(CALIBRATION, replace(spare, ratio=0.95), length, simulate).idle + 0.02


def test_a_point_is_predicted_anew_for_the_pace_around_its_trials():
    length = trial_length(CALIBRATION, SETTING, seconds=1.0)
    found = point(replace(SETTING, step_s=0.01), 0.3, 0.3)
    found = replace(found, steps=length.steps - length.warm_up, warm_up=length.warm_up)
    usual, slow = (
        at_pace(ledger(replace(found, trials=(measured(0.3, pace=pace),))), simulate)[0].prediction.idle
        for pace in (1.0, 1.5)
    )
    assert 1.0 / (1.0 - slow) == pytest.approx(1.5 / (1.0 - usual), rel=0.03)  # limited by preparation alone


def test_drift_widens_the_interval_of_a_prediction_for_an_unknown_moment_alone():
    length = trial_length(CALIBRATION, SETTING, seconds=1.0)
    drifting = replace(CALIBRATION, drift=0.2)
    ahead, steady = (predict(c, SETTING, length, simulate) for c in (drifting, drifting.slower(1.0)))
    assert ahead.idle == steady.idle
    assert ahead.high - ahead.low > 1.5 * (steady.high - steady.low)


def test_a_trial_during_which_the_pace_changed_does_not_count():
    assert "pace changed by +40%" in disturbance(measured(0.1, pace_change=0.4), 0.0)
    slow = measured(0.2, sample_s=0.003, collate_s=0.0015, pace=1.5)
    known = judged(replace(point(SETTING, 0.3), trials=(measured(0.3), slow)))
    assert [trial.dirty for trial in known.trials] == ["", ""]  # the probe knew that the machine was slower


def test_the_answer_s_cost_is_held_beside_the_sweep_it_stands_in_for():
    scan = [replace(point(replace(SETTING, workers=n, at=2), 0.3, 0.3), warm_up=10, steps=90) for n in (1, 2, 3)]
    found = ledger(*scan)
    found = replace(found, jobs=(replace(found.jobs[0], seconds=12.0),))
    spent = effort(found)
    assert spent is not None and spent.answer_s == 12.0
    assert spent.sweep_s == pytest.approx(3 * 100 * 0.01 / 0.7)
    assert effort(ledger(scan[0])) is None


def test_a_miss_at_another_pace_names_it():
    slow = replace(point(SETTING, 0.1), trials=(measured(0.3, pace=1.4),))
    assert "the machine's pace +40%" in cause(slow, ledger(slow).jobs[0])
