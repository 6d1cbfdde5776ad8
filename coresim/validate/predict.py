"""What is predicted for a trial: by the simulation, by it with one effect less, and by the field's two models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from coresim import stats
from coresim.model.build import build
from coresim.model.pipeline import Pipeline
from coresim.model.scenario import Accelerator, Loader, Scenario, read_scenario, with_services
from coresim.model.service import ZERO, Service
from coresim.sim.draws import draw, perturb_speed
from coresim.sim.estimate import LEAST_ROWS, Engine, idle_of
from coresim.sim.run import Run, RunLength
from coresim.theory.queues import buffer_idle, rate_idle
from coresim.validate import handover
from coresim.validate.costs import Calibration
from coresim.validate.grid import Setting
from coresim.validate.loaders import FETCHERS

LEVEL = 0.8
NOMINAL, PERTURBED = 8, 40
#: Steps of a trial: enough to last about this long, within bounds.
LEAST_STEPS, MOST_STEPS = 12, 500
ENDLESS = 1e12
ROUNDS = 4

Change = Callable[[Scenario], Scenario]
#: Effects that are more than another scenario.
WAITING, STATES = "waiting for the hand-over", "the hand-over's state"
DEALT = "dealt when the last is received"


@dataclass(frozen=True)
class Prediction:
    """GPU idle (a share) with the interval in which one trial should fall, and seconds from step to step."""

    idle: float
    low: float
    high: float
    seconds_per_step: float


def rate_period(calibration: Calibration, setting: Setting) -> float:
    """Seconds per batch that the preparation can do, by rates alone: fetchers, workers, then cores at speed s(k).

    Units: seconds. The bottleneck law: no station can do more than its servers allow.
    """
    wait = calibration.batch_size * calibration.wait.mean
    work = calibration.batch_size * calibration.sample.mean + calibration.batch.mean
    if setting.option == 1:
        return wait + work
    busy = min(setting.workers, setting.cores)
    speed = calibration.speed if busy > 1 else 1.0
    if setting.option == 3:
        return max(wait / FETCHERS, work / busy / speed)
    return max((wait + work) / setting.workers, work / busy / speed)


def step_time(calibration: Calibration, setting: Setting) -> float:
    """Seconds per step at which preparation rate / ingestion rate is the setting's ``ratio``, or its own."""
    if calibration.training is not None:
        return stats.mean(calibration.training.step)
    if setting.step_s:
        return setting.step_s
    reference = replace(setting, workers=setting.at) if setting.at else setting
    return setting.ratio * rate_period(calibration, reference)


def trial_length(calibration: Calibration, setting: Setting, seconds: float) -> RunLength:
    """Warm-up until the empty start is forgotten, then whole rounds of all workers for about ``seconds``."""
    credits = max(1, setting.workers) * setting.prefetch_factor
    step, prepare = step_time(calibration, setting), rate_period(calibration, setting)
    period = step + prepare if setting.option == 1 else max(step, prepare)
    cycle = max(1, setting.workers)
    wanted = min(MOST_STEPS, max(LEAST_STEPS, seconds / period))
    warm_up = 2 * credits + 2
    return RunLength(warm_up + cycle * round(wanted / cycle), warm_up)


def scenario_of(calibration: Calibration, setting: Setting, shares: Mapping[str, float], without: str = "") -> Scenario:
    """The scenario of a trial; ``shares``: of the states in which its hand-overs are; without one of its effects."""
    loader = Loader(ordered=setting.ordered, prefetch_factor=setting.prefetch_factor, fetchers=FETCHERS)
    if calibration.training is not None:
        waiting = ZERO if without == WAITING else handover.at_rest(calibration.handover)
        pinning = replace(loader, pin_memory=setting.pin_memory)
        return calibration.training_scenario(calibration.training, pinning, waiting)
    waiting = ZERO if without == WAITING else handover.mixture(calibration.handover, shares).service()
    if setting.option == 2 and setting.prefetch_factor == 1 and without != DEALT:
        # Its worker is dealt the next batch only when the trainer has received the last one.
        calibration = calibration.dealt_after(calibration.receive.mean + waiting.mean)
    return calibration.emulated_scenario(step_time(calibration, setting), setting.sync, loader, waiting)


def handover_shares(
    calibration: Calibration, setting: Setting, length: RunLength, engine: Engine
) -> Mapping[str, float]:
    """The share of each state of a hand-over, from simulated runs.

    How long a hand-over takes depends on its state, and the states on how long hand-overs take: a few rounds settle
    it, each counting as much as all before it, so that it does not swing between two answers.
    """
    shares: dict[str, float] = {}
    if setting.option != 2 or calibration.training is not None:
        return shares
    cpus = setting.cores if setting.limit == "affinity" else calibration.cpus
    for number in range(ROUNDS):
        pipeline = _pipeline(scenario_of(calibration, setting, shares), setting)
        run = engine(pipeline, draw(pipeline, _rows(length), 1, number), replace(length, trace=True))
        found = handover.simulated(run.traces[0], length.warm_up, setting.prefetch_factor, cpus)
        old = shares or found
        shares = {state: (old.get(state, 0.0) + found.get(state, 0.0)) / 2 for state in old | found}
    return shares


def predict(calibration: Calibration, setting: Setting, length: RunLength, engine: Engine, seed: int = 1) -> Prediction:
    """The simulation's prediction for trials of that length.

    The interval at level `LEVEL` holds one trial: each of the simulated ones is as long as the real one and draws its
    own inputs within their uncertainty and the machine's drift, so the noise of a short run is in it too.
    """
    setting = replace(setting, step_s=step_time(calibration, setting))
    shares = handover_shares(calibration, setting, length, engine)
    pipeline = _pipeline(scenario_of(calibration, setting, shares), setting)
    runs = _runs(pipeline, length, engine, seed)
    unsure = _pipeline(scenario_of(calibration.drifting(), setting, shares), setting)
    idles = [idle_of(run) for run in _perturbed(unsure, length, engine, seed)]
    low, high = (stats.quantile(idles, share) for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Prediction(stats.mean([idle_of(run) for run in runs]), low, high, _period(runs, length))


def by_profile(
    tables: Mapping[str, Any],
    setting: Setting,
    step_s: float,
    length: RunLength,
    engine: Engine,
    dearer: float = 1.0,
) -> float:
    """Idle as ``coresim recommend`` has it: from a profile's scenario tables, with the trial's own step and loader.

    A profile's costs are measured outside of a running loader, piece by piece; it is what a recommendation rests on.
    ``dearer`` is a factor on all that a worker does.
    """
    scenario = with_services(read_scenario(dict(tables)), dearer, "preprocess", "collate", "send")
    loader = replace(
        scenario.loader, ordered=setting.ordered, prefetch_factor=setting.prefetch_factor, fetchers=FETCHERS
    )
    device = Accelerator(step=Service(step_s), sync=setting.sync)
    pipeline = _pipeline(replace(scenario, loader=loader, accelerator=device), setting)
    return stats.mean([idle_of(run) for run in _runs(pipeline, length, engine, seed=1)])


def without(effect: str, calibration: Calibration, setting: Setting, length: RunLength, engine: Engine) -> float:
    """Predicted idle with one of the calibration's `effects_of` switched off."""
    shares = handover_shares(calibration, setting, length, engine)
    if effect == STATES and shares and calibration.handover:
        shares = dict.fromkeys(calibration.handover, 1.0 / len(calibration.handover))
    scenario = effects_of(calibration)[effect](scenario_of(calibration, setting, shares, effect))
    pipeline = _pipeline(scenario, setting)
    if effect == "core sharing":
        pipeline = replace(pipeline, cores=float(pipeline.busiest()))
    return stats.mean([idle_of(run) for run in _runs(pipeline, length, engine, seed=1)])


def by_rates(calibration: Calibration, setting: Setting) -> float:
    """Idle by min(F, P, G); F is without limit here, because fetching is part of the workers' time."""
    return rate_idle(ENDLESS, 1.0 / rate_period(calibration, setting), 1.0 / step_time(calibration, setting))


def by_buffer(calibration: Calibration, setting: Setting) -> float:
    """Idle by M/M/1/K, as tf.data's autotuner has it, with all credits as the buffer."""
    room = max(1, setting.workers * setting.prefetch_factor)
    return buffer_idle(1.0 / rate_period(calibration, setting), 1.0 / step_time(calibration, setting), room)


def _pipeline(scenario: Scenario, setting: Setting) -> Pipeline:
    return build(scenario, setting.option, setting.cores, max(1, setting.workers), setting.prefetch_factor)


def _rows(length: RunLength) -> int:
    return max(LEAST_ROWS, length.steps)


def _runs(pipeline: Pipeline, length: RunLength, engine: Engine, seed: int) -> list[Run]:
    return [engine(pipeline, draw(pipeline, _rows(length), seed, number), length) for number in range(NOMINAL)]


def _perturbed(pipeline: Pipeline, length: RunLength, engine: Engine, seed: int) -> list[Run]:
    return [
        engine(
            perturb_speed(pipeline, seed, number, PERTURBED),
            draw(pipeline, _rows(length), seed, number, inputs=PERTURBED),
            length,
        )
        for number in range(PERTURBED)
    ]


def _period(runs: list[Run], length: RunLength) -> float:
    spans = [float(rank.end - rank.begin) for run in runs for rank in run.ranks]
    return stats.mean(spans) / (length.steps - length.warm_up)


def _constant(service: Service) -> Service:
    return Service(service.mean, uncertainty=service.uncertainty)


def _without_variance(scenario: Scenario) -> Scenario:
    names = ("preprocess", "fetch", "collate", "consumer", "copy")
    flat: dict[str, Any] = {name: _constant(getattr(scenario.workload, name)) for name in names}
    return replace(scenario, workload=replace(scenario.workload, **flat))


def _changed(**changes: dict[str, object]) -> Change:
    def apply(scenario: Scenario) -> Scenario:
        parts = {name: replace(getattr(scenario, name), **fields) for name, fields in changes.items()}
        return replace(scenario, **parts)  # type: ignore[arg-type]

    return apply


_COMMON: dict[str, Change] = {
    "core sharing": _changed(),
    WAITING: _changed(),
    "s(k)": _changed(host={"speed": (1.0,)}),
    "variance": _without_variance,
    "order": _changed(loader={"ordered": False}),
    "collation": _changed(workload={"collate": ZERO}),
}
_OWN_CORE: dict[str, Change] = {"the trainer's own core": _changed(accelerator={"sync": "block"})}
#: Each effect of the model that a trial with an emulated accelerator can show, and the scenario without it.
EFFECTS: dict[str, Change] = _COMMON | {
    # An emulated accelerator copies nothing: its copy is the waiting for the hand-over.
    "receiving a batch": _changed(workload={"consumer": ZERO, "copy": ZERO}),
    STATES: _changed(),
    DEALT: _changed(),
    **_OWN_CORE,
}
#: The same of real training.
TRAINING_EFFECTS: dict[str, Change] = _COMMON | {
    "receiving a batch": _changed(workload={"consumer": ZERO}),
    "copying to the device": _changed(workload={"copy": ZERO}),
    "launch": _changed(accelerator={"launch": ZERO}),
    "busy-host slowdown": _changed(accelerator={"slowdown": (1.0,)}),
    **_OWN_CORE,
}


def effects_of(calibration: Calibration) -> Mapping[str, Change]:
    """The effects that its trials can show, by name, and the scenario without each."""
    return EFFECTS if calibration.training is None else TRAINING_EFFECTS
