"""The machine's pace around trials."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from coresim.validate.calibrate import LEAST_STEPS, calibrate
from coresim.validate.costs import NOTHING
from coresim.validate.loaders import Cost, Timed
from coresim.validate.pace import LOOKS, Sampler
from test_validate import CALIBRATION, SETTING, ledger, measured, point

from coresim.errors import CoresimError
from coresim.report.validation import validation_document, validation_text
from coresim.sim.fast import simulate
from coresim.validate.predict import predict, step_time, trial_length
from coresim.validate.scans import spent
from coresim.validate.score import at_pace, cause, cost_changes, with_own_costs
from coresim.validate.session import judged
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


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def noted_at(began: float, made: float, cpu_number: int) -> Cost:
    return Cost(began, made, (), (), 0.0, 7, cpu_number=cpu_number)


def seen_now(sampler: Sampler, seconds: float) -> float:
    """What a worker would see that is at work from now on."""
    began = time.perf_counter()
    time.sleep(seconds)
    return sampler.seen([noted_at(began, time.perf_counter(), min(os.sched_getaffinity(0)))])


def test_the_sampler_repeats_the_same_work_and_shows_a_slower_machine(tmp_path: Path):
    work = Work(tmp_path)
    with Sampler(work, share=0.2) as sampler:
        usual = seen_now(sampler, 0.3)
        work.slower(3.0)
        time.sleep(0.1)
        found = seen_now(sampler, 0.5)
        taken, began = sampler.cpu_s, time.perf_counter()
        time.sleep(0.5)
        share = (sampler.cpu_s - taken) / (time.perf_counter() - began) / len(os.sched_getaffinity(0))
    assert found == pytest.approx(3.0 * usual, rel=0.25)
    assert 0.05 < share < 0.35
    (drawn,) = work.drawn()
    assert len(set(drawn[LOOKS:])) == 1  # the lightest sample, with the same random numbers


def test_the_sampler_pauses_before_every_cpu_it_visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Right after another CPU it would find warmer caches there, and read fast."""
    work = Work(tmp_path)
    with Sampler(work) as sampler:
        sampler._process.kill()
        sampler._process.join()
        sampler._cpus, sampler._rows, sampler._head = [0, 1, 2], np.zeros((4, 4)), np.zeros(2)
        happened: list[str] = []
        monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: happened.append("visit"))
        monkeypatch.setattr(os, "getppid", lambda: 1 if len(happened) < 12 else 2)
        monkeypatch.setattr(sampler, "_pause", lambda seconds, parent: happened.append("pause"))
        sampler._rounds(Timed(work), 1)
    assert happened == ["visit", "pause"] * 6


def test_the_sampler_ends_with_its_user_and_with_its_process(tmp_path: Path):
    with Sampler(Work(tmp_path)) as sampler:
        process = sampler._process
    assert not process.is_alive()
    code = """
import sys
from pathlib import Path
from test_validate_pace import Work, Sampler
sampler = Sampler(Work(Path(sys.argv[1])))
print(sampler._process.pid, flush=True)
sys.stdin.read()
"""
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(here.parent)])
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": paths},
    )  # fmt: skip
    assert child.stdout is not None and child.stdin is not None
    pid = int(child.stdout.readline())
    child.kill()
    child.communicate()
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_a_sampler_whose_user_is_gone_before_it_looks_makes_no_round(tmp_path: Path):
    with Sampler(Work(tmp_path)) as sampler:
        sampler._process.kill()
        sampler._process.join()
        before = sampler._head.copy()
        sampler._rounds(Timed(Work(tmp_path)), os.getpid())  # not this process's parent
        assert (sampler._head == before).all()


def test_a_sampler_that_died_is_told_and_not_waited_for(tmp_path: Path):
    with Sampler(Work(tmp_path)) as sampler:
        sampler._process.kill()
        sampler._process.join()
        with pytest.raises(CoresimError, match="has died"):
            seen_now(sampler, 0.1)


def test_speeds_are_averaged_over_the_cpus_that_the_workers_were_on(tmp_path: Path):
    with Sampler(Work(tmp_path)) as sampler:
        sampler._process.kill()
        sampler._process.join()
        sampler._cpus = [0, 1]
        # Rounds end at 1, 2 and 3 s; the second CPU is half as fast, the first one too in the last round.
        sampler._rows = np.array([[1.0, 1.0, 2.0], [2.0, 1.0, 2.0], [3.0, 2.0, 2.0], [9.0, 9.0, 9.0]])
        sampler._head = np.array([3.0, 0.0])
        fast, slow = noted_at(0.5, 1.9, 0), noted_at(0.5, 1.9, 1)
        assert sampler.seen([fast]) == 1.0
        assert sampler.seen([slow]) == 2.0
        assert sampler.seen([fast, slow]) == pytest.approx(1.0 / 0.75)
        assert sampler.seen([noted_at(2.5, 2.9, 0)]) == 2.0


def test_a_calibration_at_another_pace_costs_more():
    slow = CALIBRATION.slower(1.2)
    assert slow.sample.mean == pytest.approx(1.2 * CALIBRATION.sample.mean)
    assert slow.handover == CALIBRATION.handover


def test_what_sampling_takes_of_a_cpu_is_predicted():
    length = trial_length(CALIBRATION, SETTING, seconds=1.0)
    setting = replace(SETTING, ratio=0.6, step_s=step_time(CALIBRATION, replace(SETTING, ratio=0.6)))
    plain, sampled = (
        predict(c, setting, length, simulate).seconds_per_step for c in (CALIBRATION, replace(CALIBRATION, sampled=0.1))
    )
    assert sampled == pytest.approx(plain / 0.9, rel=0.02)


def test_a_calibration_sees_the_real_pipeline_s_costs(tmp_path: Path):
    pytest.importorskip("torch")
    work = Work(tmp_path)
    with Sampler(work) as sampler:
        found = calibrate(work, 2, 2, sampler, rounds=2, run_s=0.1)
        inline = calibrate(work, 1, 2, sampler, rounds=2, run_s=0.1)
    assert inline.receive == NOTHING and found.receive.mean > 0.0
    assert found.cpus == len(os.sched_getaffinity(0))
    assert "rest" in found.handover and not inline.handover
    assert found.usual_s == pytest.approx(found.sample.mean, rel=0.5)
    assert 0.0 < found.sampled < 0.1


class Slow(Work):
    """A batch of two takes a tenth of a second."""

    def fetch(self, index: int) -> int:
        time.sleep(0.05)
        return index


def test_batches_that_take_long_are_calibrated_with_few_of_them(tmp_path: Path):
    pytest.importorskip("torch")
    work = Slow(tmp_path)
    with Sampler(work) as sampler:
        found = calibrate(work, 2, 2, sampler, rounds=2, run_s=0.1)
    assert len(found.sample.values) == 2 * LEAST_STEPS * 2  # rounds, steps, samples


def test_a_calibration_ends_in_time_and_gives_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch")
    from coresim.validate import calibrate as module

    monkeypatch.setattr(module, "MOST_S", 0.1)
    work, told = Work(tmp_path), []
    with Sampler(work) as sampler:
        found = calibrate(work, 1, 2, sampler, rounds=50, run_s=0.1, progress=told.append)
    assert told == pytest.approx([1 / 50, 2 / 50])  # LEAST_ROUNDS: for the uncertainty
    assert len(found.sample.values) > 0


def test_a_point_is_predicted_anew_for_the_pace_around_its_trials():
    length = trial_length(CALIBRATION, SETTING, seconds=1.0)
    found = point(replace(SETTING, step_s=0.01), 0.3, 0.3)
    found = replace(found, steps=length.steps - length.warm_up, warm_up=length.warm_up)
    recorded = ledger(replace(found, trials=(measured(0.3), measured(0.3, pace=2.0))))
    usual = predict(CALIBRATION, found.setting, length, simulate)
    slow = predict(CALIBRATION.slower(2.0), found.setting, length, simulate)
    assert slow.seconds_per_step == pytest.approx(2.0 * usual.seconds_per_step, rel=0.03)
    again = at_pace(recorded, simulate)[0].prediction
    assert again.idle == pytest.approx((usual.idle + slow.idle) / 2.0)


def test_drift_widens_the_interval_of_a_prediction_for_an_unknown_moment_alone():
    length = trial_length(CALIBRATION, SETTING, seconds=1.0)
    drifting = replace(CALIBRATION, drift=0.2)
    ahead, steady = (predict(c, SETTING, length, simulate) for c in (drifting, drifting.slower(1.0)))
    assert ahead.idle == steady.idle
    assert ahead.high - ahead.low > 1.5 * (steady.high - steady.low)


def test_a_trial_on_a_slower_machine_counts_where_the_sampler_knew():
    slow = measured(0.2, sample_s=0.003, collate_s=0.0015, pace=1.5)
    known = judged(replace(point(SETTING, 0.3), trials=(measured(0.3), slow)))
    assert [trial.dirty for trial in known.trials] == ["", ""]


def test_the_answer_s_cost_is_held_beside_the_sweep_it_stands_in_for():
    scan = [replace(point(replace(SETTING, workers=n, at=2), 0.3, 0.3), warm_up=10, steps=90) for n in (1, 2, 3)]
    found = ledger(*scan)
    found = replace(found, jobs=(replace(found.jobs[0], seconds=12.0),))
    cost = spent(found)
    assert cost is not None and cost.answer_s == 12.0
    assert cost.sweep_s == pytest.approx(3 * 100 * 0.01 / 0.7)
    # Two passes over the data with each of three numbers of workers, each sample at the scans' measured pace.
    sample_s = 0.01 / 0.7 / SETTING.batch_size
    (samples,) = cost.samples.values()
    assert 2 * 3 * samples * sample_s == pytest.approx(10 * 12.0)
    assert f"{float(f'{samples:.1e}'):,.0f}" in validation_text(found)
    assert validation_document(found)["spent"]["answer_s"] == 12.0
    assert spent(ledger(scan[0])) is None
    assert spent(ledger(*scan)) is None  # what does not say how long its calibration took


def test_option_3_s_threads_are_no_cause_that_a_trial_notes():
    """The calibration has what its threads need, by the clock; the trial, CPU time, and another thread's receiving."""
    staged = replace(CALIBRATION, option=3)
    slow = replace(
        point(replace(SETTING, option=3), 0.1), trials=(measured(0.3, sample_s=0.009, receive_s=0.0, pace=1.4),)
    )
    assert cost_changes(slow, staged) == {"the machine's pace": pytest.approx(0.4)}
    recorded = ledger(slow)
    recorded = replace(recorded, jobs=(replace(recorded.jobs[0], calibration=staged),))
    (own,), (paced,) = with_own_costs(recorded, simulate), at_pace(recorded, simulate)
    assert own.prediction.idle == pytest.approx(paced.prediction.idle, abs=1e-6)


def test_a_miss_at_another_pace_names_it():
    slow = replace(point(SETTING, 0.1), trials=(measured(0.3, pace=1.4),))
    assert "the machine's pace +40%" in cause(slow, ledger(slow).jobs[0])
