"""Caffe and DALI, which do not install here: executable stand-ins of what their sources do, held to the model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import stand_ins

from coresim.model.build import build
from coresim.model.pipeline import Pipeline
from coresim.model.scenario import read_scenario
from coresim.sim.draws import draw
from coresim.sim.reference import simulate
from coresim.sim.run import RunLength, Trace

CALIBRATION = Path(__file__).resolve().parents[2] / "calibration"
STEPS = 40


def runs(name: str) -> list[Any]:
    document = json.loads((CALIBRATION / "probes" / f"{name}.json").read_text())
    assert document["format"] == "coresim-probe" and document["framework"].startswith("stand-in for")
    return list(document["runs"])


def line(preset: str, step: float, workers: int, prefetch: int, batch: int = 8, copy: float = 0.002) -> Pipeline:
    tables = {
        "workload": {"batch_size": batch, "preprocess": "4 ms", "copy": f"{copy} s"},
        "accelerator": {"step": f"{step} s", "sync": "block"},
        "loader": {"preset": preset},
    }
    return build(read_scenario(tables), 2, 64.0, workers, prefetch)


def trace(pipeline: Pipeline) -> Trace:
    return simulate(pipeline, draw(pipeline, STEPS, seed=1), RunLength(STEPS, trace=True)).traces[0]


def started(pipeline: Pipeline, taken: int) -> list[int]:
    """Batches started before the next one is taken, after 1, 2, ... ``taken`` were."""
    found = trace(pipeline)
    starts = [time for time in found.taken[0] if time is not None]
    return [sum(time < found.pick_up[count] for time in starts) for count in range(1, taken + 1)]


def differences(times: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


@pytest.mark.parametrize("run", runs("caffe"), ids=str)
def test_caffe_runs_ahead_as_far_as_the_model(run: dict[str, Any]) -> None:
    assert run["started"] == started(line("caffe", 9.0, 1, run["buffers"] - 2), len(run["started"]))


@pytest.mark.parametrize("run", runs("dali"), ids=str)
def test_dali_runs_ahead_as_far_as_the_model(run: dict[str, Any]) -> None:
    pipeline = line("dali", 9.0, run["workers"], run["depth"] - 1, run["batch_size"])
    # Who holds a batch while he trains on it has one fewer ahead.
    expected = [count - run["holds"] for count in started(pipeline, len(run["started"]))]
    assert run["started"] == expected


@pytest.mark.parametrize(("buffers", "step"), [(3, 0.02), (4, 0.02), (4, 0.04)])
def test_caffe_takes_every_batch_when_its_stand_in_does(buffers: int, step: float) -> None:
    found = trace(line("caffe", step, 1, buffers - 2)).pick_up
    expected = stand_ins.caffe_times(buffers, 0.032, 0.002, step, STEPS)
    assert differences(found[10:]) == pytest.approx(differences(expected[10:]))


@pytest.mark.parametrize(("depth", "threads", "step"), [(2, 4, 0.02), (2, 4, 0.005), (3, 3, 0.012), (2, 2, 0.016)])
@pytest.mark.parametrize("copy", [0.002, 0.02])
def test_dali_takes_every_batch_when_its_stand_in_does(depth: int, threads: int, step: float, copy: float) -> None:
    found = trace(line("dali", step, threads, depth - 1, copy=copy)).pick_up
    expected = stand_ins.dali_times(depth, threads, 8, 0.004, copy, step, STEPS)
    assert differences(found[10:]) == pytest.approx(differences(expected[10:]))
