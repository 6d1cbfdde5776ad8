"""What-if: the knobs turn what they say, the picture is the simulation's, the sliders drive it."""

from __future__ import annotations

import sys
from dataclasses import replace

import matplotlib as mpl
import pytest

mpl.use("Agg")

from matplotlib.figure import Figure

import coresim
from coresim.errors import MissingPartError
from coresim.model.scenario import read_scenario
from coresim.report.what_if import POINTS, Knobs, core_counts, curves, draw_what_if, turned
from coresim.sim.fast import simulate

SCENARIO = read_scenario(
    {
        "workload": {"batch_size": 8, "preprocess": {"mean": "4 ms", "cv": 0.5}, "consumer": "1 ms", "batch_bytes": 80},
        "accelerator": {"step": "12 ms"},
        "host": {"cores": 3},
    }
)
START = Knobs.of(SCENARIO)


def test_knobs_start_where_the_scenario_is():
    assert turned(SCENARIO, START) == SCENARIO
    assert (START.cores, START.workers, START.prefetch_factor) == (3, 3, 2)


def test_knobs_turn_what_they_say():
    found = turned(SCENARIO, replace(START, batch_size=16, step=0.02, preprocess=0.001, fetch=0.005))
    assert (found.workload.batch_size, found.accelerator.step.mean, found.workload.fetch.mean) == (16, 0.02, 0.005)
    assert (found.workload.preprocess.mean, found.workload.preprocess.cv) == (0.001, 0.5)
    # A batch of twice the samples costs its receiver twice as much.
    assert (found.workload.consumer.mean, found.workload.batch_bytes) == (0.002, 160)


@pytest.mark.parametrize("cores", [1, 2, 7, 64])
def test_the_chosen_cores_are_on_the_curve_and_the_curve_is_short(cores):
    counts = core_counts(replace(START, cores=cores, workers=cores))
    assert {1, cores, max(2 * cores, cores + 4)} <= set(counts)
    assert len(counts) <= POINTS + 2


def test_the_curve_is_that_of_simulate():
    by_option = {
        option: dict(zip(counts, found, strict=True)) for option, counts, found in curves(SCENARIO, START, simulate)
    }
    ours = by_option[2][3]
    full = coresim.simulate(SCENARIO, workers=3, cores=3).result
    assert ours.gpu_idle == pytest.approx(full.gpu_idle, abs=0.05)
    assert by_option[2][1].gpu_idle > ours.gpu_idle > by_option[2][max(by_option[2])].gpu_idle - 0.02
    assert by_option[1][1].gpu_idle == by_option[1][3].gpu_idle


def test_the_picture_shows_the_estimate():
    figure = Figure()
    found = draw_what_if(figure, SCENARIO, START, simulate)
    above, below = figure.axes
    point = next(line for line in above.lines if line.get_marker() == "o")
    assert point.get_ydata() == [100 * found.gpu_idle]
    assert "(s)" in below.get_xlabel()
    assert {"loader 0", "loader 1", "loader 2"} <= {label.get_text() for label in below.get_yticklabels()}


def test_letting_go_of_a_slider_redraws():
    pytest.importorskip("ipywidgets")
    box = coresim.what_if(SCENARIO)
    sliders = {child.description: child for child in box.children if hasattr(child, "description")}
    words, picture = box.children[-2:]
    before = words.value, bytes(picture.value)
    assert before[1].startswith(b"\x89PNG")
    sliders["workers per GPU"].value = 1
    assert words.value != before[0]
    assert bytes(picture.value) != before[1]
    idle = float(words.value.split()[2])
    assert idle == pytest.approx(100 * coresim.simulate(SCENARIO, workers=1, cores=3).gpu_idle, abs=5)
    assert not any(slider.continuous_update for name, slider in sliders.items() if hasattr(slider, "continuous_update"))


def test_without_ipywidgets_the_remedy_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(MissingPartError, match=r"pip install 'coresim\[notebook\]'"):
        coresim.what_if(SCENARIO)
