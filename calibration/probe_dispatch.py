"""When a DataLoader deals a worker its next batch: ``python calibration/probe_dispatch.py``.

It needs torch and takes two minutes. A trainer that asks for a batch receives one, then deals the next index to a
worker, and then does what is left: it returns, and frees the memory of the batch before. ``share`` is the part of the
trainer's CPU time for a batch that comes before the index is dealt, by round. Batches are ready when it asks.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import torch
from probing import save

from coresim.measure.campaign import make_data
from coresim.measure.subject import Layout
from coresim.measure.torch_loader import Prepared, TorchSubject, collation
from coresim.workloads.named import WorkloadSpec
from coresim.workloads.registry import target_of

#: Workloads and their batch sizes, as in grid.toml.
JOBS = {"images": 16, "jpeg-light": 64, "python-bound": 32, "tiny": 1024}
ROUNDS, STEPS, WARM_UP, STEP_S = 4, 40, 8, 0.15


def share(workload: Any) -> float:
    """Of the trainer's CPU time for a batch, what comes before the next index is dealt."""
    dealt = [0.0]

    def noting(_: int) -> Iterator[list[int]]:
        first, size = 0, workload.batch_size
        while True:
            dealt[0] = time.thread_time()
            yield [index % len(workload) for index in range(first, first + size)]
            first += size

    loader: Any = torch.utils.data.DataLoader(Prepared(workload), workload.batch_size, collate_fn=collation(workload))
    before = whole = 0.0
    with closing(TorchSubject(loader, noting).open(Layout(workers=1), seed=0)) as pipe:
        batch: Any = None
        for number in range(STEPS):
            began = time.thread_time()
            batch = pipe.next()  # frees the one before
            ended = time.thread_time()
            if number >= WARM_UP:
                before, whole = before + dealt[0] - began, whole + ended - began
            time.sleep(STEP_S)
        del batch
    return before / whole


def run(name: str, folder: str) -> dict[str, Any]:
    """One workload."""
    spec = WorkloadSpec(target_of(name), folder, batch_size=JOBS[name])
    make_data(spec)
    workload = spec.build()
    return {"what": f"{name}, batches of {JOBS[name]}", "share": [round(share(workload), 4) for _ in range(ROUNDS)]}


def main() -> None:
    """Run all and write the record."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        runs = [run(name, os.path.join(folder, name)) for name in JOBS]
    found = [one for each in runs for one in each["share"]]
    middle, deviation = round(statistics.median(found), 3), round(statistics.stdev(found), 3)
    save("dispatch", f"PyTorch {torch.__version__}", [*runs, {"what": "all", "share": middle, "deviation": deviation}])


if __name__ == "__main__":
    main()
