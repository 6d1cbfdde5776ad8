"""The loader alone, run in the process that owns it: where the calibration is called."""

from __future__ import annotations

import sys
import time
from typing import Any

SETTLING, LEAST = 2, 5
HOW = "noted inside the program's own loader, run while its loop waited"


class Noting:
    """A collate function that adds what the batch cost its worker."""

    def __init__(self, collate: Any) -> None:
        self.collate = collate
        self.before: tuple[float, float] | None = None

    def __call__(self, samples: Any) -> Any:
        """The batch, and CPU seconds of its samples, of collating, and of all other threads since the last batch."""
        cpu, every = time.thread_time(), time.process_time()
        batch = self.collate(samples)
        done = time.thread_time()
        before, self.before = self.before, (done, time.process_time())
        note = None if before is None else (cpu - before[0], done - cpu, every - before[1] - (cpu - before[0]))
        return batch, note


def calibrate(loader: Any, size: int, *, budget_s: float, seed: int) -> dict[str, Any]:
    """Run the loader with one and two workers for a part of the budget each, and note what batches cost.

    Args:
        loader: the program's own.
        size: samples of a batch.
        budget_s: wall seconds.
        seed: of the samples that are chosen.
    """
    runs = {workers: _run(loader, workers, budget_s / 4) for workers in (1, 2)}
    alone = runs[1]
    named = {
        "prepare.sample": ("s/sample", [value / size for value in alone["samples"]]),
        "prepare.collate": ("s/batch", alone["collate"]),
        "transport.send": ("s/batch", alone["send"]),
        "transport.batch.wall": ("s/batch", alone["receive"]),
        **{f"scaling.{k}": ("s/sample", [value / size for value in run["samples"]]) for k, run in runs.items()},
    }
    return {
        "measurements": [
            {"name": name, "unit": unit, "values": [values], "how": HOW} for name, (unit, values) in named.items()
        ],
        "cautions": [],
    }


def _run(loader: Any, workers: int, seconds: float) -> dict[str, list[float]]:
    twin = object.__new__(type(loader))
    twin.__dict__.update(loader.__dict__)
    twin.__dict__.update(
        num_workers=workers, prefetch_factor=2, persistent_workers=False, collate_fn=Noting(loader.collate_fn)
    )
    iterator: Any = sys.modules["torch.utils.data"].DataLoader.__iter__(twin)
    found: dict[str, list[float]] = {"samples": [], "collate": [], "send": [], "receive": []}
    began = None
    for number, (_, note) in enumerate(iterator):
        cpu = time.thread_time()
        now = time.perf_counter()
        if note is None or number < SETTLING * workers:
            continue
        began = began or now
        for name, value in zip(("samples", "collate", "send"), note, strict=True):
            found[name].append(value)
        if now - began >= seconds and len(found["send"]) >= LEAST:
            break
        found["receive"].append(time.thread_time() - cpu)
    iterator._shutdown_workers()
    return found
