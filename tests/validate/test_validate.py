"""Validation: predictions, the grid, the score, the ledger; and the whole verb where torch is."""

from __future__ import annotations

import contextlib
import importlib.util
import random
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from accuracy import headline, is_calibrated, near_knee, repredict
from effects import effects_of, without, worth
from made_up import profile, with_work

from coresim.errors import InputError, MissingPartError, NewerFileError, UnknownKeyError
from coresim.measure.server import Ask
from coresim.report.validation import one_line, trusted, validation_document, validation_text
from coresim.sim.fast import simulate
from coresim.stats import t_quantile
from coresim.validate import session
from coresim.validate.grid import Grid, Setting, fixed_step, job_grid, load_grid, quick_grid
from coresim.validate.latest import keep, latest
from coresim.validate.ledger import Ledger, MeasuredTrial, RecordedJob, RecordedPoint, load_ledger
from coresim.validate.predict import (
    Costs,
    by_buffer,
    by_rates,
    predict,
    rate_period,
    step_time,
    trial_length,
)
from coresim.validate.score import (
    cause,
    choices,
    missing_term,
    score,
)
from coresim.validate.session import ATTEMPTS, FRESH, disturbance, judged, portions, unsettled
from coresim.workloads.named import WorkloadSpec

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the real loader is torch's")


COSTS = Costs(
    {
        "workload": {
            "batch_size": 10,
            "preprocess": {"values": [0.001, 0.003], "unit": "s", "uncertainty": 0.05},
            "collate": {"mean": "3 ms", "uncertainty": 0.1},
            "send": {"mean": "2 ms", "uncertainty": 0.1},
            "consumer": "1 ms",
        },
        "accelerator": {"step": "1 s"},
        "host": {"cores": 2, "speed": [1.0, 0.9], "speed_uncertainty": 0.02},
    }
)
SETTING = Setting("images", 10, 2, 2, 2, 2, 0.8)


def test_the_ratio_fixes_the_step_time_by_rates():
    assert rate_period(COSTS, replace(SETTING, workers=1)) == pytest.approx(0.025)
    assert rate_period(COSTS, SETTING) == pytest.approx(0.0125 / 0.9)
    assert rate_period(COSTS, replace(SETTING, cores=1)) == pytest.approx(0.025)
    assert step_time(COSTS, SETTING) == pytest.approx(0.8 * 0.0125 / 0.9)
    assert step_time(COSTS, replace(SETTING, workers=4, at=1)) == pytest.approx(0.8 * 0.025)
    assert step_time(COSTS, replace(SETTING, step_s=0.1)) == 0.1
    assert by_rates(COSTS, SETTING) == pytest.approx(0.2)
    assert by_buffer(COSTS, SETTING) > 0.2


def test_waiting_needs_workers_and_not_cores():
    waiting = with_work(COSTS, fetch="10 ms")
    assert rate_period(waiting, replace(SETTING, workers=4)) == pytest.approx(0.125 / 4)
    assert rate_period(waiting, replace(SETTING, workers=20)) == pytest.approx(0.0125 / 0.9)


def test_a_trial_is_whole_rounds_of_its_workers_after_a_warm_up_of_two_fillings():
    length = trial_length(COSTS, replace(SETTING, workers=3), seconds=2.0)
    assert length.warm_up == 2 * 6 + 2
    assert (length.steps - length.warm_up) % 3 == 0


def test_the_interval_holds_the_prediction_and_every_effect_can_be_switched_off():
    length = trial_length(COSTS, SETTING, seconds=1.0)
    found = predict(COSTS, SETTING, length, simulate)
    assert found.low < found.idle < found.high
    assert found.seconds_per_step == pytest.approx(step_time(COSTS, SETTING) / (1 - found.idle), rel=1e-3)
    idles = {effect: without(effect, COSTS, SETTING, length, simulate) for effect in effects_of(COSTS)}
    assert idles["receiving a batch"] < found.idle
    assert idles["collation and sending"] < found.idle
    assert idles["core sharing"] < found.idle
    assert idles["s(k)"] < found.idle


def test_a_spinning_trainer_takes_a_core_from_the_workers():
    length = trial_length(COSTS, SETTING, seconds=1.0)
    spin = predict(COSTS, replace(SETTING, sync="spin"), length, simulate)
    assert spin.idle > predict(COSTS, SETTING, length, simulate).idle + 0.1


def measured(idle: float, **other: object) -> MeasuredTrial:
    clean = MeasuredTrial(idle, 0.01 / (1 - idle), (0, 10), (), (0, 14), 0.0, 0.002, 0.003, 0.001, 0.0)
    return replace(clean, **other)  # type: ignore[arg-type]


def point(setting: Setting, predicted: float, *idles: float) -> RecordedPoint:
    from coresim.validate.predict import Prediction

    prediction = Prediction(predicted, predicted - 0.02, predicted + 0.02, 0.01 / (1 - predicted))
    return RecordedPoint(0, setting, 0.01, 50, 10, prediction, 0.2, 0.3, tuple(measured(idle) for idle in idles))


def ledger(*points: RecordedPoint) -> Ledger:
    job = RecordedJob("images", "imagenet-like", COSTS)
    return Ledger("1", "coresim validate", "2026-01-01T00:00:00+00:00", "abc", "cpu", 2, "emulated", "g", "f" * 64, 9,
                  (job,), points)  # fmt: skip


def test_the_score_counts_what_it_says():
    found = score([point(SETTING, 0.30, 0.28, 0.30), point(replace(SETTING, ratio=0.5), 0.5, 0.6)])
    assert found.idle_mean == pytest.approx((0.01 + 0.1) / 2)
    assert found.idle_max == pytest.approx(0.1)
    assert found.bias == pytest.approx((0.01 - 0.1) / 2)
    assert found.covered == 0.5
    assert found.noise_median == pytest.approx(0.02)
    assert found.rate_mean == pytest.approx((0.09 + 0.4) / 2)
    assert point(SETTING, 0.5, 0.6).throughput_error == pytest.approx(0.025 / 0.02 - 1)


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


def test_only_overlapped_points_about_equal_rates_are_near_the_knee():
    points = [point(replace(SETTING, ratio=r), 0.1, 0.1) for r in (0.5, 0.8, 1.25, 2.0)]
    points.append(point(replace(SETTING, option=1, workers=0, ratio=1.0), 0.1, 0.1))
    assert [p.setting.ratio for p in near_knee(points)] == [0.8, 1.25]


def test_the_recommended_workers_are_the_fewest_that_are_as_good():
    def scan(*idles: tuple[float, float]) -> list[RecordedPoint]:
        return [point(replace(SETTING, workers=n, at=2), p, m) for n, (p, m) in enumerate(idles, start=1)]

    agreed = choices(scan((0.5, 0.5), (0.1, 0.11), (0.095, 0.1)))[0]
    assert (agreed.recommended, agreed.best, agreed.agrees) == (2, 3, True)
    missed = choices(scan((0.5, 0.5), (0.1, 0.2), (0.095, 0.1)))[0]
    assert (missed.recommended, missed.best, missed.agrees) == (2, 3, False)
    assert choices(scan((0.5, 0.5), (0.1, 0.1))) == []
    noisy = [
        replace(p, trials=(measured(p.idle - 0.06), measured(p.idle + 0.06)))
        for p in scan((0.5, 0.5), (0.1, 0.2), (0.095, 0.1))
    ]
    within = choices(noisy)[0]
    assert (within.recommended, within.best, within.agrees) == (2, 3, True)
    # Repeats that differ by 0.12 have a deviation of 0.12 / sqrt(2), as has the difference of two means of two.
    assert within.lost == pytest.approx(0.1) and within.deviation == pytest.approx(0.12 / 2**0.5)
    assert within.noise == pytest.approx(within.deviation * t_quantile(0.95, 3))


@pytest.mark.slow
def test_numbers_of_workers_that_are_equally_good_count_so_in_nine_scans_of_ten():
    rng = random.Random(1)

    def agreed(better: float, scans: int = 2000) -> float:
        """The share that agrees where the last of four numbers idles less by so much; trials deviate by 0.03."""
        count = 0
        for _ in range(scans):
            idles = [[rng.gauss(0.5 - better * (n == 4), 0.03) for _ in range(2)] for n in (1, 2, 3, 4)]
            scan = [point(replace(SETTING, workers=n, at=2), 0.5, *found) for n, found in enumerate(idles, start=1)]
            count += choices(scan)[0].agrees
        return count / scans

    assert 0.89 < agreed(0.0) < 0.95
    assert agreed(0.15) < 0.2


def test_the_setting_that_was_calibrated_says_little_of_the_model():
    same = point(replace(SETTING, workers=1), 0.3, 0.3)
    changes = ({"workers": 2}, {"cores": 1}, {"prefetch_factor": 4}, {"ordered": False}, {"sync": "spin"})
    others = [replace(same, setting=replace(same.setting, **change)) for change in changes]
    assert is_calibrated(same) and not any(map(is_calibrated, others))
    assert headline([same, *others]) == others and headline([same]) == [same]


def test_a_miss_names_what_its_trial_shows():
    # Ten samples of 2.6 ms and their joining are 26 % dearer, and 13 % where two busy cores run at 0.9 of their speed.
    found = ledger(replace(point(SETTING, 0.1, 0.3), trials=(measured(0.3, sample_s=0.0026),)))
    assert "CPU time to prepare a batch +13%" in cause(found.points[0], found.jobs[0])
    alone = replace(found.points[0], setting=replace(SETTING, workers=1))
    assert "CPU time to prepare a batch +26%" in cause(alone, found.jobs[0])
    # Dearer samples do not explain that a trial idled less than predicted.
    less = replace(found.points[0], prediction=replace(found.points[0].prediction, idle=0.5))
    assert "CPU time to prepare a batch" not in cause(less, found.jobs[0])
    assert "CPU time to prepare a batch" in missing_term(found)
    assert not trusted(found)
    text = validation_text(found)
    assert text.startswith("Do not trust") and "CPU time to prepare a batch" in text
    assert "structure" in cause(point(SETTING, 0.1, 0.3), found.jobs[0])
    assert "repeats differ" in cause(point(SETTING, 0.1, 0.1, 0.4), found.jobs[0])
    assert "organisation" in missing_term(ledger(point(SETTING, 0.1, 0.3)))


def test_a_machine_whose_repeats_differ_too_much_cannot_tell():
    noisy = ledger(point(SETTING, 0.1, 0.2, 0.3))
    text = validation_text(noisy)
    assert not trusted(noisy) and "repeats of one setting differ by 10.0 points" in text
    assert text.startswith("This machine cannot tell") and "Most likely missing" not in text
    assert validation_text(ledger(point(SETTING, 0.1, 0.25, 0.25))).startswith("Do not trust")


def test_a_good_ledger_is_trusted_and_is_written_and_read_whole(tmp_path: Path):
    found = ledger(point(SETTING, 0.3, 0.28, 0.3))
    assert trusted(found) and "1.0 points" in one_line(found)
    found.save(tmp_path / "l.json")
    assert load_ledger(tmp_path / "l.json") == found
    document = validation_document(found)
    assert document["trusted"] and document["points"][0]["idle_measured"] == pytest.approx(0.29)


def test_what_a_calibration_warned_of_is_told_once():
    quiet = ledger(point(SETTING, 0.3, 0.28))
    assert "Warnings" not in validation_text(quiet) and validation_document(quiet)["warnings"] == []
    job = replace(quiet.jobs[0], warnings=("the machine was busy while costs were measured: other programs used 0.9",))
    # No point rests on the third one: it was interrupted.
    busy = replace(quiet, jobs=(job, job, replace(job, workload="text")))
    busy = replace(busy, points=(*busy.points, replace(busy.points[0], job=1)))
    told = "images: the machine was busy while costs were measured: other programs used 0.9"
    assert validation_text(busy).count(f"Warnings of the calibrations\n  - {told}") == 1
    assert validation_document(busy)["warnings"] == [told] and "text:" not in validation_text(busy)


def test_a_ledger_without_a_clean_trial_says_so_and_shows_what_there_is():
    assert "No trial was made" in validation_text(ledger())
    disturbed = ledger(replace(point(SETTING, 0.3, 0.9), trials=(measured(0.9, dirty="busy"),)))
    text = validation_text(disturbed)
    assert "No trial was undisturbed" in text and "predicted 30.0 %" in text and "90.0 % (busy)" in text
    assert not trusted(ledger()) and not trusted(disturbed)


def test_what_is_not_settled_is_left_to_do():
    settings = tuple(replace(SETTING, workers=n, repeats=2) for n in (1, 2, 3, 4))
    once, twice, dirty = point(settings[0], 0.3, 0.3), point(settings[1], 0.3, 0.3, 0.3), point(settings[2], 0.3, 0.3)
    dirty = replace(dirty, trials=(measured(0.3, dirty="busy"),) * 3)
    hopeless = replace(point(settings[3], 0.3, 0.3), trials=(measured(0.3, dirty="busy"),) * (2 + ATTEMPTS))
    found = ledger(once, twice, dirty, hopeless)
    grid = Grid("g", "f", settings)
    assert unsettled(grid, found) == [settings[0], settings[2]]
    assert found.without(unsettled(grid, found)).points == (twice, hopeless)


def test_worth_is_the_error_without_an_effect_less_that_with_it():
    length = trial_length(COSTS, SETTING, seconds=1.0)
    exact = predict(COSTS, SETTING, length, simulate)
    base = replace(point(SETTING, exact.idle, exact.idle), step_s=step_time(COSTS, SETTING))
    found = worth(ledger(replace(base, steps=length.steps - length.warm_up, warm_up=length.warm_up)), simulate)
    assert set(found) == set(effects_of(COSTS))
    collation = found["collation and sending"]
    assert collation["all"] == collation["images"] > 0.01
    assert list(collation) == ["all", "images"]
    again = repredict(ledger(replace(base, steps=length.steps - length.warm_up, warm_up=length.warm_up)), simulate)
    assert again.points[0].prediction == exact


@pytest.mark.parametrize(
    ("change", "error", "names"),
    [
        ({"schema_version": 99}, NewerFileError, "newer"),
        ({"schema_version": 5}, InputError, "earlier coresim.*validate again, into another file"),
        ({"format": "else"}, InputError, "coresim-ledger"),
        ({"jobs": [{"costs": []}]}, InputError, "not a whole ledger"),
        ({"points": None}, InputError, "not a whole ledger"),
    ],
)
def test_a_bad_ledger_is_refused(tmp_path: Path, change: dict, error: type, names: str):
    from coresim.files import write_json

    write_json(tmp_path / "l.json", ledger().to_dict() | change)
    with pytest.raises(error, match=names):
        load_ledger(tmp_path / "l.json")


def test_the_latest_ledger_is_found_by_host_and_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = ledger(point(SETTING, 0.3, 0.3))
    assert latest("abc", "imagenet-like") is None
    keep(found)
    assert latest("abc", "imagenet-like") == found
    assert latest("other", "imagenet-like") is None
    keep(ledger())  # says nothing, so it does not replace what does
    assert latest("abc", "imagenet-like") == found
    jobs = tuple(RecordedJob(*named, COSTS) for named in (("images", "imagenet-like"), ("tiny", "mine")))
    other = replace(ledger(point(SETTING, 0.3, 0.3), replace(point(SETTING, 0.9, 0.3), job=1)), jobs=jobs)
    keep(other)
    kept = [latest("abc", title) for title in ("imagenet-like", "mine")]
    assert [[p.prediction.idle for p in one.points] for one in kept if one] == [[0.3], [0.9]]
    for path in tmp_path.rglob("abc-*.json"):
        text, older = path.read_text(), {'"schema_version": 7': '"schema_version": 6', '"slowdown"': '"pace"'}
        for new, old in ({'"warnings"': '"cautions"'} | older).items():
            text = text.replace(new, old)
        path.write_text(text)
    assert latest("abc", "imagenet-like") == kept[0]  # the keys of version 6 had other names
    for path in tmp_path.rglob("abc-*.json"):
        path.write_text(path.read_text().replace('"schema_version": 6', '"schema_version": 4'))
    assert latest("abc", "imagenet-like") is None  # recorded by an earlier coresim


def test_a_grid_is_all_combinations_of_its_blocks(tmp_path: Path):
    path = tmp_path / "g.toml"
    path.write_text(
        '[[block]]\nworkload = "images"\nbatch_size = 16\nworkers = [1, 2]\nratio = [0.5, 1]\nrepeats = 2\n'
    )
    grid = load_grid(path)
    assert [(s.workers, s.ratio) for s in grid.settings] == [(1, 0.5), (1, 1), (2, 0.5), (2, 1)]
    assert {s.repeats for s in grid.settings} == {2} and len(grid.sha256) == 64


@pytest.mark.parametrize(
    ("text", "error", "names"),
    [
        ("[[block]]\nworkload = 'a'\nbatch_size = 1\nratio = 1\nspeed = 2\n", UnknownKeyError, "block.speed"),
        ("[[block]]\nworkload = 'a'\nratio = 1\n", InputError, "block.batch_size: missing"),
        ("[[block]]\nworkload = 'a'\nbatch_size = 1\nratio = 'x'\n", InputError, "block.ratio"),
        ("[[block]]\nworkload = 'a'\nbatch_size = 1\nratio = 0\n", InputError, "ratio"),
        ("[[block]]\nworkload = 'a'\nbatch_size = 1\nratio = 1\nworkers = 0\n", InputError, "at least one worker"),
        ("block = 3\n", UnknownKeyError, "block"),
    ],
)
def test_a_bad_grid_is_refused_with_file_and_key(tmp_path: Path, text: str, error: type, names: str):
    (tmp_path / "g.toml").write_text(text)
    with pytest.raises(error, match=names):
        load_grid(tmp_path / "g.toml")


def test_built_in_grids():
    assert 2 <= len(quick_grid("images", 16, 2).settings) <= 3
    grid = job_grid("images", 16, 4)
    assert {s.workers for s in grid.settings} == {0, 1, 2, 4, 5}
    fixed = fixed_step(grid, 0.1)
    assert {s.step_s for s in fixed.settings} == {0.1} and len(fixed.settings) == 5


def test_the_declared_grid_has_the_eight_jobs_and_most_points_near_the_knee():
    grid = load_grid(Path(__file__).parents[2] / "calibration" / "grid.toml")
    assert len(grid.settings) >= 250
    assert len({setting.workload for setting in grid.settings}) == 8
    near = sum(0.8 <= setting.ratio <= 1.25 for setting in grid.settings)
    assert near > len(grid.settings) / 2


def test_a_calibration_is_for_whole_scans_and_about_twenty_trials():
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
    assert len(portions(job)) == 3  # of 55 trials
    once = [replace(setting, repeats=1) for setting in job[:FRESH]]
    assert list(map(len, portions(once))) == [FRESH] and portions([]) == []
    whole = [replace(settings[0], workers=n, repeats=2) for n in range(1, 1 + FRESH)]
    assert portions(whole) == [whole]  # a scan is not cut


def test_recommend_shows_the_latest_ledger_of_its_host_and_workload(
    profile_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    import json

    from coresim.cli.main import main

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    main(["recommend", str(profile_path), "--max-cores", "2", "--options", "2", "--verbose"])
    assert "not validated here" in capsys.readouterr().out
    known = replace(
        ledger(point(SETTING, 0.3, 0.28, 0.3)),
        host_fingerprint=profile().host.fingerprint,
        jobs=(RecordedJob("images", profile().workload, COSTS),),
    )
    keep(known)
    main(["recommend", str(profile_path), "--max-cores", "2", "--options", "2", "--verbose"])
    assert "1.0 points on average over 1 settings" in capsys.readouterr().out.replace("\n    ", " ")
    main(["recommend", str(profile_path), "--max-cores", "2", "--options", "2", "--json"])
    assert "1.0 points" in json.loads(capsys.readouterr().out)["metadata"]["validation"]


@pytest.fixture
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is measured in no time, and nothing is too disturbed to count."""
    from coresim.validate import session, trials

    monkeypatch.setattr(trials, "TRIAL_S", 0.2)
    monkeypatch.setattr(session, "BUDGET_S", 0.3)
    monkeypatch.setattr(session, "BANDWIDTH_S", 0.1)
    for bound in ("MOST_OTHERS", "MOST_SLOWER", "MOST_LATE"):
        monkeypatch.setattr(session, bound, 1e9)
    monkeypatch.setattr(session, "ATTEMPTS", 0)


@needs_torch
@pytest.mark.parametrize(("text", "told"), [("0 s", "must be more than 0"), ("5", "unit missing")])
def test_a_trial_lasts_some_time(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: str):
    from coresim.cli.main import main

    assert main(["validate", "--quick", "-o", str(tmp_path / "ledger.json"), "--trial-time", text]) == 2
    assert told in capsys.readouterr().err and not (tmp_path / "ledger.json").exists()


class Late:
    def __init__(self) -> None:
        time.sleep(60.0)


@needs_torch
@pytest.mark.usefixtures("in_a_hurry")
def test_validate_gives_up_a_data_set_that_takes_too_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    from coresim.cli.main import main

    flags = ["--dataset", f"{__file__}:Late", "--build-timeout", "1 s", "-o", str(tmp_path / "ledger.json")]
    assert main(["validate", "--quick", *flags]) == 2
    assert "took more than 1 s; " in capsys.readouterr().err


@needs_torch
@pytest.mark.usefixtures("in_a_hurry")
def test_validate_from_the_command_line_writes_a_ledger_and_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from coresim.cli.main import main

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    grid = tmp_path / "grid.toml"
    grid.write_text('[[block]]\nworkload = "tiny"\nbatch_size = 64\nworkers = [1, 2]\nratio = [1.0]\n')
    output = tmp_path / "ledger.json"
    arguments = ["validate", "--grid", str(grid), "-o", str(output), "--max-error", "1", "--trial-time", "0.2 s"]
    assert main([*arguments, "--time", "1 ms"]) == 5
    assert "nothing can be said" in capsys.readouterr().out
    assert main([*arguments, "--figure", str(tmp_path / "f.svg")]) == 0
    found = load_ledger(output)
    assert len(found.points) == 2 and all(p.trials and p.trials[0].step_starts_us for p in found.points)
    (job,) = found.jobs  # one calibration for all settings
    assert job.costs.scenario.workload.preprocess.mean > 0 and job.seconds > 0
    assert "<svg" in (tmp_path / "f.svg").read_text()
    capsys.readouterr()
    assert main([*arguments, "--time", "1 ms"]) == 5  # the finished one steps aside
    assert "finished validation; kept as" in capsys.readouterr().err
    assert load_ledger(f"{output}.old") == found and not load_ledger(output).points
    assert list((tmp_path / "state" / "coresim" / "ledgers").iterdir())


@needs_torch
@pytest.mark.usefixtures("in_a_hurry")
def test_the_process_that_built_a_data_set_makes_all_of_its_calibrations_and_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from coresim.cli.main import main
    from coresim.measure.server import Server
    from coresim.validate import session

    built: list[Any] = []
    monkeypatch.setattr(session, "Server", lambda *given, **named: built.append(given) or Server(*given, **named))
    grid, output = tmp_path / "grid.toml", tmp_path / "ledger.json"
    grid.write_text('[[block]]\nworkload = "tiny"\nbatch_size = 64\nworkers = [1]\noption = [2, 3]\nratio = [1.0]\n')
    arguments = ["validate", "--grid", str(grid), "-o", str(output), "--max-error", "1", "--trial-time", "0.2 s"]
    assert main(arguments) == 0
    found = load_ledger(output)
    assert len(built) == 1 and len(found.jobs) == 2
    assert {point.job: point.setting.option for point in found.points} == {0: 2, 1: 3}
    assert all(job.seconds > 0 for job in found.jobs)
    # Interrupted before the second calibration: it goes on with that one alone.
    replace(found, jobs=found.jobs[:1], points=found.points[:1]).save(output)
    assert main(arguments) == 0
    again = load_ledger(output)
    assert again.jobs[0] == found.jobs[0] and again.points[0] == found.points[0] and len(built) == len(again.jobs) == 2
    assert {point.job: point.setting.option for point in again.points} == {0: 2, 1: 3}


def test_a_process_trains_one_model_whichever_job_asks(monkeypatch: pytest.MonkeyPatch):
    from coresim.validate import trials

    made: list[Any] = []

    class Trained:
        device = SimpleNamespace(name=lambda: "a device", loading=contextlib.nullcontext)

        def __init__(self, *given: Any) -> None:
            made.append(given)

        cost, relaunched = staticmethod(lambda: "new"), staticmethod(lambda told: f"{told} again")

    monkeypatch.setattr(trials, "Training", Trained)
    setting, rig, asked = job_grid("tiny", 4, 2).settings[0], SimpleNamespace(workload=None), trials.Trials()
    told = [
        asked(rig, trials.Train(replace(setting, model="tiny"), "cpu", again))  # type: ignore[arg-type]
        for again in (None, "new", None)
    ]
    assert len(made) == 1
    assert told == [("a device", cost) for cost in ("new", "new again", "new")]


@pytest.fixture
def a_user_s_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which modules are imported; the command runs there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


BRIEFLY = ("--quick", "--trial-time", "0.2 s", "--max-error", "1", "-o", "own.json")


@needs_torch
@pytest.mark.usefixtures("in_a_hurry")
def test_batches_are_those_of_the_loader_that_is_named(a_user_s_folder: Path, capsys: pytest.CaptureFixture[str]):
    from coresim.cli.main import main

    (a_user_s_folder / "loader_of_a_user.py").write_text(
        "import torch\nfrom torch.utils.data import DataLoader\n"
        "def make():\n    return DataLoader([torch.zeros(4) for _ in range(50)], batch_size=8)\n"
    )
    arguments = ["validate", "--dataset", "loader_of_a_user:make", "--step-time", "5 ms", *BRIEFLY]
    assert main(arguments) == 0
    found = load_ledger("own.json")
    assert {point.setting.batch_size for point in found.points} == {8}
    assert {job.costs.scenario.workload.batch_size for job in found.jobs} == {8} and len(found.points) == 3
    assert main([*arguments, "--time", "1 ms"]) == 5
    assert "a finished validation; kept as" in capsys.readouterr().err


@needs_torch
@pytest.mark.usefixtures("in_a_hurry")
def test_validate_trains_with_the_user_s_own_step(a_user_s_folder: Path, capsys: pytest.CaptureFixture[str]):
    from coresim.cli.main import main

    (a_user_s_folder / "job_of_a_user.py").write_text(
        "import time, torch\n"
        "def data():\n    return [torch.zeros(4) for _ in range(50)]\n"
        "def train_step(batch):\n    assert batch.shape == (8, 4)\n    time.sleep(0.002)\n"
    )
    job = ["--dataset", "job_of_a_user:data", "--step", "job_of_a_user:train_step", "--batch-size", "8"]
    assert main(["validate", *job, "--device", "cpu", *BRIEFLY]) == 0
    found = load_ledger("own.json")
    assert found.accelerator == "training job_of_a_user:train_step on cpu"
    assert {p.setting.model for p in found.points} == {"job_of_a_user:train_step"}
    assert all(p.step_s >= 0.002 and p.clean for p in found.points)
    for step_s, trial in ((p.step_s, trial) for p in found.points for trial in p.trials):
        assert trial.idle == pytest.approx(1.0 - step_s / trial.seconds_per_step)
        assert trial.uncovered is not None and trial.launch_s is not None
        assert 0 <= trial.uncovered < 1 and 0 < trial.launch_s < 2 * trial.seconds_per_step
    assert "training job_of_a_user:train_step on cpu" in capsys.readouterr().out


def test_training_without_a_device_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from coresim.cli.main import main
    from coresim.measure import parts

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(parts, "optional_parts", tuple)
    assert main(["validate", "--model", "tiny"]) == MissingPartError.exit_code
    told = capsys.readouterr().err
    assert "no CUDA device" in told and "--step-time" in told and len(told.splitlines()) == 1


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


@pytest.mark.parametrize(
    "arguments",
    [
        ("--grid", "missing.toml"),
        ("--grid", "g.toml", "--quick"),
        ("--workload", "images", "--dataset", "a:b"),
        ("--figure", "f.xyz"),
        ("--workload", "no-such-job"),
        ("--step-time", "12"),
        ("--batch-size", "0"),
        ("--grid", "g.toml", "--batch-size", "0"),
        ("--step", "a:b", "--model", "tiny"),
        ("--model", "tiny", "--step-time", "12 ms"),
        ("--precision", "bf16"),
        ("--step", "no_colon", "--device", "cpu"),
        ("--model", "alexnet", "--device", "cpu"),
        ("--model", "tiny", "--precision", "fp8", "--device", "cpu"),
    ],
)
def test_bad_usage_of_validate_is_one_line(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from coresim.cli.main import main

    monkeypatch.chdir(tmp_path)
    assert main(["validate", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
