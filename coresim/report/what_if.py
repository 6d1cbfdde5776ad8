"""What if: a scenario with a few numbers turned, its curve over cores and its timeline, drawn at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from coresim.advise.sweep import pipeline_of
from coresim.model.build import OPTIONS
from coresim.model.scenario import Scenario, with_services
from coresim.model.service import Service
from coresim.report.figures import COLOURS, LINES, Shown, plot_timeline
from coresim.sim.estimate import Engine, Estimate, Plan, estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: One short replication: what a hand on a slider needs; `coresim.recommend` gives the intervals.
PLAN = Plan(steps=120, least=1, most=1, inputs=0)
#: Core counts of the curve, and steps of the timeline, at the most.
POINTS, STEPS = 12, 12
#: What a batch costs as a whole grows with its samples.
PER_BATCH = ("collate", "send", "consumer", "pin", "copy")


@dataclass(frozen=True)
class Knobs:
    """What can be turned; times in seconds, ``cores`` and ``workers`` per GPU."""

    batch_size: int
    step: float
    preprocess: float
    fetch: float
    cores: int
    workers: int
    prefetch_factor: int
    option: int = 2

    @classmethod
    def of(cls, scenario: Scenario) -> Knobs:
        """As the scenario has them; four cores where it has none, and a worker for each core."""
        workload, host, loader = scenario.workload, scenario.host, scenario.loader
        cores = max(1, round((host.cores or 4 * scenario.accelerator.count) / scenario.accelerator.count))
        workers = loader.workers or cores
        times = scenario.accelerator.step.mean, workload.preprocess.mean, workload.fetch.mean
        return cls(workload.batch_size, *times, cores, workers, loader.prefetch_factor)


def turned(scenario: Scenario, knobs: Knobs) -> Scenario:
    """The scenario with the knobs' times; spreads keep their shape, what a batch costs follows its size."""
    workload, device = scenario.workload, scenario.accelerator
    ratio = knobs.batch_size / workload.batch_size
    found = with_services(scenario, ratio, *PER_BATCH)
    size = None if workload.batch_bytes is None else workload.batch_bytes * ratio
    turned_workload = replace(
        found.workload,
        batch_size=knobs.batch_size,
        batch_bytes=size,
        preprocess=_to(workload.preprocess, knobs.preprocess),
        fetch=_to(workload.fetch, knobs.fetch),
    )
    return replace(found, workload=turned_workload, accelerator=replace(device, step=_to(device.step, knobs.step)))


def _to(service: Service, mean: float) -> Service:
    return Service(mean) if service.is_zero else service.scaled(mean / service.mean)


def predicted(scenario: Scenario, knobs: Knobs, option: int, cores: int, engine: Engine, cache: Any) -> Estimate:
    """One setting of the turned scenario, simulated briefly."""
    workers = 0 if option == 1 else knobs.workers
    return estimate(pipeline_of(scenario, option, cores, max(1, workers), knobs.prefetch_factor), PLAN, engine, cache)


def core_counts(knobs: Knobs) -> list[int]:
    """At most `POINTS` core counts from 1 to twice what is needed to keep the workers and the trainer busy."""
    most = max(2 * knobs.cores, knobs.workers + 4)
    return sorted({1, knobs.cores, most, *range(1, most + 1, max(1, -(-most // (POINTS - 2))))})


def curves(scenario: Scenario, knobs: Knobs, engine: Engine) -> Iterator[tuple[int, list[int], list[Estimate]]]:
    """For each option its core counts and what is predicted there, with the knobs' workers."""
    found, counts = turned(scenario, knobs), core_counts(knobs)
    cache: dict[Any, Any] = {}
    for option in OPTIONS:
        yield option, counts, [predicted(found, knobs, option, cores, engine, cache) for cores in counts]


def draw_what_if(figure: Figure, scenario: Scenario, knobs: Knobs, engine: Engine) -> Estimate:
    """Draw the curve of every option over cores, and the timeline of the chosen one beneath; returns its estimate."""
    ax, below = figure.subplots(2, 1, height_ratios=(3, 4))
    # By hand: fitting a layout takes longer than all the rest.
    figure.subplots_adjust(left=0.16, right=0.98, top=0.98, bottom=0.09, hspace=0.4)
    chosen = None
    for option, counts, estimates in curves(scenario, knobs, engine):
        idles = [100 * found.gpu_idle for found in estimates]
        ax.plot(counts, idles, LINES[option], color=COLOURS[option], label=f"{option} {OPTIONS[option]}")
        if option == knobs.option:
            chosen = estimates[counts.index(knobs.cores)]
    assert chosen is not None
    ax.plot(knobs.cores, 100 * chosen.gpu_idle, "o", color="black")
    ax.axhline(100 * scenario.target.gpu_idle, color="black", linestyle=":", label="target")
    ax.set(xlabel="CPU cores per GPU", ylabel="GPU idle (%)", ylim=(-2, 102))
    ax.legend(frameon=False, loc="upper right")
    count = scenario.accelerator.count
    shown = Shown(knobs.option, knobs.cores * count, knobs.workers, knobs.prefetch_factor)
    plot_timeline(turned(scenario, knobs), shown, engine, below, STEPS)
    return chosen
