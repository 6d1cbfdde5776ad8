"""What-if: the knobs turn what they say, the picture is the simulation's, the sliders drive it."""

from __future__ import annotations

import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest

import coresim
from coresim.errors import MissingPartError
from coresim.model.scenario import read_scenario
from coresim.report.interactive import CURVE_HEIGHT, what_if_svg
from coresim.report.what_if import POINTS, Knobs, brief, core_counts, curves, turned
from coresim.sim.estimate import Plan
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
    by_option = curves(SCENARIO, START, simulate)
    ours = by_option[2][3]
    full = coresim.simulate(SCENARIO, workers=3, cores=3).result
    assert ours.gpu_idle == pytest.approx(full.gpu_idle, abs=0.05)
    assert by_option[2][1].gpu_idle > ours.gpu_idle > by_option[2][max(by_option[2])].gpu_idle - 0.02
    assert by_option[1][1].gpu_idle == by_option[1][3].gpu_idle


@pytest.mark.parametrize(("workers", "prefetch"), [(8, 2), (24, 2), (64, 8)])
def test_brief_runs_come_near_the_long_ones(monkeypatch, workers, prefetch):
    """Over the whole curve, where the GPU waits and where it does not: three points of idle at the most."""
    knobs = replace(START, cores=workers, workers=workers, prefetch_factor=prefetch, step=0.032 / workers)
    assert brief(knobs).steps <= 100 + 3 * workers * prefetch
    found = curves(SCENARIO, knobs, simulate)
    monkeypatch.setattr("coresim.report.what_if.brief", lambda _: Plan(steps=2000, least=1, most=1, inputs=0))
    long = curves(SCENARIO, knobs, simulate)
    off = {
        (option, cores): abs(estimate.gpu_idle - long[option][cores].gpu_idle)
        for option, estimates in found.items()
        for cores, estimate in estimates.items()
    }
    assert max(off.values()) < 0.03


def drawn(scenario, knobs=START):
    """The estimate, and the picture's elements by tag."""
    found, svg = what_if_svg(scenario, knobs, simulate)
    elements: dict[str, list[ElementTree.Element]] = {}
    for element in ElementTree.fromstring(svg).iter():
        elements.setdefault(element.tag.rpartition("}")[2], []).append(element)
    return found, elements


def test_the_picture_shows_the_estimate():
    found, elements = drawn(SCENARIO)
    (dot,), curve = elements["circle"], elements["polyline"][1]
    bottom = max(
        float(y) for line in elements["polyline"] for _, y in [p.split(",") for p in line.get("points").split()]
    )
    assert 0.0 < found.gpu_idle < 1.0
    top = float(next(text for text in elements["text"] if text.text == "100").get("y")) - 4
    assert (float(dot.get("cy")) - top) / CURVE_HEIGHT == pytest.approx(1 - found.gpu_idle, abs=0.001)
    assert f"{float(dot.get('cx')):.1f},{float(dot.get('cy')):.1f}" in curve.get("points").split()
    assert bottom <= top + CURVE_HEIGHT
    texts = {text.text for text in elements["text"]}
    assert {
        "CPU cores per GPU",
        "GPU idle (%)",
        "time since the first batch was begun (s)",
        "2 overlapped",
        "target",
    } <= texts
    assert {"accelerator", "loader 0", "loader 1", "loader 2"} <= texts


def test_bars_stay_within_the_axes_and_names_within_the_picture():
    _, elements = drawn(SCENARIO, replace(START, workers=40))
    frames = [rect for rect in elements["rect"] if rect.get("fill") == "none"]
    left, right = float(frames[1].get("x")), float(frames[1].get("x")) + float(frames[1].get("width"))
    bars = [rect for rect in elements["rect"] if rect.get("stroke") == "white"]
    assert len(bars) > 10
    assert all(
        left <= float(bar.get("x")) <= float(bar.get("x")) + float(bar.get("width")) <= right + 0.1 for bar in bars
    )
    assert "(34 more)" in {text.text for text in elements["text"]}


def test_a_stage_name_of_the_user_is_text_in_the_picture():
    hostile = "<script>alert('x')</script> & \"$\""
    tables = {"workload": {"batch_size": 4}, "accelerator": {"step": "10 ms"}}
    stage = {"name": hostile, "service": "2 ms", "grain": "sample", "servers": 2}
    scenario = read_scenario({**tables, "stage": [stage]})
    _, elements = drawn(scenario, Knobs.of(scenario))
    assert "script" not in elements
    assert f"{hostile} 0" in {text.text for text in elements["text"]}


def test_letting_go_of_a_slider_redraws():
    pytest.importorskip("ipywidgets")
    box = coresim.what_if(SCENARIO)
    sliders = {child.description: child for child in box.children if hasattr(child, "description")}
    words, picture = box.children[-2:]
    before = words.value, bytes(picture.value)
    assert before[1].startswith(b"<svg")
    assert picture.format == "svg+xml"
    sliders["workers per GPU"].value = 1
    assert words.value != before[0]
    assert bytes(picture.value) != before[1]
    idle = float(words.value.split()[2])
    assert idle == pytest.approx(100 * coresim.simulate(SCENARIO, workers=1, cores=3).gpu_idle, abs=5)
    assert not any(slider.continuous_update for name, slider in sliders.items() if hasattr(slider, "continuous_update"))


def test_without_ipywidgets_the_remedy_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(MissingPartError, match=r"pip install ipywidgets$"):
        coresim.what_if(SCENARIO)
