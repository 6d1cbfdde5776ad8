"""A comparison of two profiles as sections and as a JSON-ready document."""

from __future__ import annotations

import math
from typing import Any

from coresim.advise.compare import Comparison
from coresim.advise.difference import LEVEL, MOST_PROCESSES, Change
from coresim.measure.campaign import BUDGET, PROCESSES
from coresim.report.content import Items, Paragraph, Section, Table, statements
from coresim.report.plain import answer_lines
from coresim.report.records import VERSION, Key, Record, constant, keys
from coresim.report.words import percent, plural
from coresim.units import format_duration


def comparison_text(found: Comparison, limit: float | None = None) -> str:
    """First what changed, then every quantity with its interval, then whether a ``limit`` holds, if one is given."""
    effects = tuple(f"{change.name} {change.relative:+.0%}: {_cores(change.cores)}, was {_cores(found.cores_old)}"
                    for change in found.real)  # fmt: skip
    test = (
        "A change is real where its interval leaves out zero: Student's t on logarithms of process means, at a level"
        f" at which all {len(found.changes)} together are wrong in {percent(1 - LEVEL)} of comparisons. What differs"
        " between two days but not between processes of one day is not in it: compare profiles of a quiet machine."
    )
    columns = ("quantity", "old", "new", "change", "interval", "verdict")
    table = Table(columns, tuple(map(_row, found.changes)), note=test)
    sections = [Section("", (Items(effects),)), Section("", (table,))]
    sections += [Section("Warnings", (Items(found.warnings),))]
    return answer_lines(_headline(found), *sections, *([] if limit is None else [gate_section(found, limit)]))


def gate_section(found: Comparison, limit: float) -> Section:
    """Whether a limit on changes for the worse holds, fails, or is undecided, and what would decide it."""
    share = f"{100 * limit:.3g} %"
    over, untold = found.losses_over(limit), found.untold(limit)
    if over:
        worse = ", ".join(f"{change.name} {change.relative:+.0%}" for change in over)
        return statements([f"Failed at {share}: {worse}"])
    if not untold:
        return statements([f"Passed: nothing is worse by more than {share}"])
    lines = tuple(f"{change.name} {_may_be(change.most_loss)}: {_what_tells(change, limit)}" for change in untold)
    cure = "Measure on a quiet machine, and give more profiles of either side with --also-old and --also-new."
    return Section(f"Cannot tell at {share}:", (Items(lines, marked=False), Paragraph(cure)))


def _what_tells(change: Change, limit: float) -> str:
    now, needed = min(change.processes), change.processes_to_tell(limit)
    if math.isinf(change.deviation):
        return f"one process has no spread; profiles with {PROCESSES} each would have one"
    if needed is None:
        return f"more than {MOST_PROCESSES} processes a side would be needed"
    times = math.ceil(needed / now)
    seconds = format_duration(times * BUDGET)
    return f"about {needed} processes a side would tell ({now} now), in {times} measurements, {seconds} or more"


def _may_be(loss: float) -> str:
    if math.isinf(loss):
        return "has no interval"
    return f"may be worse by up to {loss:.0%}" if loss < 10 else f"may be worse by a factor of up to {1 + loss:.2g}"


def _headline(found: Comparison) -> str:
    now, was = _cores(found.cores_new), _cores(found.cores_old)
    if not found.real:
        return f"No real change: all differences are within the noise. Cores per GPU as before: {was}."
    need = f"as before, {was}" if now == was else f"{now}, was {was}"
    target = f"option {found.option}, idle within {percent(found.target)}"
    return f"{plural(len(found.real), 'real change')}. Cores per GPU needed ({target}): {need}."


def _cores(cores: int | None) -> str:
    return "no core count" if cores is None else plural(cores, "core")


def _row(change: Change) -> tuple[str, ...]:
    span = f"[{change.low:+.1%}, {change.high:+.1%}]" if math.isfinite(change.high) else "[unknown]"
    verdict = ("worse" if change.loss > 0 else "better") if change.is_real else "noise"
    old, new = (_amount(value, change.unit) for value in (change.old, change.new))
    return change.name, old, new, f"{change.relative:+.1%}", span, f"{verdict} ({change.repeats})"


def _amount(value: float, unit: str) -> str:
    return f"{value / 1e9:.3g} GB/s" if unit == "B/s" else format_duration(value)


_CHANGE = Record(
    *keys("text", "name", "unit"),
    *keys("amount", "old", "new"),
    Key("low", "number?", lambda change: change.low if math.isfinite(change.high) else None),
    Key("high", "number?", lambda change: change.high if math.isfinite(change.high) else None),
    Key("repeats", "text"),
    Key("more_is_worse", "truth"),
    Key("cores_per_gpu", "whole?", "cores"),
    Key("relative", "number"),
    Key("real", "truth", "is_real"),
)
COMPARISON = Record(
    constant("format", "coresim-comparison"),
    VERSION,
    Key("about", "table"),
    Key("option", "option"),
    Key("gpu_idle_target", "share", "target"),
    Key("cores_per_gpu_old", "whole?", "cores_old"),
    Key("cores_per_gpu_new", "whole?", "cores_new"),
    Key("changes", _CHANGE, each=True),
    Key("warnings", "text", each=True),
    Key("fail_over", "amount?"),
    Key("failed", "text", each=True),
    Key("not_told", Record(Key("name", "text"), Key("processes_to_tell", "whole?")), each=True),
)


def comparison_document(found: Comparison, about: dict[str, Any], limit: float | None) -> dict[str, Any]:
    """Every change with its interval (null: unknown), in SI units, and what failed the limit."""
    failed, untold = (found.losses_over(limit), found.untold(limit)) if limit is not None else ((), ())
    return COMPARISON.write(
        found,
        about=about,
        fail_over=limit,
        failed=[change.name for change in failed],
        not_told=[{"name": c.name, "processes_to_tell": c.processes_to_tell(limit or 0.0)} for c in untold],
    )
