"""Charts are drawn from the same result objects as tables and text."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_kit import TABLES

from coresim.model.scenario import read_scenario
from coresim.report.figures import plot_gantt, save_figure
from coresim.sim.fast import simulate


def test_plot_draws_one_curve_for_each_option_with_units(answer):
    axes = answer.plot()
    labels = axes.get_legend_handles_labels()[1]
    assert {"1 no overlap", "2 overlapped", "3 staged", "knee", "target", "recommended"} == set(labels)
    assert "%" in axes.get_ylabel()


@pytest.mark.slow
def test_the_same_figure_is_the_same_file(tmp_path: Path):
    for name in ("one", "other"):
        figure = plot_gantt(read_scenario(TABLES), cores=3, workers=2, engine=simulate)
        for form in ("svg", "pdf", "png"):
            save_figure(figure, str(tmp_path / f"{name}.{form}"))
    for form in ("svg", "pdf", "png"):
        assert (tmp_path / f"one.{form}").read_bytes() == (tmp_path / f"other.{form}").read_bytes(), form
