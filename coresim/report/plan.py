"""The capacity-planning report of a recommendation: what it says, in which order, for every format alike."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from coresim.advise.recommend import Recommendation
from coresim.advise.surface import surface_of
from coresim.advise.sweep import Point
from coresim.model.scenario import Scenario
from coresim.model.service import Service
from coresim.report import text
from coresim.report.content import Chart, Report, Section, Table
from coresim.report.doubt import sure_words
from coresim.report.subject import rests_on, warnings
from coresim.report.validation import label, one_line
from coresim.sim.estimate import Engine
from coresim.units import format_duration

if TYPE_CHECKING:
    from coresim.report.answer import Answer
    from coresim.validate.ledger import Ledger

#: What holds for every answer of the model; what holds for this one is listed with it.
ASSUMPTIONS = (
    "Cores are physical cores, for one GPU; where a core has several hardware threads, the answer names both.",
    "Of all jobs on the host only this one is simulated: its GPUs are alike and share cores, bandwidth and storage.",
    "Storage waits hold no core; tasks that can run share the cores there are; batches arrive in order.",
    "Threads that fight inside of workers, and a page cache under memory pressure, are not modelled.",
)
#: Of the time in which no batch was ready: what the next one was in just then, which need not be what holds it back.
WAITED_FOR = "starved, next batch in"
NO_LEDGER = "This report holds no comparison of a prediction with a measured run."


def plan_report(
    answer: Answer,
    engine: Engine,
    provenance: Mapping[str, object],
    title: str = "CPU cores per GPU",
    remedies: Sequence[Section] = (),
    ledger: Table | None = None,
) -> Report:
    """The report of an answer.

    Args:
        answer: the recommendation with what it rests on.
        engine: simulates the timeline of the first batches.
        provenance: where it comes from, by key; keys that are unknown (None) are left out.
        title: of the report.
        remedies: what-ifs side by side (`coresim.report.remedies.remedies_sections`), if there are any.
        ledger: predicted beside measured, if there is such a comparison.
    """
    result = answer.result
    date = provenance.get("time_utc")
    subject = (*answer.subject, *((("reported", str(date)[:10]),) if date else ()))
    sections = [_curves(result), _timeline(result, engine), _time(result), _sensitivity(result)]
    sections += remedies
    if ledger is not None:
        sections.append(Section("Predicted and measured", tables=(ledger,)))
    sections += [_basis(answer, ledger is None), _inputs(result.scenario), _provenance(provenance)]
    surface = partial(surface_of, result, engine)
    return Report(title, headline(result), tuple(facts(answer)), tuple(sections), subject, surface)


def ledger_table(ledger: Ledger) -> Table | None:
    """Every scored setting of a validation, the worst first; None where no trial was undisturbed."""
    points = sorted(ledger.scored, key=lambda point: -abs(point.error))
    if not points:
        return None
    columns = ("job", "setting", "measured GPU idle", "predicted", "interval, %", "points off")
    rows = (
        (
            point.setting.workload,
            label(point),
            text.percent(point.idle),
            text.percent(point.prediction.idle),
            f"{100 * point.prediction.low:.1f} to {100 * point.prediction.high:.1f}",
            f"{100 * point.error:+.1f}",
        )
        for point in points
    )
    return Table(columns, tuple(rows), one_line(ledger), f"Accelerator: {ledger.accelerator}.")


def headline(result: Recommendation) -> str:
    """The answer in a few words."""
    if result.meets_target:
        return f"{text.plural(result.point.cores, 'CPU core')} per GPU"
    if result.verdict.name in ("too few cores", "too few workers"):
        return "Not enough CPU cores"
    return f"More CPU cores will not help: {result.verdict.name}"


def facts(answer: Answer) -> Iterator[tuple[str, str]]:
    """The answer, one line for each thing that a reader asks first."""
    result, point = answer.result, answer.result.point
    if answer.today_text:
        yield "Today", " ".join(answer.today_text.removeprefix("Today: ").split())
    if not result.meets_target:
        yield "Answer", text.headline(result).splitlines()[0]
        yield "What would help", result.verdict.advice
        yield "Nearest", text.plural(point.cores, "CPU core") + " per GPU"
    yield "Predicted GPU idle", text.interval(point.estimate) + _target(result)
    rests = rests_on(result.scenario, answer.basis)
    if rests:
        yield "Rests on", rests
    if answer.notes:
        yield "Warnings", warnings(answer.notes)
    if result.meets_target:
        yield "Cores per GPU", f"{point.cores} ({text.core_range(result)}); {sure_words(result)}"
    yield "Settings", text.setting_words(point)
    loader = text.loader_text(result)
    if loader:
        yield "DataLoader", loader.removeprefix("With a DataLoader ").replace("\n  ", "; ")
    yield "Verdict", f"{result.verdict.name}; next bottleneck: {result.verdict.next_bottleneck}"
    yield "One core short", one_short(result)
    count = result.scenario.accelerator.count
    together = f", {text.plural(count, 'GPU')} together" if count > 1 else ""
    yield "Throughput", f"{point.estimate.throughput_samples_per_s:.0f} samples/s{together}"
    own = result.own_host
    if own is not None:
        words = f"{own.verdict.name}, GPU idle {text.interval(own.point.estimate)}"
        yield f"On the host's {own.cores:g} cores per GPU", words


def _target(result: Recommendation) -> str:
    share = text.percent(result.scenario.target.gpu_idle)
    return f", target {share}, met with probability {result.probability:.2f}"


def one_short(result: Recommendation) -> str:
    """What one core less than recommended costs, from the curve of the recommended option."""
    point = result.point
    less = next((found for found in text.chosen_option(result).curve if found.cores == point.cores - 1), None)
    if less is None:
        return "no fewer cores than this were simulated" if point.cores > 1 else "there is no fewer than one core"
    lost = 1.0 - less.estimate.throughput_samples_per_s / point.estimate.throughput_samples_per_s
    # Two points of a flat curve differ by their noise alone.
    change = f"{100 * lost:.1f} % fewer samples/s" if lost >= 0.0005 else "no fewer samples/s"
    return f"with {less.cores}: GPU idle {text.interval(less.estimate)}, {change}"


def _curves(result: Recommendation) -> Section:
    from coresim.report.figures import plot_curves, plot_speed  # noqa: PLC0415 - matplotlib only when asked for

    level = 100 * result.point.estimate.level
    caption = (
        f"Lines: predicted GPU idle at the best setting for so many cores; bands: {level:.0f} % intervals. Knee: fewest"
        " cores within one point of the least idle of an option. Dotted: the target."
    )
    curves = Chart("GPU idle over cores", caption, lambda figure: plot_curves(result, figure.subplots()), 3.8)
    known = len(result.scenario.host.speed) > 1
    speed = Chart(
        "What more busy cores add",
        "The work that k busy cores do together, k s(k). Where it stays flat, memory bandwidth is saturated.",
        lambda figure: plot_speed(result, figure.subplots()),
    )
    charts = (curves, speed) if known else (curves,)
    return Section("GPU idle over cores", tuple(_evidence(result)), charts, tuple(_curve_tables(result)))


def _evidence(result: Recommendation) -> list[str]:
    """One line for each piece of evidence: in a terminal the bound's numbers stand below its formula."""
    joined = "\n".join(text.evidence_lines(result))
    return re.sub(r"\n +", "; ", joined).splitlines()


def _curve_tables(result: Recommendation) -> Iterator[Table]:
    rows = []
    for option in result.options:
        best = option.answer or option.knee
        cores = f"{best.cores}" if option.answer else f"none ({best.cores})"
        rows.append((f"{option.option} {option.option.label}", cores, f"{option.knee.cores}", *_cells(best)))
    columns = ("option", "cores per GPU", "knee, cores", "workers", "GPU idle", "samples/s")
    note = "; ".join(["none: no core count reaches the target; in brackets the knee", *text.cap_lines(result)]) + "."
    yield Table(columns, tuple(rows), "The options", note)
    chosen = text.chosen_option(result)
    points = text.thinned(chosen.curve, result.point.cores)
    curve = tuple((f"{point.cores}", *_cells(point)) for point in points)
    yield Table(("cores per GPU", "workers", "GPU idle", "samples/s"), curve, f"Option {chosen.option} by cores")


def _cells(point: Point) -> tuple[str, str, str]:
    found = point.estimate
    return f"{point.workers}", text.interval(found), f"{found.throughput_samples_per_s:.0f}"


def _timeline(result: Recommendation, engine: Engine) -> Section:
    from coresim.report.figures import draw_timelines, timeline_of, timeline_steps  # noqa: PLC0415

    steps = timeline_steps(result)
    caption = (
        "Each row is one server; numbers are batches; ticks are batches picked up. All panels show the same stretch of"
        " time from an empty pipeline on, when the workers have started."
    )

    def draw(figure: Any) -> object:
        return draw_timelines(figure, result.scenario, timeline_of(result), engine, steps)

    return Section("The first batches", charts=(Chart("Timeline of the first batches", caption, draw, 6.5),))


def _time(result: Recommendation) -> Section:
    from coresim.report.figures import plot_shares  # noqa: PLC0415

    estimate = result.point.estimate
    chart = Chart(
        "Where the accelerator's time goes",
        "At the recommended setting, after warm-up. Starved: no batch is ready.",
        lambda figure: plot_shares(estimate, figure.subplots()),
        2.4,
    )
    groups = {"accelerator": estimate.accelerator, WAITED_FOR: estimate.starved_by, "trainer": estimate.trainer}
    for station in estimate.stations:
        groups[f"{station['name']} ({text.plural(station['servers'], 'server')})"] = {
            name: share for name, share in station.items() if name not in ("name", "servers")
        }
    rows = tuple(
        (group, state.replace("_", " "), text.percent(share))
        for group, states in groups.items()
        for state, share in states.items()
        if share >= 0.0005
    )
    return Section("Where the time goes", charts=(chart,), tables=(Table(("who", "state", "share of its time"), rows),))


def _sensitivity(result: Recommendation) -> Section:
    from coresim.report.figures import plot_elasticities  # noqa: PLC0415

    caption = "Change of predicted GPU idle when one input grows by 10 %, all else equal; cores as a quota would."
    chart = Chart("What moves the answer", caption, lambda figure: plot_elasticities(result, figure.subplots()), 2.6)
    rows = tuple((item.name, f"{100 * item.change:+.1f}") for item in result.elasticities)
    columns = ("input", "GPU idle, percentage points per +10 %")
    lines = (text.interval_sources(result.point.estimate),)
    return Section("What moves the answer most", lines, (chart,), (Table(columns, rows),))


def _basis(answer: Answer, unchecked: bool) -> Section:
    cautions = tuple(f"Warning: {note}" for note in answer.notes)
    lines = text.basis_lines(answer.result, answer.basis, answer.rests)
    return Section("What it rests on", (*lines, *cautions, *ASSUMPTIONS, *((NO_LEDGER,) if unchecked else ())))


def _inputs(scenario: Scenario) -> Section:
    times = [
        (f"{name}.{field.name}", getattr(part, field.name))
        for name, part in (("workload", scenario.workload), ("accelerator", scenario.accelerator))
        for field in fields(part)
    ]
    times += [(f"stage {stage.name}, per {stage.grain}", stage.service) for stage in scenario.stages]
    rows = tuple(_input(name, time) for name, time in times if isinstance(time, Service) and not time.is_zero)
    columns = ("time", "mean", "variation (cv)", "distribution", "uncertainty of the mean")
    others = (
        ("batch size", f"{scenario.workload.batch_size}"),
        ("GPUs on the host", f"{scenario.accelerator.count}"),
        ("prefetch factor", f"{scenario.loader.prefetch_factor}"),
        ("loader", scenario.loader.preset),
        ("target GPU idle", text.percent(scenario.target.gpu_idle)),
    )
    return Section("Inputs", tables=(Table(columns, rows), Table(("setting", "value"), others)))


def _input(name: str, time: Service) -> tuple[str, ...]:
    kind = f"{len(time.values)} measured values" if time.values else time.distribution
    return name, format_duration(time.mean), f"{time.cv:.2f}", kind, f"{100 * time.uncertainty:.1f} %"


def _provenance(provenance: Mapping[str, object]) -> Section:
    rows = tuple((name.replace("_", " "), f"{value}") for name, value in provenance.items() if value is not None)
    lines = ("The same command on the same input gives the same numbers: all draws come from the seed.",)
    return Section("How to reproduce it", lines, tables=(Table(("what", "value"), rows),) if rows else ())
