"""The measuring process of a validation: it calibrates one job, then makes trials as it is told.

It forks the loader's workers, which the process that asks must never do: libraries may have started threads there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import NamedTuple

from coresim.measuring.processes import Link, limit_threads
from coresim.measuring.protocol import busy_seconds
from coresim.measuring.sending import prepared
from coresim.measuring.step_time import DatasetBatch
from coresim.sim.run import RunLength
from coresim.validate.calibrate import ROUNDS, RUN_S, calibrate
from coresim.validate.grid import Setting
from coresim.validate.ledger import Measured
from coresim.validate.limits import QuotaGroup, on_cpus
from coresim.validate.loaders import Layout, Pipe, Timed, open_pipe
from coresim.validate.pace import Sampler
from coresim.validate.training import Training, is_own, run_training
from coresim.validate.trial import Trial, run_trial, sleep_until, spin_until
from coresim.workloads.base import Workload, WorkloadSpec
from coresim.workloads.images import EncodedImageWorkload

TRIAL_S = 2.5


@dataclass(frozen=True)
class Effort:
    """How long everything is measured, and where: rounds and seconds of each calibration run, seconds of each trial.

    ``device`` is where models are trained, where the settings name one.
    """

    rounds: int = ROUNDS
    run_s: float = RUN_S
    trial_s: float = TRIAL_S
    device: str = "cuda"


class Order(NamedTuple):
    """One trial that a measuring process is told to make; ``group``: for a quota, the parent's control group."""

    setting: Setting
    step_s: float
    length: RunLength
    group: QuotaGroup | None = None


def serve(link: Link, spec: WorkloadSpec, first: Setting, effort: Effort) -> None:
    """The process's life: calibrate, then make trials as told."""
    import torch  # noqa: PLC0415 (torch is optional and heavy)

    real = spec.build()
    limit_threads()
    torch.set_num_threads(1)
    with Sampler(real) as sampler:
        training = _training(spec, real, first, effort.device) if first.model else None
        _serve(link, real, first, effort, sampler, training)


def _serve(
    link: Link, real: Workload, first: Setting, effort: Effort, sampler: Sampler, training: Training | None
) -> None:
    found = calibrate(
        real,
        first.option,
        first.batch_size,
        sampler,
        pin_memory=first.pin_memory,
        rounds=effort.rounds,
        run_s=effort.run_s,
        progress=lambda done: link.send("calibrating", done),
    )
    if training is not None:
        found = replace(found, training=training.cost())
    link.send("calibrated", (real.name, _device_name(training) if training else "", found))
    while True:
        order = link.receive()
        with _limited(order):
            measured = _trial(real, order, training, sampler)
        link.send("measured", replace(measured, pace=measured.pace / found.usual_s))


def _device_name(training: Training) -> str:
    import torch  # noqa: PLC0415 (torch is optional and heavy)

    device = training.device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def _training(spec: WorkloadSpec, real: Workload, first: Setting, device: str) -> Training:
    if is_own(first.model):
        batch = DatasetBatch(replace(spec, batch_size=first.batch_size))()
        return Training(first.model, first.precision, device, first.batch_size, batch=batch)
    encoded = None
    if isinstance(real, EncodedImageWorkload):
        encoded = real.collate(prepared(real, first.batch_size))
    return Training(first.model, first.precision, device, first.batch_size, encoded)


def _limited(order: Order) -> AbstractContextManager[None]:
    """By a quota over all CPUs, or to as many CPUs as the trial has cores."""
    cores = order.setting.cores
    return order.group.cores(cores) if order.group else on_cpus(sorted(os.sched_getaffinity(0))[:cores])


def _trial(real: Workload, order: Order, training: Training | None, sampler: Sampler) -> Measured:
    setting = order.setting
    layout = Layout(
        option=setting.option,
        workers=setting.workers,
        batch_size=setting.batch_size,
        prefetch_factor=setting.prefetch_factor,
        ordered=setting.ordered,
        pin_memory=setting.pin_memory,
    )
    began, mine, all_busy = time.perf_counter(), _own_seconds() + sampler.cpu_s, busy_seconds()
    pipe = open_pipe(Timed(real), layout, seed=os.getpid())
    try:
        trial = _run(pipe, order, training)
    finally:
        pipe.close()
    others = (busy_seconds() - all_busy) - (_own_seconds() + sampler.cpu_s - mine)
    span = time.perf_counter() - began
    return Measured(
        idle=trial.idle,
        seconds_per_step=trial.seconds_per_step,
        step_starts_us=_microseconds(trial, [step.start for step in trial.steps]),
        step_ends_us=_microseconds(trial, [step.end for step in trial.steps]) if training else (),
        lateness_s=0.0 if training else trial.lateness,
        sample_s=sum(sum(cost.cpu) for cost in trial.costs) / len(trial.costs) / setting.batch_size,
        collate_s=sum(cost.collate for cost in trial.costs) / len(trial.costs),
        receive_s=sum(step.cpu for step in trial.steps) / len(trial.steps),
        others_cores=max(0.0, others / span),
        pace=sampler.seen(trial.costs),
    )


def _run(pipe: Pipe, order: Order, training: Training | None) -> Trial:
    warm_up, steps = order.length.warm_up, order.length.steps - order.length.warm_up
    if training is not None:
        return run_training(pipe, training, warm_up, steps)
    wait = spin_until if order.setting.sync == "spin" else sleep_until
    return run_trial(pipe, order.step_s, warm_up, steps, wait=wait)


def _microseconds(trial: Trial, moments: Sequence[float]) -> tuple[int, ...]:
    return tuple(round((moment - trial.before) * 1e6) for moment in moments)


def _own_seconds() -> float:
    """CPU seconds of this process and of those of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
