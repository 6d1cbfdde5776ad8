"""What receiving a batch takes, waited for or not, and freeing it: ``python calibration/probe_waited.py``.

It needs torch, two quiet CPUs and three minutes. One worker feeds a trainer, whose steps are shorter or longer than the
time that the worker needs for a batch. ``waited_s`` is what the trainer waits beyond its own CPU time: for batches that
it had waited for (``waited``), and for those that were there before it asked (``there``). ``freed_s`` is its CPU time
to free the batch before, and ``received_s`` all else. All are medians.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
from contextlib import closing
from typing import Any

import torch
from probing import save

from coresim.measure.campaign import make_data
from coresim.measure.rig import Rig
from coresim.measure.subject import Layout
from coresim.measure.trial import run_trial
from coresim.workloads.named import WorkloadSpec
from coresim.workloads.registry import target_of

#: Workloads and their batch sizes.
JOBS = (("images", 32), ("images", 256), ("python-bound", 32), ("tiny", 1024), ("tensors", 32))
SECONDS, LEAST = 10.0, 40
#: Fewer hand-overs of a kind tell nothing.
FEW = 6
#: Length of a step over the worker's time for a batch, from the least to the most.
RATIOS = (0.2, 1.4)


def run(name: str, size: int, folder: str) -> dict[str, Any]:
    """One workload with batches of one size."""
    spec = WorkloadSpec(target_of(name), folder, batch_size=size)
    make_data(spec)
    subject, chance = Rig(spec).subject(threads=False), random.Random(1)
    with closing(subject.open(Layout(1), seed=0)) as pipe:
        period = run_trial(pipe, [0.0] * 12, warm_up=6).seconds_per_step
    steps = [period * chance.uniform(*RATIOS) for _ in range(max(LEAST, round(SECONDS / period)))]
    with closing(subject.open(Layout(1), seed=1)) as pipe:
        trial = run_trial(pipe, steps, warm_up=6)
    waits: dict[str, list[float]] = {"waited": [], "there": []}
    for step in trial.steps:
        moment = max(step.asked, step.ready)
        waits["there" if step.ready < step.asked else "waited"].append(max(0.0, step.got - moment - step.cpu))
    return {
        "what": f"{name}, batches of {size}",
        "waited_s": {kind: round(statistics.median(found), 5) for kind, found in waits.items() if len(found) >= FEW},
        "hand_overs": {kind: len(found) for kind, found in waits.items()},
        "freed_s": round(statistics.median([step.freed for step in trial.steps]), 5),
        "received_s": round(statistics.median([step.cpu - step.freed for step in trial.steps]), 5),
    }


def main() -> None:
    """Run all and write the record."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        runs = [run(name, size, os.path.join(folder, name)) for name, size in JOBS]
    save("waited", f"PyTorch {torch.__version__}", runs)


if __name__ == "__main__":
    main()
