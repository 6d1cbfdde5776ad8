"""A validation: what it draws, which trials count, what is left to do, and what is told of it."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from trial_kit import SETTING, ledger, measured, point

from coresim.measure.server import Ask
from coresim.sim.fast import simulate
from coresim.validate import session
from coresim.validate.grid import Grid, load_grid
from coresim.validate.session import ATTEMPTS, FRESH, disturbance, judged, portions, unsettled
from coresim.workloads.named import WorkloadSpec


class Asked(Exception):
    """A measuring process was asked to calibrate, with this seed."""


class Rig(contextlib.nullcontext):  # type: ignore[type-arg]
    """A measuring process that only tells what it is asked."""

    facts = SimpleNamespace(batch_size=10)

    def __enter__(self) -> Rig:
        return self

    def ask(self, request: object, what: str = "") -> None:
        """Nothing: a rest before the calibration."""

    def calibrate(self, asked: Ask, progress: object) -> None:
        raise Asked(asked.seed)


def test_every_validation_draws_other_samples(monkeypatch):
    monkeypatch.setattr(session, "Server", lambda *spec, **settings: Rig())
    monkeypatch.setattr(session, "measure_bandwidth", lambda context: [])
    grid = Grid("one", "f" * 64, (SETTING,))
    seeds = set()
    for _ in range(2):
        with pytest.raises(Asked) as asked:
            session.validate(grid, {SETTING.workload: WorkloadSpec(SETTING.workload)}, ledger(), simulate)
        seeds |= set(asked.value.args)
    assert len(seeds) == 2


def test_dirty_trials_do_not_count():
    dirty = replace(point(SETTING, 0.3, 0.9, 0.3), trials=(measured(0.9, dirty="busy"), measured(0.3)))
    assert dirty.idle == pytest.approx(0.3)
    assert ledger(replace(dirty, trials=(measured(0.9, dirty="busy"),))).scored == ()
    assert disturbance(measured(0.1), 0.04, step_s=0.01) == ""
    assert "0.30 cores" in disturbance(measured(0.1, others_cores=0.3), 0.0, step_s=0.01)
    assert "50% more CPU time" in disturbance(measured(0.1), 0.5, step_s=0.01)
    late = measured(0.1, lateness_s=0.0015)
    assert "timer of the emulated step was 1.5 ms late" in disturbance(late, 0.0, step_s=0.01)
    assert disturbance(late, 0.0, step_s=0.02) == ""
    slow = judged(replace(point(SETTING, 0.3, 0.3), trials=(measured(0.3), measured(0.2, sample_s=0.003))))
    assert [bool(trial.dirty) for trial in slow.trials] == [False, True]


def test_what_is_not_settled_is_left_to_do():
    settings = tuple(replace(SETTING, workers=n, repeats=2) for n in (1, 2, 3, 4))
    once, twice, dirty = point(settings[0], 0.3, 0.3), point(settings[1], 0.3, 0.3, 0.3), point(settings[2], 0.3, 0.3)
    dirty = replace(dirty, trials=(measured(0.3, dirty="busy"),) * 3)
    hopeless = replace(point(settings[3], 0.3, 0.3), trials=(measured(0.3, dirty="busy"),) * (2 + ATTEMPTS))
    found = ledger(once, twice, dirty, hopeless)
    grid = Grid("g", "f", settings)
    assert unsettled(grid, found) == [settings[0], settings[2]]
    assert found.without(unsettled(grid, found)).points == (twice, hopeless)


def test_a_calibration_is_for_whole_scans_and_about_a_dozen_trials():
    settings = load_grid(Path(__file__).parents[2] / "calibration" / "grid.toml").settings
    found = portions(settings)
    assert sorted(map(repr, settings)) == sorted(repr(setting) for portion in found for setting in portion)
    for portion in found:
        assert len({setting.job for setting in portion}) == 1
        assert sum(setting.repeats for setting in portion) <= 1.5 * FRESH
        for setting in portion:  # all workers of a scan face the step time of one calibration
            scan = {replace(other, workers=1, repeats=1) for other in portion}
            assert not any(replace(s, workers=1, repeats=1) in scan for s in settings if s not in portion), setting
    job = [setting for setting in settings if setting.job == settings[0].job]
    assert len(portions(job)) == 5  # of 55 trials
    once = [replace(setting, repeats=1) for setting in job[:FRESH]]
    assert list(map(len, portions(once))) == [FRESH] and portions([]) == []
    whole = [replace(settings[0], workers=n, repeats=2) for n in range(1, 1 + FRESH)]
    assert portions(whole) == [whole]  # a scan is not cut


def test_settings_with_more_cores_than_there_are_are_left_out_and_said(tmp_path: Path):
    from coresim.validate.session import validate

    said: list[str] = []
    grid = Grid("g", "f", (replace(SETTING, cores=4096), replace(SETTING, cores=8192)))
    found = validate(grid, {}, ledger(), simulate, notice=said.append)
    assert not found.points
    assert len(said) == 1 and "2 settings with more cores are left out" in said[0]


def test_a_setting_whose_batches_are_the_loader_s_own_is_done_with_the_size_that_ran():
    from coresim.validate.session import unsettled

    grid = Grid("g", "f", (replace(SETTING, batch_size=0), replace(SETTING, batch_size=0, workers=3)))
    assert unsettled(grid, ledger(point(SETTING, 0.3, 0.3))) == [grid.settings[1]]
    assert unsettled(Grid("g", "f", (replace(SETTING, batch_size=7),)), ledger(point(SETTING, 0.3, 0.3)))
    # Half-done points of such a setting are dropped, whatever size ran; others stay.
    half = ledger(point(SETTING, 0.3, 0.3), point(replace(SETTING, workers=5), 0.3, 0.3))
    assert half.without(grid.settings).points == half.points[1:]


def test_who_interrupts_is_told_what_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    from coresim.cli.validate import _told_what_is_kept

    settings = (SETTING, replace(SETTING, workers=3))
    path = tmp_path / "l.json"
    with pytest.raises(KeyboardInterrupt), _told_what_is_kept(str(path), Grid("g", "f", settings)):
        ledger(point(SETTING, 0.3, 0.3)).save(path)
        raise KeyboardInterrupt
    assert "1 of 2 settings are kept" in capsys.readouterr().err


def test_a_trial_on_a_slower_machine_counts_where_the_sampler_knew():
    slow = measured(0.2, sample_s=0.003, collate_s=0.0015, slowdown=1.5)
    known = judged(replace(point(SETTING, 0.3), trials=(measured(0.3), slow)))
    assert [trial.dirty for trial in known.trials] == ["", ""]
