"""The page of calibration/ from a made-up ledger of real training; nothing is written there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import aims
import cuda_campaign
import pytest
import state
from accuracy import ledger_frame, near_knee
from choosing import core_choices
from made_up import COSTS, SETTING, STEP_S, at, ledger, point

from coresim.report.figures import plot_validation, save_figure
from coresim.report.validation import label, validation_text
from coresim.validate.grid import load_grid
from coresim.validate.predict import rate_period

TRAINED = ledger([at(2, 1, 0.61, 0.60, 0.62), at(4, 2, 0.21, 0.2), at(8, 3, 0.05, 0.04), at(8, 1, 0.6, 0.6)])


def test_real_training_is_near_the_knee_where_its_own_step_is():
    # A worker prepares a batch in 25 ms, three in a third of that; a step takes 10.2 ms, whatever "ratio" says.
    assert rate_period(COSTS, replace(SETTING, workers=3, cores=8)) == pytest.approx(0.025 / 3)
    points = [at(8, workers, 0.1, 0.1) for workers in (1, 2, 3, 4)]
    assert [p.step_s / rate_period(COSTS, p.setting) for p in points] == pytest.approx([0.408, 0.816, 1.224, 1.632])
    assert [p.setting.workers for p in near_knee(points, TRAINED.jobs)] == [2, 3]
    assert points[0].step_s == STEP_S
    emulated = [point(replace(SETTING, model="", ratio=ratio), 0.1, 0.1) for ratio in (0.5, 1.0)]
    assert [p.setting.ratio for p in near_knee(emulated)] == [1.0]


def test_a_ledger_as_a_frame():
    frame = ledger_frame(ledger([at(2, 2, 0.3, 0.28), at(2, 3, 0.3, 0.3)]))
    assert frame["error_points"].round(6).tolist() == [2.0, 0.0]
    assert frame["workers"].tolist() == [2, 3]


def choice(predicted: dict[int, float], measured: dict[int, float], repeat: float = 0.0) -> Any:
    points = [at(n, 1, predicted[n], measured[n], *([measured[n] + repeat] if repeat else [])) for n in predicted]
    [found] = core_choices(points)
    return found


def test_the_fewest_cores_that_are_as_good_are_recommended_and_best():
    same = choice({2: 0.5, 4: 0.109, 8: 0.1}, {2: 0.5, 4: 0.105, 8: 0.1})
    assert (same.tried, same.recommended, same.optimum) == ((2, 4, 8), 4, 4)
    assert same.agrees and not same.too_few
    few = choice({2: 0.5, 4: 0.109, 8: 0.1}, {2: 0.5, 4: 0.12, 8: 0.1})
    assert (few.recommended, few.optimum, few.agrees, few.too_few) == (4, 8, False, True)
    many = choice({2: 0.5, 4: 0.2, 8: 0.1}, {2: 0.1, 4: 0.1, 8: 0.1})
    assert (many.recommended, many.optimum, many.agrees, many.too_few) == (8, 2, False, False)


def test_one_core_or_a_tenth_off_is_near():
    one_core = choice({3: 0.1, 4: 0.1}, {3: 0.2, 4: 0.1})
    assert one_core.agrees and not one_core.too_few
    assert choice({18: 0.1, 20: 0.1}, {18: 0.2, 20: 0.1}).agrees  # a tenth of 20
    assert choice({17: 0.1, 20: 0.1}, {17: 0.2, 20: 0.1}).too_few


def test_what_repeats_differ_by_counts_as_equally_good():
    assert choice({2: 0.1, 8: 0.1}, {2: 0.13, 8: 0.1}).too_few
    assert choice({2: 0.1, 8: 0.1}, {2: 0.13, 8: 0.1}, repeat=0.04).optimum == 2


def test_each_core_count_is_as_good_as_the_best_of_its_workers():
    points = [at(4, 3, 0.1, 0.1), at(4, 1, 0.7, 0.7), at(8, 1, 0.7, 0.1), at(8, 7, 0.1, 0.6)]
    [found] = core_choices(points)
    assert (found.recommended, found.optimum) == (4, 4)


def test_only_jobs_with_several_core_counts_in_training_have_a_choice_and_each_its_own():
    other = replace(SETTING, pin_memory=False)
    points = [at(n, 1, 0.1, 0.1) for n in (2, 4)] + [at(n, 1, 0.1, 0.1, setting=other) for n in (2, 4)]
    points += [at(2, n, 0.1, 0.1, setting=replace(SETTING, precision="fp32")) for n in (1, 2)]
    points += [at(n, 1, 0.1, 0.1, setting=replace(SETTING, model="")) for n in (1, 2)]
    assert [found.setting.pin_memory for found in core_choices(points)] == [True, False]


def test_the_page_says_whether_training_on_a_device_was_recorded():
    emulated = replace(TRAINED, accelerator="emulated (blocks for the step time)")
    on_cpu = replace(TRAINED, accelerator="training tiny bf16 on cpu")
    for others in ({}, {"a.ledger.json": emulated}, {"a.ledger.json": on_cpu}):
        assert "**GPU accuracy is unproven**" in state.head(others)
    found = state.head({"a.ledger.json": emulated, "b.ledger.json": TRAINED})
    assert "unproven" not in found and "on a CUDA device: b.ledger.json." in found
    named = replace(TRAINED, accelerator="training tiny bf16 on cuda:1")
    assert state.on_cuda(named)


@pytest.mark.slow
def test_a_ledger_of_training_has_all_its_tables_and_its_own_bounds():
    text = state.section("b.ledger.json", TRAINED, "A word.\n")
    assert text.startswith("## b.ledger.json\n") and "A word." in text and "![predicted over measured](b.svg)" in text
    assert "| GPU idle, mean error | 3.00 % | 1.00 % (met) |" in text  # without those at the calibrated setting
    assert "| GPU idle, 95th percentile | 8.00 % |" in text and "throughput, median" not in text
    assert "of the measured optimum (1 jobs) | 95% | 100.0 % (met) |" in text
    assert "| too few cores recommended | 2% | 0.0 % (met) |" in text
    assert "| tiny bf16, pinned | 2 |" in text and "| the calibrated setting: one worker | 2 |" in text
    assert "| core sharing |" in text and "Noise floor" in text
    assert "near the knee (2 points)" in text
    emulated = replace(TRAINED, accelerator="emulated (blocks for the step time)")
    assert "| GPU idle, mean error | 2.00 % |" in aims.bounds(emulated, {"predicted ahead": emulated.scored})


def test_what_repeats_differ_by_stands_beside_the_errors_of_the_same_settings_and_excuses_none():
    points = [at(4, 2, 0.23, 0.2, 0.23), at(8, 3, 0.05, 0.09), at(8, 2, 0.1, 0.1)]
    loud = replace(ledger(points), accelerator="emulated")
    text = aims.bounds(loud, {"predicted ahead": loud.scored})
    assert "of the 1 settings that ran more than once" in text and "differ by 3.00 % on average and 3.00 % at" in text
    assert "the errors of these settings are 1.50 % and 1.50 %." in text
    assert "| GPU idle, 95th percentile | 6.00 % | " in text
    # Errors of 1.5, 4 and 0 points; 1.15 times 3 points is more than the mean's 2 and less than the percentile's 6.
    assert "1.15 times these differences is 3.45 % and 3.45 %" in text
    assert "mean 1.83 % (met), 95th percentile 3.75 % (met)." in text
    louder = replace(loud, points=(*loud.points, at(16, 2, 0.5, 0.3), at(16, 3, 0.1, 0.1)))
    text = aims.bounds(louder, {"predicted ahead": louder.scored})
    assert "mean 5.10 % **(not met)**, 95th percentile 16.80 % **(not met)**." in text
    once = replace(loud, points=loud.points[1:])
    assert "Repeats:" not in aims.bounds(once, {"predicted ahead": once.scored})


def test_a_ledger_without_an_undisturbed_trial_is_told_in_a_few_lines_and_drawn_empty(tmp_path: Path):
    lost = ledger([point(SETTING, 0.3, dirty=3)])
    assert "0 points count, 3 trials were disturbed, 1 points never ran undisturbed" in state.section("x", lost, "")
    figure = plot_validation(lost)
    assert [text.get_text() for text in figure.texts] == ["No trial was undisturbed: there is nothing to show."]
    save_figure(figure, str(tmp_path / "x.svg"))
    assert (tmp_path / "x.svg").stat().st_size > 0
    assert plot_validation(TRAINED).axes


def test_every_setting_of_the_declared_grid_has_a_label_of_its_own():
    settings = load_grid(Path(state.HERE) / "cuda_grid.toml").settings
    labels = {(setting.workload, label(point(setting, 0.1, 0.1))) for setting in settings}
    assert len(labels) == len(settings)
    assert label(at(8, 3, 0.1, 0.1)) == "option 2, 3 workers, 8 cores, prefetch 2, batch 10, tiny bf16, pinned"
    plain = replace(SETTING, model="", pin_memory=False)
    assert label(point(plain, 0.1, 0.1)) == "option 2, 1 workers, 2 cores, prefetch 2, batch 10"


def test_the_table_stays_in_line_where_a_setting_is_long():
    long = replace(SETTING, batch_size=128, model="a_rather_long_name_of_a_model")
    rows = validation_text(ledger([point(long, 0.3, 0.3), at(4, 2, 0.3, 0.3)])).splitlines()
    [head] = [number for number, row in enumerate(rows) if row.startswith("workload")]
    assert "2: 1w/2c pf2 b128 a_rather_long_name_of_a_model bf16 pin" in "".join(rows[head + 1 : head + 3])
    assert len({row.index(" ms") for row in rows[head + 1 : head + 3]}) == 1


def test_the_figure_is_called_the_same_by_the_campaign_and_the_page():
    assert state.picture_of("x.ledger.json") == cuda_campaign.figure_of(Path("x.ledger.json")).name
