"""Small executable stand-ins for Caffe's data layer and DALI's executor: ``python calibration/stand_ins.py``.

Neither installs here, so each is built anew, in threads and queues, from what its source does with its buffers, and is
asked what the other probes ask of real frameworks (`probing`). `caffe_times` and `dali_times` are the same rules in
virtual time, exact. Both are held to the model by `tests/calibration/test_stand_ins.py`.

Caffe 1.0, src/caffe/layers/base_data_layer.cpp and .cu: one thread takes a free buffer, loads a batch into it, copies
it to the device, waits for the copy, and queues it as full. The net takes a full one, and only then returns the one
that it had.

DALI 0.20, dali/pipeline/executor/queue_policy.h (UniformQueuePolicy) and async_pipelined_executor.h: as many buffers as
prefetch_queue_depth. The CPU stage takes a free one, its pool of threads shares the samples, and hands it to the mixed
and the GPU stage, each a thread that takes batches in order. A ready buffer is in use from share_outputs until
release_outputs: framework iterators copy and release at once, Pipeline.run holds it until the next run
(docs.nvidia.com/deeplearning/dali, Pipeline Run Methods).
"""

from __future__ import annotations

import math
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from probing import save, started_after_each

STOP = None
#: Seconds of one sample and of one copy: short beside the rest that a probe waits for.
SAMPLE, COPY = 0.004, 0.002


def stage(source: queue.Queue[Any], sink: queue.Queue[Any], work: Callable[[int], object]) -> threading.Thread:
    """A thread that works on each buffer from ``source`` and hands it on, until it is told to stop."""

    def serve() -> None:
        for buffer in iter(source.get, STOP):
            work(buffer)
            sink.put(buffer)
        sink.put(STOP)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def filled(buffers: Iterable[int]) -> queue.Queue[Any]:
    """A queue with these buffers in it."""
    found: queue.Queue[Any] = queue.Queue()
    for buffer in buffers:
        found.put(buffer)
    return found


def caffe(prefetch: int) -> dict[str, Any]:
    """Batches started at rest, after each one taken, with ``prefetch`` buffers."""
    free, full, started = filled(range(prefetch)), queue.Queue(), [0]

    def load(_: int) -> None:
        started[0] += 1
        time.sleep(SAMPLE)
        time.sleep(COPY)

    stage(free, full, load)
    held: list[int] = []

    def take() -> None:
        taken = full.get()
        if held:
            free.put(held.pop())
        held.append(taken)

    counts = started_after_each(take, lambda: started[0])
    free.put(STOP)
    return {"what": "credits", "workers": 1, "buffers": prefetch, "started": counts}


def dali(threads: int, batch: int, depth: int, holds: bool) -> dict[str, Any]:
    """The same of DALI's executor; ``holds``: the trainer keeps a buffer until it asks for the next."""
    free, decoded, copied, ready, started = filled(range(depth)), queue.Queue(), queue.Queue(), queue.Queue(), [0]
    with ThreadPoolExecutor(threads) as pool:

        def decode(_: int) -> None:
            started[0] += 1
            list(pool.map(time.sleep, [SAMPLE] * batch))

        stage(free, decoded, decode)
        stage(decoded, copied, lambda _: time.sleep(COPY))
        last = stage(copied, ready, lambda _: time.sleep(COPY))
        held: list[int] = []

        def take() -> None:
            if held:
                free.put(held.pop())
            held.append(ready.get())
            if not holds:
                free.put(held.pop())

        counts = started_after_each(take, lambda: started[0])
        free.put(STOP)
        last.join()
    shape = {"workers": threads, "batch_size": batch, "depth": depth, "holds": holds}
    return {"what": "credits", **shape, "started": counts}


def caffe_times(buffers: int, load: float, copy: float, step: float, steps: int) -> list[float]:
    """When each batch is taken, s: load and copy one after the other; a buffer returns when the next batch is taken."""
    taken: list[float] = []
    ready = trained = 0.0
    for index in range(steps):
        free = taken[index - buffers + 1] if index >= buffers else 0.0
        ready = max(ready, free) + load + copy
        trained = max(trained, ready)
        taken.append(trained)
        trained += step
    return taken


def dali_times(
    depth: int, threads: int, batch: int, sample: float, copy: float, step: float, steps: int
) -> list[float]:
    """When each batch is taken, s: the samples in rounds of ``threads``, the copy beside the next batch's samples."""
    taken: list[float] = []
    decoded = copied = trained = 0.0
    for index in range(steps):
        free = taken[index - depth] if index >= depth else 0.0
        decoded = max(decoded, free) + math.ceil(batch / threads) * sample
        copied = max(copied, decoded) + copy
        trained = max(trained, copied)
        taken.append(trained)
        trained += step
    return taken


def main() -> None:
    """Run both and write the records."""
    save("caffe", "stand-in for Caffe 1.0", [caffe(buffers) for buffers in (3, 4, 6)])
    shapes = ((2, 8, 2, False), (4, 8, 2, False), (3, 6, 4, False), (2, 8, 2, True), (3, 6, 4, True))
    save("dali", "stand-in for DALI 0.20", [dali(*shape) for shape in shapes])


if __name__ == "__main__":
    main()
