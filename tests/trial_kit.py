"""A job of made-up costs, one setting of its trials, and a ledger of what they measured."""

from __future__ import annotations

from dataclasses import replace

from coresim.validate.grid import Setting
from coresim.validate.ledger import Ledger, MeasuredTrial, RecordedJob, RecordedPoint
from coresim.validate.predict import Costs, Prediction

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


def measured(idle: float, **other: object) -> MeasuredTrial:
    """A clean trial of so much idle, with other fields where they are given."""
    clean = MeasuredTrial(idle, 0.01 / (1 - idle), (0, 10), (), (0, 14), 0.0, 0.002, 0.003, 0.001, 0.0)
    return replace(clean, **other)  # type: ignore[arg-type]


def point(setting: Setting, predicted: float, *idles: float) -> RecordedPoint:
    """A point that was predicted so, with trials of so much idle."""
    prediction = Prediction(predicted, predicted - 0.02, predicted + 0.02, 0.01 / (1 - predicted))
    return RecordedPoint(0, setting, 0.01, 50, 10, prediction, 0.2, 0.3, tuple(measured(idle) for idle in idles))


def ledger(*points: RecordedPoint) -> Ledger:
    """The ledger of one job with these points."""
    job = RecordedJob("images", "imagenet-like", COSTS)
    return Ledger("1", "coresim validate", "2026-01-01T00:00:00+00:00", "abc", "cpu", 2, "emulated", "g", "f" * 64, 9,
                  (job,), points)  # fmt: skip
