"""What one and two workers cost, inside the real pipeline: all that the predictions of a validation are fed with.

Service times taken in a bare process differ from those inside a loader's worker (collation into shared memory, first
touch of new pages, the pickling thread), so they are noted by the workers themselves while the real loader runs. A
round is five runs: one worker without a pause (what samples and batches cost), one whose batches stand ready while it
rests, and one while it works (what receiving costs the trainer), two workers without a pause (how much slower a sample
gets while two cores are busy), and two at work while their batches are received. Rounds alternate, so that a drift
touches all alike; the best run of each kind counts, since disturbances only add, and the next best says how well it
repeats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from coresim import stats
from coresim.model.scenario import Accelerator, Host, Loader, Scenario, Workload
from coresim.model.service import ZERO, Service, empirical
from coresim.validate.loaders import Layout, Timed, open_pipe
from coresim.validate.training import RUN_AHEAD, StepCost
from coresim.validate.trial import Step, Trial, run_trial
from coresim.workloads.base import Workload as Real

ROUNDS = 5
#: Wall seconds of one run of a round.
RUN_S = 1.0
LEAST_STEPS, MOST_STEPS = 6, 400
MOST_VALUES = 1000
#: A sample waits for something else than a core where it does so for over this share of its time.
NOTABLE_WAIT = 0.1

Progress = Callable[[str, float], None] | None


@dataclass(frozen=True)
class Cost:
    """A time in seconds as it was noted, and the relative standard uncertainty of its mean."""

    values: tuple[float, ...]
    uncertainty: float = 0.0

    @property
    def mean(self) -> float:
        """Mean, s."""
        return stats.mean(self.values)

    def service(self) -> Service:
        """The same as a service time."""
        return empirical(self.values, self.uncertainty) if self.mean > 0 else ZERO


NOTHING = Cost((0.0,))


@dataclass(frozen=True)
class Calibration:
    """One organisation's costs for one workload and batch size.

    Attributes:
        option: the organisation.
        batch_size: samples per batch.
        sample: CPU time of one sample.
        wait: time of one sample without a core.
        batch: what a worker needs per batch beyond its samples (collation, pickling, queues).
        receive: CPU time of the trainer to receive a ready batch.
        handover: what receiving a ready batch takes beyond that, waiting for its worker: one that rests, one at work,
            one of two at work.
        pin: CPU time of the thread that copies a batch to pinned memory.
        speed: s(2), the speed of each of two busy cores.
        speed_uncertainty: its relative standard uncertainty.
        training: what a step of the model in training costs; None: the accelerator is emulated.
        period_s: mean time from batch to batch with one worker and an endlessly fast accelerator.
    """

    option: int
    batch_size: int
    sample: Cost
    wait: Cost
    batch: Cost
    receive: Cost
    handover: tuple[Cost, Cost, Cost]
    pin: Cost
    speed: float
    speed_uncertainty: float
    period_s: float
    training: StepCost | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Calibration:
        """The calibration that `to_dict` wrote."""
        costs = {
            name: Cost(tuple(document[name]["values"]), document[name]["uncertainty"])
            for name in ("sample", "wait", "batch", "receive", "pin")
        }
        rest, one, two = (Cost(tuple(cost["values"]), cost["uncertainty"]) for cost in document["handover"])
        training = document["training"] and StepCost.from_dict(document["training"])
        return cls(**{**document, **costs, "handover": (rest, one, two), "training": training})

    def waiting(self, workers: int, busy: float) -> Service:
        """The hand-over's waiting when the workers are at work for a share ``busy`` of the time.

        The trainer needs an answer from the worker that made the batch, and one at work is slow to give it.
        """
        rest, work = self.handover[0], self.handover[1 if workers < 2 else 2]
        values = (*_share(rest.values, 1.0 - busy), *_share(work.values, busy))
        return Cost(values, max(rest.uncertainty, work.uncertainty)).service()

    def emulated_scenario(self, step_s: float, sync: str, loader: Loader, waiting: Service) -> Scenario:
        """The scenario that predicts a trial with an emulated accelerator."""
        return Scenario(
            workload=Workload(
                batch_size=self.batch_size,
                preprocess=self.sample.service(),
                fetch=self.wait.service(),
                collate=self.batch.service(),
                consumer=self.receive.service(),
                copy=waiting,
            ),
            accelerator=Accelerator(step=Service(step_s), sync=sync),
            host=Host(speed=(1.0, self.speed), speed_uncertainty=self.speed_uncertainty),
            loader=loader,
        )

    def training_scenario(self, step: StepCost, loader: Loader) -> Scenario:
        """The scenario that predicts real training: the device's own step, launch and copies."""
        base = self.emulated_scenario(1.0, "spin", loader, ZERO)
        pinned = loader.pin_memory and step.copy_pinned is not None
        copy = step.copy_pinned if pinned and step.copy_pinned is not None else step.copy
        workload = replace(base.workload, copy=Service(copy) if copy else ZERO, pin=self.pin.service())
        device = Accelerator(
            step=empirical(step.step), launch=empirical(step.launch), run_ahead=RUN_AHEAD, slowdown=step.slowdown
        )
        mode = "stream" if pinned else "sync"
        return replace(base, workload=workload, accelerator=device, loader=replace(loader, copy_mode=mode))


def calibrate(
    real: Real,
    option: int,
    batch_size: int,
    *,
    pin_memory: bool = False,
    rounds: int = ROUNDS,
    run_s: float = RUN_S,
    progress: Progress = None,
) -> Calibration:
    """Run the rounds; only in a fresh process, which forks the loader's workers.

    Args:
        real: the workload, its data made.
        option: 1 (loader in the trainer), 2 (worker processes) or 3 (threads).
        batch_size: samples per batch.
        pin_memory: whether a thread copies batches to pinned memory.
        rounds: how often every run is made; two at least, for the uncertainty.
        run_s: wall seconds of each run.
        progress: told what is going on, and the fraction done.
    """
    data = Timed(real, detail=True)
    lone = Layout(option, 0 if option == 1 else 1, batch_size, pin_memory=pin_memory)
    pair = replace(lone, workers=2)
    period = _period(_run(data, lone, 0.0, LEAST_STEPS, seed=0))
    steps = min(MOST_STEPS, max(LEAST_STEPS, round(run_s / period)))
    kinds = {"alone": (lone, 0.0, steps)}
    if option != 1:
        kinds |= {"idle": (lone, 1.5, steps), "busy": (lone, 1.0, steps)}
        kinds |= {"two": (pair, 0.0, 2 * steps), "two busy": (pair, 0.55, 2 * steps)}
    found: dict[str, list[Trial]] = {kind: [] for kind in kinds}
    for number in range(rounds):
        if progress:
            progress("calibrating", number / rounds)
        for kind, (layout, ratio, count) in kinds.items():
            found[kind].append(_run(data, layout, ratio * period, count, seed=number + 1))
    return _calibration(option, batch_size, pin_memory, found)


def _run(data: Timed, layout: Layout, step_s: float, steps: int, seed: int) -> Trial:
    pipe = open_pipe(data, layout, seed)
    try:
        return run_trial(pipe, step_s, 2 + layout.workers * layout.prefetch_factor, steps)
    finally:
        pipe.close()


def _period(trial: Trial) -> float:
    return max(trial.seconds_per_step, 1e-6)


def _share(values: Sequence[float], share: float) -> tuple[float, ...]:
    """A share of 200 evenly chosen quantiles of the values."""
    count = round(200 * share)
    return tuple(stats.quantile(values, (place + 0.5) / count) for place in range(count))


def _sample_cpu(trial: Trial) -> float:
    return stats.mean([stats.mean(cost.cpu) for cost in trial.costs])


def _calibration(option: int, batch_size: int, pin_memory: bool, runs: dict[str, list[Trial]]) -> Calibration:
    alone, idle, busy, two, two_busy = (runs.get(kind, []) for kind in ("alone", "idle", "busy", "two", "two busy"))
    receiving = idle or alone
    speeds = [_speed(option, one, both) for one, both in zip(alone, two, strict=False)]
    return Calibration(
        option=option,
        batch_size=batch_size,
        sample=_cost([[value for cost in trial.costs for value in cost.cpu] for trial in alone]),
        wait=_waits(alone),
        batch=_cost([_beyond_samples(trial, option) for trial in alone]),
        receive=_received(option, receiving),
        handover=(_handover(idle), _handover(busy), _handover(two_busy)) if option == 2 else (NOTHING,) * 3,
        pin=Cost((stats.mean([trial.side_cpu for trial in idle]),)) if pin_memory and idle else NOTHING,
        speed=min(1.0, stats.median(speeds)) if speeds else 1.0,
        speed_uncertainty=_uncertainty(speeds) if speeds else 0.0,
        period_s=stats.median([_period(trial) for trial in alone]),
    )


def _speed(option: int, one: Trial, two: Trial) -> float:
    """s(2): how fast each of two workers is beside the other.

    Processes slow one another down in CPU time. Threads also wait for the interpreter's lock, which is no CPU time, so
    theirs is what two get done beside what one does.
    """
    if option == 3:
        return one.seconds_per_step / (2.0 * two.seconds_per_step)
    return _sample_cpu(one) / _sample_cpu(two)


def _handover(trials: Sequence[Trial]) -> Cost:
    """Waiting for ready batches only: what is not ready is waited for in any case."""
    return _cost([[_waited(step) for step in trial.steps if step.ready <= step.asked] or [0.0] for trial in trials])


def _received(option: int, ready: Sequence[Trial]) -> Cost:
    """Option 1 receives nothing; in option 3 a thread of its own receives and copies."""
    if option == 1:
        return NOTHING
    if option == 3:
        return _cost([[cost.copy for cost in trial.costs] for trial in ready])
    return _cost([[step.cpu for step in trial.steps] for trial in ready])


def _waited(step: Step) -> float:
    """What receiving took beyond the trainer's own CPU time: the worker's answer, its pages, its lock."""
    return max(0.0, step.got - max(step.ready, step.asked) - step.cpu)


def _waits(trials: Sequence[Trial]) -> Cost:
    """Per sample, where it is notable; what is less cannot be told from other programs' turns."""
    per_run = [
        [max(0.0, wall - cpu) for cost in trial.costs for wall, cpu in zip(cost.wall, cost.cpu, strict=True)]
        for trial in trials
    ]
    walls = sum(sum(cost.wall) for trial in trials for cost in trial.costs)
    return _cost(per_run) if sum(map(sum, per_run)) > NOTABLE_WAIT * walls else NOTHING


def _beyond_samples(trial: Trial, option: int) -> list[float]:
    """How long a worker without a pause is busy with a batch beyond its samples; the trainer's part is its own."""
    if option != 2:
        return [cost.collate for cost in trial.costs]
    return [max(0.0, after.began - now.began - sum(now.wall)) for now, after in pairwise(trial.costs)]


def _cost(runs: Sequence[Sequence[float]]) -> Cost:
    """The values of the run whose mean is the middle one, at most `MOST_VALUES` evenly chosen."""
    values = sorted(runs, key=stats.mean)[len(runs) // 2]
    stride = -(-len(values) // MOST_VALUES)
    chosen = sorted(values)[stride // 2 :: stride] if stride > 1 else values
    scale = stats.mean(values) / stats.mean(chosen) if stats.mean(chosen) > 0 else 1.0
    return Cost(tuple(value * scale for value in chosen), _uncertainty([stats.mean(found) for found in runs]))


def _uncertainty(means: Sequence[float]) -> float:
    """Relative standard uncertainty of what the next run shows: the root mean square distance from the middle one.

    Not that of the mean: a trial is one more run of a machine that changes its speed.
    """
    centre = sorted(means)[len(means) // 2]
    if centre <= 0 or len(means) < 2:
        return 0.0
    squares = sum((mean / centre - 1.0) ** 2 for mean in means) / (len(means) - 1)
    return min(1.0, math.sqrt(squares))
