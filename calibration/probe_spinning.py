"""What spinning costs a trainer where more want a core than there are: ``python calibration/probe_spinning.py``.

It needs torch, takes five minutes, and two quiet CPUs. One loader feeds a trainer whose step is a wait of known length,
now asleep and now spinning, in turns. A trainer that slept gets a core as soon as it wakes. One that spun has used up
its share of the cores, and waits for the turns of others whenever it has waited for one of the loader's messages.
``turn_s`` is how much longer receiving a batch that is ready then takes, by number of workers and round, s.
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
from coresim.measure.rig import Rig
from coresim.measure.subject import Layout, Subject
from coresim.measure.trial import run_trial, sleep_until, spin_until
from coresim.workloads.named import WorkloadSpec
from coresim.workloads.registry import target_of

#: Workloads and their batch sizes, as in grid.toml.
JOBS = {"images": 16, "jpeg-light": 64, "python-bound": 32, "tiny": 1024}
COUNTS, ROUNDS, SECONDS = (1, 2, 3), 4, 1.5
#: A step over what the workers need for a batch: batches are ready, and hardly anyone rests.
RATIO = 1.1


def received(subject: Subject, workers: int, step_s: float, wait: Any) -> float:
    """Mean seconds to receive a batch that is ready."""
    steps = max(20, round(SECONDS / step_s)) if step_s else 12 * workers
    with closing(subject.open(Layout(workers), seed=steps)) as pipe:
        trial = run_trial(pipe, [step_s] * steps, warm_up=4 * workers, wait=wait)
    return statistics.mean(step.got - max(step.asked, step.ready) for step in trial.steps)


def period(subject: Subject, workers: int) -> float:
    """Seconds that so many workers need for a batch, without a pause."""
    with closing(subject.open(Layout(workers), seed=0)) as pipe:
        return run_trial(pipe, [0.0] * 20 * workers, warm_up=4 * workers).seconds_per_step


def run(name: str, folder: str) -> dict[str, Any]:
    """One workload, asleep and spinning in turns."""
    spec = WorkloadSpec(target_of(name), folder, batch_size=JOBS[name])
    make_data(spec)
    subject = Rig(spec).subject(threads=False)
    found: dict[int, list[float]] = {count: [] for count in COUNTS}
    for _ in range(ROUNDS):
        for count in COUNTS:
            step_s = RATIO * period(subject, count)
            asleep, spinning = (received(subject, count, step_s, wait) for wait in (sleep_until, spin_until))
            found[count].append(spinning - asleep)
    return {"what": f"{name}, batches of {JOBS[name]}", "turn_s": found}


def main() -> None:
    """Run all and write the record."""
    torch.set_num_threads(1)
    cpus = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        runs = [run(name, os.path.join(folder, name)) for name in JOBS]
    turns = [turn for one in runs for count, each in one["turn_s"].items() if count >= cpus for turn in each]
    summary = {
        "what": f"as many workers as the {cpus} CPUs, or more",
        "turn_s": round(statistics.median(turns), 5),
        "deviation_s": round(statistics.stdev(turns), 5),
    }
    save("spinning", f"PyTorch {torch.__version__}", [*runs, summary])


if __name__ == "__main__":
    main()
