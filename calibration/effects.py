"""What is predicted with one effect of the model left out, and so what each effect is worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from accuracy import at_sampled_speed, tried

from coresim import stats
from coresim.model.dispatch import DISPATCH
from coresim.model.handover import NO_HANDOVER, Handover, usual
from coresim.model.pipeline import Stage
from coresim.model.scenario import Scenario
from coresim.model.service import ZERO, Service
from coresim.sim.estimate import Engine
from coresim.sim.run import RunLength
from coresim.validate.grid import Setting
from coresim.validate.ledger import Ledger, RecordedPoint
from coresim.validate.predict import Costs, runs_of, step_time, trial_idles, trial_pipeline, trial_scenario

Change = Callable[[Scenario], Scenario]
#: An effect that is more than another scenario.
DISPATCHED = "dispatched when the last is received"
SPUN = "turns of others after spinning"
TURNS = "a launch waits for turns"
#: The name of all points together, beside those of workloads.
ALL = "all"


def worth(ledger: Ledger, engine: Engine) -> dict[str, dict[str, float]]:
    """What each effect of the model is worth: mean absolute error of idle without it, less with it.

    By effect, the most worth first; then over `ALL` points and over those of each workload. Predicted at the speed
    around each trial, so that the machine's changes hide less of it. Nothing, in trials that cannot show an effect.
    """
    full = at_sampled_speed(ledger, engine)
    found = {}
    for effect in dict.fromkeys(name for job in ledger.jobs for name in effects_of(job.costs)):
        groups: dict[str, list[float]] = {ALL: []}
        for point in full:
            shown = effect in effects_of(ledger.job_of(point).costs)
            more = abs(_without(effect, ledger, point, engine) - point.idle) - abs(point.error) if shown else 0.0
            groups[ALL].append(more)
            groups.setdefault(point.setting.workload, []).append(more)
        found[effect] = {name: stats.mean(values) for name, values in groups.items()}
    return dict(sorted(found.items(), key=lambda item: -item[1][ALL]))


def _without(effect: str, ledger: Ledger, point: RecordedPoint, engine: Engine) -> float:
    costs = ledger.job_of(point).costs
    found = [
        without(effect, replace(costs, slower=trial.slowdown), tried(point), point.length, engine)
        for trial in point.clean
    ]
    return stats.mean(found)


def without(effect: str, costs: Costs, setting: Setting, length: RunLength, engine: Engine) -> float:
    """Predicted idle with one of the `effects_of` these costs switched off."""
    scenario = effects_of(costs)[effect](trial_scenario(costs, setting))
    pipeline = trial_pipeline(scenario, setting)
    if effect == DISPATCHED:
        pipeline = replace(pipeline, stages=tuple(map(_dispatched_at_once, pipeline.stages)))
    if effect == "core sharing":
        pipeline = replace(pipeline, cores=float(pipeline.busiest()), sharing_loss=0.0)
    if effect == TURNS:
        pipeline = replace(pipeline, trainer=replace(pipeline.trainer, settling=0.0))
    if effect == SPUN:
        pipeline = replace(
            pipeline, trainer=replace(pipeline.trainer, spin=trial_scenario(costs, setting).accelerator.sync == "spin")
        )
    runs = runs_of(pipeline, length, engine, setting.straggler)
    return stats.mean(trial_idles(runs, step_time(costs, setting), length))


def _dispatched_at_once(stage: Stage) -> Stage:
    return replace(stage, phases=tuple(phase for phase in stage.phases if phase.name != DISPATCH))


def _constant(service: Service) -> Service:
    return Service(service.mean, uncertainty=service.uncertainty)


def _without_variance(scenario: Scenario) -> Scenario:
    names = ("preprocess", "fetch", "collate", "send", "consumer", "copy")
    flat: dict[str, Any] = {name: _constant(getattr(scenario.workload, name)) for name in names}
    return replace(scenario, workload=replace(scenario.workload, shared_cv=0.0, **flat))


def _without_states(scenario: Scenario) -> Scenario:
    """Every hand-over as where the batch was there, its maker rests and cores are free."""
    same = Handover(rest_free=usual(scenario.workload.handover))
    return replace(scenario, workload=replace(scenario.workload, handover=same))


def _changed(**changes: dict[str, object]) -> Change:
    def apply(scenario: Scenario) -> Scenario:
        parts = {name: replace(getattr(scenario, name), **fields) for name, fields in changes.items()}
        return replace(scenario, **parts)  # type: ignore[arg-type]

    return apply


_COMMON: dict[str, Change] = {
    "core sharing": _changed(),
    "receiving a batch": _changed(workload={"consumer": ZERO, "handover": NO_HANDOVER}),
    "waiting for the hand-over": _changed(workload={"handover": NO_HANDOVER}),
    "the hand-over's state": _without_states,
    "s(k)": _changed(host={"speed": (1.0,)}),
    "variance": _without_variance,
    "batches as a whole": _changed(workload={"shared_cv": 0.0}),
    "sending beside the worker": _changed(workload={"send_overlap": 0.0}),
    "freeing at a batch's own turn": _changed(workload={"release": 0.0}),
    "time lost where all cores are wanted": _changed(host={"sharing_loss": 0.0}),
    "order": _changed(loader={"ordered": False}),
    "collation and sending": _changed(workload={"collate": ZERO, "send": ZERO}),
    DISPATCHED: _changed(),
    "the trainer's own core": _changed(accelerator={"sync": "block"}),
    SPUN: _changed(accelerator={"sync": "block"}),
    "a quota's periods": _changed(host={"machine_cores": None}),
}
#: What real training can show besides.
_TRAINING: dict[str, Change] = {
    "copying to the device": _changed(workload={"copy": ZERO}),
    "launch": _changed(accelerator={"launch": ZERO}),
    "an idle device waits for launches": _changed(accelerator={"lead": 0.0}),
    TURNS: _changed(),
    "busy-host slowdown": _changed(accelerator={"slowdown": (1.0,)}),
}


def effects_of(costs: Costs) -> Mapping[str, Change]:
    """The effects that its trials can show, by name, and the scenario without each."""
    return _COMMON if costs.training is None else _COMMON | _TRAINING
