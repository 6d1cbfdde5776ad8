"""From a scenario and a setting to a pipeline: the three ways to organise the input of a training job."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from coresim.errors import InputError
from coresim.model.pipeline import Phase, Pipeline, Stage, Trainer
from coresim.model.scenario import Scenario, StageTable
from coresim.model.service import ZERO

OPTIONS = {1: "no overlap", 2: "overlapped", 3: "staged"}


def build(
    scenario: Scenario, option: int, cores: float, workers: int = 1, prefetch_factor: int | None = None
) -> Pipeline:
    """The pipeline of one option.

    Args:
        scenario: the job, the accelerators and the host.
        option: 1, 2 or 3 (see `OPTIONS`); a scenario with stages of its own has only them, whatever the option.
        cores: physical cores of the whole host that all accelerators share.
        workers: loader workers of each accelerator (ignored by option 1).
        prefetch_factor: batches out per worker, instead of the scenario's.
    """
    if option not in OPTIONS:
        raise InputError(f"option {option!r}: use 1 (no overlap), 2 (overlapped) or 3 (staged)")
    stages, trainer, credits = _organise(scenario, option, workers, prefetch_factor or scenario.loader.prefetch_factor)
    device, host, workload = scenario.accelerator, scenario.host, scenario.workload
    return Pipeline(
        stages=stages,
        trainer=trainer,
        step=Phase("step", service=device.step),
        cores=float(cores),
        batch_size=workload.batch_size,
        credits=credits,
        speed=host.speed,
        storage_streams=host.storage_streams,
        slowdown=device.slowdown,
        ranks=device.count,
        hosts=device.hosts,
        barrier=device.total > 1,
        allreduce=device.allreduce if device.total > 1 else 0.0,
        epoch_batches=scenario.batches_per_epoch,
        persistent=scenario.loader.persistent_workers,
        startup=workload.startup * (0 if option == 1 else workers),
        worker_startup=workload.worker_startup,
        speed_uncertainty=host.speed_uncertainty,
    )


class Setting(NamedTuple):
    """One point to simulate; ``cores`` of the whole host, ``workers`` of each accelerator."""

    option: int
    workers: int
    cores: float
    prefetch_factor: int


def resolve_setting(
    scenario: Scenario, option: int, workers: int | None, cores: float | None, prefetch_factor: int | None
) -> Setting:
    """What is asked for, and the scenario's own where nothing is: no workers means option 1."""
    count = scenario.accelerator.count
    factor = prefetch_factor or scenario.loader.prefetch_factor
    workers = scenario.loader.workers if workers is None else workers
    cores = cores or scenario.host.cores
    if option == 1 or (workers == 0 and option == 2):
        return Setting(1, 0, cores or float(_split(scenario) * count), factor)
    if workers is None and cores is None:
        raise InputError("workers: missing, and the input has neither loader.workers nor host.cores; say how many")
    if workers == 0:
        raise InputError(f"workers = 0: option {option} needs at least one; say 1, or take option 1")
    found = workers or max(1, math.floor((cores or 1.0) / count) - 1)
    return Setting(option, found, cores or float((found + 1) * count), factor)


def _organise(
    scenario: Scenario, option: int, workers: int, prefetch_factor: int
) -> tuple[tuple[Stage, ...], Trainer, int | None]:
    if scenario.stages:
        return tuple(_own_stage(table) for table in scenario.stages), _trainer(scenario), None
    if option == 1:
        return (), replace(_trainer(scenario, _preparation(scenario), receives=False), run_ahead=0), None
    if option == 3:
        return _staged(scenario, workers), _trainer(scenario, receives=False, copies=False), None
    stages, copied = _loader(scenario, workers)
    return stages, _trainer(scenario, receives=not copied, copies=not copied), workers * prefetch_factor


def _preparation(scenario: Scenario, fetches: bool = True) -> tuple[Phase, ...]:
    workload = scenario.workload
    phases = (
        Phase("fetch", "storage", workload.fetch if fetches else ZERO, repeats=workload.batch_size),
        Phase("preprocess", "cores", workload.preprocess, repeats=workload.batch_size, split=_split(scenario)),
        Phase("collate", "cores", workload.collate),
    )
    # A phase that takes no time changes nothing but the cost of the simulation.
    return tuple(phase for phase in phases if not phase.service.is_zero) or phases[1:2]


def _split(scenario: Scenario) -> int:
    return min(scenario.loader.split, scenario.workload.batch_size)


def _trainer(scenario: Scenario, inline: tuple[Phase, ...] = (), receives: bool = True, copies: bool = True) -> Trainer:
    """Option 1 receives nothing from a worker; where a copy thread receives and copies, the trainer does neither."""
    workload, device = scenario.workload, scenario.accelerator
    copy = Phase("copy", "wait", workload.copy) if copies else Phase("copy", "wait")
    mode = scenario.loader.copy_mode
    return Trainer(
        inline=inline,
        consumer=Phase("consumer", "cores", workload.consumer) if receives else Phase("consumer"),
        copy=copy,
        launch=Phase("launch", "cores", device.launch),
        copy_mode="none" if copy.service.is_zero else ("sync" if mode == "thread" else mode),
        spin=device.sync == "spin",
        run_ahead=device.run_ahead,
    )


def _loader(scenario: Scenario, workers: int) -> tuple[tuple[Stage, ...], bool]:
    """Option 2's stages, and whether a thread of them copies to the device."""
    loader, workload = scenario.loader, scenario.workload
    pins = loader.pin_memory and not workload.pin.is_zero
    threaded = loader.copy_mode == "thread"
    # A pin thread takes batches as they come; the order is restored behind it.
    ordered = loader.ordered and not pins
    stages = [Stage("loader", workers, _preparation(scenario), ordered=ordered, dispatch=loader.dispatch)]
    if pins:
        stages.append(Stage("pin", 1, (Phase("pin", "cores", workload.pin),), ordered=loader.ordered))
    if threaded:
        stages.append(_copy_stage(scenario, buffer=1))
    return tuple(stages), threaded


def _copy_stage(scenario: Scenario, buffer: int) -> Stage:
    """A thread that receives batches and copies them to the device, ahead of the trainer."""
    workload = scenario.workload
    phases = (Phase("consumer", "cores", workload.consumer), Phase("copy", "wait", workload.copy))
    return Stage("copy", 1, phases, buffer=buffer, ordered=scenario.loader.ordered)


def _staged(scenario: Scenario, workers: int) -> tuple[Stage, ...]:
    """Option 3: fetch, preprocess and copy, joined by queues of ``buffer`` batches."""
    loader, workload = scenario.loader, scenario.workload
    fetch = Phase("fetch", "storage", workload.fetch, repeats=workload.batch_size, pooled=_fetches(scenario))
    # The pool of fetchers is one server whose times are the gaps between the pool's completions.
    first = () if workload.fetch.is_zero else (Stage("fetch", 1, (fetch,), buffer=loader.buffer),)
    prepare = Stage("preprocess", workers, _preparation(scenario, False), buffer=loader.buffer, ordered=loader.ordered)
    return (*first, prepare, _copy_stage(scenario, loader.buffer))


def _fetches(scenario: Scenario) -> int:
    """Fetches of one accelerator that make progress at once: the storage serves no more, for all of them together."""
    streams = scenario.host.storage_streams
    fetchers = scenario.loader.fetchers
    return fetchers if streams is None else max(1, min(fetchers, int(streams / scenario.accelerator.count)))


def _own_stage(table: StageTable) -> Stage:
    # Named after the stage: phases of one name see the same samples, and those of two stages must not.
    phase = Phase(table.name, "cores" if table.holds_core else "wait", table.service)
    return Stage(table.name, table.servers, (phase,), grain=table.grain, buffer=table.buffer, ordered=table.ordered)
