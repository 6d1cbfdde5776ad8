"""What preparing one sample and one batch costs a loader's worker: fetch, decode, transform, collate.

Fresh processes do what a worker does, one after the other; `coresim.measuring.visits` says how each is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coresim.errors import InputError
from coresim.measuring import protocol
from coresim.measuring.processes import HOW_THREADS, START_TIMEOUT, Child, HangError, Link, limit_threads
from coresim.measuring.protocol import Cautions, Progress
from coresim.measuring.visits import LEAST_VISITS, TOO_SLOW, Rows, RowTimer
from coresim.model.measurement import Measurement
from coresim.workloads.base import WorkloadSpec, batch_facts, seed_everything

MOST_FILES = 4096
HOW_STEP = f"{HOW_THREADS}; random visits, files in the page cache; per visit the median of its undisturbed repeats"
HOW_WAIT = f"{HOW_STEP}; wall minus CPU time of all steps together, part of their times"
HOW_COLLATE = f"{HOW_THREADS}; one batch into newly allocated private memory"
HOW_START = "spawn of a new interpreter until its dataset is built; a forked worker starts sooner"


@dataclass(frozen=True)
class WorkloadFacts:
    """What is known of a workload once a fresh process has prepared a few samples of it.

    Attributes:
        name: what the report calls it.
        batch_size: samples per batch.
        samples: distinct samples; ``sys.maxsize`` for a stream.
        steps: the names of its steps, in order.
        bytes_per_sample: bytes read per sample, or None where unknown.
        bytes_per_batch: bytes of one prepared batch.
        arrays_per_batch: arrays or tensors of one prepared batch.
        files: the stored files, evenly thinned to some thousands; empty where unknown.
    """

    name: str
    batch_size: int
    samples: int
    steps: tuple[str, ...]
    bytes_per_sample: float | None
    bytes_per_batch: int
    arrays_per_batch: int
    files: tuple[Path, ...] = field(repr=False)


def look(spec: WorkloadSpec, timeout: float = 60.0) -> WorkloadFacts:
    """Let the workload make its data and prepare a few samples: the facts, or the first thing that is wrong.

    All in a fresh process: this one never imports the user's code.

    Raises:
        InputError: the dataset cannot be imported, is empty, raises, hangs, or gives None; the message names
            the sample and the remedy.
    """
    with Child(_look_job, spec, doing=f"preparing samples of {spec.target}") as child:
        facts: WorkloadFacts = _follow(child, spec, timeout, "done")
        return facts


def measure_preparation(
    spec: WorkloadSpec,
    *,
    processes: int = 3,
    budget_s: float = 14.0,
    timeout: float = 60.0,
    progress: Progress = None,
    cautions: Cautions = None,
) -> list[Measurement]:
    """Measure ``prepare.<step>`` (s/sample), ``prepare.collate`` (s/batch) and ``prepare.start`` (s/worker).

    Row i of every step is the same visit, so that sums by row are the visit's whole cost. The part of it that
    held no core (a network, a disk, a sleep) is ``prepare.wait`` (s/sample).

    Args:
        spec: the workload; `look` at it first, so that bad input is found early.
        processes: fresh processes, one after the other; with very slow samples fewer.
        budget_s: wall seconds of measuring, all processes together.
        timeout: the longest that one sample may take, in seconds.
        progress: told what is going on, and the fraction done.
        cautions: reasons to trust the values less are appended here.

    Raises:
        InputError: the dataset failed or hangs.
        CoresimError: a process died.
    """
    starts: list[tuple[float, ...]] = []
    found: list[Rows] = []
    first_started = time.perf_counter()
    for number in range(processes):
        started = time.perf_counter()
        if found and started - first_started > TOO_SLOW * budget_s:
            break
        with Child(_rows_job, spec, number, budget_s / processes, doing=f"preparing {spec.target}") as child:
            _follow(child, spec, timeout, "ready")
            starts.append((time.perf_counter() - started,))
            share = partial(_tell_share, progress, number, processes)
            found.append(_follow(child, spec, timeout, "done", share))
    measurements = [*_measurements(found), Measurement("prepare.start", "s/worker", tuple(starts), HOW_START)]
    dirty, total = (sum(counts) for counts in zip(*(rows.counts() for rows in found), strict=True))
    protocol.add(cautions, protocol.dirty_caution("preparing samples", dirty, total))
    for measurement in measurements:
        # What is waited for is often nothing, and then all noise; the steps' own times tell whether it matters.
        if measurement.name != "prepare.wait":
            protocol.add(cautions, protocol.steadiness(measurement))
    return measurements


def _tell_share(progress: Progress, number: int, processes: int, fraction: float) -> None:
    protocol.tell(progress, "preparing samples", (number + min(1.0, fraction)) / processes)


def _measurements(found: Sequence[Rows]) -> list[Measurement]:
    steps = [
        Measurement(f"prepare.{name}", "s/sample", tuple(rows.values(name) for rows in found), HOW_STEP)
        for name in found[0].steps
    ]
    collates = tuple(tuple(t.wall for t in protocol.clean(rows.collates)) for rows in found)
    waits = Measurement("prepare.wait", "s/sample", tuple(rows.waits() for rows in found), HOW_WAIT)
    return [*steps, waits, Measurement("prepare.collate", "s/batch", collates, HOW_COLLATE)]


def _follow(
    child: Child,
    spec: WorkloadSpec,
    timeout: float,
    until: str,
    listen: Callable[[float], None] = lambda fraction: None,
) -> Any:
    """Wait for the message ``until``, passing progress on; a silence is blamed on the sample last announced."""
    where = "building the dataset"
    while True:
        try:
            tag, value = child.receive(timeout if where.startswith("sample") else max(timeout, START_TIMEOUT))
        except HangError as error:
            remedy = "make it answer or leave it out (a lock, a network read, a full disk?)"
            raise InputError(f"{spec.target}: {where} took more than {error.seconds:g} s; {remedy}") from None
        if tag == until:
            return value
        if tag == "at":
            where = f"sample {value[0]}"
            listen(value[1])


def _look_job(link: Link, spec: WorkloadSpec) -> WorkloadFacts:
    spec.make()
    workload = spec.build()
    rng = seed_everything(0)
    samples = []
    for index in np.unique(np.linspace(0, min(len(workload), 10**6) - 1, LEAST_VISITS).astype(int)):
        link.send("at", (int(index), 0.0))
        value: Any = int(index)
        for step in workload.steps():
            value = step.call(value, rng)
        samples.append(value)
    full = [samples[i % len(samples)] for i in range(workload.batch_size)]
    size, arrays = batch_facts(workload.collate(full))
    names = tuple(step.name for step in workload.steps())
    read, files = workload.bytes_per_sample(), workload.files()
    some = tuple(files[:: -(-len(files) // MOST_FILES) or 1])
    return WorkloadFacts(workload.name, workload.batch_size, len(workload), names, read, size, arrays, some)


def _rows_job(link: Link, spec: WorkloadSpec, seed: int, budget: float) -> Rows:
    workload = spec.build()
    limit_threads()
    link.send("ready")
    timer = RowTimer(workload, protocol.real_clock(), seed, budget, lambda index, used: link.send("at", (index, used)))
    return timer.run()
