"""Build a pipeline from a scenario and a setting, in one of three ways to organise the input of a training job."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from coresim.errors import InputError
from coresim.model import lock
from coresim.model.crowding import on_cores, receiving, time_lost
from coresim.model.dispatch import deals_after_receipt, has_pin_thread, wait_for_deal, waits_before_deal
from coresim.model.handover import EVENED_OUT_S, STATES, after_spinning, state_of, usual
from coresim.model.option import Option, read_option
from coresim.model.pipeline import Phase, Pipeline, Stage, Trainer
from coresim.model.scenario import Scenario, StageTable, with_services
from coresim.model.service import ZERO, Service


def build(
    scenario: Scenario, option: Option, cores: float, workers: int = 1, prefetch_factor: int | None = None
) -> Pipeline:
    """The pipeline of one option.

    Args:
        scenario: the job, the accelerators and the host.
        option: how the work is organised; a scenario with stages of its own has only them, whatever the option.
        cores: physical cores of the whole host that all accelerators share.
        workers: loader workers of each accelerator (ignored by option 1).
        prefetch_factor: batches out per worker, instead of the scenario's.
    """
    option = read_option(option)
    scenario = on_cores(scenario, workers, cores)
    prefetch_factor = prefetch_factor or scenario.loader.prefetch_factor
    device, host, workload = scenario.accelerator, scenario.host, scenario.workload
    # With one batch out for each: the trainer waits for it, and all workers but its maker are at work.
    maker = "begin" if has_pin_thread(scenario) else "send"
    awaited = state_of(maker, max(0, device.count * workers - 1), host.width(cores), device.count)
    stages, trainer, credits = _organise(scenario, option, workers, prefetch_factor, awaited)
    starts = option != Option.NO_OVERLAP and not scenario.loader.in_process
    return Pipeline(
        stages=stages,
        trainer=trainer,
        step=Phase("step", service=device.step.scaled(1.0 + workload.device_preprocess / device.step.mean)),
        cores=float(cores),
        cpus=host.machine_cores,
        batch_size=workload.batch_size,
        credits=credits,
        speed=host.speed,
        siblings=host.siblings,
        sharing_loss=time_lost(scenario, option, workers, cores),
        storage_streams=host.storage_streams,
        # It is measured beside other processes: a core on which a trainer spins is none of theirs.
        slowdown=device.slowdown[:1] * (device.count if device.sync == "spin" else 0) + device.slowdown,
        ranks=device.count,
        hosts=device.hosts,
        barrier=device.total > 1,
        allreduce=device.allreduce if device.total > 1 else 0.0,
        epoch_batches=scenario.batches_per_epoch,
        persistent=scenario.loader.persistent_workers,
        # The trainer starts one worker after the other; then all of them wait at the same time.
        startup=workload.startup * workers + workload.worker_wait if starts else 0.0,
        worker_startup=workload.worker_startup if starts else 0.0,
        speed_uncertainty=host.speed_uncertainty_at(host.width(cores)),
    )


class SimulatedSetting(NamedTuple):
    """One point to simulate; ``cores`` of the whole host, ``workers`` of each accelerator."""

    option: Option
    workers: int
    cores: float
    prefetch_factor: int


def resolve_setting(
    scenario: Scenario, option: int | None, workers: int | None, cores: float | None, prefetch_factor: int | None
) -> SimulatedSetting:
    """The setting asked for, completed with the scenario's own values; no workers means option 1."""
    option = read_option(option) if option is not None else scenario.preset.usual_option
    count, factor = scenario.accelerator.count, prefetch_factor or scenario.loader.prefetch_factor
    workers, cores = scenario.loader.workers if workers is None else workers, cores or scenario.host.cores
    if option == Option.NO_OVERLAP or (workers == 0 and option == Option.OVERLAPPED):
        return SimulatedSetting(Option.NO_OVERLAP, 0, cores or float(_split(scenario) * count), factor)
    if workers is None and cores is None:
        raise InputError("workers: missing, and the input has neither loader.workers nor host.cores; say how many")
    if workers == 0:
        raise InputError(f"workers = 0: option {option} needs at least one; say 1, or take option 1")
    most = scenario.loader.max_workers
    if workers is not None and most is not None and workers > most:
        raise InputError(f"workers = {workers}: loader.max_workers is {most}; say that many, or raise it")
    found = workers or min(max(1, math.floor((cores or 1.0) / count) - 1), most or 10**9)
    return SimulatedSetting(option, found, cores or float((found + 1) * count), factor)


@lru_cache(maxsize=1 << 10)
def _organise(
    scenario: Scenario, option: Option, workers: int, prefetch_factor: int, awaited: int
) -> tuple[tuple[Stage, ...], Trainer, int | None]:
    if scenario.stages:
        return tuple(map(_own_stage, scenario.stages)), _trainer(scenario), None
    if option != Option.OVERLAPPED or scenario.loader.in_process:
        # Only worker processes collate into new shared memory; others take memory that they have had before.
        scenario = with_services(scenario, scenario.workload.in_process_collate, "collate")
    if option == Option.NO_OVERLAP:
        return (), replace(_trainer(scenario, _preparation(scenario), receives=False), run_ahead=0), None
    workload = scenario.workload
    longer = receiving(workload, workers, scenario.accelerator.count)
    scenario = with_services(scenario, longer, "consumer")
    if option == Option.STAGED:
        trainer = _trainer(scenario, receives=False, copies=False)
        return _staged(scenario, workers), replace(trainer, handover=_handover(workload.handover.of_threads())), None
    stages, copied = _loader(scenario, workers)
    receives = not (copied or scenario.loader.in_process)
    trainer = _trainer(scenario, receives=receives, copies=not copied)
    if receives and scenario.loader.grain == "batch" and not scenario.accelerator.launch.is_zero:
        trainer = replace(trainer, settling=EVENED_OUT_S)
    if deals_after_receipt(scenario.loader, prefetch_factor):
        waits = _waits(scenario, before_deal=True)
        stages = wait_for_deal(stages, waits[awaited] if waits else ZERO, _receipt(scenario))
        trainer = replace(trainer, handover=_handover(waits)) if receives else trainer
    return stages, trainer, batches_out(scenario, workers, prefetch_factor)


def batches_out(scenario: Scenario, workers: int, prefetch_factor: int) -> int:
    """Batches out between dispatch and pick-up.

    N threads that put batches into a full queue of Q have N + Q out. Those that take samples hold one each, here
    rounded down to whole batches; those that write them into their batch at once have two batches under way for each
    that they can fill together (`calibration/probe_tfdata.py`).
    """
    loader, size = scenario.loader, scenario.workload.batch_size
    if loader.credits == "per_worker":
        return workers * prefetch_factor
    in_work = {"batch": workers, "sample": workers // size, "in_place": 2 * math.ceil(workers / size), "split": 1}
    return prefetch_factor + loader.more_queued + in_work[loader.grain]


def _preparation(scenario: Scenario, fetches: bool = True) -> tuple[Phase, ...]:
    workload, size = scenario.workload, scenario.workload.batch_size
    work = Phase("preprocess", "cores", workload.preprocess, size, _split(scenario), shared_cv=workload.shared_cv)
    return _timed(
        Phase("fetch", "storage", workload.fetch if fetches else ZERO, repeats=size),
        work,
        Phase("collate", "cores", workload.collate),
        least=work,
    )


def _timed(*phases: Phase, least: Phase) -> tuple[Phase, ...]:
    """Those that take any time, or ``least``: the others change nothing but the cost of the simulation."""
    return tuple(phase for phase in phases if not phase.service.is_zero) or (least,)


def _split(scenario: Scenario) -> int:
    return min(scenario.loader.split, scenario.workload.batch_size)


def _trainer(scenario: Scenario, inline: tuple[Phase, ...] = (), receives: bool = True, copies: bool = True) -> Trainer:
    """Option 1 receives nothing from a worker; where a copy thread receives and copies, the trainer does neither."""
    workload, device = scenario.workload, scenario.accelerator
    copied, consumed, mode = workload.copy if copies else ZERO, workload.consumer, scenario.loader.copy_mode
    if receives and not scenario.loader.pin_memory:  # a copy is the first to read the batch, or else the step is
        waits = mode == "sync" and not copied.is_zero
        copied = copied.longer(workload.pages) if waits else copied
        consumed = consumed if waits else consumed.longer(workload.pages)
    # The pages of a batch are mapped at its own turn, too.
    early = _receipt(scenario).mean / consumed.mean if receives and consumed.mean else 1.0
    return Trainer(
        inline=inline,
        handover=_handover(_waits(scenario)) if receives else (),
        consumer=Phase("consumer", "cores", consumed) if receives else Phase("consumer"),
        release=max(0.0, 1.0 - early),
        copy=Phase("copy", "wait", copied),
        launch=Phase("launch", "cores", device.launch),
        copy_mode="none" if copied.is_zero else ("sync" if mode in ("thread", "worker") else mode),
        spin=device.sync == "spin",
        run_ahead=device.run_ahead,
        lead=device.lead,
    )


def _waits(scenario: Scenario, before_deal: bool = False) -> tuple[Service, ...]:
    """Waiting for a batch by state, where whole batches come from a maker that can be told."""
    if scenario.loader.grain not in ("batch", "split"):
        return ()
    waits = scenario.workload.handover.services()
    if before_deal:
        waits = waits_before_deal(waits, _receipt(scenario), scenario.host.cores)
    # Taken as given: a pinned batch keeps no trainer that has spun. It is there, or the trainer slept until it was.
    return after_spinning(waits) if scenario.accelerator.sync == "spin" and not has_pin_thread(scenario) else waits


def _receipt(scenario: Scenario) -> Service:
    """The trainer's CPU time for a batch but for freeing the one before."""
    return scenario.workload.consumer.scaled(1.0 - scenario.workload.release)


def _handover(waits: tuple[Service, ...]) -> tuple[Phase, ...]:
    return tuple(Phase(f"handover.{state}", "wait", wait) for state, wait in zip(STATES, waits, strict=False))


def _loader(scenario: Scenario, workers: int) -> tuple[tuple[Stage, ...], bool]:
    """Option 2's stages, and whether one of them, and not the trainer, copies to the device."""
    loader, workload = scenario.loader, scenario.workload
    pins = has_pin_thread(scenario)
    # A pin thread takes batches as they come; the order is restored behind it.
    stages = list(_workers(scenario, workers, ordered=loader.ordered and not pins))
    if pins:
        pin = Phase("pin", "cores", workload.pin)
        phases = _timed(Phase("pin_wait", "wait", workload.pin_wait), pin, least=pin)
        stages.append(Stage("pin", 1, phases, ordered=loader.ordered))
    if loader.copy_mode == "thread":
        stages.append(_copy_stage(scenario, buffer=1))
    return tuple(stages), loader.copy_mode in ("thread", "worker")


def _workers(scenario: Scenario, workers: int, ordered: bool) -> Iterator[Stage]:
    """The workers; behind them what they queue for: the interpreter's lock, and the thread that makes batches."""
    loader, workload = scenario.loader, scenario.workload
    if not (loader.in_process or workload.send.is_zero):
        # A worker process sends what it has collated: one longer service, since nothing can come between the two.
        workload = replace(workload, collate=workload.collate.longer(workload.send))
        scenario = replace(scenario, workload=workload)
    if loader.grain in ("sample", "in_place"):
        # Finished samples that wait in their worker's place let a slow one hold up the rest.
        waits = loader.grain == "sample"
        # A batch of one, with its part of collating where each sample is written into its batch at once.
        collate = ZERO if waits else workload.collate.scaled(1.0 / workload.batch_size)
        one = replace(workload, batch_size=1, collate=collate, shared_cv=0.0)
        phases = _preparation(replace(scenario, workload=one))
        yield Stage("loader", workers, phases, grain="sample", buffer=1 if waits else None, ordered=ordered)
    else:
        shares = loader.grain == "split"
        split = replace(scenario, loader=replace(loader, split=workers)) if shares else scenario
        phases = _preparation(split)
        if loader.copy_mode == "worker" and not workload.copy.is_zero:
            phases = (*phases, Phase("copy", "wait", workload.copy))
        yield Stage("loader", 1 if shares else workers, phases, ordered=ordered, dispatch=loader.dispatch)
    if loader.gil and loader.in_process:
        yield _interpreter(scenario, workers, ordered)
    if loader.grain == "sample":
        # Even where it takes no time: it clears the place in which a batch is gathered, for the next one.
        yield Stage("batch", 1, (Phase("collate", "cores", workload.collate),))


def _interpreter(scenario: Scenario, threads: int, ordered: bool, buffer: int | None = None) -> Stage:
    """The lock as a server of its own, behind the work and holding no core: it bounds the rate.

    Work that holds the lock for h of its S seconds, in N threads, runs at min(N / S, 1 / h) when times are constant
    (the bottleneck law); h grows with N (`coresim.model.lock`). The trainer's launches hold the same lock, and are
    added to h. The simulated wait for the lock is longer than the real one by at most h per item.
    """
    workload, loader = scenario.workload, scenario.loader
    sample = loader.grain in ("sample", "in_place") and buffer is None
    passing = lock.longer(threads, loader.lock_passing)
    share, spread = loader.gil * passing, lock.DEVIATION * (1.0 - 1.0 / threads) / passing
    size = 1 if sample else workload.batch_size
    held = [
        Phase("lock", "wait", workload.preprocess.scaled(share, spread), repeats=size),
        Phase("lock of collate", "wait", ZERO if sample else workload.collate.scaled(share, spread)),
        Phase("lock of launch", "wait", scenario.accelerator.launch.scaled(size / workload.batch_size)),
    ]
    phases = _timed(*held, least=held[0])
    return Stage("interpreter", 1, phases, grain="sample" if sample else "batch", buffer=buffer, ordered=ordered)


def _copy_stage(scenario: Scenario, buffer: int) -> Stage:
    """A thread that receives batches and copies them to the device, ahead of the trainer."""
    workload = scenario.workload
    maps = ZERO if scenario.loader.pin_memory else workload.pages
    received = ZERO if scenario.loader.in_process else workload.consumer.longer(usual(workload.handover)).longer(maps)
    copy = Phase("copy", "wait", workload.copy)
    phases = _timed(Phase("consumer", "cores", received), copy, least=copy)
    return Stage("copy", 1, phases, buffer=buffer, ordered=scenario.loader.ordered)


def _staged(scenario: Scenario, workers: int) -> tuple[Stage, ...]:
    """Option 3: fetch, preprocess and copy, joined by queues of ``buffer`` batches."""
    loader, workload, streams = scenario.loader, scenario.workload, scenario.host.storage_streams
    # Fetches of one accelerator that make progress at once: the storage serves no more, for all of them together.
    most = loader.fetchers if streams is None else max(1, int(streams / scenario.accelerator.count))
    pooled = min(loader.fetchers, most)
    fetch = Phase("fetch", "storage", workload.fetch, repeats=workload.batch_size, pooled=pooled)
    # The pool of fetchers is one server whose times are the gaps between the pool's completions.
    first = () if workload.fetch.is_zero else (Stage("fetch", 1, (fetch,), buffer=loader.buffer),)
    prepare = Stage("preprocess", workers, _preparation(scenario, False), buffer=loader.buffer, ordered=loader.ordered)
    held = (_interpreter(scenario, workers, loader.ordered, loader.buffer),) if loader.gil else ()
    return (*first, prepare, *held, _copy_stage(scenario, loader.buffer))


def _own_stage(table: StageTable) -> Stage:
    # Named after the stage: phases of one name see the same samples, and those of two stages must not.
    phase = Phase(table.name, "cores" if table.holds_core else "wait", table.service)
    return Stage(table.name, table.servers, (phase,), grain=table.grain, buffer=table.buffer, ordered=table.ordered)
