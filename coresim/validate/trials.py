"""Trials: the process that built and calibrated a data set also runs the real pipeline on request.

A trial runs the same subject as the calibration, with other settings, and feeds an accelerator that blocks for the step
time, or real training. Several ranks have a loader each, and a barrier of gloo ends every step, as in data-parallel
training on CPUs: when its step begins, each rank tells the others when its device will be done, and the latest of these
moments ends the step of all. Passing the barrier delays a rank only if that takes longer than the step. It takes CPU
time, while others receive their batches: predictions count it, as timed before among ranks that do nothing else.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from coresim import stats
from coresim.device.models import load_torch
from coresim.errors import InputError
from coresim.measure.forked import run_forked
from coresim.measure.handover import pinning
from coresim.measure.machine_speed import SpeedSampler
from coresim.measure.protocol import others_meter
from coresim.measure.rig import Rig
from coresim.measure.subject import PATIENCE, Layout
from coresim.measure.topology import on_cpus
from coresim.measure.trial import Trial, run_trial, sleep_until, spin_until
from coresim.model.option import Option
from coresim.sim.run import RunLength
from coresim.validate.grid import Setting
from coresim.validate.ledger import MeasuredTrial
from coresim.validate.limits import QuotaGroup
from coresim.validate.predict import idle_share
from coresim.validate.training import StepCost, Training, is_own, run_training
from coresim.workloads.images import EncodedImageWorkload

#: The message before a calibration, which samples the machine's speed itself.
REST = "rest"
#: Seconds of a trial.
TRIAL_S = 2.5
#: Steps in which a barrier is timed, and seconds of each, about as long as a trial's: 1.2 s in all.
MEETINGS, MEETING_S = 40, 0.03


class Order(NamedTuple):
    """A request for one trial; ``group``: for a quota, the parent's control group."""

    setting: Setting
    step_s: float
    length: RunLength
    usual_sampler_s: float
    group: QuotaGroup | None = None


class Train(NamedTuple):
    """The model that the trials train; the process answers with the device's name and what a step costs.

    A process trains one model on one device. ``again``: a cost that it measured before, now to have more launches.
    """

    setting: Setting
    device: str
    again: StepCost | None = None


class Trials:
    """Makes trials in the process that has the data set; `coresim.measure.server.Server` takes it as ``more``.

    It answers an `Order`, a `Train`, `REST`, or a call such as `barrier_cost`, with what that returns.
    """

    def __init__(self) -> None:
        self._training: Training | None = None
        self._sampler: SpeedSampler | None = None
        self._open, self._sampled = ExitStack(), ExitStack()

    def __call__(self, rig: Rig, message: Any) -> Any:
        """Do what the message says; the answer."""
        if isinstance(message, Train):
            return self._train(rig, message)
        if callable(message):
            return message()
        if message == REST:
            self._sampled.close()
            self._sampler = None
            return None
        order: Order = message
        if self._sampler is None:
            self._sampler = self._sampled.enter_context(SpeedSampler(rig.subject(threads=False)))
        cores = order.setting.cores
        # By a quota over all CPUs, or to as many CPUs as the trial has cores.
        with order.group.cores(cores) if order.group else on_cpus(sorted(os.sched_getaffinity(0))[:cores]):
            return _trial(rig, order, self._training, self._sampler)

    def _train(self, rig: Rig, ask: Train) -> tuple[str, StepCost]:
        if self._training is None:
            setting, encoded = ask.setting, isinstance(rig.workload, EncodedImageWorkload)
            batch = _batch(rig) if encoded or is_own(setting.model) else None
            self._training = Training(setting.model, setting.precision, ask.device, setting.batch_size, batch, encoded)
            # From here on the loader's own thread pins for this device, in the calibrations and in every trial.
            self._open.enter_context(self._training.device.loading())
        training = self._training
        return training.device.name(), training.relaunched(ask.again) if ask.again else training.cost()


def _batch(rig: Rig) -> Any:
    """One batch, prepared in a fork: it must not make the workers that this process forks later faster."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "batch.pt")
        run_forked([lambda: load_torch().save(rig.batch(), path)], "the data set")
        return load_torch().load(path, weights_only=False)


def _trial(rig: Rig, order: Order, training: Training | None, sampler: SpeedSampler) -> MeasuredTrial:
    setting = order.setting
    layout = Layout(
        workers=0 if setting.option == Option.NO_OVERLAP else setting.workers,
        prefetch_factor=setting.prefetch_factor,
        ordered=setting.ordered,
        pin_memory=setting.pin_memory,
    )
    others = others_meter(lambda: sampler.cpu_s)
    found = _tried(rig, layout, order, training)
    others_cores = others()
    trial, notes = found[0], [note for one in found for note in one.notes]
    period = sum(one.seconds_per_step for one in found) / len(found)
    steps = [step for one in found for step in one.steps]
    pins = [cpu for one in found for cpu, _ in pinning(one, one.notes)]
    return MeasuredTrial(
        idle=idle_share(order.step_s, period),
        seconds_per_step=period,
        step_starts_us=_microseconds(trial, [step.start for step in trial.steps]),
        step_ends_us=_microseconds(trial, [step.end for step in trial.steps]) if training else (),
        wall_gots_us=_microseconds(trial, [step.got for step in trial.steps]),
        lateness_s=0.0 if training else sum(one.lateness for one in found) / len(found),
        sample_s=sum(sum(note.cpu) / len(note.cpu) for note in notes) / len(notes),
        collate_s=sum(note.collate for note in notes) / len(notes),
        receive_s=sum(step.cpu for step in steps) / len(steps),
        others_cores=others_cores,
        slowdown=sampler.seen(notes) / order.usual_sampler_s,
        pin_s=sum(pins) / len(pins) if pins else None,
        uncovered=trial.uncovered if training else None,
        launch_s=sum(step.launch for step in steps) / len(steps) if training else None,
    )


def _tried(rig: Rig, layout: Layout, order: Order, training: Training | None) -> list[Trial]:
    setting, (steps, warm_up) = order.setting, (order.length.steps, order.length.warm_up)
    wait, steps_s = spin_until if setting.sync == "spin" else sleep_until, [order.step_s] * steps
    if setting.ranks > 1:
        return run_ranks(rig, layout, setting.ranks, setting.straggler, steps_s=steps_s, warm_up=warm_up, wait=wait)

    def trial() -> Trial:
        seed = time.perf_counter_ns() % 2**32
        with closing(rig.subject(threads=setting.option == Option.STAGED).open(layout, seed)) as pipe:
            if training is None:
                return run_trial(pipe, steps_s, warm_up, wait=wait)
            return run_training(pipe, training, warm_up, steps - warm_up, run_ahead=setting.run_ahead)

    # A device cannot be used in a fork.
    alone = setting.option == Option.NO_OVERLAP and training is None
    return run_forked([trial], "the trial") if alone else [trial()]


def _microseconds(trial: Trial, moments: Sequence[float]) -> tuple[int, ...]:
    return tuple(round((moment - trial.before) * 1e6) for moment in moments)


@contextmanager
def _joined(rank: int, ranks: int, folder: str) -> Iterator[None]:
    """One of so many ranks; the others find it by a file in the folder."""
    dist = load_torch().distributed
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", Path(folder, "store").as_uri(), timedelta(seconds=PATIENCE), ranks, rank)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _rank(rig: Rig, layout: Layout, straggler: float, trial: dict[str, Any], rank: int, *joined: Any) -> Trial:
    """The trial of one rank."""
    if straggler != 1.0:
        rig.workload.stretch = straggler if rank == 0 else 1.0  # type: ignore[attr-defined]
    seed = (time.perf_counter_ns() + rank) % 2**32
    with _joined(rank, *joined), closing(rig.subject(threads=False).open(layout, seed)) as pipe:
        return run_trial(pipe, **trial, join=latest)


def _meet(*joined: Any) -> float:
    """CPU seconds of all threads of one rank's process for each of `MEETINGS` barriers: gloo has threads of its own."""
    with _joined(*joined):
        end = latest(time.perf_counter())  # the first one connects
        clock = time.process_time()
        for _ in range(MEETINGS):
            sleep_until(end := latest(end + MEETING_S))
        return (time.process_time() - clock) / MEETINGS


def barrier_cost(ranks: int) -> float:
    """CPU seconds of a rank for the barrier of one step, mean of all; only in a process that may fork.

    They are at the machine's speed of that moment, on all CPUs.

    Raises:
        CoresimError: a rank died or hangs.
    """
    return stats.mean(_run_together(_meet, ranks))


def _run_together(call: Callable[..., Any], ranks: int) -> list[Any]:
    """Call it for each rank with its number, how many ranks there are, and the folder in which they meet."""
    with tempfile.TemporaryDirectory(prefix="coresim-ranks-") as folder:
        return run_forked([partial(call, rank, ranks, folder) for rank in range(ranks)], "a rank of the trial")


def run_ranks(rig: Rig, layout: Layout, ranks: int, straggler: float = 1.0, **trial: Any) -> list[Trial]:
    """One trial of so many ranks, each as `coresim.measure.trial.run_trial` makes it; only in a process that may fork.

    ``straggler``: how many times as long the first rank's reads wait.

    Raises:
        InputError: a rank's data set fails, or it has no reads that could wait longer.
        CoresimError: a rank died or hangs.
    """
    if straggler != 1.0 and not hasattr(rig.workload, "stretch"):
        raise InputError(f"straggler = {straggler:g}: {rig.workload.name} has no waits to stretch; use slow-reads")
    return _run_together(partial(_rank, rig, layout, straggler, trial), ranks)


def latest(moment: float) -> float:
    """The latest of all ranks' moments, once all have come to this one."""
    torch = load_torch()
    shared = torch.tensor([moment], dtype=torch.float64)
    torch.distributed.all_reduce(shared, torch.distributed.ReduceOp.MAX)
    return float(shared[0])
