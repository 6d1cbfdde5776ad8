"""From raw measurements to the tables of a scenario, so that ``--set`` applies to a profile as to a written file.

What is decided here, and why:

* Preparation is measured in the job's own loader with the files in the page cache, where reading is copying memory on
  a core: it is part of ``prepare.sample``, which becomes ``preprocess``.
* What a sample waited for without a core (``prepare.wait``: a network, a sleep) is ``fetch``; it is there only where it
  is notable.
* Of a data set larger than the memory the page cache misses a share (`coresim.model.page_cache`). A read that misses is
  a cold read of a whole file, which waits and holds no core: ``fetch``. Storage takes as many of them at once as eight
  readers showed. Copying out of the page cache is work for both and stays in ``preprocess``; if all samples are to be
  cold, the share of the step ``fetch`` is left out, because the cold read already includes it.
* ``worker.first`` is what a new worker needs before its first batch and what its first calls add, which all workers do
  at the same time: ``worker_startup``. ``worker.start`` is the trainer's part, one worker after the other: ``startup``.
  ``worker.wait``, which needs no core, passes once: ``worker_wait``.
* A step that waits for the device spins meanwhile; that is in its launch time and in the step time as well, so
  only a step that does not wait has a ``launch``.
* Being handed a batch takes the trainer's own CPU time, ``consumer``, and a wait, ``handover``. That depends on whether
  the trainer waited for the batch, on what its maker does and on how crowded the cores are
  (`coresim.model.handover`). The share ``release`` of ``consumer`` frees the batch before.
* How much of a sample decodes is ``decode_share``; a data set of the user's own is one step, not known to decode.
* A step time from the catalogue or the user is taken for that of a loop that does not wait each step.
* A cost is as uncertain as one more run would show: by how far the rounds of the calibration are apart, by how the
  machine changed its speed meanwhile, and by what this model misses where the costs are known (`MODEL`, `HANDOVER`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from coresim import stats
from coresim.model.crowding import SPREAD
from coresim.model.handover import STATES, THREADS
from coresim.model.keys import MOST_LOST
from coresim.model.measurement import Measurement
from coresim.model.page_cache import Misses, miss_share
from coresim.model.rebatch import MOVED, PARTLY, rebatched, release_of, small_batches
from coresim.model.receiving import interpolated, receiving_table
from coresim.model.service import read_service
from coresim.model.storage import missing
from coresim.model.today import CPU

if TYPE_CHECKING:
    from coresim.model.profile import Profile

MOST_VALUES = 6000
SAMPLE, WAIT, STEP = "prepare.sample", "prepare.wait", "prepare.step."
#: How far a prediction is off, relatively, where the costs are known: of rates, and of the time of a hand-over, which
#: has more than one mode. Seen in trials made while the model was built; none of them is in a ledger.
MODEL, HANDOVER = 0.03, 0.3
#: How many times as far as in the runs of its calibration a shared machine's speed is off in other minutes. Seen in 642
#: calibrations and the trials after them; `calibration/README.md` begins with what the ledgers there show.
DRIFT = 2.3
SPEED, OTHERS, BUSY = "machine.speed", "machine.others", "accelerator.step.busy."
Values = Sequence[Sequence[float]]


def scenario_tables(profile: Profile, cold: bool | None = None, batch: int | None = None) -> dict[str, Any]:
    """Tables for `coresim.model.scenario.read_scenario`; times in seconds.

    Args:
        profile: what was measured.
        cold: whether samples all come from storage and not from the page cache; by default, those that miss it where
            the data set is larger than the memory.
        batch: samples of a batch, where it is not the profile's own (`coresim.model.rebatch`).

    Raises:
        InputError: no sample was measured, or ``cold`` without cold reads.
    """
    misses = _misses(profile) if cold is None and profile.get("storage.cold.read") is not None else None
    own = {"loader": {} if profile.settings is None else profile.settings.table(), "accelerator": {}}
    if profile.today is not None:
        own = profile.today.tables()
    tables = {
        "workload": _workload(profile, bool(cold), misses),
        "accelerator": _accelerator(profile) | own["accelerator"],
        "host": _host(profile, bool(cold) or misses is not None),
        "loader": _loader(profile) | own["loader"],
    }
    wanted = batch or profile.batch_size
    if wanted == profile.batch_size == profile.batch_that_ran:
        return tables
    small = small_batches(profile.measurements)
    found = rebatched(tables, profile.batch_size, wanted, profile.batch_that_ran, small)
    if "consumer_by_workers" in found["workload"]:
        before, after = (read_service(one["workload"]["consumer"], "consumer").mean for one in (tables, found))
        found["workload"]["consumer_by_workers"] = receiving_table(profile, after / before)
    return found


def service_table(values: Values) -> dict[str, Any]:
    """A service table of the values, at most 6000 of them, evenly chosen, with the mean of all.

    The uncertainty is the relative standard error of the mean: between processes where there are two or more.
    """
    flat = [value for process in values for value in process]
    if len(flat) > MOST_VALUES:
        chosen = [flat[i * len(flat) // MOST_VALUES] for i in range(MOST_VALUES)]
        # The mean of so few is a few per cent off where values differ widely.
        factor = stats.mean(flat) / (stats.mean(chosen) or 1.0)
        flat = [factor * value for value in chosen]
    return {"values": flat, "unit": "s", "uncertainty": relative_error(values)}


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
    return min(filter(None, (profile.host.memory_bytes, profile.host.memory_limit_bytes)), default=None)


def _workload(profile: Profile, cold: bool, misses: Misses | None) -> dict[str, Any]:
    spread = math.hypot(speed_spread(profile), MODEL)
    prepared = repeated_table(profile[SAMPLE].values, spread)
    table: dict[str, Any] = {"batch_size": profile.batch_size, "preprocess": prepared}
    if cold:
        kept = 1.0 - (_mean(profile, f"{STEP}fetch") or 0.0) / profile[SAMPLE].mean
        prepared["values"] = [kept * value for value in prepared["values"]]
    if cold or misses:
        read = service_table(profile["storage.cold.read"].values)
        table["fetch"] = missing(read_service(read, "storage.cold.read"), misses).to_table()
    elif (waits := profile.get(WAIT)) is not None:
        table["fetch"] = repeated_table(waits.values, MODEL)
    for key, name in (MOVED | PARTLY).items():
        if (found := profile.get(name)) is not None:
            table[key] = repeated_table(found.values, spread)
    if (copy := profile.get("copy.pinned")) is not None:
        table["copy"] = service_table(copy.values)
    handover = {
        state: repeated_table(found.values, math.hypot(HANDOVER, spread))
        for state in (*STATES, *THREADS)
        if (found := profile.get(f"receive.{state}")) is not None
    }
    inline, collate = _mean(profile, "inline.collate"), _mean(profile, MOVED["collate"])
    known = {
        "shared_cv": _mean(profile, "prepare.shared_cv"),
        "send_overlap": _mean(profile, "prepare.send_overlap"),
        "handover": handover or None,
        "consumer_by_workers": by_workers if len(by_workers := receiving_table(profile)) > 1 else None,
        "in_process_collate": inline / collate if inline and collate else None,
        "startup": _duration(profile, "worker.start"),
        "worker_startup": _duration(profile, "worker.first"),
        "worker_wait": _duration(profile, "worker.wait"),
        "batch_bytes": profile.bytes_per_batch,
        "worker_bytes": _mean(profile, "worker.private"),
        "sample_bytes": profile.bytes_per_sample,
        "dataset_bytes": _data_bytes(profile),
    }
    if (release := release_of(profile)) is not None:
        table["release"] = release
    if whole := profile[SAMPLE].mean:  # none decodes where no step of that name was measured
        table["decode_share"] = min(1.0, (_mean(profile, f"{STEP}decode") or 0.0) / whole)
    return table | {name: value for name, value in known.items() if value}


def speed_spread(profile: Profile) -> float:
    """Relative standard uncertainty of the machine's speed: `DRIFT` times its spread around the calibration's median.

    What other programs took of the CPUs is added: costs that were noted beside them may be off by as much.
    """
    found = profile.get(SPEED)
    spread = math.sqrt(stats.mean([(value - 1.0) ** 2 for value in found.flat])) if found is not None else 0.0
    return min(1.0, math.hypot(DRIFT * spread, _mean(profile, OTHERS) or 0.0))


def repeated_table(rounds: Values, more: float) -> dict[str, Any]:
    """A service table of what independent rounds showed, as uncertain as one more round, and by ``more`` besides."""
    return service_table(rounds) | {"uncertainty": math.hypot(scatter(rounds), more)}


def scatter(rounds: Values) -> float:
    """Relative standard uncertainty of what one more round shows: the root mean square distance from the median.

    Not that of the mean: a job is one more run on a machine that changes its speed.
    """
    means = [stats.mean(values) for values in rounds if values]
    centre = stats.median(means)
    if centre <= 0 or len(means) < 2:
        return 0.0
    return min(1.0, math.sqrt(sum((mean / centre - 1.0) ** 2 for mean in means) / (len(means) - 1)))


def _duration(profile: Profile, name: str) -> str | None:
    mean = _mean(profile, name)
    return f"{mean!r} s" if mean else None


def _accelerator(profile: Profile) -> dict[str, Any]:
    source, step, launch = profile.accelerator, profile.get("accelerator.step"), profile.get("accelerator.launch")
    table: dict[str, Any] = {"run_ahead": 0 if source.synchronises else 1, "copies": source.name != CPU}
    if source.step_time_s is not None:
        table["step"] = {"mean": f"{source.step_time_s!r} s", "uncertainty": source.uncertainty}
    else:
        measured = profile["accelerator.step"] if step is None else step
        table["step"] = service_table(measured.values) | {"uncertainty": source.uncertainty}
        slowdown = slowdown_table(measured, profile.measurements)
        table |= {"slowdown": slowdown} if len(slowdown) > 1 else {}
    if launch is not None and not source.synchronises:
        table["launch"] = repeated_table(launch.values, speed_spread(profile))
        alone = None if source.step_time_s else profile.get("accelerator.step.alone")
        table |= {"lead": lead} if (lead := lead_of(step, launch, alone)) else {}
    if (cpu := profile.get("accelerator.cpu_step")) is not None:
        table["cpu_step"] = service_table(cpu.values)
    return table | ({"name": source.name} if source.name else {})


def lead_of(step: Measurement | None, launch: Measurement, alone: Measurement | None) -> float:
    """Share of a launch that comes before an idle device can begin the step.

    A step that is launched on an idle device takes longer than one of back-to-back steps: by how much in the median,
    over the mean launch; 0 where that was not measured.
    """
    if step is None or alone is None or not launch.mean:
        return 0.0
    return max(0.0, min(1.0, (stats.median(alone.flat) - stats.median(step.flat)) / launch.mean))


def slowdown_table(step: Measurement, measurements: Sequence[Measurement]) -> list[float]:
    """Relative step time beside 0, 1, 2, ... busy cores, by medians; interpolated; under 1 is noise and given as 1."""
    alone = stats.median(step.flat)
    found = {int(m.name.removeprefix(BUSY)): m for m in measurements if m.name.startswith(BUSY)}
    return interpolated({0: 1.0} | {k: max(1.0, stats.median(m.flat) / alone) for k, m in found.items()})


def _host(profile: Profile, cold: bool) -> dict[str, Any]:
    facts = profile.host
    known = {
        "cores": facts.usable_cores,
        "threads_per_core": facts.threads_per_core,
        "speed": list(profile.speed),
        "siblings": profile.siblings,
        "sharing_loss": _lost(profile),
        "speed_uncertainty": list(profile.speed_uncertainty),
        "storage_streams": _streams(profile) if cold else None,
        "memory_bytes": memory_bytes(profile),
        "shm_bytes": facts.shm_bytes,
    }
    return {name: value for name, value in known.items() if value is not None and value != 0}


def _lost(profile: Profile) -> float:
    """The share that is lost of all cores' time, if the loader ran on so many CPUs: by no quota, one for each core."""
    used, facts = _mean(profile, "cores.used"), profile.host
    if used is None or facts.usable_cores != facts.affinity_cpus:
        return 0.0
    return min(MOST_LOST, max(0.0, 1.0 - used))


def _mean(profile: Profile, name: str) -> float | None:
    found = profile.get(name)
    return None if found is None else found.mean


def _loader(profile: Profile) -> dict[str, Any]:
    """As all was measured: whether it pins, what holds the lock, and library threads unless they are limited."""
    known = {"pin_memory": profile.get(MOVED["pin"]) is not None, "gil": _mean(profile, "lock.share")}
    own: dict[str, Any] = {name: value for name, value in known.items() if value}
    if (passing := profile.get("lock.passing")) is not None:
        own["lock_passing"] = min(1.0, passing.mean)
    found, spread = profile.get("threads.worked"), profile.get("threads.spread")
    if found is None or spread is None or spread.mean < SPREAD or found.mean <= 1:
        return own
    return own | {"default_threads": round(found.mean)}


def _streams(profile: Profile) -> float | None:
    """Cold reads at once at full speed: bandwidth of several readers over that of one, 1 at least."""
    together, one = profile.get("storage.cold.bandwidth"), profile.get("storage.cold.read")
    if together is None or one is None or not profile.bytes_per_sample:
        return None
    return max(1.0, together.mean * one.mean / profile.bytes_per_sample)
