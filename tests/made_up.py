"""A ledger of real training that nobody recorded, for tests of what is done with one."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from coresim.validate.costs import NOTHING, Calibration, Cost

from coresim.validate.grid import Setting
from coresim.validate.ledger import Job, Ledger, Measured, Point
from coresim.validate.predict import Prediction, by_buffer, by_rates, step_time
from coresim.validate.training import StepCost

CALIBRATION_FOLDER = Path(__file__).parents[1] / "calibration"
STEP_S = 0.0102
STEP = StepCost(step=(STEP_S,), launch=(0.001,), copy=0.001, copy_pinned=0.0005, slowdown=(1.0, 1.0))
#: A batch of 10 takes a worker 25 ms.
COSTS = Calibration(
    option=2, batch_size=10, sample=Cost((0.001, 0.003), 0.05), wait=NOTHING, batch=Cost((0.005,), 0.1),
    receive=Cost((0.0001,)), handover={}, pin=NOTHING, speed=1.0, speed_uncertainty=0.02, period_s=0.025, usual_s=1.0,
    cpus=16, training=STEP,
)  # fmt: skip
SETTING = Setting("images", 10, 2, 1, 2, 2, 1.0, model="tiny", precision="bf16", pin_memory=True)


def measured(idle: float, dirty: str = "") -> Measured:
    ends = tuple(range(10_000, 60_000, 10_000))
    return Measured(idle, STEP_S / (1 - idle), tuple(end - 9000 for end in ends), ends, 0.0, 0.002, 0.001, 0.0001, 0.0,
                    dirty=dirty)  # fmt: skip


def point(setting: Setting, predicted: float, *idles: float, dirty: int = 0) -> Point:
    """A point with clean trials of so much idle, and disturbed ones."""
    costs = replace(COSTS, option=setting.option)
    prediction = Prediction(predicted, max(0.0, predicted - 0.02), predicted + 0.02, STEP_S / (1 - predicted))
    trials = (*(measured(idle) for idle in idles), *(measured(0.5, "other programs") for _ in range(dirty)))
    step_s = step_time(costs, setting)
    return Point(0, setting, step_s, 20, 6, prediction, by_rates(costs, setting), by_buffer(costs, setting), trials)


def at(cores: int, workers: int, predicted: float, *idles: float, setting: Setting = SETTING) -> Point:
    """A point of that many cores and workers."""
    return point(replace(setting, cores=cores, workers=workers), predicted, *idles)


def ledger(points: Sequence[Point], **other: object) -> Ledger:
    job = Job("images", "imagenet-like", COSTS)
    made = Ledger("1", "coresim validate", "2026-01-01T00:00:00+00:00", "abc", "a CPU", 16,
                  "training tiny bf16 on cuda", "cuda_grid.toml", "f" * 64, len(points), (job,),
                  tuple(points))  # fmt: skip
    return replace(made, **other)  # type: ignore[arg-type]


def script(name: str) -> ModuleType:
    """A script of calibration/ as a module."""
    spec = importlib.util.spec_from_file_location(f"calibration_{name}", CALIBRATION_FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
