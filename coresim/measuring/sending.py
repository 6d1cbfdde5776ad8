"""What a loader's worker needs to hand a batch over, in its own CPU seconds, beyond collating into private memory.

A worker of torch's ``DataLoader`` collates into new shared memory and pickles the handles in a thread of its own; none
of that shows in a bare process. So the same prepared samples are collated over and over, by turns in this process and
in one worker of a real loader, and the whole process's CPU time per batch is noted in both: the difference is the cost
of sending.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

from coresim import stats
from coresim.measuring import protocol
from coresim.measuring.processes import HOW_THREADS, START_TIMEOUT, TIMEOUT, Child, Link, limit_threads
from coresim.measuring.protocol import Cautions, Progress
from coresim.measuring.transport import shared_memory_room
from coresim.model.measurement import Measurement
from coresim.workloads.base import (
    DatasetWorkload,
    Workload,
    WorkloadSpec,
    batch_facts,
    default_collate,
    seed_everything,
)

#: Bytes of a measured batch at the most; a larger one is scaled up from it.
LARGEST = 32e6
#: Batches that a loader's worker is ahead by, and those that come before any is counted.
AHEAD, FIRST = 2, 3
LEAST_ROUNDS, MOST_BATCHES = 3, 200
#: Distinct samples that are prepared; a batch repeats them.
SAMPLES = 64
HOW = f"torch DataLoader, 1 worker, shared memory; worker's CPU beyond collating in a bare process; {HOW_THREADS}"


def measure_sending(
    spec: WorkloadSpec,
    *,
    processes: int = 2,
    budget_s: float = 4.0,
    progress: Progress = None,
    cautions: Cautions = None,
) -> list[Measurement]:
    """Measure ``transport.send`` (s/batch) with the workload's own samples; needs torch.

    Args:
        spec: the workload.
        processes: fresh processes, one after the other.
        budget_s: wall seconds of measuring, all processes together; importing torch comes on top.
        progress: told what is going on, and the fraction done.
        cautions: reasons to trust the value less are appended here.

    Raises:
        CoresimError: a process died or hangs.
    """
    found = []
    for number in range(processes):
        protocol.tell(progress, "sending batches", number / processes)
        with Child(_job, spec, budget_s / processes, doing="sending batches") as child:
            found.append(child.receive(START_TIMEOUT + TIMEOUT)[1])
    scaled = any(scale > 1 for scale, _ in found)
    how = HOW + ("; scaled up from a smaller batch" if scaled else "")
    measurement = Measurement("transport.send", "s/batch", tuple(values for _, values in found), how)
    protocol.add(cautions, protocol.steadiness(measurement))
    return [measurement]


def _job(link: Link, spec: WorkloadSpec, budget: float) -> tuple[float, tuple[float, ...]]:
    workload = spec.build()
    limit_threads()
    samples = prepared(workload, min(SAMPLES, workload.batch_size))
    one, _ = batch_facts(collation(workload)(samples[:1]))
    size = max(1, min(workload.batch_size, int(min(LARGEST, shared_memory_room() / (AHEAD + 2)) / max(one, 1))))
    scale = workload.batch_size / size
    batch = [samples[place % len(samples)] for place in range(size)]
    return scale, tuple(scale * seconds for seconds in send_costs(batch, collation(workload), budget))


def prepared(workload: Workload, count: int) -> list[Any]:
    """Some samples, after all of the workload's steps."""
    rng, found = seed_everything(0), []
    for index in range(count):
        value: Any = index % len(workload)
        for step in workload.steps():
            value = step.call(value, rng)
        found.append(value)
    return found


def send_costs(batch: Sequence[Any], collate: Callable[[list[Any]], Any], budget: float) -> list[float]:
    """CPU seconds per batch to send it, one value per round: in a loader's worker less in this process; 0 at least.

    Rounds alternate between the two, so that a machine that changes its pace does so for both.
    """
    began = time.perf_counter()
    count = max(FIRST + 2, min(MOST_BATCHES, int(budget / 8 / max(_bare(batch, collate, 2), 1e-6))))
    found: list[float] = []
    for number in itertools.count():
        if number >= LEAST_ROUNDS and time.perf_counter() - began > budget:
            return found
        bare = _bare(batch, collate, count)
        found.append(max(0.0, _in_worker(batch, collate, count) - bare))
    raise AssertionError("itertools.count ended")


def _bare(batch: Sequence[Any], collate: Callable[[list[Any]], Any], count: int) -> float:
    spent = []
    for _ in range(count):
        began = time.process_time()
        collate(list(batch))
        spent.append(time.process_time() - began)
    return stats.mean(spent)


def _in_worker(batch: Sequence[Any], collate: Callable[[list[Any]], Any], count: int) -> float:
    from torch.utils.data import DataLoader  # noqa: PLC0415 (torch is optional and heavy)

    def noted(samples: list[Any]) -> tuple[Any, float]:
        return collate(samples), time.process_time()

    source: Any = _Prepared(batch)
    loader: Any = DataLoader(
        source, batch_size=len(batch), num_workers=1, prefetch_factor=AHEAD, collate_fn=noted, drop_last=True
    )
    marks: list[float] = [mark for _, mark in itertools.islice(loader, FIRST + count)]
    # From the end of one batch's collation to that of another: all that the process does for each in between.
    return (marks[-1] - marks[FIRST - 1]) / (len(marks) - FIRST)


class _Prepared:
    """A map-style dataset of ready samples."""

    def __init__(self, batch: Sequence[Any]) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return 2**40

    def __getitem__(self, index: int) -> Any:
        return self._batch[index % len(self._batch)]


def collation(workload: Workload) -> Callable[[list[Any]], Any]:
    """What a DataLoader would do: torch's default, which collates into shared memory inside a worker.

    A user's own function gives what it gives; what a job of ours joins in a way of its own becomes tensors, as whoever
    wrote it for a DataLoader would have it.
    """
    try:
        from torch.utils import data  # noqa: PLC0415 (torch is optional and heavy)
    except ModuleNotFoundError:
        return workload.collate
    if not workload.has_own_collate:
        return lambda samples: _collate_or_list(data.default_collate, samples)
    if isinstance(workload, DatasetWorkload):
        return workload.collate
    convert: Callable[[Any], Any] = data.default_convert
    return lambda samples: convert(workload.collate(samples))


def _collate_or_list(torch_collate: Any, samples: list[Any]) -> Any:
    try:
        return torch_collate(samples)
    except TypeError:  # what torch cannot stack, such as bytes, our own default keeps as a list
        return default_collate(samples)
