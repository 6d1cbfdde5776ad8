"""The capacity-planning report of a recommendation: its content and order, the same for every format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING

from coresim import report
from coresim.advise.recommend import Recommendation
from coresim.advise.surface import surface_of
from coresim.advise.sweep import Point
from coresim.model.scenario import Scenario
from coresim.model.service import Service
from coresim.report import text
from coresim.report.content import Chart, Items, Paragraph, Report, Section, Table
from coresim.report.provenance import merged
from coresim.report.settings import cap_text
from coresim.report.simulated import estimate_shares
from coresim.report.summary import facts, short_headline
from coresim.report.words import interval, percent
from coresim.sim.estimate import Engine, Estimate
from coresim.units import format_duration

if TYPE_CHECKING:
    from coresim.report.answer import Answer
    from coresim.validate.ledger import Ledger

#: What holds for every answer of the model, but for the order; what holds for this one is listed with it.
ASSUMPTIONS = (
    "Cores are physical cores, for one GPU; where a core has several hardware threads, the answer names both.",
    "Of all jobs on the host only this one is simulated: its GPUs are alike and share cores, bandwidth and storage.",
    "Storage waits hold no core; tasks that can run share the cores there are; batches arrive {}.",
    "Libraries run as many threads in each worker as loader.library_threads says, one by default; a page cache under"
    " memory pressure is not modelled.",
)
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
        provenance: where it comes from, by key; unknown values (None) are left out.
        title: of the report.
        remedies: what-ifs side by side (`coresim.report.remedies.remedies_sections`), if there are any.
        ledger: predicted beside measured, if there is such a comparison.
    """
    result = answer.result
    date = provenance.get("time_utc")
    subject = (*answer.subject, *((("reported", str(date)[:10]),) if date else ()))
    curves, time, moves, *others = evidence(answer, *((NO_LEDGER,) if ledger is None else ()))
    checked = [] if ledger is None else [Section("Predicted and measured", (ledger,))]
    first = (curves, _timeline(result, engine), time, moves)
    sections = (*first, *remedies, *checked, *others, _provenance(provenance))
    surface = partial(surface_of, result, engine)
    return Report(title, short_headline(result), tuple(facts(answer)), sections, subject, surface)


def evidence(answer: Answer, *more: str) -> list[Section]:
    """The evidence for an answer; ``more`` is added to its provenance."""
    result, warned = answer.result, merged(answer.notes)
    sections = [_curves(result), _time(result.point.estimate), _sensitivity(result)]
    known = text.provenance_lines(result, answer.step_provenance, answer.provenance)
    lines = (*known, *_assumptions(result.scenario), *more)
    sections += [Section("Provenance", (Items(lines),)), _inputs(result.scenario)]
    return [*sections, *([Section("Warnings", (Items(tuple(warned)),))] if warned else [])]


def _assumptions(scenario: Scenario) -> tuple[str, ...]:
    in_order = (scenario.stages[-1] if scenario.stages else scenario.loader).ordered
    return tuple(line.format("in order" if in_order else "as they are finished") for line in ASSUMPTIONS)


def ledger_table(ledger: Ledger) -> Table | None:
    """Every scored setting of a validation, the worst first; None if every trial was disturbed."""
    from coresim.report.validation import label, one_line  # noqa: PLC0415 - slow to import, and rarely needed

    points = sorted(ledger.scored, key=lambda point: -abs(point.error))
    if not points:
        return None
    columns = ("job", "setting", "measured GPU idle", "predicted", "interval, %", "points off")
    rows = (
        (
            point.setting.workload,
            label(point),
            percent(point.idle),
            percent(point.prediction.idle),
            f"{100 * point.prediction.low:.1f} to {100 * point.prediction.high:.1f}",
            f"{100 * point.error:+.1f}",
        )
        for point in points
    )
    return Table(columns, tuple(rows), one_line(ledger), f"Accelerator: {ledger.accelerator}.")


def _curves(result: Recommendation) -> Section:
    level = 100 * result.point.estimate.level
    caption = (
        f"Lines: predicted GPU idle at the best setting for so many cores; bands: {level:.0f} % intervals. Knee: fewest"
        " cores within one point of the least idle of an option. Dotted: the target."
    )
    charts = [Chart("GPU idle over cores", caption, lambda to: report.figures.plot_curves(result, to.subplots()), 3.8)]
    if len(result.scenario.host.speed) > 1:
        caption = "The work that k busy cores do together, k s(k). Where it stays flat, memory bandwidth is saturated."
        title = "What more busy cores add"
        charts.append(Chart(title, caption, lambda to: report.figures.plot_speed(result, to.subplots())))
    lines = Items(tuple(text.evidence_lines(result)))
    return Section("GPU idle over cores", (*charts, lines, _options(result), _curve(result)))


def _options(result: Recommendation) -> Table:
    rows = []
    for option in result.options:
        best = option.answer or option.knee
        cores = f"{best.cores}" if option.answer else f"none ({best.cores})"
        rows.append((f"{option.option} {option.option.label}", cores, f"{option.knee.cores}", *_cells(best)))
    columns = ("Options", "cores per GPU", "knee, cores", "workers", "GPU idle", "samples/s")
    caps = filter(None, map(cap_text, result.options))
    note = "; ".join(["none: no core count reaches the target; in brackets the knee", *caps]) + "."
    return Table(columns, tuple(rows), note=note)


def _curve(result: Recommendation) -> Table:
    chosen, at = result.chosen, result.point.cores
    # All points near the answer, and powers of two beyond.
    points = [one for one in chosen.curve if abs(one.cores - at) <= 3 or one.cores & (one.cores - 1) == 0]
    rows = tuple((f"{found.cores}", *_cells(found), "<-" if found.cores == at else "") for found in points)
    bars = tuple(found.estimate.gpu_idle for found in points)
    title = f"GPU idle over cores per GPU, option {chosen.option} (<-: the answer)"
    return Table(("cores per GPU", "workers", "GPU idle", "samples/s", ""), rows, title, bars=bars)


def _cells(point: Point) -> tuple[str, str, str]:
    found = point.estimate
    return f"{point.workers}", interval(found), f"{found.throughput_samples_per_s:.0f}"


def _timeline(result: Recommendation, engine: Engine) -> Section:
    caption = (
        "Each row is one server; numbers are batches; ticks are batches picked up. All panels show the same stretch of"
        " time from an empty pipeline on, when the workers have started."
    )
    title = "Timeline of the first batches"
    chart = Chart(title, caption, lambda to: report.figures.plot_answer_timeline(result, engine, to), 6.5)
    return Section("The first batches", (chart,))


def _time(estimate: Estimate) -> Section:
    caption = "At the recommended setting, after warm-up. Starved: no batch is ready."
    title = "Where the accelerator's time goes"
    chart = Chart(title, caption, lambda to: report.figures.plot_shares(estimate, to.subplots()), 2.4)
    rows = tuple(
        (group, state.replace("_", " "), percent(share))
        for group, states in estimate_shares(estimate).items()
        for state, share in states.items()
        if share >= 0.0005
    )
    return Section("Where the time goes", (chart, Table(("who", "state", "share of its time"), rows)))


def _sensitivity(result: Recommendation) -> Section:
    caption = "Change of predicted GPU idle when one input grows by 10 %, all else equal; cores as a quota would."
    title = "What moves the answer"
    chart = Chart(title, caption, lambda to: report.figures.plot_elasticities(result, to.subplots()), 2.6)
    rows = tuple((item.name, f"{100 * item.change:+.1f}") for item in result.elasticities)
    table = Table(("input", "GPU idle, percentage points per +10 %"), rows)
    return Section("What moves the answer most", (chart, Items((text.interval_sources(result.point.estimate),)), table))


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
        ("target GPU idle", percent(scenario.target.gpu_idle)),
    )
    return Section("Inputs", (Table(columns, rows), Table(("setting", "value"), others)))


def _input(name: str, time: Service) -> tuple[str, ...]:
    kind = f"{len(time.values)} measured values" if time.values else time.distribution
    return name, format_duration(time.mean), f"{time.cv:.2f}", kind, f"{100 * time.uncertainty:.1f} %"


def _provenance(provenance: Mapping[str, object]) -> Section:
    rows = tuple((name.replace("_", " "), f"{value}") for name, value in provenance.items() if value is not None)
    said = Paragraph("The same command on the same input gives the same numbers: all draws come from the seed.")
    return Section("How to reproduce it", (said, *([Table(("what", "value"), rows)] if rows else [])))
