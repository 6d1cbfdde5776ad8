"""How long a trainer waits while the maker of its batch is at work: ``python calibration/probe_finished.py``.

It needs torch, two quiet CPUs and one minute. One worker feeds a trainer, whose steps are shorter or longer than the
time that the worker needs for a batch. So the trainer asks at any moment of the worker's work on the next one.
``waited_s`` is what it waits for a batch that is ready, beyond its own CPU time, and ``left_s`` the time that the
worker still needs for the batch that it is at. Both are sorted by ``left_s`` and averaged in equal groups.
``rest_s`` is the median wait while the worker rests.
"""

from __future__ import annotations

import itertools
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
from coresim.measure.trial import Trial, run_trial
from coresim.workloads.named import WorkloadSpec
from coresim.workloads.registry import target_of

#: Workloads and their batch sizes, as in grid.toml.
JOBS = {"images": 16, "jpeg-light": 64, "python-bound": 32, "tiny": 1024}
SECONDS, CREDITS, GROUPS = 10.0, 4, 6
#: Length of a step over the worker's time for a batch, from the least to the most.
RATIOS = (0.6, 1.4)


def waits(trial: Trial) -> tuple[list[tuple[float, float]], list[float]]:
    """Time left and wait (s) of each hand-over while the worker is at work on another batch; the waits while it rests.

    The batch was ready before the worker began the other one. The worker begins as soon as it has finished the batch
    before, if it has been dealt another: whatever it then waits for is its own threads' lock.
    """
    steps, notes = trial.steps, trial.notes
    working, resting = [], []
    for number in range(CREDITS, len(steps) - CREDITS):  # of the last ones, what the worker is at is not noted
        asked, waited = steps[number].asked, max(0.0, steps[number].got - steps[number].asked - steps[number].cpu)
        later = next(place for place in range(number, len(notes)) if notes[place].made > asked)
        dealt = steps[later - CREDITS].asked
        if later == number or notes[number].made > max(notes[later - 1].made, dealt):
            continue
        if max(notes[later - 1].made, dealt) < asked:
            working.append((notes[later].made - asked, waited))
        elif later == number + CREDITS:
            resting.append(waited)
    return working, resting


def run(name: str, folder: str) -> dict[str, Any]:
    """One workload."""
    spec = WorkloadSpec(target_of(name), folder, batch_size=JOBS[name])
    make_data(spec)
    subject, chance = Rig(spec).subject(threads=False), random.Random(1)
    with closing(subject.open(Layout(1), seed=0)) as pipe:
        period = run_trial(pipe, [0.0] * 20, warm_up=4).seconds_per_step
    steps = [period * chance.uniform(*RATIOS) for _ in range(round(SECONDS / period))]
    with closing(subject.open(Layout(1, prefetch_factor=CREDITS), seed=1)) as pipe:
        working, resting = waits(run_trial(pipe, steps, warm_up=2 * CREDITS))
    working.sort()
    ends = [len(working) * group // GROUPS for group in range(GROUPS + 1)]
    groups = [working[begin:end] for begin, end in itertools.pairwise(ends) if begin < end]
    return {
        "what": f"{name}, batches of {JOBS[name]}",
        "left_s": [round(statistics.mean(left for left, _ in group), 5) for group in groups],
        "waited_s": [round(statistics.mean(waited for _, waited in group), 5) for group in groups],
        "rest_s": round(statistics.median(resting), 5),
        "hand_overs": [len(working), len(resting)],
    }


def main() -> None:
    """Run all and write the record."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        runs = [run(name, os.path.join(folder, name)) for name in JOBS]
    save("finished", f"PyTorch {torch.__version__}", runs)


if __name__ == "__main__":
    main()
