"""matplotlib's one home: figures of results, colour-blind safe, with units on every axis."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from coresim.files import write_bytes
from coresim.model.build import SimulatedSetting
from coresim.model.option import Option
from coresim.report import gantt
from coresim.report.charts import style
from coresim.report.gantt import SERVERS_SHOWN, Bar, rows_of, title_of, traced

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from coresim.advise.recommend import Recommendation
    from coresim.advise.refine import OptionAnswer
    from coresim.fleet.plan import FleetPlan
    from coresim.model.pipeline import Pipeline
    from coresim.model.profile import Profile
    from coresim.model.scenario import Scenario
    from coresim.sim.estimate import Engine, Estimate
    from coresim.sim.run import Trace
    from coresim.validate.ledger import Ledger

#: Okabe and Ito's colours, told apart by people with any common colour blindness.
COLOURS = {1: "#E69F00", 2: "#0072B2", 3: "#009E73"}
LINES = {1: "-.", 2: "-", 3: "--"}
BUSY, BLOCKED = "#0072B2", "#D55E00"
STATE_COLOURS = {gantt.STEP: "#009E73", gantt.BUSY: BUSY, gantt.BLOCKED: BLOCKED}
CYCLE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
#: Machines that a picture of a fleet plan shows.
MACHINES_SHOWN = 12
#: Steps that a timeline simulates at the most: more cannot be told apart on paper.
LONGEST_TIMELINE = 40


def plot_curves(answer: Recommendation, axes: Axes | None = None) -> Axes:
    """GPU idle over cores per GPU for each option, with intervals, knees, the target and the answer."""
    ax = axes if axes is not None else plt.subplots(figsize=(7, 4), layout="constrained")[1]
    for option in answer.options:
        _curve(ax, option)
    knees = [option.knee for option in answer.options]
    ax.plot([knee.cores for knee in knees], [100 * knee.estimate.gpu_idle for knee in knees], "D", color="black",
            markerfacecolor="white", label="knee")  # fmt: skip
    ax.axhline(100 * answer.scenario.target.gpu_idle, color="black", linestyle=":", label="target")
    if answer.saturating_cores is not None:
        ax.axvline(answer.saturating_cores, color="#CC79A7", linewidth=1, label="bandwidth saturated")
    name = "recommended" if answer.meets_target else "nearest"
    ax.plot(answer.point.cores, 100 * answer.point.estimate.gpu_idle, "o", color="black", label=name)
    ax.set(xlabel="CPU cores per GPU", ylabel="GPU idle (%)", ylim=(-2, 102), title="Predicted GPU idle")
    ax.legend(frameon=False)
    return ax


def _curve(ax: Axes, option: OptionAnswer) -> None:
    cores = [point.cores for point in option.curve]
    estimates = [point.estimate for point in option.curve]
    colour, label = COLOURS[option.option], f"{option.option} {option.option.label}"
    ax.plot(cores, [100 * found.gpu_idle for found in estimates], LINES[option.option], color=colour, label=label)
    low = [100 * found.gpu_idle_low for found in estimates]
    high = [100 * found.gpu_idle_high for found in estimates]
    ax.fill_between(cores, low, high, color=colour, alpha=0.2, linewidth=0)


def plot_gantt(scenario: Scenario, cores: float, workers: int, engine: Engine, seed: int = 1) -> Figure:
    """The first batches of options 1, 2 and 3 side by side: servers as rows, time across."""
    figure: Figure = plt.figure(figsize=(9, 8), layout="constrained")
    settings = [SimulatedSetting(option, workers, cores, scenario.loader.prefetch_factor) for option in Option]
    return draw_timelines(figure, scenario, settings, engine, 6, seed)


def plot_answer_timeline(answer: Recommendation, engine: Engine, figure: Figure | None = None) -> Figure:
    """The first batches of each option at its own answer, or at its knee if it has no answer.

    The steps suffice to see the line fill and every worker begin a second batch.
    """
    figure = figure or plt.figure(figsize=(8, 8), layout="constrained")
    count = answer.scenario.accelerator.count
    points = [option.answer or option.knee for option in answer.options]
    settings = [
        SimulatedSetting(point.option, point.workers, point.cores * count, point.prefetch_factor) for point in points
    ]
    steps = min(LONGEST_TIMELINE, max(8, answer.chosen.knee.workers + 6))
    return draw_timelines(figure, answer.scenario, settings, engine, steps)


def draw_timelines(
    figure: Figure, scenario: Scenario, settings: Sequence[SimulatedSetting], engine: Engine, steps: int, seed: int = 1
) -> Figure:
    """The first ``steps`` batches of each setting, one panel each.

    The time axis covers the fastest of them, or the first three steps of the slowest if that is longer: many workers
    that begin together deliver their first batches late.
    """
    lines, traces = zip(*(traced(scenario, setting, engine, steps, seed) for setting in settings), strict=True)
    heights = [3 + sum(min(stage.servers, SERVERS_SHOWN + 1) for stage in line.stages) for line in lines]
    panels = figure.subplots(len(lines), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    end = max(min(float(trace.end[steps - 1]) for trace in traces), max(float(trace.end[2]) for trace in traces))
    for setting, line, trace, ax in zip(settings, lines, traces, panels, strict=True):
        _gantt(ax, line, trace, end)
        ax.set_title(title_of(setting, scenario), loc="left")
    panels[-1].set(xlabel=gantt.TIME_LABEL, xlim=(0, end))
    keys = [Patch(color=STATE_COLOURS[state], label=name) for state, name in gantt.STATES.items()]
    figure.legend(handles=keys, loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    return figure


def _gantt(ax: Axes, pipeline: Pipeline, trace: Trace, end: float) -> None:
    rows = list(rows_of(pipeline, trace, end))
    for place, row in enumerate(rows):
        _bars(ax, place, row.bars, end)
        ax.plot(row.ticks, [place] * len(row.ticks), "|", color="black", markersize=6)
    # A stage's name is the user's: "$" in it is no formula.
    ax.set_yticks(range(len(rows)), [row.label for row in rows], parse_math=False, fontsize="small")
    ax.set_ylim(len(rows) - 0.4, -0.6)


def _bars(ax: Axes, place: int, bars: Sequence[Bar], end: float) -> None:
    """Draw each bar, with its name if there is room."""
    if bars:
        spans, colours = [(bar.start, bar.end - bar.start) for bar in bars], [STATE_COLOURS[bar.state] for bar in bars]
        ax.broken_barh(spans, (place - 0.35, 0.7), facecolors=colours, edgecolors="white", linewidth=0.3)
    for bar in bars:
        if bar.end - bar.start > 0.03 * end:
            middle = (bar.start + min(bar.end, end)) / 2
            ax.text(middle, place, bar.name, ha="center", va="center", color="white", fontsize=7, clip_on=True)


def plot_speed(answer: Recommendation, ax: Axes) -> None:
    """The work of k busy cores, k s(k), beside that of cores that do not share memory bandwidth."""
    speed = answer.scenario.host.speed
    most = max(answer.options[-1].curve[-1].cores, answer.point.cores)
    counts = range(1, min(len(speed), max(most, answer.saturating_cores or 1)) + 1)
    ax.plot(counts, list(counts), ":", color="black", label="if cores shared nothing")
    ax.plot(counts, [count * speed[count - 1] for count in counts], "-", color=BUSY, label="k s(k)")
    if answer.saturating_cores is not None:
        ax.axvline(answer.saturating_cores, color="#CC79A7", label="bandwidth saturated")
    ax.axvline(answer.point.cores, color="black", linewidth=0.8, label="recommended")
    ax.set(xlabel="busy cores", ylabel="work done (cores' worth)", title="What more busy cores add")
    ax.legend(frameon=False)


def plot_elasticities(answer: Recommendation, ax: Axes) -> None:
    """Change of GPU idle when each input grows by 10 %, in points, the strongest first."""
    changes = [100 * item.change for item in answer.elasticities]
    ax.barh([item.name for item in answer.elasticities], changes,
            color=[BLOCKED if change > 0 else BUSY for change in changes])  # fmt: skip
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set(xlabel="change of GPU idle for +10 % (percentage points)", title="What moves the answer")
    ax.invert_yaxis()


def plot_shares(estimate: Estimate, axes: Axes | None = None) -> Axes:
    """Where the accelerator's time went, as bars."""
    ax = axes if axes is not None else plt.subplots(figsize=(7, 3), layout="constrained")[1]
    shown = {name: 100 * share for name, share in estimate.accelerator.items() if share > 0}
    bars = ax.barh([name.replace("_", " ") for name in shown], list(shown.values()), color=BUSY)
    ax.bar_label(bars, fmt="%.1f %%", padding=3)
    ax.set(xlabel="share of the accelerator's time (%)", xlim=(0, 112), title="Where the accelerator's time goes")
    ax.invert_yaxis()
    return ax


def plot_preparation(profile: Profile, axes: Axes | None = None) -> Axes:
    """What each step of preparing a sample takes, mean and interval, in milliseconds."""
    ax = axes if axes is not None else plt.subplots(figsize=(7, 3), layout="constrained")[1]
    steps = [found for found in profile.measurements if found.name.startswith("prepare.step.")]
    steps = steps or [profile["prepare.sample"]]
    means, ends = [1e3 * step.mean for step in steps], [step.interval() for step in steps]
    errors = [[max(0.0, mean - 1e3 * low) for mean, (low, _) in zip(means, ends, strict=True)],
              [max(0.0, 1e3 * high - mean) for mean, (_, high) in zip(means, ends, strict=True)]]  # fmt: skip
    names = [step.name.removeprefix("prepare.").removeprefix("step.") for step in steps]
    ax.barh(names, means, xerr=errors, color=BUSY, ecolor="black", capsize=3)
    ax.set(xlabel="time per sample (ms)", xlim=(0, None), title="Preparing one sample")
    ax.invert_yaxis()
    return ax


def plot_fleet(plan: FleetPlan, axes: Axes | None = None) -> Axes:
    """Predicted GPU idle with its interval on the machines that are best for the mix, for each workload."""
    ax = axes if axes is not None else plt.subplots(figsize=(8, 4.5), layout="constrained")[1]
    names = [mix.candidate.name for mix in plan.mixes()][:MACHINES_SHOWN]
    names = names or list(dict.fromkeys(row.candidate.name for row in plan.rows))[:MACHINES_SHOWN]
    workloads = plan.fleet.workloads
    for place, workload in enumerate(workloads):
        rows = [row for row in plan.pairs(workload) if row.candidate.name in names]
        found = [row.outcome for row in rows]
        at = [names.index(row.candidate.name) + 0.6 * ((place + 0.5) / len(workloads) - 0.5) for row in rows]
        idles = [100 * outcome.gpu_idle for outcome in found]
        errors = [[100 * (outcome.gpu_idle - outcome.gpu_idle_low) for outcome in found],
                  [100 * (outcome.gpu_idle_high - outcome.gpu_idle) for outcome in found]]  # fmt: skip
        ax.errorbar(idles, at, xerr=errors, fmt="os^Dv"[place % 5], markersize=5, capsize=2, linewidth=0.8,
                    color=CYCLE[place % len(CYCLE)], label=workload.name)  # fmt: skip
    # Names are the user's: "$" in them is no formula.
    ax.set_yticks(range(len(names)), names, parse_math=False)
    ax.set(xlabel="predicted GPU idle (%)", xlim=(-2, 102), title="Best machines for the mix, best first")
    ax.invert_yaxis()
    for text in ax.legend(frameon=False, fontsize="small").get_texts():
        text.set_parse_math(False)
    return ax


def plot_validation(ledger: Ledger) -> Any:
    """Predicted over measured GPU idle for every point, with intervals; the field's two models beside it.

    If every trial was disturbed, the figure is empty and says so.
    """
    if not ledger.scored:
        empty: Figure = plt.figure(figsize=(12, 4.2))
        empty.text(0.5, 0.5, "No trial was undisturbed: there is nothing to show.", ha="center", va="center")
        return empty
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
    """Write a figure; equal figures give equal files. The ending of the name sets the format (.png, .svg, .pdf)."""
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(Path(path).suffix.lower())
    content = io.BytesIO()
    with style({"svg.hashsalt": "coresim"}):
        figure.savefig(content, format=Path(path).suffix[1:].lower(), dpi=150, metadata=undated)
    plt.close(figure)
    write_bytes(path, content.getvalue())
