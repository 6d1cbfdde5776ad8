"""Make a scenario from raw measurements.

What is decided here, and why:

* Preparation is measured in the job's own loader with the files in the page cache, where reading is copying memory on
  a core: it is part of ``prepare.sample``, which becomes ``preprocess``.
* What a sample waited for without a core (``prepare.wait``: a network, a sleep) is ``fetch``; it is there only where it
  is notable.
* If a data set is larger than the memory, the page cache misses a share of reads (`coresim.model.page_cache`). A read
  that misses is a cold read of a whole file, which waits and holds no core: ``fetch``. Storage takes as many of them at
  once as eight readers showed. Copying out of the page cache is work for both and stays in ``preprocess``; if all
  samples are to be cold, the share of the step ``fetch`` is left out, because the cold read already includes it.
* ``worker.first`` is the CPU time that a new worker needs until its first batch, first calls included; all workers do
  that at the same time: ``worker_startup``. ``worker.start`` is the trainer's part, one worker after the other:
  ``startup``. ``worker.wait``, which needs no core, passes once: ``worker_wait``.
* A step that waits for the device spins meanwhile; that is in its launch time and in the step time as well, so
  only a step that does not wait has a ``launch``.
* Receiving a batch takes CPU time of the trainer, ``consumer``, and a wait, ``handover``. The wait depends on whether
  the trainer waited for the batch, on what its maker does and on how crowded the cores are (`coresim.model.handover`).
  The share ``release`` of ``consumer`` frees the batch before.
* ``decode_share`` is the share of a sample's time that decodes; a user's own data set is one step, not known to decode.
* A step time from the catalogue or the user is taken for that of a loop that does not wait each step.
* The uncertainty of a cost is that of one more run: how far the rounds of the calibration are apart, how the machine
  changed its speed meanwhile, and what this model misses even if the costs are known (`MODEL`, `HANDOVER`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coresim import stats
from coresim.model.crowding import SPREAD
from coresim.model.handover import STATES, THREADS, Handover
from coresim.model.keys import MOST_LOST, check_section
from coresim.model.measurement import Measurement
from coresim.model.page_cache import Misses, miss_share
from coresim.model.rebatch import MOVED, PARTLY, rebatched, release_of
from coresim.model.receiving import interpolated, receiving_table
from coresim.model.scenario import SECTIONS, Accelerator, HostResources, Loader, Scenario, WorkloadCosts
from coresim.model.service import Service, empirical
from coresim.model.storage import missing
from coresim.model.today import CPU

if TYPE_CHECKING:
    from coresim.model.profile import Profile

MOST_VALUES = 6000
SAMPLE, WAIT, STEP = "prepare.sample", "prepare.wait", "prepare.step."
#: How far a prediction is off, relatively, where the costs are known: of rates, and of the time of a hand-over, which
#: has more than one mode. Seen in trials made while the model was built; none of them is in a ledger.
MODEL, HANDOVER = 0.03, 0.3
#: The spread of a shared machine's speed in other minutes, over its spread in the runs of a calibration. Seen in 642
#: calibrations and the trials after them; `calibration/README.md` begins with what the ledgers there show.
DRIFT = 2.3
SPEED, OTHERS, BUSY = "machine.speed", "machine.others", "accelerator.step.busy."
Values = Sequence[Sequence[float]]


def scenario_from(profile: Profile, cold: bool | None = None, batch: int | None = None) -> Scenario:
    """The scenario of the job that was measured.

    Args:
        profile: what was measured.
        cold: whether all samples come from storage and not from the page cache; by default only those that miss it, if
            the data set is larger than the memory.
        batch: samples of a batch, where it is not the profile's own (`coresim.model.rebatch`).

    Raises:
        InputError: no sample was measured, ``cold`` without cold reads, or a value that no scenario may have.
    """
    misses = _misses(profile) if cold is None and profile.get("storage.cold.read") is not None else None
    scenario = Scenario(
        workload=_workload(profile, bool(cold), misses),
        accelerator=_accelerator(profile),
        host=_host(profile, bool(cold) or misses is not None),
        loader=_loader(profile),
    )
    scenario = _of_batch(scenario, profile, batch or profile.batch_size)
    for name in SECTIONS:
        check_section(getattr(scenario, name), name)
    return scenario


def _of_batch(scenario: Scenario, profile: Profile, batch: int) -> Scenario:
    """The scenario with batches of so many samples, and not of the profile's own."""
    if batch == profile.batch_size == profile.batch_that_ran:
        return scenario
    found = rebatched(scenario, profile, batch)
    before, after = scenario.workload.consumer, found.workload.consumer
    grown = 1.0 if before.is_zero else after.mean / before.mean
    by_workers = tuple(receiving_table(profile, grown))
    return replace(found, workload=replace(found.workload, consumer_by_workers=by_workers))


def service_of(values: Values, more: float | None = None) -> Service:
    """The service time of the values, at most 6000 of them, evenly chosen, with the mean of all.

    The uncertainty is the relative standard error of the mean: between processes where there are two or more. With
    ``more`` the values come from independent rounds: the uncertainty is that of one more round, plus ``more``.
    """
    flat = [value for process in values for value in process]
    if len(flat) > MOST_VALUES:
        chosen = [flat[i * len(flat) // MOST_VALUES] for i in range(MOST_VALUES)]
        # The mean of so few is a few per cent off where values differ widely.
        factor = stats.mean(flat) / (stats.mean(chosen) or 1.0)
        flat = [factor * value for value in chosen]
    spread = relative_error(values) if more is None else math.hypot(scatter(values), more)
    return empirical(tuple(flat), spread)


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


def _workload(profile: Profile, cold: bool, misses: Misses | None) -> WorkloadCosts:
    spread = math.hypot(speed_spread(profile), MODEL)
    prepared, whole = service_of(profile[SAMPLE].values, spread), profile[SAMPLE].mean
    if cold:
        prepared = prepared.scaled(1.0 - (_mean(profile, f"{STEP}fetch") or 0.0) / whole)
    services: dict[str, Any] = {
        key: service_of(found.values, spread)
        for key, name in (MOVED | PARTLY).items()
        if (found := profile.get(name)) is not None
    }
    if cold or misses:
        services["fetch"] = missing(service_of(profile["storage.cold.read"].values), misses)
    elif (waits := profile.get(WAIT)) is not None:
        services["fetch"] = service_of(waits.values, MODEL)
    if (copy := profile.get("copy.pinned")) is not None:
        services["copy"] = service_of(copy.values)
    handover = {
        state: service_of(found.values, math.hypot(HANDOVER, spread))
        for state in (*STATES, *THREADS)
        if (found := profile.get(f"receive.{state}")) is not None
    }
    inline, collate = _mean(profile, "inline.collate"), _mean(profile, MOVED["collate"])
    known: dict[str, Any] = {
        "shared_cv": _mean(profile, "prepare.shared_cv"),
        "send_overlap": _mean(profile, "prepare.send_overlap"),
        "in_process_collate": inline / collate if inline and collate else None,
        "startup": _mean(profile, "worker.start"),
        "worker_startup": _mean(profile, "worker.first"),
        "worker_wait": _mean(profile, "worker.wait"),
        "batch_bytes": float(profile.bytes_per_batch),
        "worker_bytes": _mean(profile, "worker.private"),
        "sample_bytes": profile.bytes_per_sample,
        "dataset_bytes": _data_bytes(profile),
    }
    known = {name: value for name, value in known.items() if value}
    if (release := release_of(profile)) is not None:
        known["release"] = release
    return WorkloadCosts(
        batch_size=profile.batch_size,
        preprocess=prepared,
        handover=Handover(**handover),
        consumer_by_workers=tuple(receiving_table(profile)),
        # None decodes where no step of that name was measured.
        decode_share=min(1.0, (_mean(profile, f"{STEP}decode") or 0.0) / whole) if whole else None,
        **services,
        **known,
    )


def speed_spread(profile: Profile) -> float:
    """Relative standard uncertainty of the machine's speed: `DRIFT` times its spread around the calibration's median.

    The share of the CPUs that other programs took is added: costs noted beside them may be off by as much.
    """
    found = profile.get(SPEED)
    spread = math.sqrt(stats.mean([(value - 1.0) ** 2 for value in found.flat])) if found is not None else 0.0
    return min(1.0, math.hypot(DRIFT * spread, _mean(profile, OTHERS) or 0.0))


def scatter(rounds: Values) -> float:
    """Relative standard uncertainty of what one more round shows: the root mean square distance from the median.

    The error of the mean would be too small: a job is one more run on a machine that changes its speed.
    """
    means = [stats.mean(values) for values in rounds if values]
    centre = stats.median(means)
    if centre <= 0 or len(means) < 2:
        return 0.0
    return min(1.0, math.sqrt(sum((mean / centre - 1.0) ** 2 for mean in means) / (len(means) - 1)))


def _accelerator(profile: Profile) -> Accelerator:
    source, step, launch = profile.accelerator, profile.get("accelerator.step"), profile.get("accelerator.launch")
    known: dict[str, Any] = {"name": source.name} if source.name else {}
    if source.step_time_s is not None:
        time = Service(source.step_time_s, uncertainty=source.uncertainty)
    else:
        measured = profile["accelerator.step"] if step is None else step
        time = replace(service_of(measured.values), uncertainty=source.uncertainty)
        known["slowdown"] = slowdown_table(measured, profile.measurements)
    if launch is not None and not source.synchronises:
        alone = None if source.step_time_s else profile.get("accelerator.step.alone")
        known |= {"launch": service_of(launch.values, speed_spread(profile)), "lead": lead_of(step, launch, alone)}
    if (cpu := profile.get("accelerator.cpu_step")) is not None:
        known["cpu_step"] = service_of(cpu.values)
    waits = {"run_ahead": 0 if source.synchronises else 1, "copies": source.name != CPU}
    own = {} if profile.today is None else profile.today.accelerator_fields()
    return Accelerator(step=time, **known, **(waits | own))


def lead_of(step: Measurement | None, launch: Measurement, alone: Measurement | None) -> float:
    """Share of a launch that comes before an idle device can begin the step.

    A step that is launched on an idle device takes longer than one of back-to-back steps: by how much in the median,
    over the mean launch; 0 where that was not measured.
    """
    if step is None or alone is None or not launch.mean:
        return 0.0
    return max(0.0, min(1.0, (stats.median(alone.flat) - stats.median(step.flat)) / launch.mean))


def slowdown_table(step: Measurement, measurements: Sequence[Measurement]) -> tuple[float, ...]:
    """Relative step time beside 0, 1, 2, ... busy cores, by medians, interpolated; below 1 is noise, and becomes 1."""
    alone = stats.median(step.flat)
    found = {int(m.name.removeprefix(BUSY)): m for m in measurements if m.name.startswith(BUSY)}
    return tuple(interpolated({0: 1.0} | {k: max(1.0, stats.median(m.flat) / alone) for k, m in found.items()}))


def _host(profile: Profile, cold: bool) -> HostResources:
    facts = profile.host
    known: dict[str, Any] = {
        "cores": facts.usable_cores,
        "threads_per_core": facts.threads_per_core,
        "siblings": profile.siblings,
        "sharing_loss": _lost(profile),
        "storage_streams": _streams(profile) if cold else None,
        "memory_bytes": float(memory_bytes(profile) or 0),
        "shm_bytes": float(facts.shm_bytes or 0),
    }
    return HostResources(
        speed=profile.speed,
        speed_uncertainty=profile.speed_uncertainty,
        **{name: value for name, value in known.items() if value},
    )


def _lost(profile: Profile) -> float:
    """The share that is lost of all cores' time, if the loader ran on so many CPUs: by no quota, one for each core."""
    used, facts = _mean(profile, "cores.used"), profile.host
    if used is None or facts.usable_cores != facts.affinity_cpus:
        return 0.0
    return min(MOST_LOST, max(0.0, 1.0 - used))


def _mean(profile: Profile, name: str) -> float | None:
    found = profile.get(name)
    return None if found is None else found.mean


def _loader(profile: Profile) -> Loader:
    """As all was measured: whether it pins, what holds the lock, and library threads unless they are limited."""
    known: dict[str, Any] = {"pin_memory": profile.get(MOVED["pin"]) is not None}
    if share := _mean(profile, "lock.share"):
        known["gil"] = share
    if (passing := profile.get("lock.passing")) is not None:
        known["lock_passing"] = min(1.0, passing.mean)
    found, spread = profile.get("threads.worked"), profile.get("threads.spread")
    if found is not None and spread is not None and spread.mean >= SPREAD and found.mean > 1:
        known["default_threads"] = round(found.mean)
    settings = profile.today or profile.settings
    return Loader(**(known | ({} if settings is None else settings.loader_fields())))


def _streams(profile: Profile) -> float | None:
    """Cold reads at once at full speed: bandwidth of several readers over that of one, 1 at least."""
    together, one = profile.get("storage.cold.bandwidth"), profile.get("storage.cold.read")
    if together is None or one is None or not profile.bytes_per_sample:
        return None
    return max(1.0, together.mean * one.mean / profile.bytes_per_sample)
