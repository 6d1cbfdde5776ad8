"""Run the real tf.data with controlled service times: ``python calibration/probe_tfdata.py`` (needs tensorflow)."""

from __future__ import annotations

import itertools
import time
from typing import Any

import tensorflow as tf
from probing import save, started_after_each

SAMPLE = 0.004


def credits(workers: int, batch: int, prefetch: int, ordered: bool, fused: bool) -> dict[str, Any]:
    """Samples started at rest, after each batch taken."""
    started = itertools.count()
    seen = [0]

    def prepare(index: Any) -> Any:
        seen[0] = next(started) + 1
        time.sleep(SAMPLE)
        return index

    options = tf.data.Options()
    options.threading.private_threadpool_size = 2 * workers + 4
    options.experimental_optimization.map_and_batch_fusion = fused
    data = tf.data.Dataset.range(10_000).map(
        lambda index: tf.numpy_function(prepare, [index], tf.int64), num_parallel_calls=workers, deterministic=ordered
    )
    batches = iter(data.batch(batch).prefetch(prefetch).with_options(options))
    counts = started_after_each(lambda: next(batches), lambda: seen[0])
    return {"what": "credits", "workers": workers, "batch_size": batch, "prefetch": prefetch, "ordered": ordered,
            "fused": fused, "started": counts}  # fmt: skip


def main() -> None:
    """Run all and write the record."""
    shapes = [(2, 8, 1), (4, 8, 2), (3, 5, 3), (8, 4, 2), (6, 4, 1), (9, 4, 2)]
    kinds = ((True, True), (False, True), (True, False))
    runs = [credits(*shape, ordered, fused) for shape in shapes for ordered, fused in kinds]
    save("tfdata", f"TensorFlow {tf.__version__}", runs)


if __name__ == "__main__":
    main()
