"""matplotlib's one home: figures of results, colour-blind safe, with units on every axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt

from coresim.model.build import OPTIONS, build
from coresim.sim.draws import draw
from coresim.sim.run import RunLength, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from coresim.advise.recommend import Recommendation
    from coresim.model.pipeline import Pipeline
    from coresim.model.scenario import Scenario
    from coresim.sim.estimate import Engine, Estimate
    from coresim.validate.ledger import Ledger

#: Okabe and Ito's colours, told apart by people with any common colour blindness.
COLOURS = {1: "#E69F00", 2: "#0072B2", 3: "#009E73"}
BUSY, BLOCKED = "#0072B2", "#D55E00"


def plot_curves(answer: Recommendation, axes: Axes | None = None) -> Axes:
    """GPU idle over cores per GPU for each option, with intervals, the target and the answer."""
    ax = axes if axes is not None else plt.subplots(figsize=(7, 4), layout="constrained")[1]
    for option in answer.options:
        cores = [point.cores for point in option.curve]
        estimates = [point.estimate for point in option.curve]
        colour = COLOURS[option.option]
        ax.plot(cores, [100 * found.gpu_idle for found in estimates], color=colour,
                label=f"{option.option} {OPTIONS[option.option]}")  # fmt: skip
        low, high = ([100 * value for value in values] for values in zip(
            *((found.gpu_idle_low, found.gpu_idle_high) for found in estimates), strict=True))  # fmt: skip
        ax.fill_between(cores, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.axhline(100 * answer.scenario.target.gpu_idle, color="black", linestyle=":", label="target")
    ax.plot(answer.point.cores, 100 * answer.point.estimate.gpu_idle, "o", color="black", label="recommended")
    ax.set(xlabel="CPU cores per GPU", ylabel="GPU idle (%)", ylim=(0, 100), title="Predicted GPU idle")
    ax.legend(frameon=False)
    return ax


def plot_gantt(scenario: Scenario, cores: float, workers: int, engine: Engine, steps: int = 6, seed: int = 1) -> Any:
    """The first batches of options 1, 2 and 3 side by side: servers as rows, time across."""
    figure, panels = plt.subplots(3, 1, figsize=(9, 8), sharex=True, layout="constrained")
    for option, ax in zip(OPTIONS, panels, strict=True):
        pipeline = build(scenario, option, cores, workers)
        run = engine(pipeline, draw(pipeline, steps + 50, seed), RunLength(steps, trace=True))
        _gantt(ax, pipeline, run.traces[0])
        ax.set_title(f"Option {option}: {OPTIONS[option]}", loc="left")
    panels[-1].set_xlabel("time (s)")
    return figure


def _gantt(ax: Axes, pipeline: Pipeline, trace: Trace) -> None:
    rows = ["accelerator", "trainer picks up"]
    _bars(ax, 0, trace.start, trace.end, BUSY, range(len(trace.start)))
    ax.plot([float(time) for time in trace.pick_up], [1] * len(trace.pick_up), "|", color="black", markersize=10)
    for index, stage in enumerate(pipeline.stages):
        first = len(rows)
        rows += [f"{stage.name} {server}" for server in range(stage.servers)]
        for item, server in enumerate(trace.server[index]):
            taken, done, out = (times[index][item] for times in (trace.taken, trace.done, trace.out))
            if server is None or done is None:
                continue
            _bars(ax, first + server, [taken], [done], BUSY, [item])
            _bars(ax, first + server, [done], [out if out is not None else trace.end[-1]], BLOCKED, [""])
    ax.set_yticks(range(len(rows)), rows)
    ax.invert_yaxis()


def _bars(ax: Axes, row: int, starts: Sequence[Any], ends: Sequence[Any], colour: str, names: Any) -> None:
    for start, end, name in zip(starts, ends, names, strict=True):
        width = float(end - start)
        if width > 0:
            ax.barh(row, width, left=float(start), height=0.7, color=colour, edgecolor="white")
            ax.text(float(start) + width / 2, row, f"{name}", ha="center", va="center", color="white", fontsize=7)


def plot_shares(estimate: Estimate, axes: Axes | None = None) -> Axes:
    """Where the accelerator's time went, as bars."""
    ax = axes if axes is not None else plt.subplots(figsize=(7, 3), layout="constrained")[1]
    shown = {name: 100 * share for name, share in estimate.accelerator.items() if share > 0}
    ax.barh(list(shown), list(shown.values()), color=BUSY)
    ax.set(xlabel="share of the accelerator's time (%)", xlim=(0, 100), title="Where the accelerator's time goes")
    ax.invert_yaxis()
    return ax


def plot_validation(ledger: Ledger) -> Any:
    """Predicted over measured GPU idle for every point, with intervals; the field's two models beside it."""
    figure, panels = plt.subplots(1, 3, figsize=(12, 4.2), sharex=True, sharey=True, layout="constrained")
    found = ledger.scored
    measured = [100 * point.idle for point in found]
    models = (
        ("coresim", [point.prediction.idle for point in found]),
        ("min(F, P, G)", [point.rate_idle for point in found]),
        ("M/M/1/K", [point.buffer_idle for point in found]),
    )
    for ax, (name, idles) in zip(panels, models, strict=True):
        ax.plot([0, 100], [0, 100], color="black", linewidth=0.8)
        ax.plot(measured, [100 * idle for idle in idles], "o", markersize=3, color=BUSY)
        error = sum(abs(100 * idle - seen) for idle, seen in zip(idles, measured, strict=True)) / len(found)
        ax.set(xlabel="measured GPU idle (%)", title=f"{name}: mean error {error:.1f} points")
    low = [100 * max(0.0, point.prediction.idle - point.prediction.low) for point in found]
    high = [100 * max(0.0, point.prediction.high - point.prediction.idle) for point in found]
    panels[0].errorbar(measured, [100 * p.prediction.idle for p in found], yerr=[low, high], fmt="none",
                       ecolor=BUSY, alpha=0.3)  # fmt: skip
    panels[0].set_ylabel("predicted GPU idle (%)")
    return figure


def save_figure(figure: Any, path: str) -> None:
    """Write a figure; the name's ending says the form (.png, .svg, .pdf)."""
    figure.savefig(path, dpi=150)
    plt.close(figure)
