"""From raw measurements to the tables of a scenario, so that ``--set`` applies to a profile as to a written file.

What is decided here, and why:

* Preparation is measured with the files in the page cache, where reading is copying memory on a core. So
  ``prepare.fetch`` is summed with the steps after it, visit by visit, into ``preprocess``.
* What a visit waited for without a core (``prepare.wait``: a network, a sleep) is ``fetch`` instead, where it is
  over a tenth of the time; below that it cannot be told from other programs' turns.
* Of a data set larger than the memory the page cache misses a share (`coresim.model.page_cache`). A read that misses
  is a cold read of a whole file, which waits and holds no core: ``fetch``. Storage takes as many of them at once as
  eight readers showed. Copying out of the page cache is work for both and stays in ``preprocess``; asked for samples
  that are all cold, it is left out, because a cold read was timed with it.
* ``prepare.start`` is a new worker's own start, which the others do at the same time: ``worker_startup``.
* A step that waits for the device spins meanwhile; that is in its launch time and in the step time as well, so
  only a step that does not wait has a ``launch``.
* Being handed a batch keeps the trainer for longer than its own CPU time (``transport.batch.wall``): it waits for
  threads of the batch's maker, which want a core in their turn. So ``consumer`` is all of that time, on a core.
* How much of it decodes is ``decode_share``; a data set of the user's own is one step, which is not known to decode.
* A step time from the catalogue or the user is taken for that of a loop that does not wait each step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from coresim import stats
from coresim.errors import InputError
from coresim.model.crowding import SPREAD
from coresim.model.handover import recorded_handover, recorded_sending
from coresim.model.measurement import Measurement
from coresim.model.page_cache import Misses, miss_share
from coresim.model.rebatch import rebatched
from coresim.model.service import read_service
from coresim.model.storage import missing

if TYPE_CHECKING:
    from coresim.model.profile import Profile

MOST_VALUES = 2000
#: Scenario keys of times per batch, and what is measured for them.
KEYS_PER_BATCH = {
    "collate": "prepare.collate",
    "send": "transport.send",
    "consumer": "transport.batch.wall",
    "copy": "copy.pinned",
}
WAIT = "prepare.wait"
NOTABLE_WAIT = 0.1
BUSY = "accelerator.step.busy."
Values = Sequence[Sequence[float]]


def scenario_tables(profile: Profile, cold: bool | None = None, batch: int | None = None) -> dict[str, Any]:
    """Tables for `coresim.model.scenario.read_scenario`; times in seconds.

    Args:
        profile: what was measured.
        cold: whether samples all come from storage and not from the page cache; by default, those that miss it where
            the data set is larger than the memory.
        batch: samples of a batch, where it is not the profile's own (`coresim.model.rebatch`).

    Raises:
        InputError: no step of the preparation was measured, or ``cold`` without cold reads.
    """
    misses = _misses(profile) if cold is None and profile.get("storage.cold.read") is not None else None
    tables = {
        "workload": _workload(profile, bool(cold), misses),
        "accelerator": _accelerator(profile),
        "host": _host(profile, bool(cold) or misses is not None),
        **_loader(profile),
    }
    return tables if batch is None else rebatched(tables, profile, batch)


def service_table(values: Values) -> dict[str, Any]:
    """A service table of the values, at most 2000 of them, evenly chosen.

    The uncertainty is the relative standard error of the mean: between processes where there are two or more.
    """
    flat = [value for process in values for value in process]
    chosen = [flat[i * len(flat) // MOST_VALUES] for i in range(MOST_VALUES)] if len(flat) > MOST_VALUES else flat
    return {"values": chosen, "unit": "s", "uncertainty": relative_error(values)}


def relative_error(values: Values) -> float:
    """Relative standard error of the mean; over processes where there are two or more, else over values."""
    sample = [stats.mean(process) for process in values] if len(values) > 1 else list(values[0])
    centre = stats.mean(sample)
    return math.sqrt(stats.variance(sample) / len(sample)) / centre if centre else 0.0


def _misses(profile: Profile) -> Misses | None:
    """What the page cache misses of a data set larger than the memory; None where it fits, or a size is not known."""
    memory, size = memory_bytes(profile), _data_bytes(profile)
    return None if memory is None or size is None or size <= memory else miss_share(size, memory)


def _data_bytes(profile: Profile) -> float | None:
    return (profile.samples or 0) * (profile.bytes_per_sample or 0.0) or None


def memory_bytes(profile: Profile) -> int | None:
    """Memory that the job may use: the machine's, or the control group's limit where that is less."""
    known = [size for size in (profile.host.memory_bytes, profile.host.memory_limit_bytes) if size]
    return min(known, default=None)


def _workload(profile: Profile, cold: bool, misses: Misses | None) -> dict[str, Any]:
    rows = _rows(profile, cold)
    waits = () if cold or misses else _waits(profile, rows)
    if waits:
        rows = _row_by_row(lambda visit, wait: max(0.0, visit - wait), rows, waits)
    table: dict[str, Any] = {"batch_size": profile.batch_size, "preprocess": service_table(rows)}
    if waits:
        table["fetch"] = service_table(waits)
    elif cold or misses:
        read = service_table(profile["storage.cold.read"].values)
        table["fetch"] = missing(read_service(read, "storage.cold.read"), misses).to_table()
    for key, name in KEYS_PER_BATCH.items():
        found = profile.get(name)
        if found is not None:
            table[key] = service_table(found.values)
    if profile.provenance.torch_version is None:
        # A pipe carries a large batch an order of magnitude more slowly than the DataLoader's shared memory.
        table["consumer"] = recorded_handover(profile.bytes_per_batch, profile.arrays_per_batch)
        table["send"] = recorded_sending(profile.bytes_per_batch)
    start = profile.get("prepare.start")
    if start is not None:
        table["worker_startup"] = f"{start.mean!r} s"
    sizes = {
        "batch_bytes": profile.bytes_per_batch,
        "worker_bytes": _mean(profile, "worker.private"),
        "sample_bytes": profile.bytes_per_sample,
        "dataset_bytes": _data_bytes(profile),
    }
    return table | _decoding(profile, rows) | {name: size for name, size in sizes.items() if size}


def _decoding(profile: Profile, rows: Values) -> dict[str, float]:
    """The share of the preparation that decodes: none where no step of that name was measured."""
    decode, whole = _mean(profile, "prepare.decode") or 0.0, stats.mean([value for row in rows for value in row])
    return {"decode_share": min(1.0, decode / whole)} if whole else {}


def _rows(profile: Profile, cold: bool) -> Values:
    """Seconds of all steps of each visit, process by process; row i of every step is the same visit."""
    named = [m for m in profile.measurements if m.name.startswith("prepare.") and m.unit == "s/sample"]
    left_out = (WAIT, "prepare.fetch") if cold else (WAIT,)
    steps = [step.values for step in named if step.name not in left_out]
    if not steps:
        raise InputError("no step of the preparation was measured, such as prepare.decode; measure again")
    return _row_by_row(lambda *visit: math.fsum(visit), *steps)


def _waits(profile: Profile, rows: Values) -> Values:
    """Seconds without a core of each visit; empty where they are too little to tell from disturbance."""
    wait = profile.get(WAIT)
    notable = wait is not None and wait.mean > NOTABLE_WAIT * stats.mean([value for row in rows for value in row])
    return wait.values if wait is not None and notable else ()


def _row_by_row(join: Callable[..., float], *columns: Values) -> Values:
    try:
        return [[join(*visit) for visit in zip(*process, strict=True)] for process in zip(*columns, strict=True)]
    except ValueError:
        raise InputError("the steps of the preparation differ in their number of visits; measure again") from None


def _accelerator(profile: Profile) -> dict[str, Any]:
    source, step, launch = profile.accelerator, profile.get("accelerator.step"), profile.get("accelerator.launch")
    table: dict[str, Any] = {"run_ahead": 0 if source.synchronises else 1}
    if source.step_time_s is not None:
        table["step"] = {"mean": f"{source.step_time_s!r} s", "uncertainty": source.uncertainty}
    else:
        measured = profile["accelerator.step"] if step is None else step
        table["step"] = service_table(measured.values) | {"uncertainty": source.uncertainty}
        slowdown = slowdown_table(measured, profile.measurements)
        table |= {"slowdown": slowdown} if len(slowdown) > 1 else {}
    if launch is not None and not source.synchronises:
        table["launch"] = service_table(launch.values)
    cpu = profile.get("accelerator.cpu_step")
    if cpu is not None:
        table["cpu_step"] = service_table(cpu.values)
    return table | ({"name": source.name} if source.name else {})


def slowdown_table(step: Measurement, measurements: Sequence[Measurement]) -> list[float]:
    """Relative step time beside 0, 1, 2, ... busy cores, by medians; interpolated; under 1 is noise and given as 1."""
    alone = stats.median(step.flat)
    points = {0: 1.0}
    for found in measurements:
        if found.name.startswith(BUSY):
            points[int(found.name.removeprefix(BUSY))] = max(1.0, stats.median(found.flat) / alone)
    known = sorted(points)
    table = [1.0]
    for low, high in pairwise(known):
        slope = (points[high] - points[low]) / (high - low)
        table += [points[low] + slope * (k - low) for k in range(low + 1, high + 1)]
    return table


def _host(profile: Profile, cold: bool) -> dict[str, Any]:
    facts = profile.host
    known = {
        "cores": facts.usable_cores,
        "threads_per_core": facts.threads_per_core,
        "speed": list(profile.speed),
        "speed_uncertainty": profile.speed_uncertainty,
        "storage_streams": _streams(profile) if cold else None,
        "memory_bytes": memory_bytes(profile),
        "shm_bytes": facts.shm_bytes,
    }
    return {name: value for name, value in known.items() if value is not None and value != 0}


def _mean(profile: Profile, name: str) -> float | None:
    found = profile.get(name)
    return None if found is None else found.mean


def _loader(profile: Profile) -> dict[str, Any]:
    """The threads that libraries run unless they are limited, as they were when everything else was measured."""
    found, spread = profile.get("threads.worked"), profile.get("threads.spread")
    if found is None or spread is None or spread.mean < SPREAD or found.mean <= 1:
        return {}
    return {"loader": {"default_threads": round(found.mean)}}


def _streams(profile: Profile) -> float | None:
    """Cold reads at once at full speed: bandwidth of several readers over that of one, 1 at least."""
    together, one = profile.get("storage.cold.bandwidth"), profile.get("storage.cold.read")
    if together is None or one is None or not profile.bytes_per_sample:
        return None
    return max(1.0, together.mean * one.mean / profile.bytes_per_sample)
