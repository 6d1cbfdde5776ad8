"""How costs change if others share the cores: other workers, other ranks, and the threads of their libraries.

Library threads inside loader workers cost more when workers x threads exceed the cores. In `coresim.model.pipeline`
sharing a core costs nothing, but threads that spin and wait for one another lose time. Published figures bound the loss
per excess thread per core only loosely, so it is a range, which the answer's interval shows.
Source: https://github.com/open-mmlab/mmdetection/pull/6867 and issues/3306. 8 workers of 64 threads took 2.14 s instead
of 0.24 s for a batch, 8.9 times as long. 8 workers keep 8 cores busy, so each core had about 64 threads: a loss of
0.125 for each thread beyond the first. 2048 threads on 64 cores cost a GPU-bound job only 0.019 of 0.213 s: perhaps
nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from coresim.model.dispatch import has_pin_thread
from coresim.model.option import Option
from coresim.model.scenario import Scenario, WorkloadCosts, with_services

#: Relative growth of the CPU work per thread per core beyond the first: the middle of what is published, and its ends.
LOSS, LEAST, MOST = 0.0625, 0.0, 0.125
#: Threads that together do less than this much of the busiest one's work add nothing to speak of.
SPREAD = 1.2
#: What keeps a library to one thread, in every worker (``worker_init_fn``).
CURE = "OMP_NUM_THREADS=1, cv2.setNumThreads(0) and torch.set_num_threads(1) in worker_init_fn"


@dataclass(frozen=True)
class Crowding:
    """Runnable threads of a host and what they do to the CPU work."""

    threads: int  # of all workers of all accelerators
    cores: float  # that they share
    factor: float  # by which CPU work of preparation grows
    uncertainty: float  # relative standard uncertainty of ``factor``: half the range of what is published


def crowding(scenario: Scenario, workers: int, cores: float) -> Crowding | None:
    """What the library threads of ``workers`` workers per accelerator do on the host's ``cores``; None: nothing."""
    each = scenario.loader.library_threads
    threads = max(1, workers) * each * scenario.accelerator.count
    if each == 1 or threads <= cores:
        return None
    excess = threads / cores - 1.0
    factor = 1.0 + LOSS * excess
    return Crowding(threads, cores, factor, math.log((1.0 + MOST * excess) / factor) / 2)


def on_cores(scenario: Scenario, workers: int, cores: float) -> Scenario:
    """The scenario with the CPU work of ``workers`` workers per accelerator as it is on the host's ``cores``.

    Each worker, each thread of its libraries and each trainer that spins takes one core; the others are free. On a free
    core, other threads of a worker send a part of its last batch (``send_overlap``) while it prepares the next one, so
    that this part takes none of the worker's time. With too few free cores it does so in proportion: a worker that
    never pauses needs as much of one core for that part as the part takes of the time between two batches.

    Ranks that meet at a barrier take their batches at once (`coresim.model.handover.Handover.at_once`). Where a thread
    pins the batches, nothing is changed: no trial has shown what happens there.
    """
    alone = scenario.workload.handover
    at_once = alone.at_once(scenario.accelerator.count, scenario.host.width(cores))
    if at_once is not alone and not has_pin_thread(scenario):
        scenario = replace(scenario, workload=replace(scenario.workload, handover=at_once))
    if (crowded := crowding(scenario, workers, cores)) is not None:
        return with_services(scenario, crowded.factor, "preprocess", "collate", "send", spread=crowded.uncertainty)
    workload, device = scenario.workload, scenario.accelerator
    beside = workload.send_overlap * workload.send.mean
    free = cores - device.count * (workers * scenario.loader.library_threads + (device.sync == "spin"))
    if not workers or not beside or free <= 0.0:  # a trainer that prepares sends nothing
        return scenario
    own = workload.batch_size * (workload.fetch.mean + workload.preprocess.mean) + workload.collate.mean
    own += workload.send.mean - beside
    taken = workload.send_overlap * min(1.0, free * own / (device.count * workers * beside))
    return _sent_beside(scenario, taken)


def time_lost(scenario: Scenario, option: Option, workers: int, cores: float) -> float:
    """The share of the host's ``cores`` that is lost while all are wanted, with ``workers`` workers per accelerator.

    One core loses nothing, because it never rests while tasks wait. Up to two cores the share grows, so that more cores
    never do less. Nothing is lost if each worker, each of its threads and each trainer has a core of its own: seen with
    one worker on two cores (`calibration/epyc-2cpu-spare.note.md`), and assumed for any number.
    """
    host, width = scenario.host, scenario.host.width(cores)
    tasks = scenario.accelerator.count * (workers * scenario.loader.split + 1.0)
    if option == Option.NO_OVERLAP or scenario.stages:  # these have no workers
        tasks = math.inf
    return host.sharing_loss * min(1.0, max(0.0, width - 1.0)) * min(1.0, max(0.0, tasks - width))


def receiving(workload: WorkloadCosts, workers: int, ranks: int = 1) -> float:
    """The trainer's CPU time to receive a batch from one of ``workers`` workers, over that with one worker in all.

    Many senders make it longer: more wake-ups, more open files, colder caches. It is shorter where cores rest less,
    because work after a rest takes longer. Both show in ``calibration/``. Workers of other ranks keep cores from
    resting too while they do not wait. So all workers count by the share of time in which they do not wait, and at
    least a loader's own count (`calibration/ranks-noon.note.md`).
    """
    work = workload.batch_size * workload.preprocess.mean + workload.collate.mean
    period = work + workload.batch_size * workload.fetch.mean
    busy = round(ranks * workers * work / period) if period > 0 else 0
    table = workload.consumer_by_workers
    return (1.0 + workload.consumer_growth * (workers - 1)) * table[min(max(workers, busy), len(table)) - 1]


@lru_cache(maxsize=64)
def _sent_beside(scenario: Scenario, taken: float) -> Scenario:
    """Kept, so that settings of one job share a scenario and what is made of it."""
    return with_services(scenario, 1.0 - taken, "send")
