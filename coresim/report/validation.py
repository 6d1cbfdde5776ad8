"""A validation as text: predicted beside measured, the misses first, and whether to trust the recommendation here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from coresim.report.content import Block, Facts, Items, Paragraph, Section, Table
from coresim.report.plain import answer_lines, section_text
from coresim.report.words import percent
from coresim.validate.ledger import Ledger, RecordedPoint
from coresim.validate.score import Score, cause, choices, missing_term, score

#: Mean absolute error of GPU idle, a share, above which a recommendation is not to be trusted.
MOST_ERROR = 0.05
#: Scans that are all shown; of more, those that disagree.
FEW = 3
#: Points that the table shows.
SHOWN = 40
_STAR = "* outside the stated interval. All points, raw step times included, are in the ledger."


def trusted(ledger: Ledger, most_error: float = MOST_ERROR) -> bool:
    """Whether there is a clean point, and the mean absolute error of idle is within ``most_error``, a share."""
    return bool(ledger.scored) and score(ledger.scored).idle_mean <= most_error


def validation_text(ledger: Ledger, most_error: float = MOST_ERROR) -> str:
    """The whole report for a terminal."""
    if not ledger.scored:
        return _nothing(ledger)
    return answer_lines(
        _headline(ledger, most_error),
        Section("", (Facts(tuple(_numbers(score(ledger.scored)))),)),
        Section("", tuple(_table(ledger))),
        _choices(ledger),
        Section("Warnings of the calibrations", (Items(_warnings(ledger)),)),
        Section("", (Paragraph(_about(ledger)), Paragraph(_STAR))),
    )


def _warnings(ledger: Ledger) -> tuple[str, ...]:
    """The calibrations' warnings; calibrations without a trial (of an interrupted validation) are left out."""
    jobs = [ledger.jobs[number] for number in dict.fromkeys(point.job for point in ledger.points)]
    return tuple(dict.fromkeys(f"{job.workload}: {warning}" for job in jobs for warning in job.warnings))


def _nothing(ledger: Ledger) -> str:
    if not ledger.points:
        return "No trial was made: nothing can be said yet. Give it more time; the same command goes on."
    lines = []
    for point in ledger.points:
        trials = ", ".join(f"{percent(trial.idle)} ({trial.dirty})" for trial in point.trials)
        lines.append(f"{label(point)}: predicted {percent(point.prediction.idle)}, disturbed trials {trials}")
    title = "No trial was undisturbed: nothing can be said. Close other programs and validate again."
    return section_text(Section(title, (Items(tuple(lines)),)))


def validation_document(ledger: Ledger, most_error: float = MOST_ERROR) -> dict[str, Any]:
    """The report as one JSON object: shares, seconds; the ledger has the raw steps."""
    scored = ledger.scored
    return {
        "tool": "coresim",
        "tool_version": ledger.tool_version,
        "time_utc": ledger.time_utc,
        "host_fingerprint": ledger.host_fingerprint,
        "grid": {"name": ledger.grid, "sha256": ledger.grid_sha256},
        "accelerator": ledger.accelerator,
        "trusted": trusted(ledger, most_error),
        "most_error": most_error,
        "missing_term": None if not scored or trusted(ledger, most_error) else missing_term(ledger),
        "score": asdict(score(scored)) if scored else None,
        "points": [_point_document(point) for point in scored],
        "warnings": list(_warnings(ledger)),
        "choices": [asdict(choice) | {"noise": choice.noise, "agrees": choice.agrees} for choice in choices(scored)],
    }


def _point_document(point: RecordedPoint) -> dict[str, Any]:
    return {
        "setting": asdict(point.setting),
        "step_s": point.step_s,
        "idle_measured": point.idle,
        "idle_predicted": point.prediction.idle,
        "idle_low": point.prediction.low,
        "idle_high": point.prediction.high,
        "idle_by_rates": point.rate_idle,
        "idle_by_queue": point.buffer_idle,
        "seconds_per_step_measured": point.seconds_per_step,
        "seconds_per_step_predicted": point.prediction.seconds_per_step,
        "spread": point.spread,
        "covered": point.covered,
    }


def one_line(ledger: Ledger) -> str:
    """The latest validation in one line, for a recommendation."""
    if not ledger.scored:
        return f"validated {ledger.time_utc}: no undisturbed trial"
    found = score(ledger.scored)
    return (
        f"validated here {ledger.time_utc}: GPU idle predicted within {points(found.idle_mean)} on average over"
        f" {found.points} settings (worst {points(found.idle_max)})"
        + f", accelerator {ledger.accelerator}"
        + ("" if trusted(ledger) else "; not to be trusted here")
    )


def points(share: float) -> str:
    """A difference of two percentages: ``1.3 points``."""
    return f"{100 * share:.1f} points"


def _headline(ledger: Ledger, most_error: float) -> str:
    found = score(ledger.scored)
    if trusted(ledger, most_error):
        return f"GPU idle was predicted within {points(found.idle_mean)} on average; the recommendation holds here."
    missed = f"GPU idle was missed by {points(found.idle_mean)} on average, more than {points(most_error)}"
    if found.noise_median is not None and found.noise_median > most_error:
        return (
            f"This machine cannot tell: repeats of one setting differ by {points(found.noise_median)}, and {missed}.\n"
            "Close other programs and validate again, or validate on a quieter machine."
        )
    return f"Do not trust the recommendation here: {missed}.\nMost likely missing: {missing_term(ledger)}."


def _numbers(found: Score) -> Iterator[tuple[str, str]]:
    errors = f"mean error {points(found.idle_mean)}, 95th percentile {points(found.idle_p95)}"
    yield "GPU idle", f"{errors}, worst {points(found.idle_max)}, bias {100 * found.bias:+.1f}"
    median, most = percent(found.throughput_median), percent(found.throughput_p90)
    yield "throughput", f"error {median} in the median, {most} at the 90th percentile"
    yield "interval", f"the stated 80 % interval held {percent(found.covered)} of {found.points} points"
    others = f"min(F, P, G) {points(found.rate_mean)}, M/M/1/K {points(found.buffer_mean)}"
    yield "other models", f"{others} on average"
    if found.noise_median is not None and found.noise_p90 is not None:
        median, most = points(found.noise_median), points(found.noise_p90)
        yield "noise floor", f"repeats of one point differ by {median} in the median, {most} at the 90th percentile"


def _table(ledger: Ledger) -> Iterator[Block]:
    rows = sorted(ledger.scored, key=lambda point: -abs(point.error))
    left = len(rows) - SHOWN
    note = f"... and {left} points with smaller errors, in the ledger" if left > 0 else ""
    columns = (
        "workload", "setting", "step", "steps/s, predicted", "idle, spread", "predicted", "rates", "queue", "error",
    )  # fmt: skip
    yield Table(columns, tuple(map(_row, rows[:SHOWN])), note=note)
    worst = [point for point in rows if abs(point.error) > MOST_ERROR and not point.covered][:5]
    yield Items(tuple(f"{label(point)}: {cause(point, ledger.job_of(point))}" for point in worst))


def label(point: RecordedPoint) -> str:
    """A setting in few words."""
    s = point.setting
    words = (
        f"option {s.option}, {s.workers} workers, {s.cores} cores, prefetch {s.prefetch_factor}, batch {s.batch_size}"
    )
    words += f", {s.ranks} ranks" if s.ranks > 1 else ""
    words += f", one waits {s.straggler:g} times" if s.straggler > 1.0 else ""
    words += f", {s.trains}" + (f" on {s.device}" if s.device else "") if s.trains else ""
    words += f", {s.run_ahead} steps ahead" if s.run_ahead != 1 else ""
    words += ", pinned" if s.pin_memory else ""
    words += ", spin" if s.sync == "spin" else ""
    words += ", by quota" if s.limit == "quota" else ""
    return words + ("" if s.ordered else ", unordered")


def _short(point: RecordedPoint) -> str:
    """A setting in still fewer words."""
    s = point.setting
    words = f"{s.option}: {s.workers}w/{s.cores}c pf{s.prefetch_factor} b{s.batch_size}"
    words += (f" x{s.ranks}" if s.ranks > 1 else "") + (f" late{s.straggler:g}" if s.straggler > 1.0 else "")
    words += (f" {s.trains}" if s.trains else "") + (" pin" if s.pin_memory else "")
    words += f" ahead{s.run_ahead}" if s.run_ahead != 1 else ""
    words += (" spin" if s.sync == "spin" else "") + ("" if s.ordered else " unord")
    return words + (" quota" if s.limit == "quota" else "")


def _row(point: RecordedPoint) -> tuple[str, ...]:
    p = point.prediction
    idle = f"{100 * point.idle:.1f} %" + ("" if point.spread is None else f" ±{50 * point.spread:.1f}")
    return (
        point.setting.workload,
        _short(point),
        f"{1e3 * point.step_s:.1f} ms",
        f"{1.0 / point.seconds_per_step:.1f}, {1.0 / p.seconds_per_step:.1f}",
        idle,
        f"{100 * p.idle:.1f} [{100 * p.low:.1f}, {100 * p.high:.1f}]",
        f"{100 * point.rate_idle:.1f}",
        f"{100 * point.buffer_idle:.1f}",
        f"{100 * point.error:+.1f}{'' if point.covered else ' *'}",
    )


def _choices(ledger: Ledger) -> Section:
    found = choices(ledger.scored)
    if not found:
        return Section("", ())
    agree = sum(choice.agrees for choice in found)
    said = f"Workers: the recommended number was the best measured, or as good, in {agree} of {len(found)} scans"
    lines = tuple(
        f"{c.setting.workload}: recommended {c.recommended}, best {c.best}, {points(c.lost)} more idle"
        for c in found
        if not c.agrees or len(found) <= FEW
    )
    return Section("", (Paragraph(said), Items(lines)))


def _about(ledger: Ledger) -> str:
    dirty = sum(bool(trial.dirty) for point in ledger.points for trial in point.trials)
    lost = len(ledger.points) - len(ledger.scored)
    return (
        f"Accelerator: {ledger.accelerator}. {ledger.cpus} CPUs ({ledger.cpu_model}). Grid {ledger.grid}"
        f" ({ledger.grid_sha256[:12]}). {dirty} trials were disturbed and repeated"
        + (f"; {lost} points have no undisturbed one and do not count." if lost else ".")
    )
