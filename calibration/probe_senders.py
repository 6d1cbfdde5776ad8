"""How receiving a batch grows with the senders: ``python calibration/probe_senders.py`` (torch, 100 s, quiet).

Workers of torch's DataLoader send the same batch again and again. Each of K workers waits before each batch for as long
as makes all of them together send at one rate, which two cores carry with ease: what changes is the number of senders
alone, not how crowded the cores are, nor how often the receiver waits. ``growth`` is what each worker beyond the first
adds to the CPU time of the receiving thread per batch, as a share of it: least squares over all rounds. ``deviation``
is how far the growths of the rounds are apart (standard deviation).
"""

from __future__ import annotations

import copy
import itertools
import statistics
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from probing import save
from torch.utils.data import DataLoader

COUNTS = (1, 2, 4, 8, 16, 32, 64)
ROUNDS, SECONDS = 4, 1.0
#: The batches, and the time between two of them, s: some five times what sending one takes.
BATCHES: dict[str, tuple[Any, float]] = {
    "1.5 MB in 2 tensors": ([torch.zeros(32, 3, 64, 64), torch.zeros(32)], 0.008),
    "26 kB of numbers that are no tensors": ([list(map(float, range(3200))), list(range(32))], 0.002),
}


class Same:
    """A data set whose every item is a batch, freshly copied as one that was freshly collated."""

    def __init__(self, batch: Any, wait: float) -> None:
        self._batch, self._wait = batch, wait

    def __getitem__(self, _: object) -> Any:
        time.sleep(self._wait)
        return copy.deepcopy(self._batch)


class Endless:
    """A sampler that never ends."""

    def __iter__(self) -> Iterator[int]:
        return itertools.repeat(0)


def as_it_is(batch: Any) -> Any:
    """Nothing is collated."""
    return batch


def receiving(batch: Any, period: float, workers: int, seconds: float) -> float:
    """CPU seconds of the receiving thread per batch."""
    with warnings.catch_warnings():  # of more workers than CPUs, which is what is tried
        warnings.simplefilter("ignore")
        same = Same(batch, period * workers)
        running = iter(DataLoader(same, None, sampler=Endless(), num_workers=workers, collate_fn=as_it_is))
    try:
        for _ in range(workers):
            next(running)
        until, began, taken = time.perf_counter() + seconds, time.thread_time(), 0
        while time.perf_counter() < until:
            next(running)
            taken += 1
        return (time.thread_time() - began) / taken
    finally:
        running._shutdown_workers()


def growth(alone: float, more: dict[int, float]) -> float:
    """The share g for which alone (1 + g (K - 1)) is nearest to what K senders took."""
    over = sum((count - 1) * (seconds / alone - 1) for count, seconds in more.items())
    return over / sum((count - 1) ** 2 for count in more)


def run(what: str, batch: Any, period: float, seconds: float = SECONDS) -> dict[str, Any]:
    """One kind of batch, from all numbers of senders in turn, round by round."""
    rounds = [{count: receiving(batch, period, count, seconds) for count in COUNTS} for _ in range(ROUNDS)]
    found = {count: [turn[count] for turn in rounds] for count in COUNTS}
    alone = statistics.mean(found[1])
    each = [growth(alone, {count: turn[count] for count in COUNTS[1:]}) for turn in rounds]
    return {
        "what": what,
        "period_s": period,
        "cpu_s": found,
        "growth": round(statistics.mean(each), 5),
        "deviation": round(statistics.stdev(each), 5),
    }


def main() -> None:
    """Run all and write the record."""
    torch.set_num_threads(1)
    save("senders", f"PyTorch {torch.__version__}", [run(what, *batch) for what, batch in BATCHES.items()])


if __name__ == "__main__":
    main()
