"""A profile and a ledger of real training that nobody recorded, for tests of what is done with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from coresim.model.host import CoreTerm, HostFacts
from coresim.model.measurement import Measurement
from coresim.model.profile import AcceleratorSource, Profile, Provenance
from coresim.validate.grid import Setting
from coresim.validate.ledger import Ledger, MeasuredTrial, RecordedJob, RecordedPoint
from coresim.validate.predict import Costs, Prediction, by_buffer, by_rates, step_time
from coresim.validate.training import StepCost

CALIBRATION_FOLDER = Path(__file__).parents[1] / "calibration"
HOST = HostFacts(
    terms=(CoreTerm("affinity", 2.0, "two threads"), CoreTerm("physical", 2.0, "two cores")),
    threads_per_core=1, physical_cores=2, cpu_model="a CPU", memory_bytes=24 * 10**9, shm_bytes=24 * 10**9,
)  # fmt: skip
RECORDED = AcceleratorSource(
    kind="catalogue",
    provenance="catalogue: ResNet-50 v1.5 on A100 (MLPerf Training v2.1 NVIDIA); judged within ±37%;"
    " source: result_0.txt",
    uncertainty=0.18, step_time_s=0.075, name="A100-SXM4-80GB",
)  # fmt: skip
#: What a calibration of three rounds found of a job like ImageNet: a worker prepares a batch of 256 in 1.54 s.
FOUND = (
    ("prepare.sample", "s/sample", ((0.005, 0.006), (0.0052, 0.0062), (0.0054, 0.006))),
    ("prepare.step.fetch", "s/sample", ((0.0001,), (0.0001,), (0.0001,))),
    ("prepare.step.decode", "s/sample", ((0.0028,), (0.0029,), (0.0029,))),
    ("prepare.step.transform", "s/sample", ((0.0026,), (0.0027,), (0.0027,))),
    ("prepare.collate", "s/batch", ((0.06,), (0.062,), (0.064,))),
    ("prepare.send", "s/batch", ((0.01,), (0.012,), (0.011,))),
    ("receive.cpu", "s/batch", ((0.0004,), (0.0005,), (0.0004,))),
    ("receive.release", "s/batch", ((0.0001,), (0.0001,), (0.0001,))),
    ("receive.rest_free", "s/batch", ((0.001,), (0.0012,), (0.0011,))),
    ("receive.work_shared", "s/batch", ((0.004,), (0.005,), (0.006,))),
    ("scaling.1", "s/sample", ((0.0055,), (0.0056,), (0.0057,))),
    ("scaling.2", "s/sample", ((0.0056,), (0.0058,), (0.0058,))),
    ("worker.start", "s/worker", ((0.01,), (0.012,), (0.011,))),
    ("worker.first", "s/worker", ((0.02,), (0.03,), (0.025,))),
    ("worker.private", "B/worker", ((3.0e7, 3.1e7), (3.0e7, 3.2e7), (3.1e7, 3.1e7))),
    ("worker.shared", "B/worker", ((3.0e8, 3.0e8), (3.0e8, 3.0e8), (3.0e8, 3.0e8))),
    ("threads.worked", "threads", ((1.0,), (1.0,), (1.0,))),
    ("threads.spread", "threads", ((1.0,), (1.0,), (1.0,))),
    ("machine.speed", "relative", ((1.0, 0.99), (1.01, 1.0), (1.0, 1.02))),
    ("bandwidth.triad.1", "B/s", ((1.3e10,),)),
    ("bandwidth.triad.2", "B/s", ((2.5e10,),)),
    ("storage.cold.read", "s/sample", ((0.00024, 0.0003), (0.00022,))),
    ("storage.cold.bandwidth", "B/s", ((5e8,),)),
)
STEP_S = 0.0102
STEP = StepCost(step=(STEP_S,), launch=(0.001,), copy=(0.001,), copy_pinned=(0.0005,), slowdown=(1.0, 1.0))
#: A batch of 10 takes a worker 25 ms.
TABLES: dict[str, Any] = {
    "workload": {
        "batch_size": 10,
        "preprocess": {"values": [0.001, 0.003], "unit": "s", "uncertainty": 0.05},
        "collate": {"mean": "5 ms", "uncertainty": 0.1},
        "consumer": "0.1 ms",
    },
    "accelerator": {"step": "1 s"},
    "host": {"cores": 16, "speed": [1.0], "speed_uncertainty": 0.02},
}
COSTS = Costs(TABLES, training=STEP)
SETTING = Setting("images", 10, 2, 1, 2, 2, 1.0, model="tiny", precision="bf16", pin_memory=True)


def with_work(costs: Costs, **workload: Any) -> Costs:
    """The costs with other keys of the scenario's table ``[workload]``."""
    return replace(costs, tables={**costs.tables, "workload": {**costs.tables["workload"], **workload}})


def measured(idle: float, dirty: str = "") -> MeasuredTrial:
    ends = tuple(range(10_000, 60_000, 10_000))
    starts = tuple(end - 9000 for end in ends)
    return MeasuredTrial(
        idle, STEP_S / (1 - idle), starts, ends, ends, 0.0, 0.002, 0.001, 0.0001, others_cores=0.0, dirty=dirty
    )


def point(setting: Setting, predicted: float, *idles: float, dirty: int = 0) -> RecordedPoint:
    """A point with clean trials of so much idle, and disturbed ones."""
    prediction = Prediction(predicted, max(0.0, predicted - 0.02), predicted + 0.02, STEP_S / (1 - predicted))
    trials = (*(measured(idle) for idle in idles), *(measured(0.5, "other programs") for _ in range(dirty)))
    step_s = step_time(COSTS, setting)
    return RecordedPoint(
        0, setting, step_s, 20, 6, prediction, by_rates(COSTS, setting), by_buffer(COSTS, setting), trials
    )


def at(cores: int, workers: int, predicted: float, *idles: float, setting: Setting = SETTING) -> RecordedPoint:
    """A point of that many cores and workers."""
    return point(replace(setting, cores=cores, workers=workers), predicted, *idles)


def ledger(points: Sequence[RecordedPoint], **other: object) -> Ledger:
    job = RecordedJob("images", "imagenet-like", COSTS)
    made = Ledger("1", "coresim validate", "2026-01-01T00:00:00+00:00", "abc", "a CPU", 16,
                  "training tiny bf16 on cuda", "cuda_grid.toml", "f" * 64, len(points), (job,),
                  tuple(points))  # fmt: skip
    return replace(made, **other)  # type: ignore[arg-type]


def profile(**changes: Any) -> Profile:
    """A profile of that job, with other fields where they are given."""
    made = Profile(
        workload="like ImageNet",
        loader="the job's own DataLoader",
        batch_size=256,
        samples=96,
        bytes_per_sample=114e3,
        bytes_per_batch=154_140_672,
        arrays_per_batch=1,
        host=HOST,
        accelerator=RECORDED,
        provenance=Provenance("0.1", "coresim measure", "2026-01-01T00:00:00+00:00", HOST.fingerprint),
        speed=tuple(0.98 ** (k - 1) for k in range(1, 65)),
        speed_uncertainty=(0.1,),
        measurements=tuple(Measurement(name, unit, values, "made up") for name, unit, values in FOUND),
    )
    return replace(made, **changes)
