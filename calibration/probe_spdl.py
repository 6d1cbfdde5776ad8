"""Run the real SPDL with controlled service times: ``python calibration/probe_spdl.py`` (needs spdl)."""

from __future__ import annotations

import itertools
import time
from importlib.metadata import version
from typing import Any

from probing import save, started_after_each
from spdl.pipeline import PipelineBuilder


def collate(samples: list[int]) -> tuple[int, ...]:
    """A stage of its own behind the aggregation, as a real one has."""
    return tuple(samples)


def credits(workers: int, batch: int, prefetch: int) -> dict[str, Any]:
    """Samples started at rest, after each batch taken."""
    numbers, seen = itertools.count(), [0]

    def prepare(index: int) -> int:
        seen[0] = max(seen[0], next(numbers) + 1)
        time.sleep(0.004)
        return index

    builder = PipelineBuilder().add_source(range(10_000)).pipe(prepare, concurrency=workers).aggregate(batch)
    pipeline = builder.pipe(collate).add_sink(prefetch).build(num_threads=workers + 1)
    with pipeline.auto_stop():
        batches = iter(pipeline)
        counts = started_after_each(lambda: next(batches), lambda: seen[0])
    return {"what": "credits", "workers": workers, "batch_size": batch, "prefetch": prefetch, "started": counts}


def main() -> None:
    """Run all and write the record."""
    runs = [credits(*shape) for shape in ((2, 8, 1), (4, 8, 3), (3, 5, 2), (8, 4, 3))]
    save("spdl", f"SPDL {version('spdl')}", runs)


if __name__ == "__main__":
    main()
