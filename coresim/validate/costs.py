"""What an organisation's real pipeline costs, as a calibration noted it, and the scenarios that these costs make."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from coresim import stats
from coresim.model.scenario import Accelerator, Host, Loader, Scenario, Workload
from coresim.model.service import ZERO, Service, empirical
from coresim.validate.training import RUN_AHEAD, StepCost


@dataclass(frozen=True)
class Cost:
    """A time in seconds as it was noted, and the relative standard uncertainty of its mean."""

    values: tuple[float, ...]
    uncertainty: float = 0.0

    @property
    def mean(self) -> float:
        """Mean, s."""
        return stats.mean(self.values)

    def scaled(self, factor: float) -> Cost:
        """Every value times ``factor``."""
        return replace(self, values=tuple(value * factor for value in self.values))

    def plus(self, seconds: float) -> Cost:
        """Every value and so many seconds."""
        return replace(self, values=tuple(value + seconds for value in self.values))

    def less_certain(self, more: float) -> Cost:
        """With an independent relative standard uncertainty of ``more`` besides its own."""
        return replace(self, uncertainty=min(1.0, math.hypot(self.uncertainty, more)))

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Cost:
        """The cost that ``asdict`` wrote."""
        return cls(tuple(document["values"]), document["uncertainty"])

    def service(self) -> Service:
        """The same as a service time."""
        return empirical(self.values, self.uncertainty) if self.mean > 0 else ZERO


NOTHING = Cost((0.0,))
#: The costs that are CPU time, and change with the machine's pace.
WORK = ("sample", "batch", "receive", "pin")

#: How far a prediction is off, relatively, where the costs are known: of rates, and of the time of a hand-over, which
#: has more than one mode. Seen in trials made while the model was built; none of them is in a ledger.
MODEL, HANDOVER = 0.03, 0.3


@dataclass(frozen=True)
class Calibration:
    """One organisation's costs for one workload and batch size, at the usual pace of its runs.

    Attributes:
        option: the organisation.
        batch_size: samples per batch.
        sample: CPU time of one sample; in option 3 the time that its thread needs, the wait for the interpreter's lock
            included.
        wait: time of one sample without a core; in option 3 of its fetch, where that waits.
        batch: what a worker needs per batch beyond its samples (collation, pickling, queues).
        receive: CPU time of the trainer to receive a ready batch.
        handover: what receiving takes beyond that, by its state (`coresim.validate.handover`). Times of locks and
            wake-ups, which the pace does not touch.
        pin: CPU time of the thread that copies a batch to pinned memory.
        speed: s(2), the speed of each of two busy cores.
        speed_uncertainty: its relative standard uncertainty.
        training: what a step of the model in training costs; None: the accelerator is emulated.
        period_s: mean time from batch to batch with one worker and an endlessly fast accelerator.
        usual_s: CPU time of the sampler's work meanwhile, the median over the calibration's runs.
        drift: relative standard deviation of the runs' pace around it.
        sampled: share of each CPU that sampling the pace takes.
        cpus: CPUs that the calibration could use.
    """

    option: int
    batch_size: int
    sample: Cost
    wait: Cost
    batch: Cost
    receive: Cost
    handover: Mapping[str, Cost]
    pin: Cost
    speed: float
    speed_uncertainty: float
    period_s: float
    usual_s: float = 0.0
    drift: float = 0.0
    sampled: float = 0.0
    cpus: int = 1
    training: StepCost | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Calibration:
        """The calibration that `to_dict` wrote."""
        costs = {name: Cost.from_dict(document[name]) for name in (*WORK, "wait")}
        handover = {state: Cost.from_dict(cost) for state, cost in document["handover"].items()}
        training = document["training"] and StepCost.from_dict(document["training"])
        return cls(**{**document, **costs, "handover": handover, "training": training})

    def slower(self, factor: float) -> Calibration:
        """The same costs on a machine that needs ``factor`` times as much CPU time, as the sampler saw it."""
        costs = {name: getattr(self, name).scaled(factor) for name in WORK}
        return replace(self, **costs, period_s=self.period_s * factor, drift=0.0)

    def dealt_after(self, seconds: float) -> Calibration:
        """The costs of a worker that waits so long before each batch."""
        return replace(self, wait=self.wait.plus(seconds / self.batch_size))

    def drifting(self) -> Calibration:
        """The same costs, as uncertain as they are for a moment whose pace is not known, and in a model of them."""
        unsure = {"wait": MODEL, **dict.fromkeys(WORK, math.hypot(self.drift, MODEL))}
        costs = {name: getattr(self, name).less_certain(more) for name, more in unsure.items()}
        handover = {state: cost.less_certain(HANDOVER) for state, cost in self.handover.items()}
        return replace(self, **costs, handover=handover)

    def emulated_scenario(self, step_s: float, sync: str, loader: Loader, waiting: Service) -> Scenario:
        """The scenario that predicts a trial with an emulated accelerator."""
        beside = 1.0 / (1.0 - self.sampled)  # what sampling takes of a CPU, whoever is on it lacks
        return Scenario(
            workload=Workload(
                batch_size=self.batch_size,
                preprocess=self.sample.scaled(beside).service(),
                fetch=self.wait.service(),
                collate=self.batch.scaled(beside).service(),
                consumer=self.receive.scaled(beside).service(),
                copy=waiting,
            ),
            accelerator=Accelerator(step=Service(step_s), sync=sync),
            host=Host(speed=(1.0, self.speed), speed_uncertainty=self.speed_uncertainty),
            loader=loader,
        )

    def training_scenario(self, step: StepCost, loader: Loader, waiting: Service) -> Scenario:
        """The scenario that predicts real training: the device's own step, launch and copies.

        The waiting for a hand-over is the trainer's, on its core, as `recommend` has it: the copy is the device's here.
        """
        base = self.emulated_scenario(1.0, "spin", loader, ZERO)
        pinned = loader.pin_memory and step.copy_pinned is not None
        copy = step.copy_pinned if pinned and step.copy_pinned is not None else step.copy
        consumer = base.workload.consumer.longer(waiting)
        workload = replace(
            base.workload, consumer=consumer, copy=Service(copy) if copy else ZERO, pin=self.pin.service()
        )
        device = Accelerator(
            step=empirical(step.step), launch=empirical(step.launch), run_ahead=RUN_AHEAD, slowdown=step.slowdown
        )
        mode = "stream" if pinned else "sync"
        return replace(base, workload=workload, accelerator=device, loader=replace(loader, copy_mode=mode))
