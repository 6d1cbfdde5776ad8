"""What sweeps and simple rules would choose, and what an answer costs beside a sweep."""

from __future__ import annotations

from dataclasses import replace

import pytest
from choosing import choices_of_rules, choices_of_sweeps, cost_text, spent, within_deviation
from trial_kit import SETTING, ledger, point

from coresim.validate.ledger import RecordedPoint


def test_what_a_child_would_choose_stands_beside_the_recommendation():
    points = [point(replace(SETTING, workers=n, at=2), 0.9, idle) for n, idle in ((1, 0.5), (2, 0.1), (5, 0.095))]
    found = choices_of_rules(points, cores=5)
    # Nobody tried 3 or 4.
    assert {rule: [(c.recommended, c.best, c.agrees) for c in made] for rule, made in found.items()} == {
        "always 1": [(1, 5, False)], "always 2": [(2, 5, True)], "workers = cores (5)": [(5, 5, True)],
    }  # fmt: skip
    assert found["always 1"][0].lost == pytest.approx(0.405)


def test_a_sweep_s_own_choice_is_judged_by_its_other_pass():
    def scan(*passes: tuple[float, ...]) -> list[RecordedPoint]:
        return [point(replace(SETTING, workers=n, at=2), 0.9, *idles) for n, idles in enumerate(passes, start=1)]

    steady = choices_of_sweeps(scan((0.5, 0.5), (0.1, 0.1), (0.095, 0.1)))
    assert [(choice.recommended, choice.agrees) for choice in steady] == [(2, True), (2, True)]
    # The first pass takes 3 workers, which the second finds 0.2 worse than 2; and the other way round.
    fooled = choices_of_sweeps(scan((0.5, 0.5), (0.2, 0.1), (0.1, 0.4)))
    assert [choice.recommended for choice in fooled] == [3, 2]
    assert [choice.lost for choice in fooled] == [pytest.approx(0.3), pytest.approx(0.1)]
    assert [within_deviation(choice) for choice in fooled] == [False, True]
    assert [choice.agrees for choice in fooled] == [True, True]  # repeats that differ so much tell nothing
    assert choices_of_sweeps(scan((0.5,), (0.1,), (0.1,))) == []


def test_the_answer_s_cost_is_held_beside_the_sweep_it_stands_in_for():
    scan = [replace(point(replace(SETTING, workers=n, at=2), 0.3, 0.3), warm_up=10, steps=90) for n in (1, 2, 3)]
    found = ledger(*scan)
    found = replace(found, jobs=(replace(found.jobs[0], seconds=12.0),))
    cost = spent(found)
    assert cost is not None and cost.answer_s == 12.0
    assert cost.sweep_s == pytest.approx(3 * 100 * 0.01 / 0.7)
    # Two passes over the data with each of three numbers of workers, each sample at the scans' measured speed.
    sample_s = 0.01 / 0.7 / SETTING.batch_size
    (samples,) = cost.samples.values()
    assert 2 * 3 * samples * sample_s == pytest.approx(10 * 12.0)
    assert f"{float(f'{samples:.1e}'):,.0f}" in cost_text(cost)
    # A job that was calibrated twice has two answers, of which one stands in for its sweeps.
    again = [replace(made, job=1, setting=replace(made.setting, ratio=0.5), step_s=0.02) for made in scan]
    both = replace(ledger(*scan, *again), jobs=(found.jobs[0], replace(found.jobs[0], seconds=18.0)))
    two = spent(both)
    assert two is not None and two.answer_s == 15.0 and two.sweep_s == pytest.approx(2 * cost.sweep_s)
    assert [2 * 3 * size * sample_s for size in two.samples.values()] == [pytest.approx(10 * 15.0)]
    assert spent(ledger(scan[0])) is None
    assert spent(ledger(*scan)) is None  # what does not say how long its calibration took
