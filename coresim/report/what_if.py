"""What if: a scenario with a few changed numbers, and its curve over cores."""

from __future__ import annotations

from dataclasses import dataclass, replace

from coresim.advise.candidates import JobSetting
from coresim.advise.sweep import Study, predict
from coresim.advise.transforms import with_batch
from coresim.model.option import Option
from coresim.model.scenario import Scenario
from coresim.model.service import Service
from coresim.sim.estimate import Engine, Estimate, Plan

#: Core counts of the curve at the most.
POINTS = 10


@dataclass(frozen=True)
class Knobs:
    """The numbers that can be changed; times in seconds, ``cores`` and ``workers`` per GPU."""

    batch_size: int
    step: float
    preprocess: float
    fetch: float
    cores: int
    workers: int
    prefetch_factor: int
    option: Option = Option.OVERLAPPED

    @classmethod
    def of(cls, scenario: Scenario) -> Knobs:
        """The scenario's own numbers; four cores if it has none, and a worker for each core."""
        workload, host, loader = scenario.workload, scenario.host, scenario.loader
        cores = max(1, round((host.cores or 4 * scenario.accelerator.count) / scenario.accelerator.count))
        workers = loader.workers or cores
        times = scenario.accelerator.step.mean, workload.preprocess.mean, workload.fetch.mean
        return cls(workload.batch_size, *times, cores, workers, loader.prefetch_factor)


def turned(scenario: Scenario, knobs: Knobs) -> Scenario:
    """The scenario with the knobs' times; spreads keep their shape, and the costs of a batch follow its size."""
    found = with_batch(scenario, knobs.batch_size)
    workload, device = found.workload, found.accelerator
    preprocess, fetch = _to(workload.preprocess, knobs.preprocess), _to(workload.fetch, knobs.fetch)
    workload = replace(workload, preprocess=preprocess, fetch=fetch)
    return replace(found, workload=workload, accelerator=replace(device, step=_to(device.step, knobs.step)))


def _to(service: Service, mean: float) -> Service:
    return Service(mean) if service.is_zero else service.scaled(mean / service.mean)


def core_counts(knobs: Knobs) -> list[int]:
    """At most `POINTS` core counts from 1 to twice what is needed to keep the workers and the trainer busy.

    Their ratios are equal, because idle changes most where cores are few.
    """
    most = max(2 * knobs.cores, knobs.workers + 4)
    steps = POINTS - 2
    return sorted({knobs.cores, *(round(most ** (step / steps)) for step in range(steps + 1))})


def brief(knobs: Knobs) -> Plan:
    """One short replication, fast enough for a slider; `coresim.recommend` gives the intervals.

    Half of it is warm-up, long enough to fill every worker's queue: until then the workers take cores from the trainer
    that they later leave to it. GPU idle is then within about two points of a long run's, except where workers that
    begin together come apart only over thousands of steps (long reads that vary little): there it is the start's.
    """
    steps = 100 + 3 * knobs.workers * max(2, knobs.prefetch_factor)
    return Plan(steps=steps, grow=False, least=1, most=1, inputs=0)


def curves(scenario: Scenario, knobs: Knobs, engine: Engine) -> dict[Option, dict[int, Estimate]]:
    """The prediction for each option at each core count, with the knobs' workers, simulated briefly."""
    found, study = turned(scenario, knobs), Study(engine, brief(knobs))

    def predicted(option: Option, cores: int) -> Estimate:
        workers = 0 if option == Option.NO_OVERLAP else knobs.workers
        return predict(JobSetting(found, option, cores, workers, knobs.prefetch_factor), study)

    return {option: {cores: predicted(option, cores) for cores in core_counts(knobs)} for option in Option}
