"""The machine's pace around trials, and what a hand-over takes from workers at rest and at work."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_validate import CALIBRATION, SETTING, ledger, measured, point

from coresim.sim.fast import simulate
from coresim.validate.calibrate import calibrate, handovers
from coresim.validate.costs import NOTHING, Calibration
from coresim.validate.costs import Cost as Spent
from coresim.validate.grid import Setting
from coresim.validate.loaders import Cost
from coresim.validate.pace import FRESH_S, STEADY, Pace, Probe, Probed, between, middle
from coresim.validate.predict import at_work, predict, step_time, trial_length
from coresim.validate.score import at_pace, cause, effort
from coresim.validate.session import disturbance, judged
from coresim.validate.trial import Step, Trial
from coresim.workloads.base import Workload


class Work(Workload):
    """Samples that spin on the CPU for milliseconds that a file says, and note what they were."""

    MS = 3.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.slower(1.0)

    def slower(self, factor: float) -> None:
        (self.folder / "ms").write_text(str(self.MS * factor))

    def __len__(self) -> int:
        return 100

    def fetch(self, index: int) -> int:
        return index

    def decode(self, raw: int) -> int:
        until = time.thread_time() + float((self.folder / "ms").read_text()) / 1000.0
        while time.thread_time() < until:
            pass
        return raw

    def transform(self, x: int, rng: object) -> np.ndarray:
        with (self.folder / f"drawn-{os.getpid()}").open("a") as file:
            file.write(f"{x} {int(rng.integers(10**6))}\n")
        return np.zeros(1, dtype=np.float32)

    def drawn(self) -> list[list[str]]:
        """What each process noted since the last call."""
        files = sorted(self.folder.glob("drawn-*"))
        found = [file.read_text().splitlines() for file in files]
        for file in files:
            file.unlink()
        return found


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("option", [1, 2])
def test_a_probe_repeats_the_same_work_and_shows_a_slower_machine(tmp_path: Path, option: int):
    pytest.importorskip("torch")
    work, clock = Work(tmp_path), Clock()
    probe = Probe(work, option, 4, seconds=0.1, clock=clock)
    work.drawn()
    usual = probe.now()
    before = work.drawn()
    assert len(before) == (1 if option == 1 else 3)  # one process alone, then two at once
    work.slower(3.0)
    assert probe.now() == usual  # still fresh
    clock.now += FRESH_S
    found = probe.now().over(usual)
    # A worker prepares ahead of what is taken from it, more or less of it before it is stopped.
    for first, second in zip(sorted(before), sorted(work.drawn()), strict=True):
        least = min(len(first), len(second))
        assert least >= 4 and first[:least] == second[:least]
    assert found == pytest.approx((3.0, 3.0, 3.0), rel=0.2)


def test_a_probe_of_threads_shows_that_two_wait_for_the_interpreter_s_lock(tmp_path: Path):
    clock = Clock()
    probe = Probe(Work(tmp_path), 3, 4, seconds=0.1, clock=clock)
    found = probe.now()
    assert found.first == found.second > 1.4 * found.one


def test_paces_are_told_beside_one_another():
    pace = Probed(3.0, 2.0, 3.0).over(Probed(2.0, 1.0, 2.0))
    assert pace == (1.5, 1.5, 2.0)
    assert pace.two == 1.75 and pace.uneven == pytest.approx(2.0 / 1.75)
    assert between(Pace(1.0, 2.0, 3.0), Pace(2.0, 4.0, 4.0)) == (1.5, 3.0, 3.5)
    assert middle([Probed(1.0, 9.0, 1.0), Probed(3.0, 7.0, 1.0), Probed(2.0, 8.0, 4.0)]) == (2.0, 8.0, 1.0)


def test_a_calibration_at_another_pace_costs_more_and_shares_more():
    slow = CALIBRATION.slower(Pace(1.2, 1.5, 1.5))
    assert slow.sample.mean == pytest.approx(1.2 * CALIBRATION.sample.mean)
    assert slow.sample.mean / slow.speed == pytest.approx(1.5 * CALIBRATION.sample.mean / CALIBRATION.speed)
    assert slow.handover == CALIBRATION.handover
    assert CALIBRATION.slower(Pace(1.0, 0.1, 0.1)).speed == 1.0


def test_two_workers_that_take_turns_go_at_the_slower_one_s_pace():
    uneven = CALIBRATION.slower(Pace(1.0, 0.9, 1.1))
    length = trial_length(CALIBRATION, SETTING, seconds=1.0)
    turns = replace(SETTING, workers=2, cores=2, ratio=0.6, step_s=step_time(CALIBRATION, replace(SETTING, ratio=0.6)))

    def period(calibration: Calibration, setting: Setting) -> float:
        return predict(calibration, setting, length, simulate).seconds_per_step

    assert period(uneven, turns) == pytest.approx(1.1 * period(CALIBRATION, turns), rel=0.03)
    for other in (replace(turns, ordered=False), replace(turns, workers=3), replace(turns, cores=1)):
        assert period(uneven, other) == period(CALIBRATION, other)


def test_a_worker_s_other_threads_cost_time_where_no_core_is_free():
    busy = replace(CALIBRATION, side=Spent((0.002,)))
    length = trial_length(CALIBRATION, SETTING, seconds=1.0)
    bound = replace(SETTING, ratio=0.6, step_s=step_time(CALIBRATION, replace(SETTING, ratio=0.6)))
    before, after = (predict(c, bound, length, simulate).seconds_per_step for c in (CALIBRATION, busy))
    assert after == pytest.approx(before + 0.001 / CALIBRATION.speed, rel=0.03)
    lone = replace(bound, workers=1)
    assert predict(busy, lone, length, simulate) == predict(CALIBRATION, lone, length, simulate)


def test_a_calibration_sees_what_a_worker_s_other_threads_cost(tmp_path: Path):
    pytest.importorskip("torch")
    work = Work(tmp_path)
    found = calibrate(work, 2, 2, Probe(work, 2, 2, seconds=0.1), rounds=2, run_s=0.1)
    assert 0.0 < found.side.mean < 0.5 * found.sample.mean
    assert found.probed.one > 0.0 and found.uneven >= 1.0
    assert calibrate(work, 1, 2, Probe(work, 1, 2, seconds=0.1), rounds=2, run_s=0.1).side == NOTHING


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
    trial = measured(0.3, before=STEADY, after=Pace(2.0, 2.0, 2.0))
    recorded = ledger(replace(found, trials=(trial,)))
    before = at_pace(recorded, simulate, lambda trial: trial.before)[0].prediction.idle
    around = at_pace(recorded, simulate)[0].prediction.idle
    assert before == predict(CALIBRATION, found.setting, length, simulate).idle
    assert 1.0 / (1.0 - around) == pytest.approx(1.5 / (1.0 - before), rel=0.03)  # limited by preparation alone


def test_drift_widens_the_interval_of_a_prediction_for_an_unknown_moment_alone():
    length = trial_length(CALIBRATION, SETTING, seconds=1.0)
    drifting = replace(CALIBRATION, drift=0.2)
    ahead, steady = (predict(c, SETTING, length, simulate) for c in (drifting, drifting.slower(STEADY)))
    assert ahead.idle == steady.idle
    assert ahead.high - ahead.low > 1.5 * (steady.high - steady.low)


def test_a_trial_during_which_the_pace_changed_does_not_count():
    assert "pace changed by +40%" in disturbance(measured(0.1, before=STEADY, after=Pace(1.4, 1.4, 1.4)), 0.0)
    slow = measured(0.2, sample_s=0.003, collate_s=0.0015, before=Pace(1.5, 1.5, 1.5), after=Pace(1.5, 1.5, 1.5))
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
    slow = replace(point(SETTING, 0.1), trials=(measured(0.3, before=Pace(1.0, 1.4, 1.4), after=Pace(1.0, 1.4, 1.4)),))
    assert "the machine's pace with two at work +40%" in cause(slow, ledger(slow).jobs[0])
