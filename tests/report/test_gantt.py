"""Timelines of the first batches."""

from __future__ import annotations

from report_kit import TABLES

from coresim.model.scenario import read_scenario
from coresim.report.figures import plot_gantt
from coresim.sim.fast import simulate


def test_gantt_has_a_panel_for_each_option():
    figure = plot_gantt(read_scenario(TABLES), cores=3, workers=2, engine=simulate)
    assert [ax.get_title(loc="left")[:8] for ax in figure.axes] == ["Option 1", "Option 2", "Option 3"]
    rows = [label.get_text() for label in figure.axes[2].get_yticklabels()]
    assert rows[:2] == ["accelerator", "trainer picks up"]
    assert {"fetch 0", "preprocess 0", "preprocess 1", "copy 0"} <= set(rows)
