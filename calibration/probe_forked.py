"""What a worker costs less if its parent has prepared samples: ``python calibration/probe_forked.py``.

It needs torch and takes two minutes. Each round forks two processes by turns. In one, a loader with one worker runs at
once; in the other, the process prepares some batches by itself before its loader runs. ``fresh`` and ``prepared`` are
the worker's CPU seconds for a sample, by round, and ``ratio`` is the median of what the second takes of the first.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from contextlib import closing
from typing import Any

import torch
from probing import save

from coresim.measure.campaign import make_data
from coresim.measure.forked import run_forked
from coresim.measure.rig import Rig
from coresim.measure.subject import Layout
from coresim.measure.trial import run_trial
from coresim.workloads.named import WorkloadSpec
from coresim.workloads.registry import target_of

#: Workloads and their batch sizes, as in grid.toml.
JOBS = {"images": 16, "jpeg-light": 64, "heavy-tailed": 32, "python-bound": 32, "tiny": 1024}
ROUNDS, STEPS, WARM_UP, ALONE = 6, 45, 4, 20


def sample_s(rig: Rig, seed: int, alone: int) -> float:
    """CPU seconds of a worker for a sample, where its parent has prepared so many batches before."""
    subject = rig.subject(threads=False)
    if alone:
        with closing(subject.open(Layout(0), seed)) as pipe:
            run_trial(pipe, [0.0] * alone, 1)
    with closing(subject.open(Layout(1), seed)) as pipe:
        notes = run_trial(pipe, [0.0] * (WARM_UP + STEPS), WARM_UP).notes
    return statistics.mean(sum(note.cpu) / len(note.cpu) for note in notes)


def run(name: str, folder: str) -> dict[str, Any]:
    """One workload."""
    spec = WorkloadSpec(target_of(name), folder, batch_size=JOBS[name])
    make_data(spec)
    rig = Rig(spec)
    found: dict[int, list[float]] = {0: [], ALONE: []}
    for number in range(ROUNDS):
        for alone in sorted(found, reverse=bool(number % 2)):
            found[alone] += run_forked([lambda: sample_s(rig, number, alone)], name)  # noqa: B023 (run at once)
    ratio = statistics.median(after / before for before, after in zip(found[0], found[ALONE], strict=True))
    return {
        "what": f"{name}, batches of {JOBS[name]}",
        "fresh": [round(value, 7) for value in found[0]],
        "prepared": [round(value, 7) for value in found[ALONE]],
        "ratio": round(ratio, 4),
    }


def main() -> None:
    """Run all and write the record."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        runs = [run(name, os.path.join(folder, name)) for name in JOBS]
    save("forked", f"PyTorch {torch.__version__}", runs)


if __name__ == "__main__":
    main()
