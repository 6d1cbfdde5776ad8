"""Run the real DataLoader with controlled service times: ``python calibration/probe_pytorch.py`` (needs torch).

A batch sampler is asked for the next batch at the instant of its dispatch, so it shows which pick-up returned which
credit; each batch says which worker made it. Where the loader delivers out of order, no two events are nearer than
80 ms in the model (tests/calibration/test_probes.py checks that), so that the order is no matter of luck.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from probing import REST, TAKEN, save, started_after_each
from torch.utils.data import DataLoader, Dataset, get_worker_info

#: Seconds that batch 0, 1, 2, ... takes.
TIMES = [0.51, 1.08, 1.2, 0.21, 0.9, 0.21, 1.02, 0.54, 1.2, 1.32, 0.75, 1.35]


class Slow(Dataset[tuple[int, int]]):
    """Item i takes its time; its value says who made it."""

    def __init__(self, times: list[float]) -> None:
        self.times = times

    def __getitem__(self, index: int) -> tuple[int, int]:
        time.sleep(self.times[index])
        worker = get_worker_info()
        return index, -1 if worker is None else worker.id


class Watched:
    """A batch sampler of batches of one that notes how many there were asked for."""

    def __init__(self, count: int) -> None:
        self.count, self.asked = count, 0

    def __iter__(self) -> Iterator[list[int]]:
        for index in range(self.count):
            self.asked += 1
            yield [index]

    def __len__(self) -> int:
        return self.count


def loader(times: list[float], workers: int, **options: Any) -> tuple[DataLoader[Any], Watched]:
    """A loader of batches of one with a watched sampler."""
    watched = Watched(len(times))
    return DataLoader(Slow(times), batch_sampler=watched, num_workers=workers, **options), watched


def credits(workers: int, prefetch: int, ordered: bool) -> dict[str, Any]:
    """Batches dispatched at rest, after each pick-up."""
    real, watched = loader([0.005] * 40, workers, prefetch_factor=prefetch, in_order=ordered)
    batches = iter(real)
    time.sleep(REST)
    before = watched.asked
    counts = started_after_each(lambda: next(batches), lambda: watched.asked)
    return {"what": "credits", "workers": workers, "prefetch_factor": prefetch, "ordered": ordered,
            "before": before, "started": counts}  # fmt: skip


def order(workers: int, prefetch: int, ordered: bool) -> dict[str, Any]:
    """Which batch the trainer, who is always hungry, gets from whom."""
    real, _ = loader(TIMES, workers, prefetch_factor=prefetch, in_order=ordered)
    got = [(int(index), int(worker)) for index, worker in real]
    return {"what": "order", "workers": workers, "prefetch_factor": prefetch, "ordered": ordered, "times_s": TIMES,
            "batch": [index for index, _ in got], "worker": [worker for _, worker in got]}  # fmt: skip


def inline() -> dict[str, Any]:
    """Without workers nothing is prepared ahead."""
    real, watched = loader([0.005] * 20, 0)
    batches = iter(real)
    return {"what": "credits", "workers": 0, "before": watched.asked,
            "started": started_after_each(lambda: next(batches), lambda: watched.asked, TAKEN)}  # fmt: skip


def main() -> None:
    """Run all and write the record."""
    shapes = [(1, 2), (2, 2), (3, 1), (3, 3)]
    runs = [credits(workers, prefetch, ordered) for workers, prefetch in shapes for ordered in (True, False)]
    runs += [order(workers, prefetch, ordered) for workers, prefetch in ((2, 2), (3, 2)) for ordered in (True, False)]
    save("pytorch", f"PyTorch {torch.__version__}", [*runs, inline()])


if __name__ == "__main__":
    main()
