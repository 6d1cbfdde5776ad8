"""The picture below the sliders: the curve of every option over cores, and the first batches of the chosen one.

The SVG is written directly from the numbers: matplotlib needs more time for the ticks of two empty panels than a user
of a slider should wait for the whole picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from matplotlib.ticker import MaxNLocator

from coresim.model.build import SimulatedSetting
from coresim.model.option import Option
from coresim.model.scenario import Scenario
from coresim.report.figures import COLOURS, STATE_COLOURS
from coresim.report.gantt import TIME_LABEL, TimelineRow, rows_of, title_of, traced
from coresim.report.html import render
from coresim.report.what_if import Knobs, curves, turned
from coresim.sim.estimate import Engine, Estimate

#: Pixels of the picture and, within a panel, of what is around its axes.
WIDTH, LEFT, RIGHT, CURVE_HEIGHT, ROW_HEIGHT = 640.0, 120.0, 620.0, 180.0, 22.0
#: Dashes of the options' lines, like those of the figures.
DASHES = {1: "8 3 2 3", 2: "none", 3: "6 4"}
#: Steps of the timeline.
STEPS = 12


class ChartLine(NamedTuple):
    """A line through points in pixels; ``label`` is what the legend calls it."""

    points: str
    colour: str
    dashes: str
    label: str


class Box(NamedTuple):
    """A bar in pixels with its name, where there is room for one."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    name: str


@dataclass(frozen=True)
class Panel:
    """Axes with what is in them, in pixels; ticks are (place, text)."""

    top: float
    height: float
    title: str
    x_label: str
    y_label: str
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    lines: tuple[ChartLine, ...] = ()
    boxes: tuple[Box, ...] = ()
    marks: tuple[tuple[float, float], ...] = ()
    dot: tuple[float, float] | None = None


def what_if_svg(scenario: Scenario, knobs: Knobs, engine: Engine) -> tuple[Estimate, str]:
    """The estimate of the chosen setting, and the picture."""
    found = curves(scenario, knobs, engine)
    above = _curve_panel(found, knobs, scenario.target.gpu_idle)
    below = _timeline_panel(turned(scenario, knobs), knobs, engine, above.top + above.height + 66)
    height = below.top + below.height + 44
    picture = render("panels.svg.j2", panels=(above, below), width=WIDTH, height=height, left=LEFT, right=RIGHT)
    return found[knobs.option][knobs.cores], picture


def _curve_panel(found: dict[Option, dict[int, Estimate]], knobs: Knobs, target: float) -> Panel:
    top, last = 24.0, max(found[knobs.option])

    def at(cores: float, idle: float) -> tuple[float, float]:
        return _across(cores, last), top + CURVE_HEIGHT * (1 - idle)

    def line(option: Option, estimates: dict[int, Estimate]) -> ChartLine:
        points = (at(cores, estimate.gpu_idle) for cores, estimate in estimates.items())
        label = f"{option} {option.label}"
        return ChartLine(" ".join(f"{x:.1f},{y:.1f}" for x, y in points), COLOURS[option], DASHES[option], label)

    y = at(0, target)[1]
    return Panel(
        top, CURVE_HEIGHT, "", "CPU cores per GPU", "GPU idle (%)",
        x_ticks=_ticks(last, integer=True),
        y_ticks=tuple((at(0, share / 100)[1], f"{share}") for share in range(0, 101, 20)),
        lines=(*(line(option, estimates) for option, estimates in found.items()),
               ChartLine(f"{LEFT},{y:.1f} {RIGHT},{y:.1f}", "black", "1 3", "target")),
        dot=at(knobs.cores, found[knobs.option][knobs.cores].gpu_idle),
    )  # fmt: skip


def _timeline_panel(scenario: Scenario, knobs: Knobs, engine: Engine, top: float) -> Panel:
    cores = knobs.cores * scenario.accelerator.count
    setting = SimulatedSetting(knobs.option, knobs.workers, cores, knobs.prefetch_factor)
    line, trace = traced(scenario, setting, engine, STEPS, seed=1)
    end = float(trace.end[STEPS - 1])
    rows = [(top + (place + 0.5) * ROW_HEIGHT, row) for place, row in enumerate(rows_of(line, trace, end))]
    return Panel(
        top, len(rows) * ROW_HEIGHT, title_of(setting, scenario), TIME_LABEL, "",
        x_ticks=_ticks(end),
        y_ticks=tuple((middle, row.label) for middle, row in rows),
        boxes=tuple(box for middle, row in rows for box in _boxes(row, middle, end)),
        marks=tuple((_across(tick, end), middle) for middle, row in rows for tick in row.ticks if tick <= end),
    )  # fmt: skip


def _boxes(row: TimelineRow, middle: float, end: float) -> Iterator[Box]:
    for bar in row.bars:
        left, right = _across(bar.start, end), _across(min(bar.end, end), end)
        name = bar.name if right - left > 7 * len(bar.name) + 2 else ""
        yield Box(left, middle - 0.35 * ROW_HEIGHT, right - left, 0.7 * ROW_HEIGHT, STATE_COLOURS[bar.state], name)


def _across(value: float, last: float) -> float:
    return LEFT + (RIGHT - LEFT) * value / last


def _ticks(last: float, integer: bool = False) -> tuple[tuple[float, str], ...]:
    """Round numbers from nothing to ``last``."""
    values = MaxNLocator(8, integer=integer).tick_values(0, last)
    return tuple((_across(value, last), f"{value:.6g}") for value in values if value <= last * (1 + 1e-9))
